"""The index on its real database: keys, records applied, the dead removed, and a crash that takes it back."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstreams.core.facts import Session
from tstreams.core.records import (
    AgentBegun,
    AgentEnded,
    AnyRecord,
    Committed,
    Ended,
    InstantMade,
    ItemsSent,
    Moved,
    Opened,
    SessionBegun,
    SessionsEnded,
    StreamAltered,
    StreamCreated,
    StreamDeleted,
    StreamPurged,
)
from tstreams.errors import Corrupt, NotFound
from tstreams.index import Index, IndexFailed, Store, floor_of, keys
from tstreams.index.keys import SLOT_MS, Place
from tstreams.ledger.port import position_of, split_position
from tstreams.model import ID_MAX, IDS_PER_MS
from tstreams.protocol import Done

HOUR_MS = 3_600_000
SIZE = 100
"""Bytes of each record with items."""


class Book:
    """An index, and a log that exists only as positions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = Index(Store(path))
        self.ledger = 1
        self.records: list[tuple[AnyRecord, int]] = []

    def apply(self, *records: AnyRecord, sessions: tuple[Session, ...] = ()) -> list[int]:
        """Apply records as one group; their positions."""
        positions = []
        for record in records:
            positions.append(position_of(self.ledger, 512 * (len(self.records) + 1)))
            self.records.append((record, positions[-1]))
        self._apply(list(zip(records, positions, strict=True)), sessions)
        return positions

    def _apply(
        self, records: list[tuple[AnyRecord, int]], sessions: tuple[Session, ...] = ()
    ) -> None:
        last_id = max(
            [self.index.last_id, *(getattr(record, "transaction", 0) for record, _ in records)]
        )
        entries = [(record, position, SIZE) for record, position in records]
        self.index.apply(entries, records[-1][1] + 512, last_id, self.index.last_number, sessions)

    def crash(self) -> None:
        """Lose what was not flushed."""
        copy = self.path.with_name(self.path.name + "-after-the-crash")
        shutil.copytree(self.path, copy)  # what a database that was not closed leaves behind
        self.index.store.close()
        self.path = copy
        self.index = Index(Store(copy))

    def replay(self) -> None:
        """Take from the log what the index has not."""
        missing = [it for it in self.records if it[1] >= self.index.applied]
        if missing:
            self._apply(missing)

    def contents(self) -> dict[bytes, bytes]:
        """All there is."""
        return dict(self.index.store.scan(b""))

    def kinds(self) -> Counter[str]:
        """How many keys there are of each kind."""
        return Counter(chr(key[0]) for key in self.contents())

    def ids(self, stream: int, partition: int = 0) -> list[int]:
        """The transactions of a partition."""
        return [it for it, _ in self.index.facts.transactions(stream, partition, 0, ID_MAX)]

    def live(self) -> dict[int, int]:
        """Live bytes of each ledger, counted anew, and the same as the index says."""
        counted: Counter[int] = Counter()
        for _, value in self.index.store.scan(b"T"):
            for position, size in keys.places_of(value):
                counted[split_position(position)[0]] += size
        for _, value in self.index.store.scan(b"D"):
            position, size, _ = keys.PLACE_AND_COUNT.unpack(value)
            counted[split_position(position)[0]] += size
        for ledger in {*counted, *range(1, self.ledger + 1)}:
            assert self.index.live.live(ledger) == counted[ledger]
        return dict(counted)

    def sweep_all(self, now_ms: int, budget: int = 10) -> list[int]:
        """Sweep until nothing is left to be done: how much each step did."""
        steps = []
        while True:
            steps.append(self.index.sweeper.sweep(now_ms, budget))
            assert len(steps) < 1000, "the sweeper does not come to an end"
            if steps[-1] < budget:
                return steps


def stream(number: int, name: str, partitions: int = 1, ttl_ms: int = HOUR_MS) -> StreamCreated:
    return StreamCreated(0, 0, number, name, partitions, ttl_ms, "", None)


def instant(at_ms: int, of_stream: int, partition: int = 0, counter: int = 0) -> InstantMade:
    return InstantMade(0, 0, at_ms * IDS_PER_MS + counter, of_stream, partition, 3)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "index")
    yield book
    book.index.store.close()


# Keys.

NUMBER = st.integers(0, 2**63 - 1)
PARTITION = st.integers(0, 2**16 - 1)


@given(st.lists(st.tuples(NUMBER, PARTITION, NUMBER), max_size=20))
def test_transactions_sort_by_stream_partition_and_id(places: list[tuple[int, int, int]]) -> None:
    by_key = sorted(places, key=lambda it: keys.transaction_key(b"T", *it))
    assert by_key == sorted(places)
    assert [keys.split_transaction(keys.transaction_key(b"T", *it)) for it in places] == places


