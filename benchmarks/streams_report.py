"""What `streams` found, as tables and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .interface import Report, Table
from .machine import machine_facts, package_versions
from .report import grouped
from .rounds import Spread, percentile, ratios
from .streams_node import Restart

KINDS = ("write", "read")
STEPS = ("open", "do")
PERCENTS = (50, 99)
TARGETS = {
    "fds_max": 300,
    "rss_mib_max": 600,
    "p99_write_vs_one": 1.5,
    "p99_read_vs_one": 1.5,
    "restart_s": 5,
}
"""At most."""
DURABILITY = "fdatasync once per group, before the replies"
MEANING = (
    "A write is one instant transaction of an open producer, a read one transaction by its id; "
    "opening the producer or consumer on a stream that was not used before is shown apart."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    count: int
    written: int
    samples: int
    rounds: int


@dataclass(slots=True)
class Found:
    """Everything that was measured."""

    per_s: dict[str, float] = field(default_factory=dict)
    us: dict[tuple[str, str, str, int], list[float]] = field(default_factory=dict)
    """(write or read, open or do, many or one, percent): microseconds, of each round."""
    restart: Restart = field(default_factory=lambda: Restart(0.0, None))
    fds_max: int = 0
    rss_mib_max: float = 0.0

    def add(self, kind: str, samples: dict[str, tuple[list[float], list[float]]]) -> None:
        """One round's samples."""
        for name, steps in samples.items():
            for step, samples_s in zip(STEPS, steps, strict=True):
                for percent in PERCENTS:
                    figures = self.us.setdefault((kind, step, name, percent), [])
                    figures.append(percentile(samples_s, percent) * 1e6)

    def spread(self, kind: str, step: str, name: str, percent: int) -> Spread:
        """The figures of all rounds."""
        return Spread(tuple(self.us.get((kind, step, name, percent), ())))

    def ratio(self, kind: str, step: str, percent: int) -> Spread:
        """Many streams against one, round by round."""
        return ratios(
            self.spread(kind, step, "many", percent), self.spread(kind, step, "one", percent)
        )


def make_report(plan: Plan, found: Found, seconds: float) -> Report:
    """Everything that is to be shown."""
    write, read = (found.ratio(kind, "do", 99) for kind in KINDS)
    figures = {
        "fds_max": found.fds_max,
        "rss_mib_max": round(found.rss_mib_max, 1),
        "p99_write_vs_one": write.as_dict(3)["median"],
        "p99_read_vs_one": read.as_dict(3)["median"],
        "restart_s": round(found.restart.seconds, 3),
    }
    data: dict[str, Any] = {
        "benchmark": "streams",
        **figures,
        "targets": TARGETS,
        "restart_replayed": found.restart.replayed,
        "ratio_rounds": {
            "p99_write_vs_one": write.as_dict(3)["rounds"],
            "p99_read_vs_one": read.as_dict(3)["rounds"],
        },
        "latency_us": [_latency(found, *key) for key in found.us],
        "streams_per_s": {method: round(rate) for method, rate in found.per_s.items()},
        "count": plan.count,
        "written": plan.written,
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
        "restart_s: from the start of the process, after SIGKILL, to its first answer.",
    )
    return Report(data, (_figures_table(plan, figures), _latency_table(plan, found)), notes)


def _latency(found: Found, kind: str, step: str, name: str, percent: int) -> dict[str, Any]:
    return {
        "what": kind if step == "do" else f"open to {kind}",
        "streams": name,
        "percentile": percent,
        **found.spread(kind, step, name, percent).as_dict(),
    }


def _figures_table(plan: Plan, figures: dict[str, Any]) -> Table:
    rows = tuple((name, f"{figure:g}", f"<= {TARGETS[name]:g}") for name, figure in figures.items())
    return Table(f"{grouped(plan.count)} streams", ("figure", "found", "target"), rows)


def _latency_table(plan: Plan, found: Found) -> Table:
    rows = []
    for kind in KINDS:
        for step in STEPS:
            for percent in PERCENTS:
                ratio = found.ratio(kind, step, percent)
                rows.append(
                    (
                        kind if step == "do" else f"open to {kind}",
                        f"p{percent}",
                        grouped(found.spread(kind, step, "many", percent).median),
                        grouped(found.spread(kind, step, "one", percent).median),
                        f"{ratio.median or 0:.2f}",
                        f"{min(ratio.rounds):.2f} .. {max(ratio.rounds):.2f}",
                    )
                )
    title = f"µs of one request, {plan.rounds} rounds of {grouped(plan.samples)} samples"
    columns = ("request", "", "many streams", "one stream", "ratio", "min .. max")
    return Table(title, columns, tuple(rows))
