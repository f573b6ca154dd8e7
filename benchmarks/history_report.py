"""What `history` found, as tables and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .interface import Report, Table
from .machine import machine_facts, package_versions
from .report import grouped
from .rounds import Spread, percentile, ratios
from .streams_node import Restart
from .streams_report import DURABILITY

TARGETS = {"at_vs_last": 5}
"""Below."""
MEANING = (
    "at: seek to a random time of the history, and get the transaction there. last: the last one. "
    "at_vs_last compares their medians."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    count: int
    samples: int
    rounds: int


@dataclass(slots=True)
class Found:
    """Everything that was measured."""

    restarts_small: list[Restart] = field(default_factory=list)
    restarts_full: list[Restart] = field(default_factory=list)
    written_per_s: float = 0.0
    fds_max: int = 0
    rss_mib_max: float = 0.0
    us: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    """(at or last, percent): microseconds, of each round."""

    def add(self, at_s: list[float], last_s: list[float]) -> None:
        """One round's samples."""
        for kind, samples_s in (("at", at_s), ("last", last_s)):
            for percent in (50, 99):
                self.us.setdefault((kind, percent), []).append(percentile(samples_s, percent) * 1e6)

    def spread(self, kind: str, percent: int) -> Spread:
        """The figures of all rounds."""
        return Spread(tuple(self.us[kind, percent]))

    def ratio(self, percent: int) -> Spread:
        """A time against the last one, round by round."""
        return ratios(self.spread("at", percent), self.spread("last", percent))


def make_report(plan: Plan, found: Found, seconds: float) -> Report:
    """Everything that is to be shown."""
    figures = {
        "at_vs_last": found.ratio(50).as_dict(3)["median"],
        "at_vs_last_p99": found.ratio(99).as_dict(3)["median"],
        "restart_small_s": _slowest_s(found.restarts_small),
        "restart_full_s": _slowest_s(found.restarts_full),
        "fds_max": found.fds_max,
        "rss_mib_max": round(found.rss_mib_max, 1),
    }
    data: dict[str, Any] = {
        "benchmark": "history",
        **figures,
        "targets": TARGETS,
        "ratio_rounds": {"at_vs_last": found.ratio(50).as_dict(3)["rounds"]},
        "restarts": {
            "small": [_restart(restart) for restart in found.restarts_small],
            "full": [_restart(restart) for restart in found.restarts_full],
        },
        "latency_us": [
            {"what": kind, "percentile": percent, **found.spread(kind, percent).as_dict()}
            for kind, percent in found.us
        ],
        "transactions_per_s": round(found.written_per_s),
        "count": plan.count,
        "count_at_restart_small": plan.count // 10,
        "samples": plan.samples,
        "rounds": plan.rounds,
        "fsync": "on",
        "durability": DURABILITY,
        "machine": machine_facts(),
        "versions": package_versions("tstreams", "rocksdict", "uvloop"),
        "seconds": round(seconds, 1),
    }
    notes = (
        f"fsync is on: {DURABILITY}. {MEANING}",
        "restart: from the start of the process, after SIGKILL, to its first answer, the slowest of "
        f"{len(found.restarts_full)}; small is with a tenth of the history. Part of it is the "
        "replay of what the index had not flushed at the kill: bounded, and by chance.",
    )
    return Report(data, (_figures_table(plan, figures), _latency_table(plan, found)), notes)


def _restart(restart: Restart) -> dict[str, float | int | None]:
    return {"seconds": round(restart.seconds, 3), "replayed": restart.replayed}


def _slowest_s(restarts: list[Restart]) -> float:
    return round(max(restart.seconds for restart in restarts), 3)


def _figures_table(plan: Plan, figures: dict[str, Any]) -> Table:
    rows = tuple(
        (name, f"{figure:g}", f"< {TARGETS[name]:g}" if name in TARGETS else "-")
        for name, figure in figures.items()
    )
    title = f"{grouped(plan.count)} transactions in one partition"
    return Table(title, ("figure", "found", "target"), rows)


def _latency_table(plan: Plan, found: Found) -> Table:
    rows = []
    for kind, percent in found.us:
        spread = found.spread(kind, percent)
        low, high = grouped(min(spread.rounds)), grouped(max(spread.rounds))
        rows.append((kind, f"p{percent}", grouped(spread.median), f"{low} .. {high}"))
    title = f"µs of one read, {plan.rounds} rounds of {grouped(plan.samples)} samples"
    return Table(title, ("read", "", "median", "min .. max"), tuple(rows))
