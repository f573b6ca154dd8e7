"""How long answers took, as a histogram."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)
"""Above the last there is nothing but what waited for a body that came slowly: see `limits`."""


class Times:
    """How often it took at most how long. Invariant: `counts` has one more than there are bounds."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, took_s: float) -> None:
        """Once more, this long."""
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.sum_s += took_s

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: each with all that took less, too."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found
