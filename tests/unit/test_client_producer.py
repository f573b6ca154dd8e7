"""The rules of a producer, against the rules of a shard: no network, no threads, no clock."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tstreams.client.rules.draft import Draft
from tstreams.client.rules.instant import InstantSink
from tstreams.client.rules.outbox import Outbox
from tstreams.client.rules.partitioning import Partitioner
from tstreams.client.rules.producer import Producer, open_producer
from tstreams.client.rules.streams import create_stream, delete_stream
from tstreams.errors import Expired, Fenced, InvalidState, Timeout, TooLarge, Unavailable
from tstreams.items import Codec, Items, headers_of, read
from tstreams.limits import (
    CLIENT_WINDOW_BYTES,
    COMMIT_BROUGHT_MAX,
    FRAME_BYTES_MAX,
    ITEM_BYTES_MAX,
    SEND_BATCH_BYTES,
)
from tstreams.model import Stream, TransactionState
from tstreams.protocol import AgentOpened, Done, SessionOpened, StreamInfo

from .client_wires import Script, ShardWire, Waiting, link_to, run

OPENED, CHECKPOINTED = TransactionState.OPENED, TransactionState.CHECKPOINTED
CANCELLED, INVALID = TransactionState.CANCELLED, TransactionState.INVALID


@pytest.fixture
def wire() -> ShardWire:
    return ShardWire()


@pytest.fixture
def producer(wire: ShardWire) -> Producer:
    link = link_to(wire)
    run(create_stream(link, "clicks", 4, "7d", "", None))
    return run(open_producer(link, "clicks", "p1", None, 60.0, "none"))


def opened(producer: Producer, partition: int = 0, *items: bytes) -> Draft:
    draft: Draft = run(producer.open(partition, None, "enqueue"))
    for item in items:
        draft.add(item)
    return draft


def checkpoint(producer: Producer, draft: Draft) -> Any:
    yield from producer.prepare_one(draft)
    yield from producer.commit_one(draft)


LARGE = b"x" * SEND_BATCH_BYTES
"""What is sent before the checkpoint, and does not come along with it."""


# Checkpoints wait for their data, or bring it along.


def test_what_is_small_comes_along_with_the_checkpoint(wire: ShardWire, producer: Producer) -> None:
    draft = opened(producer, 0, b"x", b"y")
    run(checkpoint(producer, draft))
    assert wire.log[-2:] == ["OpenTransaction", "Commit"]
    assert draft.state is CHECKPOINTED
    assert wire.counts == {draft.id: 2}
    window = producer.agent.link.window
    assert (window.bytes, window.requests) == (0, 0)


def test_the_last_items_come_along_after_those_that_were_sent(
    wire: ShardWire, producer: Producer
) -> None:
    draft = opened(producer, 0, LARGE)
    run(draft.flush())
    draft.add(b"y")
    run(checkpoint(producer, draft))
    assert wire.log[-3:] == ["OpenTransaction", "SendItems", "Commit"]
    assert wire.counts == {draft.id: 2}


def test_of_many_transactions_the_first_come_along(wire: ShardWire, producer: Producer) -> None:
    drafts = [opened(producer, 0, b"x") for _ in range(COMMIT_BROUGHT_MAX + 3)]
    wire.log.clear()
    run(producer.checkpoint())
    assert wire.log == ["SendItems"] * 3 + ["Commit"]
    assert {draft.state for draft in drafts} == {CHECKPOINTED}
    window = producer.agent.link.window
    assert (window.bytes, window.requests) == (0, 0)


def test_what_was_to_come_along_goes_before_what_is_added_later() -> None:
    script, draft, producer = scripted()
    draft.add(b"x")
    producer.turns.taken = True
    interrupted = Waiting(checkpoint(producer, draft))
    interrupted.interrupt()
    producer.turns.taken = False
    assert script.names == []
    draft.add(b"y")
    waiting = Waiting(checkpoint(producer, draft))
    batches = []
    for _ in range(2):
        asked = script.take("SendItems")
        batches.append(list(Items(asked.sent)))
        asked.answer(Done())
    waiting.go_on()
    script.take("Commit").answer(Done())
    waiting.go_on()
    assert batches == [[b"x"], [b"y"]]
    assert draft.state is CHECKPOINTED


def test_a_checkpoint_that_begins_while_a_batch_is_refused_is_not_sent() -> None:
    """The answer comes on another thread: it is there a moment before the transaction is told of it."""
    script, draft, producer = scripted()
    draft.add(LARGE)
    run(draft.flush())
    refused = script.take("SendItems")
    begun: list[Waiting] = []
    refused.sink._callbacks.insert(0, lambda _: begun.append(Waiting(checkpoint(producer, draft))))
    refused.fail("unavailable", "the disk is full")
    assert script.names == []
    assert isinstance(begun[0].error, Unavailable)


def test_a_checkpoint_that_was_not_sent_gives_back_the_room_of_what_was_to_come_along() -> None:
    script, draft, producer = scripted()
    draft.add(b"x")
    producer.turns.taken = True
    waiting = Waiting(checkpoint(producer, draft))
    window = producer.agent.link.window
    assert window.bytes > 0
    waiting.interrupt()
    assert (window.bytes, window.requests) == (0, 0)
    producer.turns.taken = False
    cancelling = Waiting(producer.cancel_one(draft))
    script.take("CancelTransactions").answer(Done())
    cancelling.go_on()
    assert (draft.state, window.bytes, window.requests) == (CANCELLED, 0, 0)


def test_a_checkpoint_that_waits_for_room_holds_none(wire: ShardWire, producer: Producer) -> None:
    """Else several could wait for the room that each of them holds."""
    window = producer.agent.link.window
    drafts = [opened(producer, 0, b"x" * (SEND_BATCH_BYTES * 3 // 4)) for _ in range(2)]
    others = CLIENT_WINDOW_BYTES - SEND_BATCH_BYTES  # so that there is room for one of the two
    window.push_in(others)
    waiting = Waiting(producer.checkpoint())
    assert (waiting.ended, window.bytes) == (False, others)
    window.leave(others)
    waiting.go_on()
    assert (waiting.ended, waiting.error) == (True, None)
    assert {draft.state for draft in drafts} == {CHECKPOINTED}
    assert (window.bytes, window.requests) == (0, 0)


# Transactions that their checkpoint opens.


def test_one_that_its_checkpoint_opens_needs_one_request(
    wire: ShardWire, producer: Producer
) -> None:
    draft = producer.begin(2)
    draft.add(b"x")
    wire.log.clear()
    run(producer.checkpoint())
    assert wire.log == ["Commit"]
    assert draft.state is CHECKPOINTED
    assert list(wire.counts.values()) == [1]


def test_one_that_grows_is_opened_before(wire: ShardWire, producer: Producer) -> None:
    draft = producer.begin(2)
    draft.add(LARGE)
    wire.log.clear()
    run(producer.checkpoint())
    assert wire.log == ["OpenTransaction", "SendItems", "Commit"]
    assert wire.counts == {draft.id: 1}


def test_one_that_was_never_opened_is_cancelled_without_a_word(
    wire: ShardWire, producer: Producer
) -> None:
    draft, empty = producer.begin(2), producer.begin(3)
    draft.add(b"x")
    wire.log.clear()
    run(producer.cancel())
    assert (wire.log, draft.state, empty.state) == ([], CANCELLED, CANCELLED)


def test_one_in_doubt_is_not_sent_again() -> None:
    """It has no id by which the server would know it: both might come to be."""
    script, _, producer = scripted()
    draft = producer.begin(0)
    draft.add(b"x")
    waiting = Waiting(checkpoint(producer, draft))
    script.take("Commit").fail("deadline_exceeded", "no answer")
    waiting.go_on()
    assert isinstance(waiting.error, Unavailable)
    with pytest.raises(InvalidState):
        draft.add(b"y")
    again = Waiting(producer.checkpoint())
    assert script.take("Commit").message.brought == []
    assert not again.ended


def test_a_checkpoint_is_sent_after_its_data_has_arrived(
    wire: ShardWire, producer: Producer
) -> None:
    draft = opened(producer, 0, LARGE)
    wire.hold = {"SendItems"}
    waiting = Waiting(checkpoint(producer, draft))
    assert [it.name for it in wire.held] == ["SendItems"]
    assert "Commit" not in wire.log
    wire.release()
    waiting.go_on()
    assert waiting.ended
    assert wire.log[-2:] == ["SendItems", "Commit"]
    assert draft.state is CHECKPOINTED


def test_nothing_is_checkpointed_if_its_data_did_not_arrive() -> None:
    script, draft, producer = scripted()
    draft.add(LARGE)
    waiting = Waiting(checkpoint(producer, draft))
    script.take("SendItems").fail("unavailable", "the disk is full")
    waiting.go_on()
    assert isinstance(waiting.error, Unavailable)
    assert script.names == []
    assert draft.state is OPENED
    with pytest.raises(Unavailable, match="full"):
        draft.add(b"y")
    again = Waiting(checkpoint(producer, draft))
    assert isinstance(again.error, Unavailable)
    cancelling = Waiting(producer.cancel_one(draft))
    script.take("CancelTransactions").answer(Done())
    cancelling.go_on()
    assert draft.state is CANCELLED


def scripted() -> tuple[Script, Draft, Producer]:
    script = Script()
    making = Waiting(open_producer(link_to(script), "clicks", "p1", None, 60.0, "none"))
    script.take("OpenSession").answer(SessionOpened(1, 900_000))
    making.go_on()
    script.take("OpenAgent").answer(AgentOpened(2, StreamInfo(3, "clicks", 4, 10**9, "", None)))
    making.go_on()
    producer = making.result
    opening = Waiting(producer.open(0, None, "enqueue"))
    script.take("OpenTransaction").answer(Done(77))
    opening.go_on()
    return script, opening.result, producer


def test_what_comes_after_a_checkpoint_waits_for_its_turn(
    wire: ShardWire, producer: Producer
) -> None:
    draft = opened(producer, 0, LARGE)
    wire.hold = {"SendItems"}
    checkpointing = Waiting(checkpoint(producer, draft))
    future: Future[int] = Future()
    sink = InstantSink(future)
    batch = producer.pack_instant([b"y"])
    assert isinstance(batch, bytes)
    assert not producer.try_instant(sink, 0, batch)
    instant = Waiting(producer.send_instant(sink, 0, batch))
    assert not instant.ended
    wire.release()
    checkpointing.go_on()
    instant.go_on()
    assert wire.log[-3:] == ["SendItems", "Commit", "Instant"]
    assert future.result(0) > draft.id


def test_all_open_transactions_are_one_commit(wire: ShardWire, producer: Producer) -> None:
    drafts = [opened(producer, partition, b"x") for partition in range(4)]
    run(producer.checkpoint())
    assert wire.log.count("Commit") == 1
    assert {draft.state for draft in drafts} == {CHECKPOINTED}


def test_an_empty_one_is_told_to_the_server_too(wire: ShardWire, producer: Producer) -> None:
    draft = opened(producer)
    run(checkpoint(producer, draft))
    assert wire.log[-1] == "Commit"
    assert draft.state is CANCELLED
    assert not wire.shard.state.open


def test_who_closes_a_transaction_first_closes_it(wire: ShardWire, producer: Producer) -> None:
    draft = opened(producer, 0, b"x")
    wire.hold = {"Commit"}
    first = Waiting(checkpoint(producer, draft))
    for second in (producer.cancel_one(draft), checkpoint(producer, draft)):
        with pytest.raises(InvalidState, match="under way"):
            run(second)
    with pytest.raises(InvalidState):
        draft.add(b"late")
    wire.release()
    first.go_on()
    assert draft.state is CHECKPOINTED


# What the server says of transactions.


def test_an_expired_one_is_invalid(wire: ShardWire, producer: Producer) -> None:
    draft = opened(producer, 0, b"x")
    wire.now_ms += 61_000
    with pytest.raises(Expired):
        run(checkpoint(producer, draft))
    assert draft.state is INVALID
    with pytest.raises(Expired):
        draft.add(b"y")


def test_of_many_the_named_one_is_invalid(wire: ShardWire, producer: Producer) -> None:
    old = opened(producer, 0, b"x")
    wire.now_ms += 59_000
    young = opened(producer, 1, b"x")
    wire.now_ms += 2_000
    with pytest.raises(Expired):
        run(producer.checkpoint())
    assert (old.state, young.state) == (INVALID, OPENED)
    run(producer.checkpoint())
    assert young.state is CHECKPOINTED


def test_a_fenced_producers_transactions_are_cancelled(wire: ShardWire, producer: Producer) -> None:
    drafts = [opened(producer, 0, b"x"), opened(producer, 1)]
    run(open_producer(link_to(wire), "clicks", "p1", None, 60.0, "none"))
    with pytest.raises(Fenced):
        run(producer.checkpoint())
    assert {draft.state for draft in drafts} == {CANCELLED}
    with pytest.raises(Fenced):
        run(producer.open(0, None, "enqueue"))


def test_the_transactions_of_a_deleted_stream_are_gone(wire: ShardWire, producer: Producer) -> None:
    draft = opened(producer)
    run(delete_stream(producer.agent.link, "clicks"))
    with pytest.raises(InvalidState):
        run(checkpoint(producer, draft))
    assert draft.state is CANCELLED


def test_a_checkpoint_in_doubt_may_have_worked() -> None:
    script, draft, producer = scripted()
    waiting = Waiting(checkpoint(producer, draft))
    script.take("Commit").fail("deadline_exceeded", "no answer")
    waiting.go_on()
    assert isinstance(waiting.error, Timeout)
    assert draft.state is OPENED, "nobody knows better"
    again = Waiting(checkpoint(producer, draft))
    script.take("Commit").fail("invalid_state", "transaction 77 is not open")
    again.go_on()
    assert isinstance(again.error, InvalidState)
    assert draft.state is OPENED
    everything = Waiting(producer.checkpoint())
    assert script.take("Commit").message.transactions == []
    assert not everything.ended


def test_a_transaction_whose_opening_nobody_waited_for_is_cancelled() -> None:
    script, _, producer = scripted()
    opening = Waiting(producer.open(1, None, "enqueue"))
    asked = script.take("OpenTransaction")
    opening.interrupt()
    assert isinstance(opening.error, KeyboardInterrupt)
    assert script.names == []
    assert asked.timeout is None, "its answer is waited for, however long it takes"
    asked.answer(Done(99))
    assert script.take("CancelTransactions").message.transactions == [99]


def test_an_abandoned_transaction_is_cancelled_however_long_it_takes() -> None:
    script, draft, producer = scripted()
    waiting = Waiting(checkpoint(producer, draft))
    script.take("Commit").fail("deadline_exceeded", "no answer")
    waiting.go_on()
    producer.abandon(draft)
    asked = script.take("CancelTransactions")
    assert (asked.message.transactions, asked.timeout) == ([77], None)
    with pytest.raises(InvalidState):
        draft.add(b"x")
    assert draft.state is OPENED, "the checkpoint may have worked"
    asked.answer(Done())
    assert draft.state is CANCELLED


def test_closing_waits_for_what_was_submitted(wire: ShardWire, producer: Producer) -> None:
    draft, left = opened(producer, 0, LARGE), opened(producer, 1)
    wire.hold = {"SendItems"}
    checkpointing = Waiting(checkpoint(producer, draft))
    closing = Waiting(producer.close())
    assert not closing.ended
    wire.release()
    checkpointing.go_on()
    closing.go_on()
    assert closing.target is None
    assert wire.log[-3:] == ["SendItems", "Commit", "CloseAgent"]
    assert (draft.state, left.state) == (CHECKPOINTED, CANCELLED)


# Batches.


def test_a_transaction_has_a_bounded_number_of_batches_under_way() -> None:
    script, draft, _ = scripted()
    writing = Waiting(draft.add_many([b"x" * SEND_BATCH_BYTES] * 40))
    assert len(script.asked) == 16
    while script.asked:
        script.take("SendItems").answer(Done())
        writing.go_on()
    assert writing.ended


def test_pieces_of_an_item_are_not_mixed_with_other_batches(wire: ShardWire) -> None:
    script, draft, _ = scripted()
    large = Waiting(draft.add_many([b"x" * (FRAME_BYTES_MAX * 3)]))
    other = Waiting(draft.add_many([b"y" * SEND_BATCH_BYTES]))
    batches = []
    while script.asked or not (large.ended and other.ended):
        asked = script.take("SendItems")
        batches.append(asked.sent)
        asked.answer(Done())
        large.go_on()
        if large.ended:
            other.go_on()
    sizes = [len(item) for items in read(batches) for item in items]
    assert sizes == [FRAME_BYTES_MAX * 3, SEND_BATCH_BYTES]


@given(st.lists(st.binary(max_size=40), max_size=50), st.sampled_from(list(Codec)))
def test_an_outbox_loses_nothing(items: list[bytes], codec: Codec) -> None:
    outbox = Outbox(codec, None)
    for number, item in enumerate(items):
        if number % 3:
            outbox.add(item)
        else:
            outbox.extend([bytearray(item)])
    assert [it for batch in read(outbox.take()) for it in batch] == items
    assert list(outbox.take()) == []


def test_an_outbox_makes_batches_of_a_good_size() -> None:
    outbox = Outbox(Codec.NONE, None)
    assert outbox.extend([b"x" * 1000] * 1000)
    sizes = [len(batch) for batch in outbox.take()]
    assert len(sizes) == 4
    assert all(SEND_BATCH_BYTES <= size < SEND_BATCH_BYTES + 10_000 for size in sizes[:-1])


def test_an_outbox_is_due_when_it_is_full() -> None:
    outbox = Outbox(Codec.NONE, None)
    due = [outbox.add(b"x" * 1000) for _ in range(300)]
    assert due.index(True) == SEND_BATCH_BYTES // 1004
    assert Outbox(Codec.NONE, None).add(b"x" * SEND_BATCH_BYTES)
    empty = Outbox(Codec.NONE, None)
    assert not any(empty.add(b"") for _ in range(1000))


def test_an_outbox_refuses_what_is_too_large_and_keeps_the_rest() -> None:
    outbox = Outbox(Codec.NONE, None)
    outbox.add(b"good")
    huge = bytes(ITEM_BYTES_MAX + 1)
    with pytest.raises(TooLarge):
        outbox.add(huge)
    with pytest.raises(TooLarge):
        outbox.extend([b"x", huge])
    with pytest.raises(TypeError):
        outbox.extend([b"x", "text"])
    assert [it for batch in read(outbox.take()) for it in batch] == [b"good"]


# Partitions.


def test_keys_go_where_they_always_went() -> None:
    """Golden: whoever changes the hash tears the order of every key in every stream apart."""
    stream = Stream("s", 8, ttl=None)  # type: ignore[arg-type]
    partitioner = Partitioner(stream, None, "p")
    keys = [b"", b"a", b"user-7", b"user-8", b"\xff" * 100]
    assert [partitioner.pick(None, key) for key in keys] == [0, 6, 1, 3, 5]
    assert partitioner.pick(None, bytearray(b"user-7")) == partitioner.pick(None, b"user-7")


def test_keys_that_follow_each_other_are_spread_evenly() -> None:
    stream = Stream("s", 4, ttl=None)  # type: ignore[arg-type]
    partitioner = Partitioner(stream, None, "p")
    for keys in (
        [number.to_bytes(8, "big") for number in range(16)],
        [b"user-%d" % number for number in range(16)],
        [b"%d" % number for number in range(100)],
    ):
        counts = Counter(partitioner.pick(None, key) for key in keys)
        assert len(counts) == 4
        assert max(counts.values()) < 2 * min(counts.values())


def test_headers_go_with_the_first_batch_also_if_that_was_ready_for_another_checkpoint(
    wire: ShardWire, producer: Producer
) -> None:
    draft = run(producer.open(0, None, "enqueue", {"a": b"1"}))
    draft.add(b"first")
    draft.seal()
    run(draft.finish(may_bring=True))
    assert draft.last is not None
    assert headers_of(draft.last) == {"a": b"1"}
    draft.unseal()  # that checkpoint was not made
    draft.add(b"second")
    wire.hold.add("SendItems")
    run(draft.flush())
    sent = [it.sent for it in wire.held]
    assert [headers_of(it) for it in sent] == [{"a": b"1"}, {}]
    assert [list(it) for it in read(sent)] == [[b"first"], [b"second"]]


def test_empty_arrow_data_takes_no_headers_away(wire: ShardWire, producer: Producer) -> None:
    draft = run(producer.open(0, None, "enqueue", {"a": b"1"}))
    run(draft.add_many(pa.array([], pa.binary())))
    wire.hold.add("SendItems")
    run(draft.add_many(pa.array([b"x", b"y"])))
    run(draft.add_many(pa.array([b"z"])))
    assert [headers_of(it.sent) for it in wire.held] == [{"a": b"1"}, {}]
