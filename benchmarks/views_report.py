"""What `views` found, as tables and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .interface import Report, Table
from .machine import machine_facts, package_versions
from .report import grouped
from .rounds import Spread

TARGETS = {"first_view_s": 1.0}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    count: int
    times: int


@dataclass
class Found:
    """Seconds of each view in a browser, and of each answer over HTTP."""

    views: dict[str, list[float]] = field(default_factory=dict)
    answers: dict[str, list[float]] = field(default_factory=dict)
    missing: str = ""
    """Why no view was opened."""

    def see(self, view: str, took_s: float) -> None:
        """One more view."""
        self.views.setdefault(view, []).append(took_s)

    def hear(self, answer: str, took_s: float) -> None:
        """One more answer."""
        self.answers.setdefault(answer, []).append(took_s)


def make_report(plan: Plan, found: Found, seconds: float) -> Report:
    """Everything that is to be shown. The first view is as slow as the slowest one that was seen of all streams."""
    lists = [
        it for view, times in found.views.items() if view.startswith("streams") for it in times
    ]
    first = round(max(lists), 3) if lists else None
    data: dict[str, Any] = {
        "benchmark": "views",
        "first_view_s": first,
        "targets": TARGETS,
        "missing": {"browser": found.missing} if found.missing else {},
        "views_s": {view: Spread(tuple(it)).as_dict(3) for view, it in found.views.items()},
        "answers_s": {label: Spread(tuple(it)).as_dict(4) for label, it in found.answers.items()},
        "count": plan.count,
        "times": plan.times,
        "machine": machine_facts(),
        "versions": package_versions("tstreams", "uvloop", "starlette", "uvicorn", "playwright"),
        "seconds": round(seconds, 1),
    }
    tables = [
        _table(f"ms until {grouped(plan.count)} streams are on the screen", found.views),
        _table("ms until the whole answer is there, over HTTP", found.answers),
    ]
    wanted = f"<= {TARGETS['first_view_s']:g}"
    said = found.missing or f"{first:g} s; {wanted} s is wanted"
    notes = (f"The slowest first view of all streams: {said}.",)
    return Report(data, tuple(it for it in tables if it.rows), notes)


def _table(title: str, found: dict[str, list[float]]) -> Table:
    rows = tuple(
        (name, *(f"{of(Spread(tuple(it))) * 1000:.0f}" for of in (_median, _min, _max)))
        for name, it in found.items()
    )
    return Table(title, ("", "median", "min", "max"), rows)


def _median(spread: Spread) -> float:
    return spread.median or 0.0


def _min(spread: Spread) -> float:
    return min(spread.rounds)


def _max(spread: Spread) -> float:
    return max(spread.rounds)
