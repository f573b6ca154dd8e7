"""Processing loops: read, call, write, commit; and what a crash leaves behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from tstreams import (
    BadRequest,
    Client,
    Fenced,
    NotFound,
    Offset,
    Processed,
    ReadTransaction,
    TooLarge,
)

from .conftest import Connect, eventually

DELIVERIES = ["exactly-once", "at-least-once", "at-most-once"]


@pytest.fixture
def out(ts: Client) -> str:
    return ts.create_stream("out", partitions=4).name


def fill(ts: Client, stream: str, count: int) -> list[bytes]:
    producer = ts.producer(stream)
    futures = [producer.instant([b"%d" % n], partition=n % 4, wait=False) for n in range(count)]
    for future in futures:
        future.result()
    return [b"%d" % n for n in range(count)]


def upper(txn: ReadTransaction) -> list[bytes]:
    return [item + b"!" for item in txn.items]


def written(ts: Client, stream: str) -> list[bytes]:
    return [item for txn in ts.consumer(stream).read(max_wait=0) for item in txn.items]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_loop_until_nothing_comes(ts: Client, clicks: str, out: str, delivery: str) -> None:
    items = fill(ts, clicks, 500)
    done = ts.process(clicks, "job", out, upper, delivery=delivery, max_wait=0, batch=70)
    assert (done.transactions, done.items) == (500, 500)
    assert done.commits >= 7
    assert sorted(written(ts, out)) == sorted(item + b"!" for item in items)
    assert ts.process(clicks, "job", out, upper, delivery=delivery, max_wait=0) == Processed()
    fill(ts, clicks, 4)
    assert ts.process(clicks, "job", out, upper, delivery=delivery, max_wait=0).transactions == 4
    assert len(written(ts, out)) == 504


def test_the_order_of_a_partition_stays(ts: Client, clicks: str, out: str) -> None:
    items = fill(ts, clicks, 200)
    ts.process(clicks, "job", out, lambda txn: txn.items, max_wait=0, batch=7)
    for partition in range(4):
        consumer = ts.consumer(out, partitions=[partition])
        found = [item for txn in consumer.read(max_wait=0) for item in txn.items]
        assert found == items[partition::4]


def test_results_go_where_they_say(ts: Client, clicks: str, out: str) -> None:
    ts.producer(clicks).instant([b"x"], partition=3)

    def fn(txn: ReadTransaction) -> Iterator[Any]:
        yield b"here"
        yield 1, b"to one"
        yield b"some key", b"by key"
        yield bytearray(b"another key"), memoryview(b"by another")

    ts.process(clicks, "job", out, fn, max_wait=0)
    found = {item: txn.partition for txn in ts.consumer(out).read(max_wait=0) for item in txn.items}
    assert set(found) == {b"here", b"to one", b"by key", b"by another"}
    assert (found[b"here"], found[b"to one"]) == (3, 1)
    expected = ts.producer(out, "p").instant([b"x"], key=b"some key")
    consumer = ts.consumer(out)
    assert consumer.by_id(found[b"by key"], expected) is not None


def test_nothing_to_write_is_fine(ts: Client, clicks: str, out: str) -> None:
    fill(ts, clicks, 20)
    results: list[Any] = [None, [], (), iter(())]

    def fn(txn: ReadTransaction) -> Any:
        return results[txn.partition]

    assert ts.process(clicks, "job", out, fn, max_wait=0).transactions == 20
    assert written(ts, out) == []
    assert ts.process(clicks, "job", out, fn, max_wait=0).transactions == 0


def test_arrow_results(ts: Client, clicks: str) -> None:
    schema = pa.schema([("n", pa.int64())])
    ts.create_stream("rows", partitions=4, schema=schema)
    fill(ts, clicks, 10)

    def fn(txn: ReadTransaction) -> Any:
        return pa.table({"n": [int(item) for item in txn.items]}, schema=schema)

    assert ts.process(clicks, "job", "rows", fn, max_wait=0).items == 10
    found = [
        row
        for txn in ts.consumer("rows").read(max_wait=0)
        for row in txn.to_arrow()["n"].to_pylist()
    ]
    assert sorted(found) == list(range(10))


@pytest.mark.parametrize(
    "result", [b"one", "text", ["text"], [(b"k", b"i", b"x")], [(None, b"x")], [(True, b"x")]]
)
def test_results_that_make_no_sense(ts: Client, clicks: str, out: str, result: Any) -> None:
    fill(ts, clicks, 1)
    with pytest.raises(TypeError):
        ts.process(clicks, "job", out, lambda txn: result, max_wait=0)
    assert written(ts, out) == []


def test_a_partition_that_there_is_not(ts: Client, clicks: str, out: str) -> None:
    fill(ts, clicks, 1)
    with pytest.raises(BadRequest):
        ts.process(clicks, "job", out, lambda txn: [(9, b"x")], max_wait=0)


@pytest.mark.parametrize(
    ("delivery", "again"), [("exactly-once", 100), ("at-least-once", 100), ("at-most-once", 50)]
)
def test_an_exception_drops_what_was_not_committed(
    ts: Client, clicks: str, out: str, delivery: str, again: int
) -> None:
    """At most once means that a batch is lost with the one that failed in it."""
    producer = ts.producer(clicks)
    for number in range(150):
        producer.instant([b"%d" % number], partition=0)

    def fn(txn: ReadTransaction) -> list[bytes]:
        if txn.items[0] == b"75" and broken:
            raise ZeroDivisionError("what a pity")
        return list(txn.items)

    broken = True
    with pytest.raises(ZeroDivisionError) as caught:
        ts.process(clicks, "job", out, fn, delivery=delivery, max_wait=0, batch=50)
    assert "of 'clicks'/0 was processed" in caught.value.__notes__[0]
    assert written(ts, out) == [b"%d" % n for n in range(50)]
    broken = False
    assert ts.process(clicks, "job", out, fn, delivery=delivery, max_wait=0).transactions == again
    expected = [*range(50), *range(150 - again, 150)]
    assert written(ts, out) == [b"%d" % n for n in expected]


def test_an_event_ends_it_and_what_was_done_counts(ts: Client, clicks: str, out: str) -> None:
    fill(ts, clicks, 100)
    stop = threading.Event()
    calls: list[int] = []

    def fn(txn: ReadTransaction) -> list[bytes]:
        calls.append(txn.id)
        if len(calls) == 30:
            stop.set()
        return upper(txn)

    done = ts.process(clicks, "job", out, fn, stop=stop)
    assert (done.transactions, len(written(ts, out))) == (30, 30)
    stop.clear()
    assert ts.process(clicks, "job", out, fn, max_wait=0).transactions == 70


def test_an_event_ends_a_loop_that_waits(ts: Client, clicks: str, out: str) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ts.process, clicks, "job", out, upper, stop=stop)
        fill(ts, clicks, 8)
        eventually(lambda: len(written(ts, out)) == 8)
        assert not running.done()
        stop.set()
        assert running.result(30).transactions == 8


def test_a_second_loop_of_the_name_takes_over(
    ts: Client, connect: Connect, clicks: str, out: str
) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        older = pool.submit(ts.process, clicks, "job", out, upper, stop=stop)
        fill(ts, clicks, 8)
        eventually(lambda: len(written(ts, out)) == 8)
        newer = pool.submit(connect().process, clicks, "job", out, upper, stop=stop)
        for _ in range(10):
            fill(ts, clicks, 8)
            time.sleep(0.02)
        with pytest.raises(Fenced):
            older.result(30)
        eventually(lambda: len(written(ts, out)) == 88)
        stop.set()
        newer.result(30)
    assert len(written(ts, out)) == 88


def test_where_it_starts_and_what_it_reads(ts: Client, clicks: str, out: str) -> None:
    items = fill(ts, clicks, 40)
    ts.process(clicks, "some", out, lambda txn: txn.items, partitions=[1], max_wait=0)
    assert written(ts, out) == items[1::4]
    done = ts.process(clicks, "late", out, upper, start=Offset.newest(), max_wait=0)
    assert done.transactions == 0
    again = ts.process(clicks, "some", out, upper, resume=False, partitions=[1], max_wait=0)
    assert again.transactions == 10


def test_mistakes_fence_nobody(ts: Client, clicks: str, out: str) -> None:
    older = ts.producer(out, "job")
    wrong: list[dict[str, Any]] = [
        {"delivery": "twice"},
        {"batch": 0},
        {"batch": True},
        {"max_wait": -1},
        {"commit_every": -1},
        {"partitions": [9]},
        {"start": 3},
        {"compression": "zip"},
        {"transaction_ttl": 0},
    ]
    for options in wrong:
        with pytest.raises(BadRequest):
            ts.process(clicks, "job", out, upper, **options)
    with pytest.raises(BadRequest):
        ts.process(clicks, "job", out, None)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        ts.process("nowhere", "job", out, upper)
    with pytest.raises(NotFound):
        ts.process(clicks, "job", "nowhere", upper)
    with pytest.raises(TooLarge):
        ts.process(clicks, "j" * 300, out, upper)
    older.instant([b"still here"])
