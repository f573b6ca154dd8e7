"""Mutants that survive, and why that is right: `explained.txt`.

A paragraph for each: `module.function: what`, the statement before and after, and the reason, indented.
"""

from __future__ import annotations

from pathlib import Path

from tests.mutation.mutants import Mutant

PATH = Path(__file__).with_name("explained.txt")


class Explained:
    """What is known of survivors. A mutant is found by its function and its change, not by its line."""

    def __init__(self, reasons: dict[tuple[str, str, str], str]) -> None:
        self.reasons = reasons

    @classmethod
    def read(cls, path: Path = PATH) -> Explained:
        reasons = {}
        for paragraph in path.read_text().split("\n\n")[1:]:  # the first says what this is
            lines = paragraph.strip("\n").split("\n")
            if len(lines) < 4 or lines[1][:4] != "  - " or lines[2][:4] != "  + ":
                raise ValueError(f"{path.name}: not an explanation:\n{paragraph}")
            key = (lines[0], lines[1][4:], lines[2][4:])
            if key in reasons:
                raise ValueError(f"{path.name}: explained twice:\n{paragraph}")
            reasons[key] = " ".join(it.strip() for it in lines[3:])
        return cls(reasons)

    def __contains__(self, mutant: object) -> bool:
        return isinstance(mutant, Mutant) and key_of(mutant) in self.reasons


def key_of(mutant: Mutant) -> tuple[str, str, str]:
    """The second and third of several that look the same have their number."""
    where = f"{mutant.module}.{mutant.function}".rstrip(".")
    which = f" ({mutant.twin + 1})" if mutant.twin else ""
    return f"{where}: {mutant.what}{which}", mutant.before, mutant.after
