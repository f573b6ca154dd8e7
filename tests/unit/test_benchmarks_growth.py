"""What the benchmark `growth` makes of its figures."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from benchmarks.growth_fit import EXPECTED, FALLS, FASTER, FLAT, UNKNOWN, exponent_of, growth_of
from benchmarks.growth_plan import AXES, COST, COSTS, READ, Load, chosen_axes
from benchmarks.servers import cpu_s_of

SIZES = (1, 10, 100, 1000, 10_000)


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found(exponent: float) -> None:
    found = exponent_of([(size, 7.0 * size**exponent) for size in SIZES])
    assert found == pytest.approx(exponent)


def test_one_point_has_no_exponent() -> None:
    assert exponent_of([(10, 3.0)]) is None
    assert exponent_of([(10, 3.0), (10, 4.0)]) is None
    assert growth_of([(10, 3.0)], 0.0, 0.1).verdict == UNKNOWN


@pytest.mark.parametrize(
    ("costs", "allowed", "verdict"),
    [
        ([40, 41, 39, 40, 42], 0.0, FLAT),
        ([400, 90, 40, 20, 12], 0.0, FALLS),
        ([40, 41, 45, 85, 490], 1.0, EXPECTED),  # a constant, and so much for each
        ([40, 41, 45, 85, 490], 0.0, FASTER),
        ([40, 40, 40, 40, 80], 0.0, FASTER),  # only the last step shows it
        ([40, 41, 140, 10_040, 1_000_040], 1.0, FASTER),
    ],
)
def test_verdicts(costs: list[float], allowed: float, verdict: str) -> None:
    points = list(zip(SIZES, costs, strict=True))
    assert growth_of(points, allowed, 0.15).verdict == verdict


def test_a_single_step_may_be_left_out_of_the_verdict() -> None:
    points = list(zip(SIZES, [40, 40, 40, 40, 80], strict=True))
    found = growth_of(points, 0.0, 0.15, steps_count=False)
    assert (found.verdict, round(found.tail or 0, 2)) == (FLAT, 0.3)


def test_axes_vary_one_thing_by_equal_factors() -> None:
    base = Load()
    for axis in AXES:
        steps = {b / a for a, b in zip(axis.points, axis.points[1:], strict=False)}
        assert len(steps) == 1, axis.name
        assert {COST, READ} <= set(axis.allowed) <= set(COSTS)
        for point in axis.points:
            load = axis.load(point)
            changed = {it for it in Load.__slots__ if getattr(load, it) != getattr(base, it)}
            assert changed <= {axis.name}
            assert getattr(load, axis.name) == point


def test_axes_can_be_chosen() -> None:
    assert chosen_axes([]) == list(AXES)
    assert [axis.name for axis in chosen_axes(["history", "items"])] == ["items", "history"]


def test_processor_time_of_another_process() -> None:
    before_s, own_s = cpu_s_of([os.getpid()]), time.process_time()
    sum(range(200_000))
    worked_s = time.process_time() - own_s
    assert cpu_s_of([os.getpid()]) - before_s >= worked_s > 0
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert cpu_s_of([ended.pid]) == 0
