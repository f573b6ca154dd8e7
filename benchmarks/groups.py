"""The figures of all benchmarks in one shape: groups of contestants that did the same thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

from .report import grouped
from .rounds import Spread, ratios

Data: TypeAlias = dict[str, Any]
"""What a benchmark prints with `--json`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One contestant of a group: which version of it, how durable, and the figure of each round."""

    subject: str
    version: str | None
    durability: str
    spread: Spread


@dataclass(frozen=True, slots=True)
class Group:
    """Contestants that did the same work in the same rounds. The first of them is ours."""

    benchmark: str
    workload: str
    figure: str
    less_is_better: bool
    entries: tuple[Entry, ...]
    plotted: bool = True

    def ratio(self, entry: Entry) -> Spread:
        """Ours against another, round by round; nothing against itself."""
        if entry is self.entries[0]:
            return Spread(())
        return ratios(self.entries[0].spread, entry.spread)


_VERSIONS = {
    "tstreams": "tstreams",
    "moebius": "tstreams",
    "redis": "redis-server",
    "jetstream": "nats-server",
    "nats": "nats-server",
    "postgres": "postgres",
    "kafka": "kafka",
    "parquet": "pyspark",
    "rabbitmq": "rabbitmq-server",
}
"""By what the name of a contestant begins with: whose version counts."""


def _entry(data: Data, subject: str, figures: Data, label: str | None = None) -> Entry:
    durability = data["durability"]
    if not isinstance(durability, str):
        durability = durability.get(subject, "as the others of its row")
    family = subject.partition("-")[0].partition(",")[0]
    version = data["versions"].get(_VERSIONS.get(family, ""))
    return Entry(label or subject, version, durability, Spread(tuple(figures["rounds"])))


def _by_workload(
    data: Data, results: list[Data], workload: Callable[[Data], str], figure: Callable[[Data], Data]
) -> dict[str, tuple[Entry, ...]]:
    """The entries of each workload, in the order in which they stand; ours first."""
    found: dict[str, list[Entry]] = {}
    for result in results:
        if figure(result)["rounds"]:
            entry = _entry(data, result["subject"], figure(result))
            found.setdefault(workload(result), []).append(entry)
    return {name: tuple(sorted(entries, key=_ours_first)) for name, entries in found.items()}


def _ours_first(entry: Entry) -> int:
    return 0 if entry.subject.startswith(("tstreams", "moebius")) else 1


def _durable(data: Data) -> Iterator[Group]:
    def workload(result: Data) -> str:
        shape = f"{result['items']} x {result['item_bytes']} B"
        if result["mode"] == "write":
            left = durability[result["subject"]].startswith("left to the system")
            unsynced = ", not synced" if left else ""
            return f"write {shape}, {_count(result['clients'], 'client')}{unsynced}"
        return f"{result['mode']} {shape}"

    durability = data["durability"] | {"file": "fdatasync as often as tstreams did"}
    found = _by_workload(data | {"durability": durability}, data["results"], workload, _itself)
    for name, entries in found.items():
        plotted = not name.startswith("write") or "4 clients" in name
        yield Group("durable", name, "items/s", False, entries, plotted)


def _cluster(data: Data) -> Iterator[Group]:
    def workload(result: Data) -> str:
        shape = f"{result['items']} x {result['item_bytes']} B"
        what = {"write": "write", "scale": "write on one server", "read": "read back"}
        return f"{what[result['mode']]} {shape}, {_count(result['clients'], 'client')}"

    found = _by_workload(data, data["results"], workload, _itself)
    for name, entries in found.items():
        # What is compared with is the less: one shard, and those that lead.
        ours = sorted(entries, key=lambda it: it.subject.endswith(("1 shard", "leaders")))
        yield Group("cluster", name, "items/s", False, tuple(ours))


def _failover(data: Data) -> Iterator[Group]:
    """What a writer waits for, event by event."""
    for kind, what in data["events"].items():
        figures = data["gaps"][kind]["write_ms"]
        if figures["rounds"]:
            entry = _entry(data, "tstreams", figures)
            yield Group("failover", what, "ms without an answer", True, (entry,))
            worst = _entry(data, "tstreams", {"rounds": [figures["p99"]]})
            name = "p99, ms without an answer"
            yield Group("failover", what, name, True, (worst,), plotted=False)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _itself(result: Data) -> Data:
    return result


def _pipeline(data: Data) -> Iterator[Group]:
    def workload(result: Data) -> str:
        return f"batches of {result['items']}, {_count(result['workers'], 'worker')}"

    results = data["results"]
    for name, entries in _by_workload(
        data, results, workload, lambda it: it["items_per_s"]
    ).items():
        yield Group("pipeline", name, "items/s", False, entries, "4 workers" in name)
    for name, entries in _by_workload(
        data, results, workload, lambda it: it["commit_p99_us"]
    ).items():
        yield Group("pipeline", name, "p99 of a commit, µs", True, entries, plotted=False)


def _latency(data: Data) -> Iterator[Group]:
    def workload(result: Data) -> str:
        synced = data["durability"][result["subject"]].startswith("synced")
        return f"{data['rate']} messages/s, {'synced' if synced else 'not synced'}"

    for percent in ("p50", "p99"):
        figure = f"{percent}_us"
        found = _by_workload(data, data["results"], workload, itemgetter(figure))
        for name, entries in found.items():
            yield Group("latency", name, f"{percent}, µs", True, entries)


def _spark(data: Data) -> Iterator[Group]:
    rows = grouped(data["rows"])

    def workload(result: Data) -> str:
        kind = {"binary": "items", "typed": "typed rows"}[result["kind"]]
        return f"{result['way']}, {rows} {kind}"

    found = _by_workload(data, data["results"], workload, lambda it: it["rows_per_s"])
    for name, entries in found.items():
        yield Group("spark", name, "rows/s", False, entries, "typed" not in name)
    micro = data["microbatch_ms"]
    entries = tuple(_entry(data, name, micro[name]) for name in micro if micro[name]["rounds"])
    name = f"micro-batches of {data['microbatch_rows']} rows"
    yield Group("spark", name, "ms", True, entries)


def _reqrep(data: Data) -> Iterator[Group]:
    def workload(result: Data) -> str:
        way = "ZeroMQ" if result["subject"].endswith("zmq") else "tcp"
        under_way = {"sequential": "one at a time", "pipelined": f"{data['window']} under way"}
        return f"{way}, {data['clients']} clients, {under_way[result['mode']]}"

    versions = data["versions"] | {"redis-server": data["versions"].get("redis")}
    found = _by_workload(data | {"versions": versions}, data["results"], workload, _itself)
    for name, entries in found.items():
        yield Group("reqrep", name, "requests/s", False, entries)


def _streams(data: Data) -> Iterator[Group]:
    labels = {"many": f"tstreams, {grouped(data['count'])} streams", "one": "tstreams, one stream"}
    for what, percent in _latencies(data):
        entries = tuple(
            _entry(data, "tstreams", it, labels[it["streams"]])
            for it in data["latency_us"]
            if (it["what"], it["percentile"]) == (what, percent)
        )
        yield Group("streams", what, f"p{percent}, µs", True, entries)
    yield from _single("streams", data, labels["many"])


def _history(data: Data) -> Iterator[Group]:
    count = grouped(data["count"])
    labels = {"at": "tstreams, at a random time", "last": "tstreams, the last one"}
    for percent in (50, 99):
        entries = tuple(
            _entry(data, "tstreams", it, labels[it["what"]])
            for it in data["latency_us"]
            if it["percentile"] == percent
        )
        yield Group("history", f"read among {count}", f"p{percent}, µs", True, entries)
    yield from _single("history", data, f"tstreams, {count} transactions")


def _door(data: Data) -> Iterator[Group]:
    """A server with company beside the same server alone."""
    labels = {name: f"tstreams, {what}" for name, what in data["conditions"].items()}
    results = {(it["condition"], it["items"]): it for it in data["results"]}
    for condition, items in results:
        if condition != "alone":
            entries = tuple(
                _entry(data, "tstreams", results[it, items], labels[it])
                for it in (condition, "alone")
            )
            yield Group("door", f"write {items} x 100 B, {condition}", "items/s", False, entries)


def _views(data: Data) -> Iterator[Group]:
    """What a person waits for."""
    data = data | {"durability": "nothing is written"}
    count = grouped(data["count"])
    for what, label in (("views_s", "in a browser"), ("answers_s", "over HTTP")):
        for name, figures in data[what].items():
            entry = _entry(data, "tstreams", figures, f"tstreams, {count} streams, {label}")
            yield Group("views", name, "s", True, (entry,), plotted=False)


def _latencies(data: Data) -> list[tuple[str, int]]:
    return list(dict.fromkeys((it["what"], it["percentile"]) for it in data["latency_us"]))


_SINGLE = {
    "restart_s": "s from SIGKILL to the first answer",
    "restart_full_s": "s from SIGKILL to the first answer",
    "rss_mib_max": "MiB of memory at most",
    "fds_max": "open files at most",
}


def _single(benchmark: str, data: Data, label: str) -> Iterator[Group]:
    """Figures that are taken once."""
    for name, figure in _SINGLE.items():
        if name in data:
            entry = _entry(data, "tstreams", {"rounds": [data[name]]}, label)
            yield Group(benchmark, "the server", figure, True, (entry,), plotted=False)


_READERS: dict[str, Callable[[Data], Iterator[Group]]] = {
    "durable": _durable,
    "cluster": _cluster,
    "failover": _failover,
    "door": _door,
    "views": _views,
    "pipeline": _pipeline,
    "latency": _latency,
    "streams": _streams,
    "history": _history,
    "spark": _spark,
    "reqrep": _reqrep,
}


def groups_of(data: Data) -> list[Group]:
    """The groups of one benchmark's report; none for what is no comparison."""
    reader = _READERS.get(data["benchmark"])
    return [] if reader is None else list(reader(data))
