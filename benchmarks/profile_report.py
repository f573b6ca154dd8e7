"""What `profile` has seen, as data, as tables for people, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .interface import Table
from .profile_recorder import Recorded
from .profile_stacks import KINDS, Line, Profile, is_ours

TOP: Final = 10
_OUTERMOST: Final = 0.995
"""What all is done below says nothing about where the time goes."""
_COLUMNS: Final = ("function", "own %", "not Python %", "of that", "total %")


def as_data(name: str, profile: Profile, seen: Recorded, done: str) -> dict[str, Any]:
    """One process: how its time is divided, the top by own time, and ours by total time."""
    lines = profile.lines()
    inner = (it for it in lines if is_ours(it.function) and it.total < _OUTERMOST)
    ours = sorted(inner, key=lambda it: -it.total)
    return {
        "name": name,
        "done": done,
        "samples": {"working": profile.working, "waiting": profile.waiting},
        "cpu_s": round(seen.cpu_s, 2),
        "seconds": round(seen.seconds, 1),
        "shares": {kind: _percent(share) for kind, share in profile.shares().items()},
        "own": [_as_row(line) for line in lines[:TOP]],
        "total": [_as_row(line) for line in ours[:TOP]],
    }


def _as_row(line: Line) -> dict[str, Any]:
    return {
        "function": line.function,
        "own": _percent(line.own),
        "outside": _percent(line.outside),
        "callees": list(line.callees),
        "total": _percent(line.total),
    }


def _percent(share: float) -> float:
    return round(100 * share, 1)


def as_table(data: Mapping[str, Any]) -> Table:
    """The top by own time, for the terminal."""
    title = f"{data['name']}: {divided(data)}"
    rows = [_cells(row) for row in data["own"]]
    # Without what was called: a line of a terminal has no room for it.
    return Table(title, _COLUMNS[:3] + _COLUMNS[4:], tuple(it[:3] + it[4:] for it in rows))


def divided(data: Mapping[str, Any]) -> str:
    """How the samples at work are divided, in words."""
    parts = ", ".join(f"{kind} {data['shares'][kind]:g} %" for kind in KINDS)
    return f"{data['samples']['working']} samples at work: {parts}"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    outside = f"{row['outside']:.1f}" if row["outside"] else ""
    return (
        row["function"],
        f"{row['own']:.1f}",
        outside,
        ", ".join(row["callees"]),
        f"{row['total']:.1f}",
    )


def markdown(profiles: Iterable[Mapping[str, Any]]) -> str:
    """All of them, with their flame graphs."""
    return "\n".join(part for data in profiles for part in _section(data))


def _section(data: Mapping[str, Any]) -> Iterable[str]:
    name = data["name"]
    yield f"### {name}\n"
    yield f"{data['done']}. {divided(data)}. {data['cpu_s']:g} s of a processor in {data['seconds']:g} s.\n"
    yield f"![Flame graph of {name}]({name}.svg)\n"
    for title, key in (("By own time", "own"), ("Ours, by total time", "total")):
        yield f"{title}:\n"
        yield from table_lines(data[key])
        yield ""


def table_lines(rows: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Rows of functions as a table."""
    yield "| " + " | ".join(_COLUMNS) + " |"
    yield "| --- | ---: | ---: | --- | ---: |"
    for row in rows:
        function, *rest = _cells(row)
        yield f"| `{function}` | " + " | ".join(rest) + " |"
