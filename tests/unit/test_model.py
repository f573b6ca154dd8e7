"""Names, durations, ids that are times, offsets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstreams.errors import BadRequest, Error, Expired, InvalidState, TooLarge
from tstreams.model import (
    IDS_PER_MS,
    NEXT_STATES,
    Anchor,
    Offset,
    TransactionState,
    check_name,
    check_partitions,
    check_stream_ttl,
    first_id_at,
    milliseconds,
    time_of,
)


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [
        (1, 1000),
        (0.5, 500),
        ("90s", 90_000),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        ("250ms", 250),
        (" 2 w ", 1_209_600_000),
        (timedelta(minutes=1), 60_000),
    ],
)
def test_durations(ttl: object, expected: int) -> None:
    assert milliseconds(ttl) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ttl", ["", "7", "d", "-1s", "7 years", None, True, [], float("nan"), -1, 1e12]
)
def test_nonsense_is_no_duration(ttl: object) -> None:
    with pytest.raises(BadRequest):
        milliseconds(ttl)  # type: ignore[arg-type]


def test_a_stream_lives_for_a_second_at_least() -> None:
    assert check_stream_ttl("1s") == 1000
    with pytest.raises(BadRequest, match="at least"):
        check_stream_ttl(0.999)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_ids_are_times(when: datetime) -> None:
    first = first_id_at(when)
    assert time_of(first) >= when - timedelta(microseconds=1)
    assert time_of(first) - when < timedelta(milliseconds=1, microseconds=1)
    assert first % IDS_PER_MS == 0


def test_times_need_a_zone() -> None:
    with pytest.raises(BadRequest, match="time zone"):
        Offset.at(datetime(2026, 1, 1))
    east = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert Offset.at(east) == Offset.at(datetime(2026, 1, 1, tzinfo=UTC))


def test_offsets() -> None:
    assert Offset.oldest().anchor is Anchor.OLDEST
    assert Offset.newest().anchor is Anchor.NEWEST
    assert Offset.after(7) == Offset(Anchor.FROM_ID, 8)
    with pytest.raises(BadRequest):
        Offset.after(-1)


@pytest.mark.parametrize(
    "name", ["a", "clicks", "mit Umlaut \u00fc", "\u6d41", "a/b:c.d", "x" * 255]
)
def test_good_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a\0", "\ud800", "\u200b", None, 5, b"a"])
def test_bad_names(name: object) -> None:
    with pytest.raises(BadRequest, match="name of a stream"):
        check_name(name)  # type: ignore[arg-type]


def test_long_names() -> None:
    with pytest.raises(TooLarge, match="256 bytes"):
        check_name("\u00fc" * 128)


def test_partitions() -> None:
    assert check_partitions(65_536) == 65_536
    with pytest.raises(TooLarge):
        check_partitions(65_537)
    for wrong in (0, -1, True, 1.5, "4"):
        with pytest.raises(BadRequest):
            check_partitions(wrong)  # type: ignore[arg-type]


def test_three_states_are_final() -> None:
    assert set(NEXT_STATES) == set(TransactionState)
    assert [state for state, following in NEXT_STATES.items() if following] == [
        TransactionState.OPENED
    ]


def test_errors_come_back_as_their_class() -> None:
    assert isinstance(Error.from_wire("expired", "x"), Expired)
    assert issubclass(Expired, InvalidState)
    assert type(Error.from_wire("unheard_of", "x")) is Error