@given(st.lists(st.tuples(NUMBER, NUMBER, PARTITION), max_size=20))
def test_slots_sort_by_time(slots: list[tuple[int, int, int]]) -> None:
    assert sorted(slots, key=lambda it: keys.slot_key(*it)) == sorted(slots)
    assert [keys.split_slot(keys.slot_key(*it)) for it in slots] == slots


@given(st.binary(min_size=1, max_size=12).filter(lambda it: it.strip(b"\xff")), st.binary())
def test_the_end_of_a_prefix_is_behind_all_that_begin_with_it(prefix: bytes, rest: bytes) -> None:
    end = keys.after_prefix(prefix)
    assert prefix + rest < end
    assert not end.startswith(prefix)


@given(NUMBER, st.lists(st.tuples(NUMBER, st.integers(0, 2**32 - 1)), min_size=1, max_size=5))
def test_a_transaction_is_read_as_it_was_packed(items: int, places: list[tuple[int, int]]) -> None:
    wanted = [Place(*place) for place in places]
    assert keys.unpack_transaction(keys.pack_transaction(items, wanted)) == (items, wanted)


def test_names_of_readers_do_not_run_into_each_other(book: Book) -> None:
    """One name may be the beginning of another, and end in what looks like a partition."""
    readers = ["r", "r\x00", "r\x00\x01", "rr"]
    positions = [(1, reader, 1, number) for number, reader in enumerate(readers)]
    book.apply(stream(1, "a", 2), Committed(0, 0, [], [], positions))
    for number, reader in enumerate(readers):
        assert book.index.facts.positions(1, reader) == [(1, number)]


# Streams and agents.


def test_streams_are_listed_by_name(book: Book) -> None:
    names = ["b", "ab", "a", "á", "a/1", "z"]
    book.apply(*(stream(number, name) for number, name in enumerate(names, 1)))
    ordered = sorted(names, key=str.encode)
    assert [it.name for it in book.index.facts.streams("", "", 100)] == ordered
    assert [it.name for it in book.index.facts.streams("a", "", 100)] == ["a", "a/1", "ab"]
    assert [it.name for it in book.index.facts.streams("a", "a", 1)] == ["a/1"]
    assert [it.name for it in book.index.facts.streams("", "b", 100)] == ["z", "á"]
    assert book.index.facts.streams("none", "", 10) == []


def test_an_altered_stream_keeps_what_was_not_changed(book: Book) -> None:
    book.apply(
        StreamCreated(0, 0, 1, "a", 3, HOUR_MS, "old", b"schema"),
        StreamPurged(0, 0, 1, 77),
        StreamAltered(0, 0, 1, 5_000, "new"),
    )
    found = book.index.facts.stream_named("a")
    assert found is not None
    assert (found.id, found.partitions, found.ttl_ms, found.description) == (1, 3, 5_000, "new")
    assert (found.schema, found.purged_before) == (b"schema", 77)


def test_a_name_belongs_to_one_agent(book: Book) -> None:
    book.apply(
        stream(1, "a"),
        SessionBegun(2, 0),
        AgentBegun(2, 1, 3, "producer", 1, "p", 0, []),
        AgentBegun(2, 2, 4, "reader", 1, "p", 0, []),
        AgentBegun(2, 3, 5, "producer", 1, "p", 3, []),
    )
    facts = book.index.facts
    assert facts.agent_named("producer", 1, "p") == 5
    assert facts.agent_named("reader", 1, "p") == 4
    assert facts.agent(3) is None
    (session,) = facts.sessions()
    assert session.agents == {4, 5}
    book.apply(AgentEnded(2, 4, 5, []))
    assert facts.agent_named("producer", 1, "p") is None
    book.apply(SessionsEnded(0, 0, [2], [4], []))
    assert not {"A", "G", "R", "S"} & book.kinds().keys()


def test_answers_are_kept_with_what_they_answer(book: Book) -> None:
    session = Session(2, last=3, acked=1, replies={2: Done(7), 3: NotFound("refused")})
    book.apply(stream(1, "a"), SessionBegun(2, 0))
    book.apply(instant(1, 1), sessions=(session,))
    (found,) = book.index.facts.sessions()
    assert (found.id, found.last, found.acked) == (2, 3, 1)
    assert found.replies == {2: Done(7)}, "a refusal leaves no trace"


# Transactions.


