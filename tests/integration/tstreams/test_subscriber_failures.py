"""What stops a subscriber, or a partition of it; and engines, which hold nobody up."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from tstreams import (
    BadRequest,
    Client,
    Fenced,
    InvalidState,
    NotFound,
    Producer,
    ReadTransaction,
    Subscriber,
)
from tstreams.limits import SESSION_TTL_MS

from .collecting import Collector
from .conftest import Clock, Connect, eventually
from .test_subscriber import fill, got, producer

__all__ = ["got", "producer"]


def test_a_session_that_has_ended_is_no_rival(
    ts: Client, clicks: str, producer: Producer, got: Collector, clock: Clock
) -> None:
    """Who is told `Fenced` leaves its name to another. Here there is none: it must be made anew."""
    with ts.subscriber(clicks, "s1", **got.callbacks):
        fill(producer, 4)
        got.wait_for(4)
        clock.advance(SESSION_TTL_MS / 1000 + 1)
        eventually(lambda: got.failures)
    (error,) = got.failures
    assert type(error) is InvalidState
    assert "the session has ended" in str(error)


def test_an_exception_stops_its_partition_and_no_other(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    ids = fill(producer, 400)
    bad = ids[4 * 50 + 2]
    error = ValueError("this one")

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        if (txn.partition, txn.id) == (2, bad):
            raise error
        got.on_transaction(subscriber, txn)

    with ts.subscriber(
        clicks, "s1", on_transaction=handle, on_failure=got.on_failure, engines=2
    ) as subscriber:
        eventually(lambda: len(got.found) == 350)
        ids += fill(producer, 40)
        eventually(lambda: len(got.found) == 380)
        assert got.failures == [error]
        assert subscriber.failures == {2: error}
        assert f"transaction {bad} of partition 2" in error.__notes__[0]
        subscriber.checkpoint()
    assert got.of(2) == ids[2:200:4]
    assert got.of(1) == ids[1::4]
    rest = Collector()
    with ts.subscriber(clicks, "s1", **rest.callbacks):
        rest.wait_for(60)
    assert rest.of(2) == ids[2::4][50:]
    assert len(rest.of(2)) == 60


def test_a_start_after_a_failure_tries_again(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    ids = [producer.instant([b"%d" % n], partition=0) for n in range(5)]
    broken = True

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        if broken and txn.items == [b"2"]:
            raise RuntimeError("the database is away")
        got.on_transaction(subscriber, txn)

    subscriber = ts.subscriber(clicks, on_transaction=handle, on_failure=got.on_failure).start()
    eventually(lambda: got.failures)
    subscriber.stop()
    assert got.ids == ids[:2]
    broken = False
    subscriber.start()
    eventually(lambda: len(got.found) == 5)
    assert (got.ids, subscriber.failures) == (ids, {})


def test_all_partitions_may_fail(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    fill(producer, 100)

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        raise RuntimeError("nothing works")

    with ts.subscriber(
        clicks, "s1", on_transaction=handle, on_failure=got.on_failure
    ) as subscriber:
        eventually(lambda: len(got.failures) == 4)
        fill(producer, 100)
        subscriber.checkpoint()
        assert subscriber.statistics().failed_partitions == 4
    assert ts.consumer(clicks, "s1").position(0) is None


def test_without_on_failure_it_is_logged(
    ts: Client, clicks: str, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    producer.instant([b"x"], partition=0)

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        raise ValueError("what a pity")

    with ts.subscriber(clicks, "s1", on_transaction=handle):
        eventually(lambda: caplog.records)
    assert "reader 's1' of stream 'clicks': what a pity" in caplog.text


def test_on_failure_may_stop_the_subscriber_and_may_fail(
    ts: Client, clicks: str, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    fill(producer, 8)

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        raise ValueError("what a pity")

    def on_failure(error: BaseException) -> None:
        subscriber.stop()
        raise RuntimeError("even worse")

    subscriber = ts.subscriber(clicks, on_transaction=handle, on_failure=on_failure)
    subscriber.start()  # not before it has its name here: callbacks begin at once
    assert subscriber.wait(30)
    assert "even worse" in caplog.text


def test_a_fenced_subscriber_stops_and_says_so_once(
    ts: Client, connect: Connect, clicks: str, producer: Producer, got: Collector
) -> None:
    subscriber = ts.subscriber(clicks, "s1", engines=4, **got.callbacks).start()
    fill(producer, 20)
    got.wait_for(20)
    other = Collector()
    with connect().subscriber(clicks, "s1", **other.callbacks):
        assert subscriber.wait(30)
        fill(producer, 20)
        other.wait_for(40)
    assert [type(error) for error in got.failures] == [Fenced]
    assert "reader 's1' of stream 'clicks'" in str(got.failures[0])
    assert len(got.found) == 20
    with pytest.raises(Fenced):
        subscriber.checkpoint()
    assert len(got.failures) == 1
    subscriber.stop()
    with pytest.raises(InvalidState):
        subscriber.stop()


def test_a_callback_that_finds_itself_fenced_is_told_once(
    ts: Client, connect: Connect, clicks: str, producer: Producer, got: Collector
) -> None:
    taken_over = threading.Event()
    at_work = threading.Barrier(4)

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        if at_work.wait(30) == 0:
            connect().consumer(clicks, "s1")
            taken_over.set()
        assert taken_over.wait(30)
        subscriber.checkpoint()

    subscriber = ts.subscriber(
        clicks, "s1", on_transaction=handle, on_failure=got.on_failure, engines=4
    ).start()
    fill(producer, 4)
    assert subscriber.wait(30)
    assert [type(error) for error in got.failures] == [Fenced]
    subscriber.stop()


def test_a_deleted_stream_ends_the_subscriber(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    with ts.subscriber(clicks, **got.callbacks) as subscriber:
        producer.instant([b"x"], partition=0)
        got.wait_for(1)
        ts.delete_stream(clicks)
        assert subscriber.wait(30)
    assert [type(error) for error in got.failures] == [NotFound]


def test_mistakes_fence_nobody(ts: Client, clicks: str, got: Collector) -> None:
    older = ts.consumer(clicks, "s1")
    wrong: list[dict[str, Any]] = [
        {"engines": 0},
        {"engines": 1000},
        {"engines": True},
        {"engines": "1"},
        {"partitions": [7]},
        {"start": 5},
        {"on_transaction": None},
        {"on_failure": 3},
    ]
    for options in wrong:
        with pytest.raises(BadRequest):
            ts.subscriber(clicks, "s1", **{**got.callbacks, **options})
    with pytest.raises(NotFound):
        ts.subscriber("nowhere", "s1", **got.callbacks)
    older.checkpoint()


# Engines.


def test_a_hundred_partitions_with_ten_engines(ts: Client, got: Collector) -> None:
    ts.create_stream("wide", partitions=100)
    producer = ts.producer("wide")
    at_work: Counter[int] = Counter()
    overlaps: list[int] = []
    most = 0
    lock = threading.Lock()

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        nonlocal most
        with lock:
            at_work[txn.partition] += 1
            if at_work[txn.partition] > 1:
                overlaps.append(txn.partition)
            most = max(most, at_work.total())
        time.sleep(0.001)
        with lock:
            at_work[txn.partition] -= 1
        got.on_transaction(subscriber, txn)

    futures = [producer.instant([b"x"], partition=n % 100, wait=False) for n in range(2000)]
    ids = [future.result() for future in futures]
    with ts.subscriber(
        "wide", on_transaction=handle, on_failure=got.on_failure, engines=10
    ) as subscriber:
        got.wait_for(2000)
        assert subscriber.statistics().failed_partitions == 0
    assert overlaps == []
    assert most > 1
    for partition in range(100):
        assert got.of(partition) == ids[partition::100]


def test_a_slow_partition_holds_up_no_other(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    """More waits behind the slow one than fits into the window."""
    slow_ids = [producer.instant([b"x" * 100_000], partition=0) for _ in range(150)]  # 15 MB
    go_on = threading.Event()

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        if txn.partition == 0:
            assert go_on.wait(60)
        got.on_transaction(subscriber, txn)

    with ts.subscriber(
        clicks, on_transaction=handle, on_failure=got.on_failure, engines=2
    ) as subscriber:
        eventually(lambda: subscriber.statistics().at_work)
        ids = [producer.instant([b"y" * 100_000], partition=1) for _ in range(150)]
        eventually(lambda: len(got.of(1)) == 150)
        assert got.of(0) == []
        go_on.set()
        got.wait_for(300)
    assert (got.of(0), got.of(1)) == (slow_ids, ids)


def test_a_callback_that_takes_its_time_holds_the_server_back(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    ids = [producer.instant([b"x" * 100_000], partition=0) for _ in range(300)]  # 30 MB
    go_on = threading.Event()

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        assert go_on.wait(60)
        got.on_transaction(subscriber, txn)

    with ts.subscriber(clicks, on_transaction=handle, on_failure=got.on_failure) as subscriber:
        eventually(lambda: subscriber.statistics().at_work)
        time.sleep(0.5)
        items = ts.statistics().connection.items
        assert items * 512 * 1024 < 8 * 1024 * 1024
        go_on.set()
        got.wait_for(300)
    assert got.ids == ids


def test_a_callback_may_use_the_client(
    ts: Client, clicks: str, producer: Producer, got: Collector
) -> None:
    ts.create_stream("out", partitions=4)
    out = ts.producer("out", "copy")

    def copy(subscriber: Subscriber, txn: ReadTransaction) -> None:
        with out.transaction(txn.partition) as result:
            result.send_many(list(txn.items))
        subscriber.checkpoint()

    with ts.subscriber(clicks, "s1", on_transaction=copy, on_failure=got.on_failure, engines=4):
        fill(producer, 200)
        copied = [txn.items[0] for txn in ts.consumer("out").read(max_wait=2)]
    assert got.failures == []
    assert sorted(copied) == sorted(b"%d" % n for n in range(200))
