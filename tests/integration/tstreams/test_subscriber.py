"""Subscribers: what they are called with, when they stop, and what they never do."""

from __future__ import annotations

import pickle
import threading
import time
from contextlib import ExitStack

import pytest

from tstreams import (
    BadRequest,
    Client,
    Fenced,
    InvalidState,
    Offset,
    Producer,
    ReadTransaction,
    Subscriber,
)

from .collecting import Collector
from .conftest import Connect, eventually
from .test_life import in_child


@pytest.fixture
def got() -> Collector:
    return Collector()


@pytest.fixture
def producer(ts: Client, clicks: str) -> Producer:
    return ts.producer(clicks, "p1")


def fill(producer: Producer, count: int, partitions: int = 4) -> list[int]:
    return [producer.instant([b"%d" % n], partition=n % partitions) for n in range(count)]


# What it is called with.


@pytest.mark.parametrize("count", [2, 12])
def test_all_of_them_hear_everything(
    ts: Client, clicks: str, producer: Producer, count: int
) -> None:
    """Few hear of it before its writer does, and many after: all of it, and in order."""
    everyone = [Collector() for _ in range(count)]
    with ExitStack() as stack:
        for number, it in enumerate(everyone):
            stack.enter_context(ts.subscriber(clicks, f"s{number}", **it.callbacks))
        ids = fill(producer, 200)
        for it in everyone:
            it.wait_for(200)
            for partition in range(4):
                assert it.of(partition) == ids[partition::4]


