"""A scenario's file: steps with their expected answers, and how to write them anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SEPARATOR = "----"


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and what is expected of it. `line` is where the command stands."""

    line: int
    command: str
    expected: str


def read_script(path: Path) -> tuple[list[Step], list[str]]:
    """The steps of a file, and its lines."""
    lines = path.read_text().splitlines()
    steps = []
    at = 0
    while at < len(lines):
        if at + 1 < len(lines) and lines[at + 1] == SEPARATOR:
            end = at + 2
            while end < len(lines) and lines[end].strip():
                end += 1
            steps.append(Step(at + 1, lines[at], "\n".join(lines[at + 2 : end])))
            at = end
        else:
            at += 1
    return steps, lines


def rewrite(path: Path, run: Callable[[str], str]) -> None:
    """Run all commands and put their answers into the file."""
    steps, lines = read_script(path)
    by_line = {step.line - 1: step for step in steps}
    written: list[str] = []
    at = 0
    while at < len(lines):
        step = by_line.get(at)
        written.append(lines[at])
        at += 1
        if step is not None:
            written += [SEPARATOR, *run(step.command).splitlines()]
            at += 1 + len(step.expected.splitlines())
    path.write_text("\n".join(written) + "\n")
