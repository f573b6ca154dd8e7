"""Instant transactions: one round trip, a window of futures, fire and forget."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import pytest

from tstreams import BadRequest, Client, Consumer, TooLarge
from tstreams.model import time_of

from .conftest import BLOCKING_ONLY, ONE_SHARD, eventually

KIB, MIB = 1024, 1024 * 1024


def seen(consumer: Consumer) -> list[list[bytes]]:
    return [list(txn.items) for txn in consumer.read(max_wait=0)]


def test_an_instant_transaction_gives_its_id(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    first = producer.instant([b"a", b"b"], partition=1)
    second = producer.instant((b"c",), partition=1)
    third = producer.instant(item for item in (b"d", bytearray(b"e"), memoryview(b"f")))
    assert first < second
    assert time_of(second) <= time_of(third), "in another partition"
    read = consumer.get(1, timeout=10)
    assert read is not None
    assert (read.id, read.items) == (first, [b"a", b"b"])


def test_an_instant_transaction_is_never_empty(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    for wait in (True, False):
        with pytest.raises(BadRequest, match="at least one"):
            producer.instant([], wait=wait)
    with pytest.raises(BadRequest):
        producer.instant([], reliable=False)


def test_an_instant_transaction_holds_items(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    for wrong in (["text"], "text", b"bytes", [b"x", 7]):
        with pytest.raises(TypeError):
            producer.instant(wrong)


def test_futures_take_effect_in_the_order_of_the_calls(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    futures = [producer.instant([b"%d" % n], partition=0, wait=False) for n in range(3000)]
    ids = [future.result(60) for future in futures]
    assert ids == sorted(set(ids))
    assert seen(consumer) == [[b"%d" % n] for n in range(3000)]


@ONE_SHARD  # shards answer each for itself
def test_instants_and_checkpoints_keep_their_order(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    order: SimpleQueue[str] = SimpleQueue()
    futures: list[Future[Any]] = []
    for number in range(20):
        txn = producer.open(0)
        txn.send_many([b"x" * KIB] * 600)
        submitted: list[tuple[Future[Any], str]] = [
            (txn.checkpoint(wait=False), f"txn {number}"),
            (producer.instant([b"y"], partition=1, wait=False), f"instant {number}"),
        ]
        for future, name in submitted:
            future.add_done_callback(lambda _, name=name: order.put(name))  # type: ignore[misc]
            futures.append(future)
    for future in futures:
        future.result(60)
    names = [order.get(timeout=10) for _ in futures]
    assert names == [f"{kind} {number}" for number in range(20) for kind in ("txn", "instant")]
    assert len(seen(consumer)) == 40


@BLOCKING_ONLY
def test_a_future_cannot_be_called_back(ts: Client, clicks: str) -> None:
    future = ts.producer(clicks).instant([b"x"], wait=False)
    assert not future.cancel()
    assert future.result(30) > 0


@BLOCKING_ONLY
def test_a_callback_may_send_the_next(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    left = iter(range(500))
    done = threading.Event()

    def send_next(_: Future[int] | None = None) -> None:
        number = next(left, None)
        if number is None:
            done.set()
        else:
            future = producer.instant([b"%d" % number], partition=0, wait=False)
            future.add_done_callback(send_next)

    send_next()
    assert done.wait(60)
    assert seen(consumer) == [[b"%d" % number] for number in range(500)]


@BLOCKING_ONLY
def test_waiting_in_a_callback_is_refused(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    caught: SimpleQueue[BaseException] = SimpleQueue()

    def wait_there(_: Future[int]) -> None:
        try:
            producer.instant([b"never"])
        except RuntimeError as error:
            caught.put(error)

    producer.instant([b"x"], wait=False).add_done_callback(wait_there)
    assert "never return" in str(caught.get(timeout=30))


def test_more_than_the_window_waits_for_room(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    batch = [b"x" * MIB] * 8
    futures = [producer.instant(batch, partition=0, wait=False) for _ in range(12)]
    assert ts.statistics().bytes_under_way <= 32 * MIB
    assert len({future.result(60) for future in futures}) == 12
    assert ts.statistics().bytes_under_way == 0


def test_fire_and_forget(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    for number in range(1000):
        assert producer.instant([b"%d" % number], partition=0, reliable=False) is None
    found: list[list[bytes]] = []

    def all_found() -> bool:
        found.extend(seen(consumer))
        return len(found) == 1000

    eventually(all_found)
    assert found == [[b"%d" % number] for number in range(1000)]


@pytest.mark.parametrize("mode", ["wait", "future", "forget"])
def test_more_than_one_frame_is_still_one_transaction(ts: Client, clicks: str, mode: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    items = [bytes([n]) * MIB for n in range(40)]
    if mode == "wait":
        txn_id: int | None = producer.instant(items, partition=0)
    elif mode == "future":
        txn_id = producer.instant(items, partition=0, wait=False).result(60)
    else:
        txn_id = producer.instant(items, partition=0, reliable=False)
        assert txn_id is None
    read = consumer.get(0, timeout=30)
    assert read is not None
    assert txn_id in (read.id, None)
    assert len(read) == 40
    assert list(read.items) == items
    assert consumer.get(0) is None


def test_an_item_over_the_limit_is_refused_before_anything_is_sent(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    calls = ts.statistics().connection.calls
    huge = bytes(64 * MIB + 1)
    with pytest.raises(TooLarge, match="object store"):
        producer.instant([huge], partition=0)
    assert ts.statistics().connection.calls == calls
    with producer.transaction(0) as txn:
        with pytest.raises(TooLarge):
            txn.send(huge)
        with pytest.raises(TooLarge):
            txn.send_many([b"x", huge])
        txn.send(b"fits")
    assert seen(ts.consumer(clicks)) == [[b"fits"]]


# Which partition.


def test_a_key_always_goes_to_the_same_partition(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    keys = [b"user-%d" % n for n in range(40)]
    for _ in range(3):
        for key in keys:
            producer.instant([key], key=key)
    with ts.producer(clicks).transaction(key=keys[0]) as txn:
        txn.send(keys[0])
    places: dict[bytes, set[int]] = {}
    for read in consumer.read(max_wait=0):
        places.setdefault(read.items[0], set()).add(read.partition)
    assert {len(partitions) for partitions in places.values()} == {1}
    assert len(set.union(*places.values())) == 4, "and keys are spread over all of them"


def test_without_a_key_partitions_take_turns(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    for _ in range(12):
        producer.instant([b"x"])
    assert Counter(txn.partition for txn in consumer.read(max_wait=0)) == dict.fromkeys(range(4), 3)
    assert sorted(producer.open().partition for _ in range(4)) == [0, 1, 2, 3]


def test_a_producer_keeps_to_its_partitions(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks, partitions={1, 3})
    assert producer.partitions == [1, 3]
    assert {producer.open().partition for _ in range(4)} == {1, 3}
    assert {producer.open(key=b"%d" % n).partition for n in range(20)} == {1, 3}
    for wrong in (0, 4, -1, True, "1"):
        with pytest.raises(BadRequest):
            producer.open(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("partition", [4, -1, 65_536, True, 1.0, "0"])
def test_past_the_last_partition(ts: Client, clicks: str, partition: int) -> None:
    producer = ts.producer(clicks)
    calls = ts.statistics().connection.calls
    for use in (producer.open, producer.checkpoint, producer.cancel):
        with pytest.raises(BadRequest):
            use(partition)
    with pytest.raises(BadRequest):
        producer.instant([b"x"], partition=partition)
    assert ts.statistics().connection.calls == calls


def test_bad_partitions_fence_nobody(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks, "p1")
    for wrong in ({4}, {-1}, set(), {"x"}, 3, "01"):
        with pytest.raises(BadRequest):
            ts.producer(clicks, "p1", partitions=wrong)  # type: ignore[arg-type]
    producer.instant([b"still here"])


def test_a_key_is_bytes_and_alone(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    with pytest.raises(TypeError, match="key"):
        producer.instant([b"x"], key="text")  # type: ignore[call-overload]
    with pytest.raises(BadRequest, match="not both"):
        producer.instant([b"x"], partition=1, key=b"k")
