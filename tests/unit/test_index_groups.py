"""What spans shards, as the index keeps it: what a core finds after a restart."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.unit.index_book import HOUR_MS, Book, stream
from tstreams.core.facts import DecidedGroup, Session, Untold
from tstreams.core.records import (
    AgentBegun,
    AnyRecord,
    Committed,
    CopiesForgotten,
    CopyDropped,
    Decided,
    ItemsSent,
    Moved,
    Opened,
    OpenedWith,
    Prepared,
    Refused,
    SessionBegun,
    Settled,
    Staged,
    StepPrepared,
    StreamAltered,
    StreamCopied,
    StreamPurged,
    Told,
    ToTell,
)
from tstreams.errors import Corrupt
from tstreams.index import keys
from tstreams.protocol import Group
from tstreams.sharding import SHARD_BITS

GROUP = Group(2, 5, 1)
COPIED = (1 << SHARD_BITS) + 7
POSITION = (1, "r", 0, 33)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    book = Book(tmp_path / "index")
    book.apply(stream(1, "clicks"))
    return book


def copied(version: int = 1, ttl_ms: int = HOUR_MS, purged_before: int = 0) -> StreamCopied:
    return StreamCopied(0, 0, COPIED, "far", 4, ttl_ms, "", None, purged_before, version)


def prepared(*transactions: int, empty: tuple[int, ...] = ()) -> Prepared:
    return Prepared(3, 1, GROUP, 1000, [9], list(transactions), list(empty), [POSITION])


def test_a_group_is_found_after_a_restart(book: Book) -> None:
    book.apply(OpenedWith(0, 0, 50, 1, 0, 9, 1000, 4), Opened(0, 0, 51, 1, 0, 9, 500))
    book.apply(prepared(50, empty=(51,)))
    (it,) = book.index.facts.prepared()
    assert (it.group, it.session, it.lease_ms, it.agents) == (GROUP, 3, 1000, [9])
    assert (it.held, it.positions) == ([50, 51], [POSITION])
    first, second = book.index.facts.open_transactions()
    assert (first.id, first.items, first.batches, first.agent) == (50, 4, 1, 9)
    assert second.id == 51


@pytest.mark.parametrize("committed", [True, False])
def test_a_group_is_settled(book: Book, committed: bool) -> None:
    book.apply(OpenedWith(0, 0, 50, 1, 0, 9, 1000, 4), Opened(0, 0, 51, 1, 0, 9, 500))
    book.apply(prepared(50, empty=(51,)))
    book.apply(Settled(0, 0, GROUP, committed, 1))
    facts = book.index.facts
    assert (list(facts.prepared()), list(facts.open_transactions())) == ([], [])
    assert book.ids(1) == ([50] if committed else [])
    assert facts.position(1, "r", 0) == (33 if committed else None)
    assert bool(book.live()) == committed
    assert not {"O", "D", "B"} & set(book.kinds())


@pytest.mark.parametrize("apart", [True, False])
def test_what_is_given_back_has_what_it_had_before(book: Book, apart: bool) -> None:
    for number in (50, 51, 52):
        book.apply(Opened(0, 0, number, 1, 0, 9, 500))
    book.apply(ItemsSent(0, 0, 50, 1, 0, 2))
    before, live_bytes = book.contents(), sum(book.live().values())
    kept = Prepared(3, 1, GROUP, 1000, [9], [50, 51, 53], [52], [], [50, 51, 52], [])
    group = msgspec.structs.replace(kept, cut=[(50, 3, False), (51, 1, False)])
    records: list[AnyRecord] = [
        ItemsSent(0, 0, 50, 1, 0, 3),
        ItemsSent(0, 0, 51, 1, 0, 1),
        OpenedWith(0, 0, 53, 1, 0, 9, 1000, 4),
        group,
    ]
    book.apply(*records)
    (it,) = book.index.facts.prepared()
    assert (it.kept, it.cut) == ([50, 51, 52], [(50, 3, False), (51, 1, False)])
    if apart:
        book.ledger = 2
        book.apply(Moved(0, 0, 50, 1, 0, 1))
    book.apply(Settled(0, 0, GROUP, False, 1))
    where = (b"L", b"P")  # how much is dead, and how far it has come
    assert _without(book.contents(), where) == _without(before, where)
    assert sum(book.live().values()) == live_bytes
    found = {it.id: (it.items, it.batches) for it in book.index.facts.open_transactions()}
    assert found == {50: (2, 1), 51: (0, 0), 52: (0, 0)}
    book.apply(ItemsSent(0, 0, 50, 1, 0, 7), Committed(0, 0, [50], [51, 52], []))
    assert book.ids(1) == [50]


def _without(contents: dict[bytes, bytes], kinds: tuple[bytes, ...]) -> dict[bytes, bytes]:
    return {key: value for key, value in contents.items() if not key.startswith(kinds)}


def test_what_is_prepared_can_be_moved(book: Book) -> None:
    book.apply(OpenedWith(0, 0, 50, 1, 0, 9, 1000, 4), prepared(50))
    book.ledger = 2
    book.apply(Moved(0, 0, 50, 1, 0, 0))
    book.apply(Settled(0, 0, GROUP, True, 1))
    assert {ledger for ledger, size in book.live().items() if size} == {2}


def step(**other: bool) -> list[AnyRecord]:
    """Two staged transactions, one of which a step would commit, and drop the other."""
    records: list[AnyRecord] = []
    for number in (50, 51):
        records += [Opened(0, 0, number, 1, 0, 9, 500), ItemsSent(0, 0, number, 1, 0, 2)]
    staged = Staged(0, 0, "job", 4, 1000, [50, 51])
    return [
        *records,
        staged,
        StepPrepared(3, 1, GROUP, 1000, "job", 4, [50], [], [51], [(1, 50)], other["final"]),
    ]


@pytest.mark.parametrize("final", [True, False])
def test_a_step_is_settled(book: Book, final: bool) -> None:
    book.apply(*step(final=final))
    (it,) = book.index.facts.prepared()
    assert (it.job, it.step, it.dropped, it.replaced, it.final) == (
        "job",
        4,
        [51],
        [(1, 50)],
        final,
    )
    book.apply(Settled(0, 0, GROUP, True, 777))
    assert book.ids(1) == [50]
    assert list(book.index.facts.open_transactions()) == []
    assert list(book.index.listing.jobs("")) == ([] if final else [("job", 4, 777)])
    stored = book.index.facts.stream(1)
    assert stored is not None
    assert (stored.purged_before, stored.version) == (50, 1)


def test_a_step_that_does_not_happen_leaves_the_others(book: Book) -> None:
    book.apply(*step(final=False))
    book.apply(Settled(0, 0, GROUP, False, 777))
    (left,) = book.index.facts.open_transactions()
    assert (left.id, left.job, left.step) == (51, "job", 4)
    assert (book.ids(1), list(book.index.listing.jobs(""))) == ([], [])


def test_decisions_are_kept_until_all_know(book: Book) -> None:
    session = Session(5, last=3, refused={2: "fenced"}, refused_to=1)
    book.apply(SessionBegun(5, 0), Decided(5, 0, 1, [1, 2]), sessions=(session,))
    book.apply(Refused(5, 0, 2, "fenced", [2]), Refused(5, 0, 3, "expired", []))
    facts = book.index.facts
    assert dict(facts.decided()) == {
        (5, 1): DecidedGroup(True, {1, 2}),
        (5, 2): DecidedGroup(False, {2}),
    }
    (stored,) = facts.sessions()
    assert (stored.refused, stored.refused_to) == ({2: "fenced"}, 1)
    book.apply(Told(0, 0, [(5, 1, 1), (5, 2, 2), (5, 9, 1)], []))
    assert dict(facts.decided()) == {(5, 1): DecidedGroup(True, {2})}
    book.apply(Told(0, 0, [(5, 1, 2)], []))
    assert "V" not in book.kinds()


def test_who_is_to_be_told_is_kept(book: Book) -> None:
    book.apply(ToTell(0, 0, 1, 2, [1, 2]), StreamAltered(0, 0, 1, 5, ""))
    facts = book.index.facts
    assert dict(facts.untold()) == {1: Untold(2, {1, 2})}
    book.apply(Told(0, 0, [], [(1, 2, 1), (1, 1, 2), (77, 1, 1)]))
    assert dict(facts.untold()) == {1: Untold(2, {2})}
    book.apply(ToTell(0, 0, 1, 3, [1, 2]), StreamPurged(0, 0, 1, 5))
    assert dict(facts.untold()) == {1: Untold(3, {1, 2})}
    book.apply(Told(0, 0, [], [(1, 3, 1), (1, 3, 2)]))
    assert "W" not in book.kinds()
    found = facts.stream(1)
    assert found is not None
    assert found.version == 3


def test_copies_are_found_but_not_listed(book: Book) -> None:
    book.apply(copied())
    facts = book.index.facts
    found = facts.stream_named("far")
    assert found is not None
    assert (found.id, found.version, found.partitions) == (COPIED, 1, 4)
    assert [it.name for it in facts.streams("", "", 10)] == ["clicks"]
    assert list(book.index.listing.streams(0)) == [(1, "clicks")]
    assert list(book.index.listing.streams(0, 1)) == [(COPIED, "far")]
    assert list(book.index.listing.streams(COPIED, 1)) == []


@pytest.mark.parametrize(
    ("newer", "looked_at"),
    [
        (copied(2), False),
        (copied(2, ttl_ms=1000), True),
        (copied(2, purged_before=60), True),
    ],
    ids=["nothing", "a shorter ttl", "a purge"],
)
def test_a_copy_that_changes_is_swept(book: Book, newer: StreamCopied, looked_at: bool) -> None:
    book.apply(copied(purged_before=50))
    book.apply(newer)
    found = book.index.facts.stream(COPIED)
    assert found is not None
    assert (found.version, found.purged_before) == (2, max(50, newer.purged_before))
    slots = [keys.split_slot(key) for key, _ in book.index.store.scan(b"E")]
    assert [it for it in slots if it[0] == 0] == [(0, COPIED, it) for it in range(4) if looked_at]


def test_a_dropped_copy_is_remembered_until_that_is_forgotten(book: Book) -> None:
    book.apply(copied(), Opened(0, 0, 50, COPIED, 0, 9, 500))
    book.apply(AgentBegun(3, 1, 9, "producer", COPIED, "p", 0, [], 4))
    agent = book.index.facts.agent(9)
    assert agent is not None
    assert agent.rank == 4
    book.apply(CopyDropped(0, 0, COPIED, [50], 5_000), CopyDropped(0, 0, COPIED + 1, [], 4_000))
    facts = book.index.facts
    assert (facts.stream_named("far"), facts.stream(COPIED)) == (None, None)
    assert list(facts.dropped_copies()) == [(COPIED + 1, 4_000), (COPIED, 5_000)]
    book.sweep_all(5_000)
    assert not {"X", "A", "K"} & set(book.kinds())
    book.sweep_all(4_000 + 2 * HOUR_MS)  # by its record only
    book.apply(CopiesForgotten(0, 0, [COPIED + 1, COPIED + 2]))
    assert list(facts.dropped_copies()) == [(COPIED, 5_000)]


def test_a_damaged_decision_is_corrupt(book: Book) -> None:
    batch = book.index.store.batch()
    batch.put(b"Vxx", b"")
    book.index.store.write(batch)
    with pytest.raises(Corrupt):
        dict(book.index.facts.decided())
    with pytest.raises(Corrupt, match="not the key of a decision"):
        keys.split_decided(b"Vxx")


def test_all_of_it_is_the_same_after_a_crash(book: Book) -> None:
    book.index.store.flush()
    book.apply(copied(), OpenedWith(0, 0, 50, 1, 0, 9, 1000, 4), prepared(50))
    book.apply(SessionBegun(5, 0), Decided(5, 0, 1, [1, 2]), ToTell(0, 0, 1, 2, [1]))
    book.apply(CopyDropped(0, 0, COPIED + 1, [], 4_000))
    before = book.contents()
    book.crash()
    book.replay()
    assert book.contents() == before
