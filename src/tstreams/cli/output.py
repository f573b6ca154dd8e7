"""What commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
import time
import unicodedata
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from datetime import timedelta
from shutil import get_terminal_size
from textwrap import dedent, fill
from typing import Any, TypeVar

from ..errors import BadRequest

OK = 0
FAILED = 1
USAGE = 2
DAMAGED = 3
INTERRUPTED = 130

READABLE_COLUMNS = 100
"""Help is not set wider than this."""

PROGRESS_INTERVAL_S = 0.2
"""How often a line of progress is drawn: faster cannot be read."""


def make_parser(prog: str, description: str, examples: str) -> ArgumentParser:
    """A parser with the look that all commands share."""
    return ArgumentParser(prog, **_look(description, examples))


def add_action(
    actions: Any, name: str, summary: str, description: str, examples: str
) -> ArgumentParser:
    """The parser of an action of a command that has several. All of them have `--json`."""
    parser: ArgumentParser = actions.add_parser(
        name, help=summary, **_look(description or summary[0].upper() + summary[1:] + ".", examples)
    )
    add_json(parser)
    return parser


def _look(description: str, examples: str) -> dict[str, Any]:
    return {
        "description": description,
        "epilog": "examples:\n" + _indented(examples),
        "formatter_class": _Formatter,
        "allow_abbrev": False,
    }


class _Formatter(RawDescriptionHelpFormatter):
    """Help as wide as the terminal, but not wider than one likes to read."""

    def __init__(self, prog: str) -> None:
        width = min(get_terminal_size().columns, READABLE_COLUMNS)
        super().__init__(prog, max_help_position=28, width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Paragraphs are filled, but for those with lines that are indented."""
        paragraphs = text.split("\n\n")
        return "\n\n".join(it if "\n  " in it else fill(it, width) for it in paragraphs)


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in dedent(text).strip().splitlines())


def add_json(parser: ArgumentParser) -> None:
    """The flag `--json`."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per line, also for errors"
    )


T = TypeVar("T")


def checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """A reader of an argument whose error messages reach the user."""

    def read_checked(text: str) -> T:
        try:
            return read(text)
        except (BadRequest, ValueError) as error:
            raise ArgumentTypeError(str(error)) from None

    return read_checked


def whole(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    """A reader of a whole number within bounds."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise ValueError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return checked(read)


class BadUsage(Exception):
    """Arguments that are right by themselves, and make no sense together."""


def say(text: str) -> None:
    """A line on standard output."""
    sys.stdout.write(text + "\n")


def say_json(value: object) -> None:
    """A JSON object on a line of standard output."""
    say(json.dumps(value, ensure_ascii=False))


def remark(text: str) -> None:
    """A line on standard error."""
    sys.stderr.write(text + "\n")


def remark_json(value: object) -> None:
    """A JSON object on a line of standard error."""
    remark(json.dumps(value, ensure_ascii=False))


def report_error(code: str, message: str, *, as_json: bool) -> None:
    """Say on standard error what failed: one line, or one JSON object."""
    if as_json:
        remark_json({"error": code, "message": message})
    else:
        remark(f"tstreams: {message}" if message else f"tstreams: {code}")


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool] | None = None,
) -> str:
    """Columns, as wide as what is in them; numbers, or those that `right` names, are set to the right. A
    terminal's width is kept."""
    columns = list(zip(headings, *rows, strict=True))
    widths = [max(map(_width, column)) for column in columns]
    if right is None:
        right = [bool(rows) and all(cell.isdigit() for cell in column[1:]) for column in columns]
    room = get_terminal_size().columns if sys.stdout.isatty() else None
    lines = []
    for row in (headings, *rows):
        cells = []
        for cell, width, is_right in zip(row, widths, right, strict=True):
            space = " " * (width - _width(cell))
            cells.append(space + cell if is_right else cell + space)
        lines.append(_cut("  ".join(cells).rstrip(), room))
    return "\n".join(lines)


def _width(text: str) -> int:
    """How many columns of a terminal text takes: ideographs take two, accents none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def _cut(text: str, room: int | None) -> str:
    if room is None or _width(text) <= room:
        return text
    while text and _width(text) > room - 1:
        text = text[:-1]
    return text + "…"


def size(count: float) -> str:
    """Bytes, for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def counted(number: int, noun: str) -> str:
    """A number of things: 1 item, 2,000 items."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(length: timedelta) -> str:
    """A length of time in the form in which it can be given: 7d, 90s."""
    milliseconds = round(length.total_seconds() * 1000)
    units = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
    unit = next(name for name, size in units.items() if milliseconds % size == 0)
    return f"{milliseconds // units[unit]}{unit}"


class Progress:
    """A line on the terminal that changes while work goes on; nothing if it is no terminal."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._drawn_at = time.monotonic()
        self._shown = False

    @property
    def due(self) -> bool:
        """Whether it is time to draw again. Ask this first, where making the text costs something."""
        return self._on and time.monotonic() - self._drawn_at >= PROGRESS_INTERVAL_S

    def show(self, text: str) -> None:
        """Draw the line, if it is time."""
        if self.due:
            room = os.get_terminal_size(2).columns or 80
            sys.stderr.write(f"\r\x1b[K{text[: room - 1]}")
            sys.stderr.flush()
            self._drawn_at = time.monotonic()
            self._shown = True

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
