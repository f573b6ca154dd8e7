"""What `growth` found, as tables and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from .growth_fit import FASTER, Growth, growth_of
from .growth_plan import (
    COST,
    COSTS,
    P99,
    PROCESSES,
    READ,
    SETUP,
    TOLERANCE,
    WINDOW,
    Axis,
    Plan,
    Point,
)
from .interface import Report, Table
from .machine import filesystem_of, machine_facts, package_versions
from .report import grouped
from .rounds import Spread
from .streams_report import DURABILITY

Grown: TypeAlias = tuple[Axis, list[Point]]

NAMES = {
    COST: "server µs per commit",
    P99: "p99 of a commit, µs",
    READ: "server µs per commit with a reader",
    SETUP: "server µs to add one",
}
FIGURES = ("commits_per_s", "p50_us", P99, COST, READ)
MEANING = (
    f"commits/s: each client has {WINDOW} commits under way. p99: each has one. server µs: processor time of "
    "the server process for one commit, its system calls included, while throughput is measured. With a "
    "reader: the same for a commit of one client that waits until it has read it, by a consumer of all partitions "
    "of the stream. Setup: the same for each stream, partition, transaction or client that it was given before."
)


def make_report(plan: Plan, found: list[Grown], folder: Path, seconds: float) -> Report:
    """Everything that is to be shown."""
    axes = [_axis(axis, points) for axis, points in found]
    too_fast = [
        f"{axis['axis']}: {cost}"
        for axis in axes
        for cost, fit in axis["growth"].items()
        if fit["verdict"] == FASTER
    ]
    data: dict[str, Any] = {
        "benchmark": "growth",
        "axes": axes,
        "grows_faster_than_it_should": too_fast,
        "tolerance": TOLERANCE,
        "client_processes": PROCESSES,
        "window": WINDOW,
        "phase_seconds": plan.seconds,
        "rounds": plan.rounds,
        "fsync": "on",
        "durability": DURABILITY,
        "counted": MEANING,
        "filesystem": filesystem_of(folder),
        "machine": machine_facts(),
        "versions": package_versions("tstreams", "rocksdict", "uvloop"),
        "seconds": round(seconds, 1),
    }
    tables = tuple(_points_table(plan, axis, points) for axis, points in found)
    notes = (
        f"fsync is on: {DURABILITY}. {MEANING}",
        "An exponent of 0 is flat, 1 is in proportion; the second one is that of the last step. It is "
        "fitted to the least of all rounds: what else the machine does only adds.",
        f"Faster than it should: {', '.join(too_fast) or 'nothing'}.",
    )
    return Report(data, (*tables, _growth_table(axes)), notes)


def spread_of(point: Point, figure: str) -> Spread:
    """One figure of all rounds."""
    return Spread(tuple(getattr(phase, figure) for phase in point.phases))


def _fits(axis: Axis, points: list[Point]) -> dict[str, Growth]:
    return {
        cost: growth_of(
            [(point.at, it) for point in points if (it := _cost(point, cost)) is not None],
            axis.allowed[cost],
            TOLERANCE[cost],
            steps_count=cost != P99,
        )
        for cost in COSTS
        if cost in axis.allowed
    }


def _cost(point: Point, cost: str) -> float | None:
    """The least of all rounds: what else the machine does only ever adds to it."""
    return point.setup_us_per_unit if cost == SETUP else min(spread_of(point, cost).rounds)


def _axis(axis: Axis, points: list[Point]) -> dict[str, Any]:
    return {
        "axis": axis.name,
        "title": axis.title,
        "why": axis.why,
        "growth": {cost: _growth(fit) for cost, fit in _fits(axis, points).items()},
        "points": [_point(point) for point in points],
    }


def _growth(fit: Growth) -> dict[str, Any]:
    return {
        "exponent": None if fit.exponent is None else round(fit.exponent, 3),
        "tail_exponent": None if fit.tail is None else round(fit.tail, 3),
        "allowed": fit.allowed,
        "verdict": fit.verdict,
    }


def _point(point: Point) -> dict[str, Any]:
    setup = point.setup_us_per_unit
    return {
        "at": point.at,
        **{figure: spread_of(point, figure).as_dict(1) for figure in FIGURES},
        SETUP: None if setup is None else round(setup, 2),
    }


def _points_table(plan: Plan, axis: Axis, points: list[Point]) -> Table:
    rows = []
    for point in points:
        rates, p99 = spread_of(point, "commits_per_s"), spread_of(point, P99)
        setup = point.setup_us_per_unit
        rows.append(
            (
                grouped(point.at),
                grouped(rates.median),
                f"{grouped(min(rates.rounds))} .. {grouped(max(rates.rounds))}",
                grouped(p99.median),
                f"{grouped(min(p99.rounds))} .. {grouped(max(p99.rounds))}",
                f"{spread_of(point, COST).median or 0:.1f}",
                grouped(spread_of(point, READ).median),
                "-" if setup is None else f"{setup:.1f}",
            )
        )
    columns = (
        axis.title,
        "commits/s",
        "min .. max",
        "p99 µs",
        "min .. max",
        "server µs",
        "with reader",
        "setup",
    )
    return Table(f"{axis.title}, {plan.rounds} rounds", columns, tuple(rows))


def _growth_table(axes: list[dict[str, Any]]) -> Table:
    rows = []
    for axis in axes:
        for cost, fit in axis["growth"].items():
            slopes = (fit["exponent"], fit["tail_exponent"])
            shown = ["-" if it is None else f"{it:.2f}" for it in slopes]
            rows.append((axis["axis"], NAMES[cost], *shown, f"{fit['allowed']:g}", fit["verdict"]))
    columns = ("axis", "cost", "exponent", "last step", "allowed", "verdict")
    return Table("growth: cost ~ size ^ exponent", columns, tuple(rows))
