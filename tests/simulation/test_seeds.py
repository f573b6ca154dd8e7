"""The whole system on a thousand seeds: nothing is wrong."""

from __future__ import annotations

import gc

import pytest

from tests.simulation.conftest import Apart
from tests.simulation.system.planning import make_plan
from tests.simulation.system.run import carry_out
from tests.simulation.system.story import tell

SEEDS = 1000
SEEDS_PER_TEST = 50
SHARDS = 3
SEEDS_OVER_SHARDS = 100
SEEDS_OVER_SHARDS_PER_TEST = 25


def wrong_and_idle(first: int, count: int, shards: int = 1) -> tuple[list[str], list[int]]:
    """The stories of the seeds that went wrong, and the seeds in which next to nothing happened."""
    stories, idle = [], []
    for seed in range(first, first + count):
        outcome = carry_out(make_plan(seed, shards=shards))
        if outcome.findings:
            stories.append(tell(outcome))
        if outcome.figures["operations"] <= 50:
            idle.append(seed)
        del outcome
        gc.collect()  # nothing is collected while a run goes on
    return stories, idle


@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_PER_TEST))
def test_nothing_is_wrong(apart: Apart, first: int) -> None:
    stories, idle = apart(wrong_and_idle, first, SEEDS_PER_TEST)
    assert not stories, "\n\n".join(stories[:3])
    assert not idle


@pytest.mark.parametrize("first", range(1, SEEDS_OVER_SHARDS, SEEDS_OVER_SHARDS_PER_TEST))
def test_nothing_is_wrong_over_several_shards(apart: Apart, first: int) -> None:
    """Checkpoints, groups and steps of jobs span shards, and are cut off anywhere."""
    stories, idle = apart(wrong_and_idle, first, SEEDS_OVER_SHARDS_PER_TEST, SHARDS)
    assert not stories, "\n\n".join(stories[:3])
    assert not idle


def test_faults_of_every_kind_happen() -> None:
    """The seeds above do not pass because nothing happens in them."""
    plans = [make_plan(seed) for seed in range(1, 40)]
    assert len({fault.kind for plan in plans for fault in plan.faults}) == 16
    assert len({deed.kind for plan in plans for deed in plan.deeds}) == 19
