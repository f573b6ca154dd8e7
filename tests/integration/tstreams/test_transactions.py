"""Transactions, as their producer sees them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from operator import methodcaller

import pytest

from tstreams import (
    BadRequest,
    Client,
    Consumer,
    Expired,
    InvalidState,
    Transaction,
    TransactionState,
)
from tstreams.server import Node

from .conftest import ONE_SHARD, Clock, eventually, measured

OPENED, CHECKPOINTED = TransactionState.OPENED, TransactionState.CHECKPOINTED
CANCELLED, INVALID = TransactionState.CANCELLED, TransactionState.INVALID

End = Callable[[Transaction], None]
ENDS: list[End] = [methodcaller("checkpoint"), methodcaller("cancel")]


def seen(consumer: Consumer) -> list[list[bytes]]:
    """All that is visible."""
    return [list(txn.items) for txn in consumer.read(max_wait=0)]


def test_a_transaction_is_visible_after_its_checkpoint(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks, "p1"), ts.consumer(clicks, "c1")
    txn = producer.open(2)
    txn.send(b"one")
    txn.send_many([b"two", b"three"])
    assert (txn.partition, txn.stream, txn.state) == (2, clicks, OPENED)
    assert consumer.get(2) is None
    txn.checkpoint()
    assert txn.state is CHECKPOINTED
    read = consumer.get(2, timeout=10)
    assert read is not None
    assert (read.id, read.partition, read.stream) == (txn.id, 2, clicks)
    assert read.items == [b"one", b"two", b"three"]
    assert len(read) == 3
    assert read.state is CHECKPOINTED


def test_an_id_is_a_time(ts: Client, clicks: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    txn = ts.producer(clicks).open()
    assert txn.time.tzinfo is UTC
    assert before < txn.time < datetime.now(UTC) + timedelta(seconds=1)


def test_leaving_the_block_checkpoints(ts: Client, clicks: str) -> None:
    consumer = ts.consumer(clicks)
    with ts.producer(clicks).transaction(partition=0) as txn:
        txn.send(b"in")
    assert txn.state is CHECKPOINTED
    assert seen(consumer) == [[b"in"]]


def test_an_exception_cancels_and_is_not_masked(ts: Client, clicks: str) -> None:
    consumer = ts.consumer(clicks)
    txn = ts.producer(clicks).transaction()
    txn.send(b"never")
    with pytest.raises(ZeroDivisionError), txn:
        1 / 0
    assert txn.state is CANCELLED
    assert seen(consumer) == []


def test_an_exception_is_not_masked_if_the_cancel_fails(
    ts: Client, clock: Clock, clicks: str
) -> None:
    txn = ts.producer(clicks).transaction()
    clock.advance(30 * 86_400)
    with pytest.raises(ZeroDivisionError), txn:
        1 / 0
    assert txn.state is INVALID


def test_a_block_may_close_its_transaction_itself(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    with producer.transaction() as checkpointed:
        checkpointed.send(b"x")
        checkpointed.checkpoint()
    with producer.transaction() as cancelled:
        cancelled.send(b"y")
        cancelled.cancel()
    assert (checkpointed.state, cancelled.state) == (CHECKPOINTED, CANCELLED)


def test_a_cancelled_transaction_is_never_seen(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    txn = producer.open(0)
    txn.send_many([b"x" * 1000] * 1000)
    txn.cancel()
    assert txn.state is CANCELLED
    assert seen(consumer) == []


def test_an_empty_checkpoint_ends_cancelled(ts: Client, clicks: str) -> None:
    consumer = ts.consumer(clicks)
    txn = ts.producer(clicks).open()
    txn.checkpoint()
    assert txn.state is CANCELLED
    assert seen(consumer) == []


@pytest.mark.parametrize("first", ENDS, ids=["checkpoint", "cancel"])
@pytest.mark.parametrize("second", ENDS, ids=["checkpoint", "cancel"])
def test_the_end_comes_once(ts: Client, clicks: str, first: End, second: End) -> None:
    txn = ts.producer(clicks).open()
    txn.send(b"x")
    first(txn)
    state = txn.state
    with pytest.raises(InvalidState, match=str(txn.id)):
        second(txn)
    with pytest.raises(InvalidState):
        txn.send(b"late")
    with pytest.raises(InvalidState):
        txn.send_many([b"late"])
    assert txn.state is state


def test_a_checkpoint_can_be_a_future(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    futures: list[Future[None]] = []
    transactions = []
    for number in range(50):
        txn = producer.open(0)
        txn.send(b"%d" % number)
        futures.append(txn.checkpoint(wait=False))
        transactions.append(txn)
    assert [future.result(30) for future in futures] == [None] * 50
    assert {txn.state for txn in transactions} == {CHECKPOINTED}
    assert seen(consumer) == [[b"%d" % number] for number in range(50)]


def test_nothing_more_is_written_while_a_checkpoint_is_under_way(ts: Client, clicks: str) -> None:
    txn = ts.producer(clicks).open()
    txn.send(b"x")
    future = txn.checkpoint(wait=False)
    with pytest.raises(InvalidState):
        txn.checkpoint()
    with pytest.raises(InvalidState):
        txn.send(b"late")
    future.result(30)


def test_items_may_be_reused_after_they_were_sent(ts: Client, clicks: str) -> None:
    consumer = ts.consumer(clicks)
    buffer = bytearray(b"first")
    with ts.producer(clicks).transaction() as txn:
        txn.send(buffer)
        txn.send_many([buffer, memoryview(buffer)])
        txn.send_many(item for item in (buffer,))
        buffer[:] = b"wrong"
    assert seen(consumer) == [[b"first"] * 4]


def test_text_is_no_item(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    with producer.transaction() as txn:
        txn.send(b"good")
        for wrong in ("text", 7, None):
            with pytest.raises(TypeError, match="bytes-like"):
                txn.send(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="str"):
            txn.send_many([b"x", "text"])
        for one in (b"bytes", "text"):
            with pytest.raises(TypeError):
                txn.send_many(one)
    assert seen(ts.consumer(clicks)) == [[b"good"]], "a wrong item leaves nothing behind"


# Which transactions are open in the partition, and what becomes of them.


def test_policy_enqueue_is_the_default(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    first, second = producer.open(0), producer.open(0)
    assert first.id < second.id
    assert first.state is OPENED


@pytest.mark.parametrize(
    ("policy", "state"), [("checkpoint", CHECKPOINTED), ("cancel", CANCELLED), ("enqueue", OPENED)]
)
def test_policies(ts: Client, clicks: str, policy: str, state: TransactionState) -> None:
    producer = ts.producer(clicks)
    first, elsewhere = producer.open(0), producer.open(1)
    first.send(b"x")
    second = producer.open(0, policy=policy)
    assert (first.state, second.state, elsewhere.state) == (state, OPENED, OPENED)


def test_policy_error(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    first = producer.open(0, policy="error")
    with pytest.raises(InvalidState, match=str(first.id)):
        producer.open(0, policy="error")
    producer.open(1, policy="error")
    first.cancel()
    producer.open(0, policy="error")


def test_an_unknown_policy_is_refused(ts: Client, clicks: str) -> None:
    with pytest.raises(BadRequest, match="enqueue"):
        ts.producer(clicks).open(policy="maybe")


# Checkpoints and cancels of many.


def test_all_open_transactions_are_checkpointed_at_once(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    transactions = [producer.open(partition) for partition in (0, 1, 1, 2)]
    for txn in transactions:
        txn.send(b"x")
    producer.checkpoint(1)
    assert [txn.state for txn in transactions] == [OPENED, CHECKPOINTED, CHECKPOINTED, OPENED]
    producer.checkpoint()
    assert {txn.state for txn in transactions} == {CHECKPOINTED}
    assert len(seen(consumer)) == 4
    producer.checkpoint()


def test_all_open_transactions_are_cancelled(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    transactions = [producer.open(partition) for partition in (0, 1, 1, 2)]
    producer.cancel(1)
    assert [txn.state for txn in transactions] == [OPENED, CANCELLED, CANCELLED, OPENED]
    producer.cancel()
    assert {txn.state for txn in transactions} == {CANCELLED}
    producer.cancel()


def test_closing_a_producer_cancels_what_it_left_open(ts: Client, clicks: str) -> None:
    consumer = ts.consumer(clicks)
    with ts.producer(clicks) as producer:
        txn = producer.open(0)
        txn.send(b"x")
    assert txn.state is CANCELLED
    assert seen(consumer) == []
    producer.close()
    for use in (producer.open, producer.checkpoint, producer.cancel, txn.checkpoint, txn.cancel):
        with pytest.raises(InvalidState):
            use()
    with pytest.raises(InvalidState, match="closed"):
        producer.instant([b"x"])
    with pytest.raises(InvalidState):
        txn.send(b"x")


def test_what_was_submitted_before_the_close_takes_effect(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    txn = producer.open(0)
    txn.send_many([b"x" * 1000] * 2000)
    checkpoint = txn.checkpoint(wait=False)
    instant = producer.instant([b"y"], partition=0, wait=False)
    producer.close()
    assert checkpoint.result(30) is None
    assert instant.result(30) > txn.id
    assert [len(items) for items in seen(ts.consumer(clicks))] == [2000, 1]


# The order.


def test_readers_see_transactions_in_the_order_of_their_opening(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    first, second = producer.open(0), producer.open(0)
    second.send(b"second")
    second.checkpoint()
    assert consumer.get(0) is None, "the open one holds it back"
    first.send(b"first")
    first.checkpoint()
    assert seen(consumer) == [[b"first"], [b"second"]]


def test_threads_share_a_transaction(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    txn = producer.open(0)

    def write(thread: int) -> None:
        for number in range(2000):
            txn.send(b"%d %d " % (thread, number) + b"x" * 300)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    txn.checkpoint()
    read = consumer.get(0, timeout=30)
    assert read is not None
    by_thread: dict[bytes, list[int]] = {}
    for item in read.items:
        name, number, _ = item.split(b" ")
        by_thread.setdefault(name, []).append(int(number))
    assert by_thread == {b"%d" % thread: list(range(2000)) for thread in range(4)}


# Time.


def test_a_lease_that_ran_out_makes_the_transaction_invalid(
    ts: Client, clock: Clock, clicks: str
) -> None:
    producer = ts.producer(clicks, transaction_ttl=60.0)
    txn = producer.open(0)
    txn.send(b"x")
    clock.advance(61)
    with pytest.raises(Expired, match=str(txn.id)):
        txn.checkpoint()
    assert txn.state is INVALID
    with pytest.raises(InvalidState):
        txn.checkpoint()
    with pytest.raises(InvalidState):
        txn.send(b"x")
    with producer.transaction(0) as again:
        again.send(b"y")
    read = ts.consumer(clicks).get(0, timeout=20)
    assert read is not None
    assert read.id == again.id


def test_expiry_shows_when_items_are_sent(ts: Client, clock: Clock, clicks: str) -> None:
    txn = ts.producer(clicks).open(0)
    clock.advance(61)
    with pytest.raises(Expired):
        txn.send_many(b"x" * 10_000 for _ in range(100_000))
    assert txn.state is INVALID


def test_one_that_expired_unnoticed_is_not_left_out_of_a_checkpoint_of_all(
    ts: Client, clock: Clock, clicks: str
) -> None:
    producer = ts.producer(clicks, transaction_ttl=60.0)
    old = producer.open(0)
    clock.advance(61)
    young = producer.open(1)
    young.send(b"x")
    old.send(b"x" * 300_000)  # it leaves at once, and nobody waits for its answer
    eventually(lambda: old.state is INVALID)
    with pytest.raises(Expired, match=str(old.id)):
        producer.checkpoint()
    assert young.state is OPENED
    producer.checkpoint()
    assert young.state is CHECKPOINTED


def test_leaving_the_block_of_one_that_expired_unnoticed_is_an_error(
    ts: Client, clock: Clock, clicks: str
) -> None:
    producer = ts.producer(clicks, transaction_ttl=60.0)

    def write_too_late() -> None:
        with producer.transaction(0) as txn:
            clock.advance(61)
            txn.send(b"x" * 300_000)
            eventually(lambda: txn.state is INVALID)

    with pytest.raises(Expired):
        write_too_late()
    producer.checkpoint()  # it has been told


def test_who_knows_that_one_has_expired_is_not_told_again(
    ts: Client, clock: Clock, clicks: str
) -> None:
    producer = ts.producer(clicks, transaction_ttl=60.0)
    for give_up in (methodcaller("checkpoint"), methodcaller("send", b"y")):
        with producer.transaction(0) as txn:
            clock.advance(61)
            txn.send(b"x" * 300_000)
            eventually(lambda txn=txn: txn.state is INVALID)
            with pytest.raises(Expired):
                give_up(txn)
        producer.checkpoint()
    txn = producer.open(0)
    clock.advance(61)
    txn.send(b"x" * 300_000)
    eventually(lambda: txn.state is INVALID)
    producer.cancel()
    producer.checkpoint()


@ONE_SHARD
def test_of_many_only_the_expired_one_is_invalid(ts: Client, clock: Clock, clicks: str) -> None:
    ts.create_stream("other")
    producer = ts.producer(clicks, transaction_ttl=60.0)
    old = producer.open(0)
    clock.advance(59)
    young = producer.open(1)
    young.send(b"x")
    clock.advance(2)
    with pytest.raises(Expired):
        producer.checkpoint()
    assert (old.state, young.state) == (INVALID, OPENED)
    producer.checkpoint()
    assert young.state is CHECKPOINTED


def test_cancelling_many_is_not_held_up_by_an_expired_one(
    ts: Client, clock: Clock, clicks: str
) -> None:
    producer = ts.producer(clicks, transaction_ttl=60.0)
    old = producer.open(0)
    clock.advance(59)
    young = producer.open(1)
    clock.advance(2)
    producer.cancel()
    assert (old.state, young.state) == (INVALID, CANCELLED)


def test_the_background_keeps_leases(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks, transaction_ttl=1.0)
    with producer.transaction(0) as txn:
        txn.send(b"x")
        time.sleep(3.0)
    assert txn.state is CHECKPOINTED


def test_a_session_that_was_not_heard_of_says_what_to_do(
    ts: Client, node: Node, clock: Clock, clicks: str
) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks, "c1")
    txn = producer.open(0)
    clock.advance(16 * 60)
    eventually(lambda: not measured(node).gauges["sessions"])
    with pytest.raises(InvalidState, match="anew"):
        txn.checkpoint()
    assert txn.state is INVALID
    for use in (producer.open, consumer.checkpoint, lambda: producer.instant([b"x"])):
        with pytest.raises(InvalidState, match="anew"):
            use()
    ts.producer(clicks).instant([b"fresh"], partition=0)
    assert seen(ts.consumer(clicks, "c1")) == [[b"fresh"]]


@pytest.mark.parametrize("ttl", [0.4, -1, 25 * 3600, "x"])
def test_a_lease_makes_sense(ts: Client, clicks: str, ttl: float) -> None:
    with pytest.raises(BadRequest):
        ts.producer(clicks, transaction_ttl=ttl)
