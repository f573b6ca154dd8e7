"""A campaign's report in Markdown, as it is kept under `docs/proof`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

Report = Mapping[str, Any]


def render(report: Report) -> str:
    """The page: what is in every report, and what is in those of one server, or of a cluster."""
    facts, outcomes = report["machine"], report["outcomes"]
    of_cluster = "reigns" in report
    name = "soak-cluster" if of_cluster else "soak-torture"
    lines = [
        f"# A long campaign of torture{' against a cluster' if of_cluster else ''}",
        "",
        f"{report['seconds'] / 60:.0f} minutes of [torture](torture.md), "
        f"**{len(report['findings'])} findings**. Written by the program itself:",
        "",
        "```sh",
        f"python -m tests.torture {shlex.join(report['arguments'])} > REPORT.json",
        f"python -m tests.torture --render REPORT.json > docs/proof/{name}.md",
        "```",
        "",
        *_table(
            ("What", ""),
            [
                ("Commit", f"`{report['commit']}`"),
                ("Begun", report["begun"]),
                ("Faults", f"{sum(report['faults'].values()):,}"),
                *(_of_cluster(report) if of_cluster else _of_server(report)),
                ("Operations in the histories", f"{report['operations']:,}"),
                ("... acknowledged", f"{outcomes['ok']:,}"),
                ("... refused", f"{outcomes['refused']:,}"),
                ("... whose outcome nobody was told", f"{outcomes['unknown']:,}"),
                ("Clients that were fenced", f"{report['clients_fenced']:,}"),
                *((f"Longest time without {what}", _still(it))
                  for what, it in report["longest_standstill"].items()),
                ("Machine", f"{facts['cores']} cores, {facts['cpu']}, {facts['python']}"),
            ],
        ),
        "",
        "## What went wrong on purpose",
        "",
        *_counts("Fault", report["faults"]),
        "",
        *_skipped(report["skipped"]),
        *(_leaders(report) if of_cluster else _failpoints(report["failpoints"])),
        "## Exactly once",
        "",
        *_table(("Sink", "Items there, of so many"), _sinks(report["exactly_once"])),
        "",
        "## Lives of the clients",
        "",
        *_counts("Client", report["client_lives"]),
        "",
        *([] if of_cluster else _resources(report["resources"])),
        "## What was found",
        "",
        *([f"- {it}" for it in report["findings"]] or ["Nothing."]),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


# Of one server.


def _of_server(report: Report) -> list[tuple[str, str]]:
    return [("Deaths of the server at failpoints", f"{report['failpoints']['deaths']:,}")]


def _failpoints(points: Report) -> list[str]:
    return [
        "## Where the server was killed",
        "",
        f"At {len(points['hit'])} of {len(points['hit']) + len(points['never_hit'])} failpoints. "
        f"{points['not_reached_in_time']} times it did not come there in time, and lived on.",
        "",
        *_counts("Failpoint", points["hit"]),
        "",
        f"At which it never died: {_names(points['never_hit'])}.",
        "",
    ]


# Of a cluster.


def _of_cluster(report: Report) -> list[tuple[str, str]]:
    zombies = report["zombies"]
    told = ", ".join(f"`{name}` {count}" for name, count in zombies.items())
    return [
        ("Logs", f"`{report['log']}`"),
        ("Times that somebody began to lead a shard", f"{_count_reigns(report):,}"),
        ("Leaders that stood still until others led", f"{sum(zombies.values())}"),
        ("... what they answered to what was written to them", told or "nothing"),
    ]


def _count_reigns(report: Report) -> int:
    return sum(map(len, report["reigns"].values()))


def _leaders(report: Report) -> list[str]:
    return [
        "## Who led what",
        "",
        "Of each shard the epochs in which each node led it. (Those that a node was given and could not begin are missing.)",
        "",
        *_table(
            ("Shard", "Epochs"),
            [(shard, _epochs(reigns)) for shard, reigns in report["reigns"].items()],
        ),
        "",
        "## What nodes hold in the end",
        "",
        "Facts of each shard, which were compared byte by byte:",
        "",
        *_table(
            ("Shard", "Facts"),
            [
                (shard, ", ".join(f"{node} {count:,}" for node, count in facts.items()))
                for shard, facts in report["compared"].items()
            ],
        ),
        "",
    ]


def _epochs(reigns: Sequence[Sequence[Any]]) -> str:
    by_node: dict[str, list[int]] = {}
    for epoch, node, _ in reigns:
        by_node.setdefault(node, []).append(epoch)
    return "; ".join(f"{node}: {' '.join(map(str, it))}" for node, it in sorted(by_node.items()))


# Parts.


def _still(found: Report) -> str:
    if not found:
        return "nobody did it twice"
    during = ", ".join(f"`{it}`" for it in found["faults"]) or "no fault"
    return f"{found['seconds']} s, during {during}"


def _skipped(skipped: Mapping[str, str]) -> list[str]:
    if not skipped:
        return []
    return ["Not made:", "", *(f"- `{name}`: {why}" for name, why in skipped.items()), ""]


def _sinks(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [
        (f"`{name}`", f"{count:,} of {counts[f'{name}_wanted']:,}")
        for name, count in counts.items()
        if not name.endswith("_wanted")
    ]


def _resources(found: Report) -> list[str]:
    columns = ("min", "median", "max", "last", "slope_per_minute", "growth")
    rows = [
        f"| {name.replace('_', ' ')} | {' | '.join(f'{it[column]:,}' for column in columns)} |"
        for name, it in found.items()
        if isinstance(it, Mapping) and it
    ]
    return [
        "## Memory, descriptors and threads",
        "",
        f"The server had {found['lives']} lives; the longest, of {found['longest_life_s']:.0f} s, "
        f"after a third of it as warm-up. {found['samples']:,} samples in all. "
        f"The verdict: **{found['verdict']}**.",
        "",
        f"| Of the server | {' | '.join(it.replace('_', ' ') for it in columns)} |",
        f"| --- | {' | '.join('---:' for _ in columns)} |",
        *rows,
        "",
    ]


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{it}`" for it in names) or "none"


def _counts(what: str, counts: Mapping[str, int]) -> list[str]:
    return _table((what, "Times"), [(f"`{name}`", f"{it:,}") for name, it in counts.items()])


def _table(head: tuple[str, str], rows: Sequence[tuple[str, str]]) -> list[str]:
    return [
        f"| {head[0]} | {head[1]} |",
        "| --- | --- |",
        *(f"| {name} | {text} |" for name, text in rows),
    ]