def test_a_transaction_is_open_and_then_visible_whole(book: Book) -> None:
    opened = Opened(0, 0, 50, 1, 0, 3, 1000)
    _, *positions = book.apply(opened, ItemsSent(0, 0, 50, 1, 0, 2), ItemsSent(0, 0, 50, 1, 0, 5))
    (it,) = book.index.facts.open_transactions()
    assert (it.id, it.items, it.batches, it.unfinished) == (50, 7, 2, False)
    assert book.live() == {1: 2 * SIZE}
    book.apply(stream(1, "a"), Committed(0, 0, [50], [], []))
    ((found, value),) = book.index.facts.transactions(1, 0, 0, ID_MAX)
    assert found == 50
    assert keys.unpack_transaction(value) == (7, [Place(it, SIZE) for it in positions])
    assert list(book.index.facts.open_transactions()) == []
    assert book.live() == {1: 2 * SIZE}


@pytest.mark.parametrize(
    "end",
    [
        Ended(0, 0, [50, 51], False),
        Committed(0, 0, [], [50, 51], []),
        AgentEnded(0, 0, 3, [50, 51]),
        SessionsEnded(0, 0, [2], [3], [50, 51]),
        AgentBegun(2, 0, 9, "producer", 1, "p", 3, [50, 51]),
        StreamDeleted(0, 0, 1, [50, 51]),
    ],
    ids=lambda it: type(it).__name__,
)
def test_a_transaction_that_ends_otherwise_leaves_nothing(book: Book, end: AnyRecord) -> None:
    book.apply(stream(1, "a"), SessionBegun(2, 0), AgentBegun(2, 1, 3, "producer", 1, "p", 0, []))
    for transaction in (50, 51):
        book.apply(Opened(0, 0, transaction, 1, 0, 3, 1000))
        book.apply(ItemsSent(0, 0, transaction, 1, 0, 2))
    assert book.live() == {1: 2 * SIZE}
    book.apply(end)
    assert not {"O", "D", "T"} & book.kinds().keys()
    assert book.live() == {}
    assert book.index.live.dead(1) == 2 * SIZE


def test_a_moved_batch_lies_elsewhere(book: Book) -> None:
    book.apply(
        stream(1, "a"),
        Opened(0, 0, 50, 1, 0, 3, 1000),
        ItemsSent(0, 0, 50, 1, 0, 1),
        ItemsSent(0, 0, 50, 1, 0, 2),
        instant(1, 1),
    )
    book.ledger = 2
    moved = book.apply(
        Moved(0, 0, 50, 1, 0, 1), Committed(0, 0, [50], [], []), Moved(0, 0, 50, 1, 0, 0)
    )
    book.apply(Moved(0, 0, 1 * IDS_PER_MS, 1, 0, 0))
    assert book.live() == {2: 3 * SIZE}
    assert book.index.live.dead(1) == 3 * SIZE
    value = dict(book.index.facts.transactions(1, 0, 0, ID_MAX))[50]
    assert keys.unpack_transaction(value) == (3, [Place(moved[2], SIZE), Place(moved[0], SIZE)])


def test_a_batch_that_died_while_it_was_moved_stays_dead(book: Book) -> None:
    book.apply(stream(1, "a"), instant(1, 1))
    book.sweep_all(2 * HOUR_MS)
    book.apply(Moved(0, 0, IDS_PER_MS, 1, 0, 0))
    assert book.live() == {}
    assert book.ids(1) == []


def test_the_last_of_a_partition_is_not_that_of_its_neighbour(book: Book) -> None:
    book.apply(stream(1, "a", 3), stream(2, "b"), instant(5, 1, 0), instant(6, 1, 2))
    facts = book.index.facts
    assert facts.last_transaction(1, 1, 0, ID_MAX) is None
    assert facts.last_transaction(2, 0, 0, ID_MAX) is None
    found = facts.last_transaction(1, 2, 0, ID_MAX)
    assert found is not None
    assert found[0] == 6 * IDS_PER_MS
    assert facts.last_transaction(1, 2, 6 * IDS_PER_MS + 1, ID_MAX) is None
    assert facts.last_transaction(1, 2, 0, 6 * IDS_PER_MS - 1) is None


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


# What goes wrong.


def test_a_database_in_use_is_refused(book: Book) -> None:
    with pytest.raises(IndexFailed, match="cannot be opened"):
        Store(book.path)


def test_a_damaged_database_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path / "index")
    batch = store.batch()
    for number in range(5000):
        batch.put(keys.transaction_key(b"T", 1, 0, number), bytes(40))
    store.write(batch)
    store.flush()
    store.close()
    (table,) = (tmp_path / "index").glob("*.sst")
    data = bytearray(table.read_bytes())
    data[len(data) // 3] ^= 0x10
    table.write_bytes(data)
    store = Store(tmp_path / "index")
    try:
        with pytest.raises(Corrupt, match="tstreams verify"):
            list(store.scan(b"T"))
    finally:
        store.close()
