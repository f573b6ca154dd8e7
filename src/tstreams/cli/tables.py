"""Tables and facts for people: by rich on a terminal, as plain text elsewhere; and amounts in few letters."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import msgspec

from . import output
from .output import remark, say

if TYPE_CHECKING:
    from rich.table import Table

GOOD = "green"
WARN = "yellow"
BAD = "red"
DIM = "dim"


@dataclass(frozen=True, slots=True)
class Cell:
    """Text that has a colour where there are colours."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `right` sets it to the right, as numbers are."""

    heading: str
    right: bool = False
    keep: bool = False
    """Never cut: what is cut off an id makes it useless."""
    spare: bool = False
    """Left out first where there is no room for all."""


def left(heading: str, keep: bool = False, spare: bool = False) -> Column:
    """A column of words."""
    return Column(heading, False, keep, spare)


def right(heading: str, spare: bool = False) -> Column:
    """A column of numbers."""
    return Column(heading, True, True, spare)


Row = Sequence[str | Cell]


def show_table(columns: Sequence[Column], rows: Sequence[Row], nothing: str) -> None:
    """Print a table; if it would be empty, say so on standard error."""
    if not rows:
        remark(nothing)
        return
    if sys.stdout.isatty():
        columns, rows = _fitting(columns, rows, get_terminal_size().columns)
        table = rich_table(columns, rows)
        if table is not None:
            from rich.console import Console

            Console(highlight=False).print(table)
            return
    texts = [[_text_of(cell) for cell in row] for row in rows]
    say(output.table([it.heading for it in columns], texts, [it.right for it in columns]))


def _fitting(
    columns: Sequence[Column], rows: Sequence[Row], room: int
) -> tuple[Sequence[Column], Sequence[Row]]:
    """Without the columns that can be spared, as many of them as must be, from the right."""
    widths = [
        max(len(it.heading), *(len(_text_of(row[at])) for row in rows))
        for at, it in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    for at in reversed(range(len(columns))):
        if sum(widths[it] + 1 for it in kept) <= room:
            break
        if columns[at].spare:
            kept.remove(at)
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def rich_table(columns: Sequence[Column], rows: Iterable[Row]) -> Table | None:
    """The same as rich draws it; None: it is not installed."""
    try:
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    table = Table(box=None, pad_edge=False, header_style="bold")
    for it in columns:
        # Where there is no room, those that may wrap give way; the cells cut themselves off.
        table.add_column(
            it.heading,
            justify="right" if it.right else "left",
            no_wrap=it.keep,
            min_width=len(it.heading),
        )
    for row in rows:
        cells = (cell if isinstance(cell, Cell) else Cell(cell) for cell in row)
        table.add_row(*(Text(it.text, it.style, no_wrap=True, overflow="ellipsis") for it in cells))
    return table


def show_facts(facts: dict[str, str | Cell]) -> None:
    """Lines of names and values. What is empty is left out."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        if text := _text_of(value):
            say(f"  {name:{width}}  {text}")


def say_resource(resource: Any) -> None:
    """Something that came by REST, as one line of JSON, as it came."""
    say(msgspec.json.encode(resource).decode())


def more(there_are: bool, what: str) -> None:
    """Say on standard error that a list goes on."""
    if there_are:
        remark(f"there are more {what}: --limit N shows more of them, --all every one")


def _text_of(cell: str | Cell) -> str:
    return cell.text if isinstance(cell, Cell) else cell


# Amounts.


def when(time: datetime | None) -> str:
    """A time, in UTC."""
    return "-" if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def age(seconds: float) -> str:
    """A length of time in two units at most: 250 ms, 3.2 s, 5 m 10 s, 3 h 2 m, 4 d 1 h."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else f"{seconds * 1e6:.0f} µs"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, small_size, small in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small_size} {small}"
    return f"{whole} s"


def latency(seconds: float) -> str:
    """How long something took; nothing happened: a dash."""
    return "-" if not seconds else f"{seconds * 1000:.2f} ms" if seconds < 1 else age(seconds)


def number(count: float, exact: bool = True) -> str:
    """A whole number with commas; `exact=False`: there is at least so much."""
    return f"{count:,.0f}{'' if exact else '+'}"


def short(count: float) -> str:
    """A number in five letters or so: 950, 12.3k, 4.6M."""
    if count < 9.95:
        return f"{count:.1f}" if count % 1 else f"{count:.0f}"
    for unit in ("", "k", "M", "G"):
        if count < 999.5:
            return f"{count:.0f}{unit}" if unit == "" or count >= 99.95 else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:.1f}T"


def rate(count: float | None) -> str:
    """How often, per second."""
    return "-" if count is None else f"{short(count)}/s"


def bytes_rate(count: float | None) -> str:
    """Bytes per second."""
    return "-" if count is None else f"{output.size(count)}/s"
