"""What every benchmark module offers, and what it hands back."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

Progress: TypeAlias = Callable[[str], None]
"""Takes one line that says what is going on."""


class BenchmarkFailed(Exception):
    """A benchmark could not be done; the text says why. No result is better than a wrong one."""


class BadOptions(Exception):
    """The options ask for something that cannot be done."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a title. The first column is a name, the others are figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What a benchmark found: the object for `--json`, and the same for people."""

    data: dict[str, Any]
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = field(default=())


class Benchmark(Protocol):
    """The interface of a benchmark module."""

    SUMMARY: str
    """One line for `--help`."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the benchmark's own options; `--json` and `--quick` are there already."""

    def run(self, arguments: Namespace, progress: Progress) -> Report:
        """Do it. Raises `BenchmarkFailed` or `BadOptions`; leaves no process behind, however it ends."""
