"""What operators are shown of the index: in order, in pieces, and what resets and their cancels leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.index_book import Book, stream
from tstreams.core.facts import Session
from tstreams.core.records import (
    AgentBegun,
    AgentEnded,
    Committed,
    ItemsSent,
    Opened,
    Overruled,
    ReaderReset,
    SessionBegun,
    StepCommitted,
    StreamDeleted,
)
from tstreams.errors import BadRequest, Corrupt
from tstreams.index import Looks, keys

PLENTY = 1000


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "index")
    yield book
    book.index.store.close()


def saved(of_stream: int, reader: str, *positions: tuple[int, int]) -> Committed:
    return Committed(0, 0, [], [], [(of_stream, reader, *it) for it in positions])


def begun(agent: int, kind: str, of_stream: int, name: str) -> AgentBegun:
    return AgentBegun(7, 0, agent, kind, of_stream, name, 0, [])


def readers_of(
    book: Book, of_stream: int = 0, looks: int = PLENTY, positions_max: int = PLENTY
) -> list[tuple[int, str, list[tuple[int, int]], bool]]:
    """All of them, page by page."""
    found = []
    after = b""
    for _ in range(PLENTY):
        left = Looks(looks)
        for it, behind in book.index.listing.readers(of_stream, after, left, positions_max):
            if it is not None:
                found.append((it.stream, it.name, it.positions, it.positions_more))
            assert behind != after, "a list goes on"
            after = behind
        if left.left > 0:
            return found
    raise AssertionError("the list has no end")


def test_a_reset_puts_positions_and_takes_them_away(book: Book) -> None:
    book.apply(stream(1, "a", 3), SessionBegun(7, 0), begun(9, "reader", 1, "r"))
    book.apply(saved(1, "r", (0, 50), (1, 51)), saved(1, "rr", (0, 1)))
    facts = book.index.facts
    book.apply(ReaderReset(0, 0, 1, "r", [(1, 0), (2, 40)], 0))
    assert facts.positions(1, "r") == [(0, 50), (2, 40)]
    assert facts.agent_named("reader", 1, "r") == 9, "nobody was fenced"
    book.apply(ReaderReset(0, 0, 1, "r", [(0, 0), (2, 0)], 9))
    assert facts.positions(1, "r") == []
    assert facts.positions(1, "rr") == [(0, 1)]
    assert facts.agent_named("reader", 1, "r") is None
    assert facts.agent(9) is None
    assert [it.agents for it in facts.sessions()] == [set()]


def test_what_an_operator_cancels_is_dead(book: Book) -> None:
    book.apply(stream(1, "a"), Opened(0, 0, 50, 1, 0, 3, 1000), Opened(0, 0, 51, 1, 0, 3, 1000))
    book.apply(ItemsSent(0, 0, 50, 1, 0, 3), ItemsSent(0, 0, 51, 1, 0, 3))
    book.apply(Overruled(0, 0, [50]))
    assert [it.id for it in book.index.facts.open_transactions()] == [51]
    assert book.ids(1) == []
    assert book.live() == {1: 100}
    assert (book.kinds()["O"], book.kinds()["D"]) == (1, 1)


def test_lists_are_in_the_order_of_numbers_and_go_on(book: Book) -> None:
    names = [f"stream {number}" for number in range(300)]
    book.apply(*(stream(number, name) for number, name in enumerate(reversed(names), 1)))
    book.apply(*(Opened(0, 0, number, 1, 0, 3, 1000) for number in range(1000, 1300)))
    for session in range(400, 410):
        book.apply(SessionBegun(session, 0), sessions=(Session(session),))
    book.apply(StreamDeleted(0, 0, 5, []))
    listing = book.index.listing
    assert next(listing.streams(0)) == (1, "stream 299")
    numbers = [number for number, _ in listing.streams(0)]
    assert numbers == [it for it in range(1, 301) if it != 5]
    assert [number for number, _ in listing.streams(298)] == [299, 300]
    assert list(listing.streams(300)) == []
    assert list(listing.open_ids(1256)) == list(range(1257, 1300))
    assert list(listing.sessions(407)) == [408, 409]


def test_agents_and_jobs(book: Book) -> None:
    book.apply(stream(1, "a"), SessionBegun(7, 0), begun(9, "producer", 1, "p"))
    book.apply(
        begun(10, "reader", 1, "r"), begun(11, "reader", 1, "gone"), AgentEnded(0, 0, 11, [])
    )
    assert list(book.index.listing.agents(0)) == [
        (9, "producer", 1, "p", 7),
        (10, "reader", 1, "r", 7),
    ]
    assert [it[0] for it in book.index.listing.agents(9)] == [10]
    for job, step in (("b", 4), ("ä", 1), ("a", 0)):
        book.apply(StepCommitted(0, 0, job, step, [], [], [], [], False, 1000 + step))
    assert list(book.index.listing.jobs("")) == [("a", 0, 1000), ("b", 4, 1004), ("ä", 1, 1001)]
    assert [it[0] for it in book.index.listing.jobs("a")] == ["b", "ä"]
    assert [it[0] for it in book.index.listing.jobs("aa")] == ["b", "ä"]


def test_readers_with_positions_and_those_that_only_hold_a_name(book: Book) -> None:
    book.apply(stream(1, "a", 9), stream(2, "b"), stream(256, "c"), SessionBegun(7, 0))
    book.apply(saved(1, "zz", *((it, it) for it in range(9))), saved(1, "long name", (0, 5)))
    book.apply(saved(256, "r", (0, 6)), begun(9, "reader", 1, "zz"), begun(10, "reader", 1, "new"))
    book.apply(*(begun(20 + it, "producer", 1, f"p{it}") for it in range(20)))
    book.apply(begun(11, "reader", 2, "only"), begun(12, "producer", 2, "only"))
    every = [(it, it) for it in range(9)]
    wanted = [
        (1, "zz", every, False),
        (1, "long name", [(0, 5)], False),
        (256, "r", [(0, 6)], False),
        (1, "new", [], False),
        (2, "only", [], False),
    ]
    assert readers_of(book) == wanted
    assert readers_of(book, 1) == [wanted[0], wanted[1], wanted[3]]
    assert readers_of(book, 2) == [wanted[4]]
    assert readers_of(book, 3) == []
    for looks in range(1, 12):
        assert readers_of(book, looks=looks) == wanted, looks
    shown = readers_of(book, positions_max=4)
    assert shown[0] == (1, "zz", every[:4], True)
    assert shown[1:] == wanted[1:]
    assert readers_of(book, positions_max=9)[0] == wanted[0], "there are no more than these"


def test_many_producers_are_passed_over_at_once(book: Book) -> None:
    book.apply(stream(1, "a"), SessionBegun(7, 0), begun(9, "reader", 1, "r"))
    book.apply(*(begun(20 + it, "producer", 1, f"p{it}") for it in range(200)))
    looks = Looks(PLENTY)
    assert len(list(book.index.listing.readers(0, b"", looks, 1))) == 1
    assert PLENTY - looks.left < 5


@pytest.mark.parametrize("place", [b"X", b"T\0", b"C", b"C" + bytes(8), b"A" + b"\xff" * 8])
def test_a_place_of_another_list_is_refused(book: Book, place: bytes) -> None:
    book.apply(stream(1, "a"))
    with pytest.raises(BadRequest, match="no place in a list of readers"):
        list(book.index.listing.readers(1, place, Looks(9), 1))


@pytest.mark.parametrize(
    "key", [b"C", b"C" + bytes(8) + b"\5ab\0\0", b"C" + bytes(8) + b"\2\xff\xff\0\0"]
)
def test_a_damaged_key_of_a_position_is_named(key: bytes) -> None:
    with pytest.raises(Corrupt, match="the index is damaged"):
        keys.split_position_key(key)


@pytest.mark.parametrize("key", [b"A" + bytes(8), b"A" + bytes(8) + b"r\xff"])
def test_a_damaged_key_of_a_name_is_named(key: bytes) -> None:
    with pytest.raises(Corrupt, match="the index is damaged"):
        keys.split_holder(key)


def test_the_newest_first(book: Book) -> None:
    book.apply(stream(1, "a", 3), *(Opened(0, 0, 50 + it, 1, it % 3, 3, 1000) for it in range(9)))
    for number in range(9):
        book.apply(
            ItemsSent(0, 0, 50 + number, 1, number % 3, 1), Committed(0, 0, [50 + number], [], [])
        )
    back = book.index.facts.transactions_back
    assert [it for it, _ in back(1, 1, 0, 999)] == [57, 54, 51]
    assert [it for it, _ in back(1, 1, 52, 56)] == [54]
    assert [it for it, _ in back(1, 1, 51, 57)] == [57, 54, 51]
    assert list(back(1, 0, 0, 49)) == []
    assert book.index.applier.shown == [1] * 9


def test_one_reader_by_its_name(book: Book) -> None:
    book.apply(stream(1, "a", 9), stream(2, "b", 9), SessionBegun(7, 0))
    book.apply(begun(9, "reader", 1, "idle"))
    book.apply(saved(1, "r", *((it, 50 + it) for it in range(9))), saved(1, "rr", (0, 1)))
    reader = book.index.listing.reader
    found = reader(1, "r", 9)
    assert found is not None
    assert (found.name, found.positions_more) == ("r", False)
    assert found.positions == [(it, 50 + it) for it in range(9)]
    found = reader(1, "r", 8)
    assert found is not None
    assert (found.positions[-1], found.positions_more) == ((7, 57), True)
    assert [reader(*who, 9) for who in ((1, "idle"), (1, "nobody"), (2, "r"))] == [None] * 3
