"""Mistakes that are planted into the program are found, and the plan that shows them is made short."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("mistake", "kinds"),
    [
        ("no-epoch-check", {"fenced-acknowledged"}),
        ("frontier-passes-open", {"read-past-open"}),
        ("lose-offset", {"offset-went-back", "group-torn"}),
        ("answer-at-once", {"lost-write", "offset-went-back", "id-reused", "id-went-back"}),
    ],
)
def test_it_is_found(mistake: str, kinds: set[str]) -> None:
    with planted(mistake):
        outcome = first_wrong()
    assert outcome.kinds & kinds, outcome.findings[:5]
    assert not carry_out(outcome.plan).findings, "without the mistake the same plan works"


def test_what_is_needed_for_it_is_little() -> None:
    with planted("no-epoch-check"):
        outcome = Shrinking(first_wrong(), runs_max=80).shrink()
        again = carry_out(outcome.plan)
    assert again.digest == outcome.digest
    assert len(outcome.plan.deeds) <= 5
    assert not outcome.plan.faults
    assert "renew" in tell(outcome) or "rival" in tell(outcome)


def test_there_are_many_and_the_page_names_them() -> None:
    page = (Path(__file__).parents[2] / "docs/proof/simulation.md").read_text()
    assert len(names()) >= 20
    assert [it for it in names() if f"`{it}`" not in page] == []
