"""The rules of a reader, against answers made by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tstreams.client.rules.cursor import Cursor, Starts
from tstreams.client.rules.delivery import Delivery, Source, unpack_parts
from tstreams.client.rules.lookups import between
from tstreams.client.rules.reader import Reader, open_reader
from tstreams.errors import Corrupt, InvalidState, NotFound, TooLarge, Unavailable
from tstreams.items import pack
from tstreams.limits import FETCH_BYTES, FETCH_WANTS_MAX
from tstreams.model import ID_MAX, Offset
from tstreams.protocol import (
    AgentOpened,
    Done,
    Fetched,
    FetchedTransaction,
    Positions,
    SessionOpened,
    StreamInfo,
    encode,
)

from .client_wires import Asked, Script, Waiting, link_to

NOTHING_SAVED = Positions(1000, [], [])


def make(
    partitions: int = 2,
    positions: Positions = NOTHING_SAVED,
    start: Offset | None = None,
    resume: bool = True,
) -> tuple[Script, Reader]:
    script = Script()
    making = Waiting(
        open_reader(link_to(script), "clicks", "c1", start or Offset.oldest(), resume, None)
    )
    script.take("OpenSession").answer(SessionOpened(1, 900_000))
    making.go_on()
    info = StreamInfo(3, "clicks", partitions, 10**9, "", None)
    script.take("OpenAgent").answer(AgentOpened(2, info))
    making.go_on()
    script.take("GetPositions").answer(positions)
    making.go_on()
    assert isinstance(making.result, Reader)
    return script, making.result


def answer(asked: Asked, *found: tuple[int, int], size: int = 0) -> None:
    """Answer a fetch with transactions (partition, id) of one small batch each."""
    batch = pack([b"x" * size])
    entries = [FetchedTransaction(p, number, 1, 1, 0, [len(batch)]) for p, number in found]
    asked.answer(Fetched(entries), batch * len(entries))


def wants(asked: Asked) -> dict[int, int]:
    return {want.partition: want.from_id for want in asked.message.wants}


def taken(reader: Reader) -> list[tuple[int, int]]:
    found = []
    while (delivery := reader.take_any()) is not None:
        found.append((delivery.entry.partition, delivery.id))
    return found


# Where it begins.


def test_a_saved_position_goes_before_the_start() -> None:
    _, reader = make(positions=Positions(1000, [], [(0, 50)]), start=Offset.newest())
    assert (reader.position(0), reader.position(1)) == (50, None)
    script, reader = make(positions=Positions(1000, [(1, 900)], [(0, 50)]), start=Offset.newest())
    Waiting(reader.next(None))
    assert wants(script.take("Fetch")) == {0: 51, 1: 900}


def test_without_resume_the_start_counts() -> None:
    script, reader = make(positions=Positions(1000, [(1, 900)], [(0, 50)]), resume=False)
    assert reader.position(0) is None
    Waiting(reader.next(None))
    assert wants(script.take("Fetch")) == {0: 0, 1: 0}


def test_offsets() -> None:
    starts = Starts(Positions(1000, [(1, 900)], []))
    assert starts.of(Offset.oldest(), 0) == (0, None)
    assert starts.of(Offset.newest(), 0) == (1000, None)
    assert starts.of(Offset.newest(), 1) == (900, None)
    assert starts.of(Offset.after(77), 0) == (78, 77)
    assert starts.of(Offset.after(ID_MAX), 0) == (ID_MAX, None)
    when = datetime(2024, 1, 1, tzinfo=UTC)
    assert starts.of(Offset.at(when), 0) == (Offset.at(when).id, None)


# Reading.


def test_the_next_answer_is_asked_for_while_the_user_works() -> None:
    script, reader = make()
    waiting = Waiting(reader.next(None))
    assert script.names == ["Fetch"]
    answer(script.take("Fetch"), (0, 10), (0, 11), (1, 12))
    waiting.go_on()
    assert isinstance(waiting.result, Delivery)
    assert waiting.result.id == 10
    ahead = script.take("Fetch")
    assert wants(ahead) == {0: 12, 1: 13}
    answer(ahead, (0, 13))
    assert taken(reader) == [(1, 12), (0, 11), (0, 13)]
    assert script.names == ["Fetch"], "one ahead, and not more"


def test_what_two_questions_brought_is_handed_out_once() -> None:
    script, reader = make()
    reading = Waiting(reader.next(None))
    getting = Waiting(reader.get(0, 60.0))
    lane, single = script.take("Fetch"), script.take("Fetch")
    answer(single, (0, 10), (0, 11))
    getting.go_on()
    assert getting.result.id == 10
    answer(lane, (0, 10), (0, 11), (0, 12), (1, 13))
    reading.go_on()
    assert reading.result.id == 11
    assert taken(reader) == [(0, 12), (1, 13)] or taken(reader) == [(1, 13), (0, 12)]


def test_a_seek_drops_what_was_asked_before() -> None:
    script, reader = make()
    waiting = Waiting(reader.next(None))
    answer(script.take("Fetch"), (0, 10), (0, 11), (1, 12))
    waiting.go_on()
    old = script.take("Fetch")
    assert Waiting(reader.seek(0, Offset.after(4))).ended
    assert script.cancelled == [old]
    answer(old, (0, 13))
    assert reader.position(0) == 4
    assert taken(reader) == [(1, 12)], "other partitions keep what they have"
    Waiting(reader.next(None))
    assert wants(script.take("Fetch")) == {0: 5, 1: 13}


def test_a_read_that_waits_looks_at_the_new_place_after_a_seek() -> None:
    script, reader = make()
    waiting = Waiting(reader.next(None))
    script.take("Fetch")
    Waiting(reader.seek(1, Offset.after(4)))
    waiting.go_on()
    answer(script.take("Fetch"), (1, 5))
    waiting.go_on()
    assert waiting.result.id == 5


def test_a_read_ends_only_after_the_server_had_nothing() -> None:
    script, reader = make()
    waiting = Waiting(reader.next(0.0))
    assert script.asked[0].message.wait_ms == 0
    answer(script.take("Fetch"))
    waiting.go_on()
    assert waiting.ended
    assert waiting.result is None
    failing = Waiting(reader.next(0.0))
    script.take("Fetch").fail("disconnected", "gone")
    failing.go_on()
    assert isinstance(failing.error, Unavailable), "not an end, if nobody was there to ask"


def test_a_failed_answer_is_raised_once_and_asked_for_again() -> None:
    script, reader = make()
    waiting = Waiting(reader.next(None))
    script.take("Fetch").fail("unavailable", "the shard stopped")
    waiting.go_on()
    assert isinstance(waiting.error, Unavailable)
    again = Waiting(reader.next(None))
    answer(script.take("Fetch"), (0, 1))
    again.go_on()
    assert again.result.id == 1


def test_partitions_take_turns() -> None:
    script, reader = make(3)
    waiting = Waiting(reader.next(None))
    answer(script.take("Fetch"), *[(0, n) for n in range(1, 5)], (2, 5), (1, 6), (1, 7))
    waiting.go_on()
    found = [(0, 1), *taken(reader)]
    assert found == [(0, 1), (2, 5), (1, 6), (0, 2), (1, 7), (0, 3), (0, 4)]


def test_each_question_begins_with_another_partition() -> None:
    script, reader = make(3)
    firsts = []
    for number in range(6):
        waiting = Waiting(reader.next(None))
        asked = script.take("Fetch")
        firsts.append(asked.message.wants[0].partition)
        answer(asked, (0, number + 1))
        waiting.go_on()
    assert set(firsts) == {0, 1, 2}


def test_many_partitions_are_many_questions() -> None:
    script, reader = make(2 * FETCH_WANTS_MAX + 1)
    waiting = Waiting(reader.next(None))
    assert [len(it.message.wants) for it in script.asked] == [FETCH_WANTS_MAX, FETCH_WANTS_MAX, 1]
    answer(script.asked[2], (2 * FETCH_WANTS_MAX, 9))
    waiting.go_on()
    assert waiting.result.id == 9


def test_get_asks_ahead_only_if_there_seems_to_be_more() -> None:
    script, reader = make()
    waiting = Waiting(reader.get(0, 5.0))
    asked = script.take("Fetch")
    assert wants(asked) == {0: 0}
    assert asked.message.wait_ms > 4000
    answer(asked, (0, 1))
    waiting.go_on()
    assert waiting.result.id == 1
    assert script.names == []
    waiting = Waiting(reader.get(0, 5.0))
    answer(script.take("Fetch"), (0, 2), size=FETCH_BYTES)
    waiting.go_on()
    ahead = script.take("Fetch")
    assert (wants(ahead), ahead.message.wait_ms) == ({0: 3}, 0)
    waiting = Waiting(reader.get(0, 5.0))
    assert script.names == [], "what was asked ahead is waited for"
    answer(ahead, (0, 3))
    waiting.go_on()
    assert waiting.result.id == 3


def test_an_interrupted_get_takes_its_question_back() -> None:
    script, reader = make()
    waiting = Waiting(reader.get(0, 5.0))
    waiting.interrupt()
    assert script.cancelled == script.asked


def test_closing_ends_all_questions() -> None:
    script, reader = make()
    getting, reading = Waiting(reader.get(0, 5.0)), Waiting(reader.next(None))
    closing = Waiting(reader.close())
    script.take("CloseAgent").answer(Done())
    for waiting in (closing, getting, reading):
        waiting.go_on()
        assert waiting.ended
    assert isinstance(getting.error, InvalidState)
    assert isinstance(reading.error, InvalidState)
    assert len(script.cancelled) == 2


# Checkpoints.


def read_some(script: Script, reader: Reader, *found: tuple[int, int]) -> None:
    waiting = Waiting(reader.next(None))
    answer(script.take("Fetch"), *found)
    waiting.go_on()
    taken(reader)
    script.asked.clear()


def positions(asked: Asked) -> list[tuple[int, int]]:
    return [(it.partition, it.transaction) for it in asked.message.positions]


def test_a_checkpoint_saves_what_is_new() -> None:
    script, reader = make()
    read_some(script, reader, (0, 10), (0, 11))
    waiting = Waiting(reader.checkpoint())
    asked = script.take("Commit")
    assert positions(asked) == [(0, 11)]
    asked.answer(Done())
    waiting.go_on()
    Waiting(reader.checkpoint())
    assert positions(script.take("Commit")) == [], "and is sent without anything new, to be fenced"


def test_a_failed_checkpoint_is_saved_by_the_next() -> None:
    script, reader = make()
    read_some(script, reader, (0, 10))
    waiting = Waiting(reader.checkpoint())
    script.take("Commit").fail("deadline_exceeded")
    waiting.go_on()
    Waiting(reader.checkpoint())
    assert positions(script.take("Commit")) == [(0, 10)]


def test_a_seek_can_be_checkpointed() -> None:
    script, reader = make(positions=Positions(1000, [], [(0, 50), (1, 60)]))
    Waiting(reader.seek(0, Offset.after(7)))
    Waiting(reader.seek(1, Offset.oldest()))
    Waiting(reader.checkpoint())
    assert positions(script.take("Commit")) == [(0, 7), (1, 0)]


def test_a_rewind_goes_back_to_the_last_checkpoint() -> None:
    script, reader = make(positions=Positions(1000, [], [(1, 5)]))
    read_some(script, reader, (0, 10), (1, 11))
    waiting = Waiting(reader.checkpoint())
    script.take("Commit").answer(Done())
    waiting.go_on()
    Waiting(reader.seek(0, Offset.after(30)))
    reader.rewind()
    assert (reader.position(0), reader.position(1)) == (10, 11)
    Waiting(reader.next(None))
    assert wants(script.take("Fetch")) == {0: 11, 1: 12}


def test_a_cursor_is_saved_where_it_stood() -> None:
    cursor = Cursor(0, 1, None)
    cursor.jump(20, 19)
    cursor.saved(10, 9)
    assert cursor.moved, "it went on meanwhile"
    cursor.saved(20, 19)
    assert not cursor.moved


# Large ones, and ranges.


def test_the_rest_of_a_transaction_is_fetched_from_where_it_broke_off() -> None:
    script, reader = make()
    waiting = Waiting(reader.get(0, 1.0))
    batches = [pack([b"%d" % n]) for n in range(3)]
    entry = FetchedTransaction(0, 10, 3, 3, 0, [len(batches[0])])
    script.take("Fetch").answer(Fetched([entry]), batches[0])
    waiting.go_on()
    delivery = waiting.result
    assert len(delivery.entry.sizes) < delivery.entry.batches
    more = Waiting(delivery.more(1))
    asked = script.take("Fetch")
    (want,) = asked.message.wants
    assert (want.from_id, want.to_id, want.first_batch) == (10, 10, 1)
    rest = FetchedTransaction(0, 10, 3, 3, 1, [len(batches[1]), len(batches[2])])
    asked.answer(Fetched([rest]), batches[1] + batches[2])
    more.go_on()
    assert [bytes(it) for it in more.result.batches()] == batches[1:]
    gone = Waiting(delivery.more(1))
    script.take("Fetch").answer(Fetched([]))
    gone.go_on()
    assert isinstance(gone.error, NotFound)


def test_a_range_is_asked_for_bit_by_bit() -> None:
    script, reader = make()
    waiting = Waiting(between(reader.source, 0, 10, 20))
    answer(script.take("Fetch"), (0, 11), (0, 15))
    waiting.go_on()
    asked = script.take("Fetch")
    assert [(it.from_id, it.to_id) for it in asked.message.wants] == [(16, 20)]
    answer(asked, (0, 20))
    waiting.go_on()
    assert [it.id for it in waiting.result] == [11, 15, 20]


def test_a_range_has_a_limit() -> None:
    script, reader = make()
    waiting = Waiting(between(reader.source, 0, 0, 100, bytes_max=1000))
    answer(script.take("Fetch"), (0, 1), (0, 2), size=600)
    waiting.go_on()
    with pytest.raises(TooLarge, match="seek"):
        raise waiting.error or AssertionError("no error")


def test_large_transactions_come_as_parts_of_their_own() -> None:
    source: Source = object.__new__(Source)
    batches = [pack([b"a" * 100]), pack([b"b" * 300]), pack([b"c" * 200])]
    entries = [
        FetchedTransaction(0, number, 1, 1, 0, [len(batch)]) for number, batch in enumerate(batches)
    ]
    head = encode(Fetched(entries))
    found = unpack_parts(source, (head, *batches))
    assert [(it.id, bytes(it.data)) for it in found] == list(enumerate(batches))
    for wrong in ((head, *batches[::-1]), (head, *batches[:2]), (head, *batches, b"more")):
        with pytest.raises(Corrupt, match="says that it has"):
            unpack_parts(source, wrong)
    with pytest.raises(Corrupt, match="says that it has"):
        unpack_parts(source, (encode(Fetched(entries[:1])), batches[0], b"more"))
