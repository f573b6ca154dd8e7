"""Checkpoint groups and the callbacks of subscribers: input and output stay together."""

from __future__ import annotations

import threading

from tstreams import (
    Client,
    Fenced,
    ReadTransaction,
    Subscriber,
)

from .collecting import Collector
from .conftest import Connect, eventually
from .test_group import group_of, out, saved, visible

__all__ = ["out"]


def test_a_callback_commits_its_own_transaction_too(ts: Client, clicks: str, out: str) -> None:
    source, producer, got = ts.producer(clicks), ts.producer(out, "p1"), Collector()
    ids = [source.instant([b"%d" % n], partition=0) for n in range(20)]

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        producer.open(0).send_many(list(txn.items))
        group.checkpoint()
        if txn.id == ids[9]:
            raise RuntimeError("crash after the checkpoint")

    subscriber = ts.subscriber(clicks, "s1", on_transaction=handle, on_failure=got.on_failure)
    group = group_of(ts, subscriber, producer)
    subscriber.start()
    eventually(lambda: got.failures)
    subscriber.checkpoint()
    subscriber.close()
    assert saved(ts, clicks, "s1") == ids[9]
    assert visible(ts, out) == [b"%d" % n for n in range(10)]


def test_what_other_callbacks_have_open_goes_with_them(ts: Client, clicks: str, out: str) -> None:
    """A checkpoint in the middle of a callback takes neither what it wrote nor what it read."""
    source, producer, got = ts.producer(clicks), ts.producer(out, "p1"), Collector()
    in_the_middle, go_on = threading.Event(), threading.Event()

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        result = producer.open(txn.partition)
        result.send(b"first half of %d" % txn.partition)
        if txn.partition == 1:
            in_the_middle.set()
            assert go_on.wait(30)
        result.send(b"second half of %d" % txn.partition)
        got.on_transaction(subscriber, txn)

    ids = [source.instant([b"x"], partition=partition) for partition in (0, 1)]
    with ts.subscriber(
        clicks, "s1", on_transaction=handle, on_failure=got.on_failure, engines=2
    ) as subscriber:
        group = group_of(ts, subscriber, producer)
        assert in_the_middle.wait(30)
        eventually(lambda: subscriber.position(0) == ids[0])
        group.checkpoint()
        assert visible(ts, out) == [b"first half of 0", b"second half of 0"]
        go_on.set()
        eventually(lambda: subscriber.position(1) == ids[1])
        group.checkpoint()
    assert len(visible(ts, out)) == 4
    assert got.failures == []
    assert (saved(ts, clicks, "s1", 0), saved(ts, clicks, "s1", 1)) == (ids[0], ids[1])


def test_what_a_failed_callback_left_open_is_dropped(ts: Client, clicks: str, out: str) -> None:
    source, producer, got = ts.producer(clicks), ts.producer(out, "p1"), Collector()

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        producer.open(0).send(b"half")
        raise RuntimeError("before the other half")

    with ts.subscriber(
        clicks, "s1", on_transaction=handle, on_failure=got.on_failure
    ) as subscriber:
        group = group_of(ts, subscriber, producer)
        source.instant([b"x"], partition=0)
        eventually(lambda: got.failures)
        group.checkpoint()
        behind = ts.producer(out, "p2").instant([b"behind"], partition=0)
        read = ts.consumer(out).get(0, timeout=10)
        assert read is not None
        assert read.id == behind
    assert saved(ts, clicks, "s1") is None


def test_what_a_failed_callback_left_open_is_dropped_also_if_its_subscriber_is_gone(
    ts: Client, clicks: str, out: str
) -> None:
    """Its successor is called for the same transaction, and writes it again."""
    source, producer, got = ts.producer(clicks), ts.producer(out, "p1"), Collector()
    txn_id = source.instant([b"x"], partition=0)
    group, broken = group_of(ts, producer), True

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        producer.open(0).send(b"result")
        if broken:
            raise RuntimeError("a pity")

    for _ in range(2):
        subscriber = ts.subscriber(clicks, "s1", on_transaction=handle, on_failure=got.on_failure)
        group.add(subscriber)
        with subscriber:
            eventually(
                lambda s=subscriber, b=broken: got.failures if b else s.position(0) == txn_id
            )
        group.remove(subscriber)
        broken = False
    group.checkpoint()
    assert visible(ts, out) == [b"result"]


def test_a_fenced_subscriber_of_a_group_is_told_once(
    ts: Client, connect: Connect, clicks: str, out: str
) -> None:
    source, producer, got = ts.producer(clicks), ts.producer(out, "p1"), Collector()

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        producer.open(0).send(b"zombie")
        connect().consumer(clicks, "s1")
        group.checkpoint()

    subscriber = ts.subscriber(clicks, "s1", on_transaction=handle, on_failure=got.on_failure)
    group = group_of(ts, subscriber, producer)
    source.instant([b"x"], partition=0)
    subscriber.start()
    assert subscriber.wait(30)
    assert [type(error) for error in got.failures] == [Fenced]
    assert visible(ts, out) == []


def test_consumers_in_callbacks_of_others(ts: Client, clicks: str, out: str) -> None:
    """What was opened in a callback of a subscriber that is no member is as any other."""
    source, producer = ts.producer(clicks), ts.producer(out, "p1")
    group = group_of(ts, producer)
    opened, go_on = threading.Event(), threading.Event()

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        producer.open(0).send(b"x")
        opened.set()
        assert go_on.wait(30)

    source.instant([b"x"], partition=0)
    with ts.subscriber(clicks, on_transaction=handle):
        assert opened.wait(30)
        group.checkpoint()
        assert visible(ts, out) == [b"x"]
        go_on.set()
