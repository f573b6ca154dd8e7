"""What a node has to do for a shard, from each standpoint that it can have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstreams.cluster.succession import HANDOVER_S, Duty, Standpoint, duty_of

LONG_S = HANDOVER_S + 0.1


def duty(first: str | None, granted: int | None, leading: int | None, **more: object) -> Duty:
    known: dict[str, object] = {"alive": True, **more}
    return duty_of(
        Standpoint(node="me", first=first, granted=granted, leading=leading, **known)  # type: ignore[arg-type]
    )


def test_who_should_lead_takes_it_and_leads() -> None:
    assert duty("me", None, None) is Duty.TAKE
    assert duty("me", 7, 7) is Duty.LEAD
    assert duty("heir", None, None) is Duty.FOLLOW


def test_a_leader_goes_on_until_its_heir_has_its_place() -> None:
    assert duty("heir", 7, 7) is Duty.LEAD
    assert duty("heir", 7, 7, wanted_s=1.0) is Duty.LEAD
    assert duty("heir", None, 7, wanted_s=1.0) is Duty.GIVE_UP
    assert duty("heir", None, None) is Duty.FOLLOW


def test_an_heir_that_does_not_come_is_not_waited_for_for_ever() -> None:
    assert duty("heir", 7, 7, wanted_s=LONG_S) is Duty.GIVE_UP
    assert duty("heir", 7, None) is Duty.GIVE_UP
    assert duty(None, 7, 7, wanted_s=LONG_S) is Duty.GIVE_UP


def test_what_was_lost_in_the_log_is_given_back_and_taken_in_a_new_epoch() -> None:
    assert duty("me", 7, None) is Duty.GIVE_UP
    assert duty("me", None, None) is Duty.TAKE


@pytest.mark.parametrize("granted", [None, 8])
def test_nobody_leads_in_an_epoch_that_it_was_not_given(granted: int | None) -> None:
    assert duty("me", granted, 7) is Duty.GIVE_UP


def test_a_session_that_may_be_over_ends_everything() -> None:
    assert duty("me", 7, 7, alive=False) is Duty.GIVE_UP
    assert duty("me", 7, None, alive=False) is Duty.GIVE_UP
    assert duty("me", None, None, alive=False) is Duty.FOLLOW


@given(
    st.builds(
        Standpoint,
        node=st.just("me"),
        first=st.sampled_from(["me", "heir", None]),
        alive=st.booleans(),
        granted=st.sampled_from([None, 7, 8]),
        leading=st.sampled_from([None, 7]),
        wanted_s=st.sampled_from([0.0, LONG_S]),
    )
)
def test_what_always_holds(it: Standpoint) -> None:
    found = duty_of(it)
    if found is Duty.LEAD:
        assert it.alive
        assert it.leading is not None
        assert it.leading == it.granted
    if found in (Duty.TAKE, Duty.FOLLOW):  # or the entry would stand for nobody
        assert it.leading is None
        assert it.granted is None
    if found is Duty.GIVE_UP:  # there is something to give up: it ends
        assert it.leading is not None or it.granted is not None
