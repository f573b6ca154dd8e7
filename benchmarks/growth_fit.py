"""How a cost grows: the exponent of a power law through its points, and what to think of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

TAIL = 2
"""The last points, which show where it is going: at the first ones a constant hides what grows."""

FALLS, FLAT = "falls", "flat"
EXPECTED, FASTER = "grows as expected", "grows faster than it should"
UNKNOWN = "not measured"

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Growth:
    """Cost ~ size ** exponent, through all points and through the last few."""

    exponent: float | None
    tail: float | None
    allowed: float
    verdict: str


def exponent_of(points: Points) -> float | None:
    """The slope of the line of least squares through the logarithms; None if there is no line."""
    logs = [(math.log(size), math.log(cost)) for size, cost in points if size > 0 and cost > 0]
    if len({size for size, _ in logs}) < 2:
        return None
    middle_x = sum(x for x, _ in logs) / len(logs)
    middle_y = sum(y for _, y in logs) / len(logs)
    across = sum((x - middle_x) ** 2 for x, _ in logs)
    return sum((x - middle_x) * (y - middle_y) for x, y in logs) / across


def growth_of(points: Points, allowed: float, tolerance: float, steps_count: bool = True) -> Growth:
    """Fit it, and compare the steeper of the two slopes with what is allowed; or only that of all points,
    where two of them may differ by chance."""
    exponent, tail = exponent_of(points), exponent_of(points[-TAIL:])
    if exponent is None or tail is None:
        return Growth(exponent, tail, allowed, UNKNOWN)
    steepest = max(exponent, tail) if steps_count else exponent
    if steepest > allowed + tolerance:
        verdict = FASTER
    elif steepest > tolerance:
        verdict = EXPECTED
    else:
        verdict = FALLS if exponent < -tolerance else FLAT
    return Growth(exponent, tail, allowed, verdict)
