"""The index loses what has died, and nothing else; and a crash takes it back only for a while."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.index_book import HOUR_MS, SIZE, Book, instant, stream
from tstreams.core.records import (
    Committed,
    Filled,
    ItemsSent,
    Moved,
    Opened,
    StepCommitted,
    StreamAltered,
    StreamDeleted,
    StreamPurged,
)
from tstreams.index import floor_of, keys
from tstreams.index.keys import SLOT_MS
from tstreams.limits import JOB_TTL_MS
from tstreams.model import IDS_PER_MS


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "index")
    yield book
    book.index.store.close()


# The dead.

BUDGET = 10


def test_a_ttl_removes_what_has_died_and_nothing_else(book: Book) -> None:
    book.apply(stream(1, "short", 2, 10_000), stream(2, "long", 2, HOUR_MS))
    for second in range(60):
        for number in (1, 2):
            book.apply(*(instant(second * 1000, number, p, number) for p in (0, 1)))
    now_ms = 45_000
    steps = book.sweep_all(now_ms, BUDGET)
    assert all(step <= BUDGET for step in steps)
    floor = floor_of(0, 10_000, now_ms)
    for partition in (0, 1):
        assert book.ids(1, partition) == [s * 1000 * IDS_PER_MS + 1 for s in range(35, 60)]
        assert len(book.ids(2, partition)) == 60
    assert min(book.ids(1)) >= floor
    assert book.live() == {1: (25 + 60) * 2 * SIZE}


def test_what_dies_is_removed_soon_after_however_often_one_looks(book: Book) -> None:
    """Slot by slot, as a server does it, with writing going on."""
    book.apply(stream(1, "a", 1, 3_000))
    for second in range(60):
        book.apply(instant(second * 1000, 1))
        book.index.sweeper.sweep(second * 1000, 1000)
        oldest = min(book.ids(1)) // IDS_PER_MS
        assert second * 1000 - oldest <= 3_000 + 2 * SLOT_MS
    book.sweep_all(200_000)
    assert book.ids(1) == []
    assert book.kinds()["E"] == 0
    assert book.live() == {}


def test_a_shorter_ttl_and_a_purge_take_effect_at_once(book: Book) -> None:
    book.apply(stream(1, "a", 2), stream(2, "b", 2))
    for second in range(30):
        book.apply(*(instant(second * 1000, n, p, n) for n in (1, 2) for p in (0, 1)))
    book.apply(StreamAltered(0, 0, 1, 5_000, ""), StreamPurged(0, 0, 2, 20_000 * IDS_PER_MS))
    steps = book.sweep_all(29_000, BUDGET)
    assert all(step <= BUDGET for step in steps)
    for partition in (0, 1):
        assert [it // IDS_PER_MS // 1000 for it in book.ids(1, partition)] == list(range(24, 30))
        assert [it // IDS_PER_MS // 1000 for it in book.ids(2, partition)] == list(range(20, 30))
    book.sweep_all(29_000 + 2 * HOUR_MS, BUDGET)
    assert book.live() == {}, "what a purge left dies when its time has come"


def test_a_longer_ttl_keeps_what_has_not_died(book: Book) -> None:
    book.apply(stream(1, "a", 1, 10_000), instant(1_000, 1))
    book.apply(StreamAltered(0, 0, 1, HOUR_MS, ""))
    book.sweep_all(60_000)
    assert len(book.ids(1)) == 1
    book.sweep_all(HOUR_MS + 10_000)
    assert book.ids(1) == []


def test_a_deleted_stream_goes_in_bounded_steps_and_takes_nothing_with_it(book: Book) -> None:
    book.apply(*(stream(number, f"s{number}", 2) for number in (1, 2, 3)))
    book.apply(Committed(0, 0, [], [], [(number, "r", 0, 5) for number in (1, 2, 3)]))
    for second in range(30):
        book.apply(*(instant(second, n, p, n) for n in (1, 2, 3) for p in (0, 1)))
    book.apply(StreamDeleted(0, 0, 2, []))
    assert book.index.facts.stream_named("s2") is None
    steps = book.sweep_all(30_000, BUDGET)
    assert len(steps) > 5
    assert all(step <= BUDGET for step in steps)
    assert book.ids(2, 0) == book.ids(2, 1) == []
    assert [len(book.ids(number, p)) for number in (1, 3) for p in (0, 1)] == [30] * 4
    assert book.index.facts.positions(2, "r") == []
    assert book.index.facts.positions(3, "r") == [(0, 5)]
    assert book.live() == {1: 4 * 30 * SIZE}
    assert book.kinds()["X"] == 0


def test_many_deleted_streams_go_in_bounded_steps(book: Book) -> None:
    book.apply(*(stream(number, f"s{number}") for number in range(1, 101)))
    book.apply(*(instant(1, number) for number in range(1, 101, 2)))
    book.apply(*(StreamDeleted(0, 0, number, []) for number in range(1, 101)))
    steps = book.sweep_all(10_000, BUDGET)
    assert all(step <= BUDGET for step in steps)
    assert book.live() == {}
    book.sweep_all(2 * HOUR_MS)
    assert book.kinds().keys() == {"L", "P"}


def test_jobs_that_nobody_uses_are_forgotten_a_few_at_a_time(book: Book) -> None:
    old, young = ([f"{name}-{number:02}" for number in range(15)] for name in ("old", "new"))
    for job, used_ms in [*((job, 1_000) for job in old), *((job, 2 * HOUR_MS) for job in young)]:
        book.apply(StepCommitted(0, 0, job, 4, [], [], [], [], False, used_ms))

    def known(jobs: list[str]) -> int:
        return sum(book.index.facts.last_step(job) == 4 for job in jobs)

    book.index.sweeper.sweep(JOB_TTL_MS + 999, 100)
    book.index.sweeper.sweep(JOB_TTL_MS + 1_000, 100)
    assert known(old) == 15, "it looks once an hour"
    left = []
    for _ in range(4):
        book.index.sweeper.sweep(JOB_TTL_MS + 999 + HOUR_MS, BUDGET)
        left.append(known(old))
    assert left == [15, 10, 0, 0], "it goes on behind those that are used, where it was"
    assert known(young) == 15


# After a crash.


def test_what_was_not_flushed_is_taken_from_the_log_again(book: Book) -> None:
    book.apply(stream(1, "a", 1, 10_000), stream(2, "b"))
    book.apply(*(instant(second * 1000, n, 0, n) for second in range(20) for n in (1, 2)))
    book.apply(Opened(0, 0, 50_000 * IDS_PER_MS, 2, 0, 3, 1000))
    book.apply(ItemsSent(0, 0, 50_000 * IDS_PER_MS, 2, 0, 4))
    book.sweep_all(15_000)
    book.index.store.flush()
    flushed, expected_ids = book.index.applied, book.ids(1)
    book.apply(Committed(0, 0, [50_000 * IDS_PER_MS], [], [(1, "r", 0, 9)]))
    book.ledger = 2
    book.apply(Moved(0, 0, expected_ids[0], 1, 0, 0), instant(60_000, 2), stream(4, "c"))
    book.apply(StreamDeleted(0, 0, 4, []), StreamAltered(0, 0, 1, HOUR_MS, "longer"))
    before, live, applied = book.contents(), book.live(), book.index.applied
    book.crash()
    assert book.index.applied == flushed
    book.replay()
    assert book.index.applied == applied > flushed
    assert book.contents() == before
    assert book.live() == live
    assert book.index.applier.number_of_batch(2, 0, 50_000 * IDS_PER_MS, 0) is None


def test_what_was_written_and_moved_since_the_last_flush_is_taken_from_the_log_again(
    book: Book,
) -> None:
    """After a crash both come in one batch, in which a batch that was moved is not in the database yet."""
    book.apply(stream(1, "a"))
    book.index.store.flush()
    whole = instant(1000, 1)
    brought = (
        Filled(0, 0, 2000 * IDS_PER_MS, 1, 0, 1, 3),
        Committed(0, 0, [2000 * IDS_PER_MS], [], []),
    )
    left_open = 3000 * IDS_PER_MS
    book.apply(whole, *brought)
    book.apply(Opened(0, 0, left_open, 1, 0, 1, 10_000), ItemsSent(0, 0, left_open, 1, 0, 3))
    book.ledger = 2
    for moved in (whole.transaction, 2000 * IDS_PER_MS, left_open):
        book.apply(Moved(0, 0, moved, 1, 0, 0))
    expected = book.contents()
    book.crash()
    book.replay()
    assert book.contents() == expected
    assert book.live() == {2: 3 * SIZE}


def test_what_was_swept_and_not_flushed_is_swept_again(book: Book) -> None:
    book.apply(stream(1, "a", 1, 10_000), *(instant(second * 1000, 1) for second in range(20)))
    book.index.store.flush()
    book.sweep_all(25_000)
    before = book.contents()
    book.crash()
    book.replay()
    assert len(book.ids(1)) == 20
    book.sweep_all(25_000)
    assert book.contents() == before
    assert book.live() == {1: 5 * SIZE}


def test_a_group_is_in_the_index_whole_or_not_at_all(book: Book) -> None:
    """What survives is always what the log held up to the position that is stored with it."""
    book.apply(stream(1, "a"))
    for group in range(100):
        book.apply(*(instant(group * 50 + n, 1) for n in range(50)))
        if group in (10, 50, 90):  # few enough that no compaction runs while the files are copied
            book.index.store.flush()
    book.crash()
    assert len(book.ids(1)) == 91 * 50
    applied = [record for record, position in book.records if position < book.index.applied]
    assert len(applied) == 1 + 91 * 50
    book.replay()
    ids = book.ids(1)
    assert len(ids) == 5000
    assert all(a < b for a, b in pairwise(ids))


def test_ledgers_that_are_gone_are_forgotten(book: Book) -> None:
    book.apply(stream(1, "a"), instant(1, 1))
    book.ledger = 2
    book.apply(instant(2, 1))
    book.sweep_all(HOUR_MS + 10_000)
    book.index.forget_ledgers([1, 7])
    assert [keys.number_of(key) for key, _ in book.index.store.scan(b"L")] == [2]
    assert book.index.live.live(1) == book.index.live.dead(1) == 0