def test_history_first_and_then_what_comes(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    ids = fill(producer, 500)
    with ts.subscriber(clicks, "s1", **got.callbacks) as subscriber:
        got.wait_for(500)
        ids += fill(producer, 500)
        got.wait_for(1000)
        assert (subscriber.name, subscriber.stream) == ("s1", clicks)
        assert subscriber.partitions == [0, 1, 2, 3]
    for partition in range(4):
        assert got.of(partition) == ids[partition::4]


def test_it_goes_live_in_the_middle_of_the_writing(
    ts: Client, connect: Connect, clicks: str, got: Collector
) -> None:
    ids: list[int] = []
    begun = threading.Event()

    def write() -> None:
        producer = connect().producer(clicks)
        for number in range(2000):
            ids.append(producer.instant([b"x"], partition=number % 4))
            if number == 500:
                begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert begun.wait(30)
    with ts.subscriber(clicks, "s1", engines=3, **got.callbacks):
        writer.join()
        got.wait_for(2000)
    for partition in range(4):
        assert got.of(partition) == ids[partition::4]


def test_a_transaction_is_one_that_consumers_know(
    ts: Client, clicks: str, producer: Producer
) -> None:
    found: list[ReadTransaction] = []
    with producer.transaction(2) as txn:
        txn.send_many([b"a", b"b"])
    with ts.subscriber(clicks, on_transaction=lambda _, txn: found.append(txn)):
        eventually(lambda: found)
    read = found[0]
    assert (read.id, read.partition, read.stream, list(read.items)) == (
        txn.id,
        2,
        clicks,
        [b"a", b"b"],
    )
    assert (len(read), read.time) == (2, txn.time)


def test_a_large_transaction_is_one_whose_items_come_bit_by_bit(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    items = [b"%03d" % n * 30_000 for n in range(200)]  # 18 MB
    large = producer.instant(items, partition=0)
    behind = producer.instant([b"behind"], partition=0)
    with ts.subscriber(clicks, **got.callbacks):
        got.wait_for(2)
    assert got.found == [(0, large, items), (0, behind, [b"behind"])]


@pytest.mark.parametrize("at", ["oldest", "newest", "after"])
def test_where_it_starts(
    ts: Client, clicks: str, producer: Producer, got: Collector, at: str
) -> None:
    ids = [producer.instant([b"x"], partition=0) for _ in range(3)]
    offset = {"oldest": Offset.oldest(), "newest": Offset.newest(), "after": Offset.after(ids[1])}
    subscriber = ts.subscriber(clicks, start=offset[at], **got.callbacks)
    ids.append(producer.instant([b"x"], partition=0))
    expected = {"oldest": ids, "newest": ids[3:], "after": ids[2:]}[at]
    with subscriber:
        got.wait_for(len(expected))
    assert got.ids == expected


def test_some_partitions_only(ts: Client, clicks: str, producer: Producer, got: Collector) -> None:
    ids = fill(producer, 40)
    with ts.subscriber(clicks, partitions=[1, 3], **got.callbacks) as subscriber:
        got.wait_for(20)
        assert subscriber.partitions == [1, 3]
        with pytest.raises(BadRequest):
            subscriber.position(0)
    assert sorted(got.ids) == sorted(ids[1::4] + ids[3::4])


# Positions.


def test_a_checkpoint_covers_the_callbacks_that_returned(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    ids = [producer.instant([b"x"], partition=0) for _ in range(1000)]
    seen: list[int] = []
    third = threading.Event()
    go_on = threading.Event()

    def handle(_: Subscriber, txn: ReadTransaction) -> None:
        if len(seen) == 333:
            third.set()
            assert go_on.wait(30)
            raise RuntimeError("not this one")
        seen.append(txn.id)

    subscriber = ts.subscriber(
        clicks, "s1", on_transaction=handle, on_failure=lambda error: None
    ).start()
    assert third.wait(30)
    subscriber.checkpoint()
    go_on.set()
    subscriber.stop()
    assert (seen, subscriber.position(0)) == (ids[:333], ids[332])
    with ts.subscriber(clicks, "s1", **got.callbacks):
        got.wait_for(667)
    assert got.ids == ids[333:]


def test_a_consumer_and_a_subscriber_of_one_name_are_the_same_reader(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    ids = [producer.instant([b"x"], partition=0) for _ in range(10)]
    consumer = ts.consumer(clicks, "r1")
    for _ in range(4):
        assert consumer.get(0, timeout=10) is not None
    consumer.checkpoint()
    with ts.subscriber(clicks, "r1", **got.callbacks) as subscriber:
        got.wait_for(6)
        eventually(lambda: subscriber.position(0) == ids[9])
        subscriber.checkpoint()
    assert got.ids == ids[4:]
    with pytest.raises(Fenced):
        consumer.checkpoint()
    assert ts.consumer(clicks, "r1").position(0) == ids[9]


def test_without_a_checkpoint_all_comes_again(ts: Client, clicks: str, producer: Producer) -> None:
    ids = [producer.instant([b"x"], partition=0) for _ in range(10)]
    for _ in range(2):
        got = Collector()
        with ts.subscriber(clicks, "s1", **got.callbacks):
            got.wait_for(10)
        assert got.ids == ids


def test_resume_can_be_declined(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    ids = [producer.instant([b"x"], partition=0) for _ in range(5)]
    with ts.subscriber(clicks, "s1", **got.callbacks) as subscriber:
        got.wait_for(5)
        eventually(lambda: subscriber.position(0) == ids[4])
        subscriber.checkpoint()
    again = Collector()
    with ts.subscriber(clicks, "s1", resume=False, **again.callbacks):
        again.wait_for(5)


def test_a_callback_checkpoints_what_came_before_it(
    ts: Client, clicks: str, producer: Producer
) -> None:
    ids = [producer.instant([b"x"], partition=0) for _ in range(3)]
    done: list[int] = []

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        subscriber.checkpoint()
        done.append(txn.id)

    with ts.subscriber(clicks, "s1", on_transaction=handle):
        eventually(lambda: len(done) == 3)
    assert ts.consumer(clicks, "s1").position(0) == ids[1]


# Starting and stopping.


def test_starting_twice_and_stopping_twice_is_refused(
    ts: Client, clicks: str, got: Collector
) -> None:
    subscriber = ts.subscriber(clicks, **got.callbacks)
    with pytest.raises(InvalidState, match="stopped"):
        subscriber.stop()
    subscriber.start()
    running = subscriber.running
    assert running
    with pytest.raises(InvalidState, match="running"):
        subscriber.start()
    subscriber.stop()
    assert not subscriber.running
    with pytest.raises(InvalidState, match="stopped"):
        subscriber.stop()


def test_leaving_the_block_after_a_stop_is_no_error(
    ts: Client, clicks: str, got: Collector
) -> None:
    with ts.subscriber(clicks, **got.callbacks) as subscriber:
        subscriber.stop()
    assert subscriber.closed
    subscriber.close()
    for use in (subscriber.start, subscriber.checkpoint, lambda: subscriber.position(0)):
        with pytest.raises(InvalidState, match="closed"):
            use()


def test_after_a_stop_it_can_be_checkpointed_and_started_again(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    ids = fill(producer, 100)
    subscriber = ts.subscriber(clicks, "s1", **got.callbacks).start()
    got.wait_for(100)
    subscriber.stop()
    subscriber.checkpoint()
    ids += fill(producer, 100)
    time.sleep(0.05)
    assert len(got.found) == 100
    subscriber.start()
    got.wait_for(200)
    subscriber.close()
    assert sorted(got.ids) == sorted(ids)


def test_a_stop_waits_for_the_callback(ts: Client, clicks: str, producer: Producer) -> None:
    fill(producer, 10)
    begun, ended = threading.Event(), threading.Event()

    def handle(_: Subscriber, txn: ReadTransaction) -> None:
        begun.set()
        time.sleep(0.3)
        ended.set()

    with ts.subscriber(clicks, on_transaction=handle) as subscriber:
        assert begun.wait(30)
        subscriber.stop()
        assert ended.is_set()
        assert subscriber.statistics().at_work == 0


@pytest.mark.parametrize("engines", [1, 3])
def test_a_callback_may_stop_its_subscriber(
    ts: Client, clicks: str, producer: Producer, engines: int
) -> None:
    fill(producer, 100)
    calls: list[int] = []

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        calls.append(txn.id)
        if len(calls) == 5:
            subscriber.stop()

    with ts.subscriber(clicks, on_transaction=handle, engines=engines) as subscriber:
        assert subscriber.wait(30)
        assert 5 <= len(calls) < 5 + engines


@pytest.mark.parametrize("how", ["close", "client"])
def test_a_callback_may_close_its_subscriber(
    connect: Connect, ts: Client, clicks: str, producer: Producer, how: str
) -> None:
    fill(producer, 10)
    client = connect()
    done = threading.Event()

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        subscriber.close() if how == "close" else client.close()
        done.set()

    subscriber = client.subscriber(clicks, "s1", on_transaction=handle).start()
    assert done.wait(30)
    eventually(lambda: subscriber.closed)
    assert subscriber.wait(30)


def test_a_closed_client_stops_its_subscribers_first(
    connect: Connect, ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    client = connect()
    out = client.producer(clicks, "out")
    begun = threading.Event()

    def handle(_: Subscriber, txn: ReadTransaction) -> None:
        begun.set()
        time.sleep(0.3)
        out.instant([b"result"], partition=1)

    client.subscriber(
        clicks, partitions=[0], on_transaction=handle, on_failure=got.on_failure
    ).start()
    producer.instant([b"x"], partition=0)
    assert begun.wait(30)
    client.close()
    assert got.failures == []
    assert ts.consumer(clicks).last(1) is not None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_no_engines(ts: Client, clicks: str, got: Collector) -> None:
    group = ts.checkpoint_group()
    with ts.subscriber(clicks, **got.callbacks) as subscriber:
        group.add(subscriber)

        def child() -> None:
            uses = (
                subscriber.stop,
                subscriber.start,
                subscriber.wait,
                subscriber.checkpoint,
                group.checkpoint,
                group.cancel,
                ts.checkpoint_group,
                lambda: ts.subscriber(clicks, **got.callbacks),
            )
            for use in uses:
                with pytest.raises(InvalidState, match="fork"):
                    use()
            subscriber.close()

        in_child(child)
        ts.producer(clicks).instant([b"x"], partition=0)
        got.wait_for(1)


def test_a_subscriber_cannot_be_pickled(ts: Client, clicks: str, got: Collector) -> None:
    subscriber = ts.subscriber(clicks, "s1", **got.callbacks)
    for thing in (subscriber, ts.checkpoint_group()):
        with pytest.raises(TypeError, match="config"):
            pickle.dumps(thing)
    assert repr(subscriber) == "<subscriber 's1' of 'clicks', stopped>"
