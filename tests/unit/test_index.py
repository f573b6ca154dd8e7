"""The index on its real database: keys, and how each record changes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.index_book import HOUR_MS, SIZE, Book, instant, stream
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
    Staged,
    StepCommitted,
    StreamAltered,
    StreamCreated,
    StreamDeleted,
    StreamPurged,
)
from tstreams.errors import Corrupt, NotFound
from tstreams.index import Index, IndexFailed, Store, keys
from tstreams.index.keys import Place
from tstreams.model import ID_MAX, IDS_PER_MS
from tstreams.protocol import Done


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
    book.apply(StreamAltered(0, 0, 1, 5_000, "new", 0, b"grown"))
    found = book.index.facts.stream_named("a")
    assert found is not None
    assert (found.schema, found.description, found.purged_before) == (b"grown", "new", 77)


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


def test_an_agent_is_fenced_that_is_gone_already(book: Book) -> None:
    """Logs of earlier versions have such records."""
    book.apply(
        stream(1, "a"),
        SessionBegun(2, 0),
        AgentBegun(2, 1, 3, "producer", 1, "p", 0, []),
        AgentEnded(2, 2, 3, []),
        AgentBegun(2, 3, 4, "producer", 1, "p", 3, []),
    )
    assert book.index.facts.agent_named("producer", 1, "p") == 4
    (session,) = book.index.facts.sessions()
    assert session.agents == {4}


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


def test_an_instant_moves_the_readers_that_it_names(book: Book) -> None:
    moves = [(1, "r", 0, 7), (1, "r", 1, 9)]
    book.apply(stream(1, "a", 2), InstantMade(0, 0, 50, 1, 0, 3, moves))
    facts = book.index.facts
    assert facts.positions(1, "r") == [(0, 7), (1, 9)]
    assert [facts.position(1, "r", partition) for partition in (0, 1, 2)] == [7, 9, None]
    assert book.ids(1) == [50]
    book.apply(InstantMade(0, 0, 51, 1, 0, 3))
    assert facts.positions(1, "r") == [(0, 7), (1, 9)]


def test_which_batch_lies_at_a_position(book: Book) -> None:
    opened = Opened(0, 0, 50, 1, 0, 3, 1000)
    sent = ItemsSent(0, 0, 50, 1, 0, 2)
    _, _, first, second = book.apply(stream(1, "a"), opened, sent, sent)
    number_of = book.index.applier.number_of_batch
    wanted = [0, 1, None]
    assert [number_of(1, 0, 50, it) for it in (first, second, second + 1)] == wanted
    book.apply(Committed(0, 0, [50], [], []))
    assert [number_of(1, 0, 50, it) for it in (first, second, second + 1)] == wanted
    assert number_of(1, 0, 51, first) is None


def test_what_is_cached_of_streams_may_be_dropped_at_any_time(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tstreams.index.applier.STREAMS_CACHED_MAX", 0)
    book.apply(stream(1, "a", 1, 10_000), stream(2, "b"))
    for second in range(5):
        book.apply(instant(second * 1000, 1), instant(second * 1000, 2, 0, 1))
    book.apply(StreamAltered(0, 0, 1, 3_000, ""))
    book.apply(instant(5_000, 1), instant(5_000, 2, 0, 1))
    book.sweep_all(6_000)
    assert [it // IDS_PER_MS for it in book.ids(1)] == [3_000, 4_000, 5_000]
    assert len(book.ids(2)) == 6
    book.sweep_all(60_000)
    assert book.ids(1) == []


def test_a_job_is_known_until_its_last_step(book: Book) -> None:
    book.apply(stream(1, "a"), Opened(0, 0, 50, 1, 0, 3, 1000), Staged(0, 0, "job", 0, 1000, [50]))
    facts = book.index.facts
    assert facts.last_step("job") is None
    (it,) = facts.open_transactions()
    assert (it.agent, it.job, it.step) == (0, "job", 0)
    book.apply(StepCommitted(0, 0, "job", 0, [], [50], [], [], False, 1000))
    assert facts.last_step("job") == 0
    assert list(facts.open_transactions()) == []
    book.apply(StepCommitted(0, 0, "job", 1, [], [], [], [], True, 2000))
    assert facts.last_step("job") is None
    assert "J" not in book.kinds()


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


def test_an_empty_index_has_nothing(book: Book) -> None:
    assert book.index.facts.last_transaction(1, 0, 0, ID_MAX) is None
    assert list(book.index.facts.transactions(1, 0, 0, ID_MAX)) == []
    assert (book.index.applied, book.index.last_id, book.index.last_number) == (0, 0, 0)


def test_the_index_reaches_the_end_of_a_log_that_holds_nothing_for_it(book: Book) -> None:
    book.apply(stream(1, "a"), instant(1, 1))
    applied, last_id = book.index.applied, book.index.last_id
    book.index.reach(applied - 512)
    assert book.index.applied == applied, "it never goes back"
    book.index.reach(applied + 512)
    book.index.store.flush()
    book.crash()
    assert (book.index.applied, book.index.last_id) == (applied + 512, last_id)


# What goes wrong.


def test_a_database_in_use_is_refused(book: Book) -> None:
    with pytest.raises(IndexFailed, match="cannot be opened"):
        Store(book.path)


def test_an_index_that_cannot_be_read_lets_go_of_its_database(tmp_path: Path) -> None:
    store = Store(tmp_path / "index")
    batch = store.batch()
    batch.put(keys.POSITION, b"nonsense")
    store.write(batch)
    with pytest.raises(Corrupt):
        Index(store)
    again = Store(tmp_path / "index")  # nobody has it open
    batch = again.batch()
    batch.put(keys.POSITION, keys.HEAD.pack(512, 1, 1))
    again.write(batch)
    assert Index(again).applied == 512
    again.close()


def test_a_database_that_is_only_read_is_not_written(book: Book) -> None:
    book.apply(stream(1, "a"))
    book.index.store.flush()
    book.index.store.close()
    store = Store(book.path, read_only=True)
    batch = store.batch()
    batch.put(b"?", b"")
    with pytest.raises(IndexFailed, match="the index cannot be written"):
        store.write(batch)
    with pytest.raises(IndexFailed, match="the index cannot be flushed"):
        store.flush()
    assert store.get(b"?") is None
    assert Index(store).facts.stream_named("a") is not None
    store.close()


def test_a_database_that_is_not_there_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(IndexFailed, match="cannot be opened"):
        Store(tmp_path / "index", read_only=True)
    assert not (tmp_path / "index").exists()


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
