"""Arithmetic of interleaved rounds: their order, their spread, and ratios within each of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


def rotated(items: Sequence[T], round_number: int) -> list[T]:
    """The order of a round: each round begins one further, so that nothing always goes first."""
    shift = round_number % len(items) if items else 0
    return [*items[shift:], *items[:shift]]


@dataclass(frozen=True, slots=True)
class Spread:
    """The figures of all rounds; none at all where there was nothing to measure."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float | None:
        """The middle one."""
        return statistics.median(self.rounds) if self.rounds else None

    def as_dict(self, digits: int | None = None) -> dict[str, float | list[float] | None]:
        """For JSON, rounded to that many digits, or to whole numbers."""
        median = self.median
        return {
            "median": None if median is None else round(median, digits),
            "min": round(min(self.rounds), digits) if self.rounds else None,
            "max": round(max(self.rounds), digits) if self.rounds else None,
            "rounds": [round(figure, digits) for figure in self.rounds],
        }


def ratios(ours: Spread, theirs: Spread) -> Spread:
    """Round by round: what slows a whole round down cancels out."""
    if len(ours.rounds) != len(theirs.rounds):
        return Spread(())
    return Spread(tuple(a / b for a, b in zip(ours.rounds, theirs.rounds, strict=True)))


def percentile(samples: Sequence[float], percent: int) -> float:
    """The figure that so many of a hundred samples do not exceed."""
    if len(samples) < 2:
        return samples[0]
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]
