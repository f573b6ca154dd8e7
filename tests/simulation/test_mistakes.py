"""Mistakes that are planted into the program are found, and the plan that shows them is made short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.conftest import Apart
from tests.simulation.system.mistakes import names, planted
from tests.simulation.system.planning import make_plan
from tests.simulation.system.run import Outcome, carry_out
from tests.simulation.system.shrinking import Shrinking
from tests.simulation.system.story import tell

SEEDS = 30


def first_wrong() -> Outcome:
    for seed in range(1, SEEDS + 1):
        outcome = carry_out(make_plan(seed))
        if outcome.findings:
            return outcome
    raise AssertionError(f"nobody has noticed it in {SEEDS} seeds")


def found_with(mistake: str) -> tuple[set[str], list[str], list[str]]:
    """The kinds of what was found, some of it, and what is found by the same plan without the mistake."""
    with planted(mistake):
        outcome = first_wrong()
    return outcome.kinds, outcome.findings[:5], carry_out(outcome.plan).findings


def shrunk(mistake: str) -> tuple[int, int, str, bool]:
    """The deeds and faults that are left, the story, and whether it is the same when it is run again."""
    with planted(mistake):
        outcome = Shrinking(first_wrong(), runs_max=80).shrink()
        again = carry_out(outcome.plan)
    plan = outcome.plan
    return len(plan.deeds), len(plan.faults), tell(outcome), again.digest == outcome.digest


@pytest.mark.parametrize(
    ("mistake", "kinds"),
    [
        ("no-epoch-check", {"fenced-acknowledged"}),
        ("frontier-passes-open", {"read-past-open", "gap"}),
        ("lose-offset", {"offset-went-back", "group-torn"}),
        ("answer-at-once", {"lost-write", "offset-went-back", "id-reused", "id-went-back"}),
    ],
)
def test_it_is_found(apart: Apart, mistake: str, kinds: set[str]) -> None:
    found, some, without = apart(found_with, mistake)
    assert found & kinds, some
    assert not without, "without the mistake the same plan works"


def test_what_is_needed_for_it_is_little(apart: Apart) -> None:
    deeds, faults, story, is_same = apart(shrunk, "no-epoch-check")
    assert is_same
    assert deeds <= 5
    assert not faults
    assert "renew" in story or "rival" in story


@pytest.mark.parametrize("name", names())
def test_it_fits_the_program(name: str) -> None:
    """What is planted takes what the function takes in whose place it is."""
    with planted(name):
        pass


def test_there_are_many_and_the_page_names_them() -> None:
    page = (Path(__file__).parents[2] / "docs/proof/simulation.md").read_text()
    assert len(names()) >= 20
    assert [it for it in names() if f"`{it}`" not in page] == []
