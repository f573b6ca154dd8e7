"""How results are shown: tables and notes for people, one JSON object for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from .interface import Report, Table


def say(line: str) -> None:
    """One line of progress, on stderr, at once."""
    print(line, file=sys.stderr, flush=True)


def show(report: Report, *, on_stderr: bool) -> None:
    """Print the tables and the notes."""
    console = Console(stderr=on_stderr, highlight=False)
    for table in report.tables:
        console.print(_as_rich(table))
    for note in report.notes:
        console.print(note, markup=False, soft_wrap=True)


def write_json(data: dict[str, Any]) -> None:
    """Print the one object that stdout gets with `--json`."""
    json.dump(data, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")
    sys.stdout.flush()


def grouped(number: float | None) -> str:
    """A figure as people read it: 41 230."""
    return "-" if number is None else f"{number:,.0f}".replace(",", " ")


def figure_text(number: float | None) -> str:
    """A figure of any size with as many digits as say something: 1 234, 45.7, 0.63."""
    if number is None or number >= 100 or number == 0:
        return grouped(number)
    return f"{number:.3g}"


def _as_rich(table: Table) -> RichTable:
    rich_table = RichTable(title=table.title, title_justify="left")
    for number, name in enumerate(table.columns):
        rich_table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
    for row in table.rows:
        rich_table.add_row(*row)
    return rich_table
