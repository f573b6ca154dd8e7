"""Sweeping that is written down: nodes that apply the same records hold the same, to the byte, and nothing that has died."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.index_book import HOUR_MS, SIZE, Book, instant, stream
from tstreams.core.records import Committed, StepCommitted, StreamDeleted, StreamPurged
from tstreams.errors import Corrupt
from tstreams.index import floor_of, snapshot
from tstreams.index.sweeping import JOBS_EVERY_MS, Due
from tstreams.limits import JOB_TTL_MS
from tstreams.model import IDS_PER_MS

BUDGET = 10
PLENTY = 500


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "leader")
    yield book
    book.index.store.close()


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "follower")
    yield book
    book.index.store.close()


def sweep_all(book: Book, due: Due, now_ms: int, budget: int = BUDGET) -> int:
    """As a leader does it: until nothing is due. How many records that took."""
    for count in range(PLENTY):
        record = due.look(now_ms, budget)
        if record is None:
            return count
        book.apply(record)
    raise AssertionError("sweeping does not come to an end")


def hand_over(leader: Book, follower: Book) -> None:
    """Let the follower have what the leader has written."""
    for record, _ in leader.records[len(follower.records) :]:
        follower.apply(record)


@pytest.mark.parametrize("seed", range(6))
def test_all_nodes_remove_the_same_and_all_that_has_died(
    seed: int, leader: Book, follower: Book
) -> None:
    chance = random.Random(seed)
    due = Due(leader.index.store)
    ttls = {1: 3_000, 2: 20_000, 3: HOUR_MS}
    purged = dict.fromkeys(ttls, 0)
    for number, ttl_ms in ttls.items():
        leader.apply(stream(number, f"s{number}", 2, ttl_ms))
    written: dict[tuple[int, int], list[int]] = {(n, p): [] for n in ttls for p in (0, 1)}
    now_ms = 1_000_000
    for step in range(80):
        now_ms += chance.choice([10, 700, 2_500])
        for _ in range(chance.randrange(6)):
            at = (chance.choice(list(ttls)), chance.randrange(2))
            made = instant(now_ms, *at, counter=len(leader.records))
            leader.apply(made)
            written[at].append(made.transaction)
        if chance.random() < 0.05:
            number = chance.choice(list(ttls))
            purged[number] = now_ms * IDS_PER_MS
            leader.apply(StreamPurged(0, 0, number, purged[number]))
        if chance.random() < 0.4:
            record = due.look(now_ms, chance.choice([1, 3, BUDGET]))
            if record is not None:
                leader.apply(record)
        if step == 40:  # another node leads, and begins to look at the first
            due = Due(leader.index.store)
    sweep_all(leader, due, now_ms, chance.choice([1, 7, 100]))
    hand_over(leader, follower)
    assert leader.contents() == follower.contents()
    assert leader.live() == follower.live()
    slot_later_ms = now_ms + 2_000
    sweep_all(leader, due, slot_later_ms)
    for (number, partition), ids in written.items():
        floor = floor_of(purged[number], ttls[number], now_ms)
        late = floor_of(purged[number], ttls[number], slot_later_ms)
        left = leader.ids(number, partition)
        assert [it for it in ids if it >= late] == [it for it in left if it >= late]
        assert all(it >= floor for it in left), "what had died a while ago is gone"


def test_a_deleted_stream_goes_in_pieces_with_all_that_belonged_to_it(
    leader: Book, follower: Book
) -> None:
    leader.apply(stream(1, "gone", 2), stream(2, "stays"))
    leader.apply(*(instant(it * 1000, 1, it % 2) for it in range(25)), instant(1, 2))
    leader.apply(Committed(0, 0, [], [], [(1, "r", 0, 9), (2, "r", 0, 9)]))
    leader.apply(StreamDeleted(0, 0, 1, []))
    steps = sweep_all(leader, Due(leader.index.store), 30_000)
    assert steps >= 3, "no more than its budget at a time"
    hand_over(leader, follower)
    assert leader.contents() == follower.contents()
    assert leader.ids(1, 0) == leader.ids(1, 1) == []
    assert leader.index.facts.positions(1, "r") == []
    assert leader.index.facts.positions(2, "r") == [(0, 9)]
    assert leader.kinds()["X"] == 0
    assert leader.live() == {1: SIZE}


def test_jobs_that_nobody_uses_are_forgotten_in_turns_once_an_hour(
    leader: Book, follower: Book
) -> None:
    old, young = ([f"{name}-{number:02}" for number in range(15)] for name in ("old", "new"))
    for job, used_ms in [*((job, 1_000) for job in old), *((job, 2 * HOUR_MS) for job in young)]:
        leader.apply(StepCommitted(0, 0, job, 4, [], [], [], [], False, used_ms))

    def known(jobs: list[str]) -> int:
        return sum(leader.index.facts.last_step(job) == 4 for job in jobs)

    due = Due(leader.index.store)
    now_ms = JOB_TTL_MS + 999
    assert sweep_all(leader, due, now_ms) == 3, "thirty, ten at a time"
    assert (known(old), known(young)) == (15, 15)
    assert due.look(now_ms + 1, BUDGET) is None, "it looks once an hour"
    assert sweep_all(leader, due, now_ms + JOBS_EVERY_MS) >= 3
    assert (known(old), known(young)) == (0, 15)
    assert due.look(now_ms + JOBS_EVERY_MS, BUDGET) is None
    assert due.look(now_ms, BUDGET) is not None, "the clock went back: it does not wait for so long"
    hand_over(leader, follower)
    assert leader.contents() == follower.contents()


def test_nothing_is_written_down_where_nothing_is_due(leader: Book) -> None:
    leader.apply(stream(1, "a"), instant(1_000_000, 1))
    due = Due(leader.index.store)
    sweep_all(leader, due, 1_000_000)
    before = len(leader.records)
    assert [due.look(1_000_000 + it * 1000, BUDGET) for it in range(60)] == [None] * 60
    assert len(leader.records) == before


def test_a_snapshot_that_is_cut_or_has_no_position_is_refused(leader: Book, follower: Book) -> None:
    leader.apply(stream(1, "a"), instant(1, 1))
    piece = snapshot.Pieces(leader.index.store).next()
    assert dict(snapshot.unpack(piece)) == leader.contents()
    for cut in (len(piece) - 1, 3):
        with pytest.raises(Corrupt, match="cut off"):
            list(snapshot.unpack(piece[:cut]))
    with pytest.raises(Corrupt, match="no log position"):
        snapshot.load(follower.index.store, [])
