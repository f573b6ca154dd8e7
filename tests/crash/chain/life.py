"""One life of a processor: what it was told when it was started, and what it lets others know."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

AT_LEAST_ONCE = "at-least-once"
AT_MOST_ONCE = "at-most-once"
PLANTS = (AT_LEAST_ONCE, AT_MOST_ONCE)
"""Faults that can be planted, to see that they are found."""


@dataclass(slots=True)
class Life:
    """What a processor's process knows."""

    rng: random.Random
    max_wait_s: float | None
    """End when nothing came for so long. None: never."""
    plant: str
    sign: Path
    """A file that it makes as soon as it works."""
    _has_worked: bool = field(default=False)

    def works(self) -> None:
        """It has something to do: from now on it is worth killing."""
        if not self._has_worked:
            self._has_worked = True
            self.sign.touch()
