"""Large transactions and items, Arrow data, compression."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tstreams import BadRequest, Client, NotFound, Offset, ReadTransaction
from tstreams.limits import FETCH_BYTES

KIB, MIB = 1024, 1024 * 1024

ORDERS = pa.schema([("user", pa.string()), ("amount", pa.int64())])


def only(ts: Client, stream: str) -> ReadTransaction:
    """The one transaction in a stream."""
    (txn,) = ts.consumer(stream).read(max_wait=0)
    return txn


def test_a_transaction_of_many_batches_comes_whole(ts: Client, clicks: str) -> None:
    items = [b"%06d" % n + b"x" * 400 for n in range(100_000)]
    with ts.producer(clicks).transaction(0) as txn:
        for start in range(0, len(items), 7):
            txn.send_many(items[start : start + 7])
    read = only(ts, clicks)
    assert len(read) == len(read.items) == 100_000
    assert read.items == items
    assert list(read.items) == items


def test_large_transactions_side_by_side(ts: Client, clicks: str) -> None:
    """They leave the server each for itself, without having been copied together."""
    written = [[b"%06d" % (100 * number) + b"x" * 1000] * 40 for number in range(100)]
    with ts.producer(clicks) as producer:
        ids = [producer.instant(items, 0) for items in written]
    scanned = list(ts.scan(clicks, 0))
    assert [it.id for it in scanned] == ids
    assert [list(it.items) for it in scanned] == written
    assert [list(it.items) for it in ts.consumer(clicks).read(max_wait=0)] == written


def test_many_transactions_of_some_kilobytes(ts: Client, clicks: str) -> None:
    """More of them in an answer than a frame has parts: they leave in pieces, one behind the other."""
    written = [[b"%06d" % number + b"x" * (90 + number)] * 50 for number in range(300)]
    with ts.producer(clicks) as producer:
        ids = [producer.instant(items, 0) for items in written]
    scanned = list(ts.scan(clicks, 0))
    assert [it.id for it in scanned] == ids
    assert [list(it.items) for it in scanned] == written
    assert [list(it.items) for it in ts.consumer(clicks).read(max_wait=0)] == written


def test_single_items_of_a_large_transaction(ts: Client, clicks: str) -> None:
    with ts.producer(clicks).transaction(0) as txn:
        txn.send_many(b"%06d" % n + b"x" * 2000 for n in range(5000))
    items = only(ts, clicks).items
    for index in (0, 1, 2345, 4999, -1, -5000):
        assert items[index][:6] == b"%06d" % (index % 5000)
    assert [item[:6] for item in items[10:5000:1000]] == [
        b"%06d" % n for n in range(10, 5000, 1000)
    ]
    for index in (5000, -5001):
        with pytest.raises(IndexError):
            items[index]


def test_iterating_fetches_a_bit_at_a_time(ts: Client, clicks: str) -> None:
    with ts.producer(clicks).transaction(0) as txn:
        for _ in range(64):
            txn.send(random.randbytes(MIB))
    read = only(ts, clicks)
    calls = ts.statistics().connection.calls
    for number, item in enumerate(read.items, 1):
        assert len(item) == MIB
        assert ts.statistics().connection.calls <= calls + number
    assert ts.statistics().connection.calls > calls + 64 * MIB // FETCH_BYTES - 2


def test_a_transaction_is_read_next_to_a_large_one(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    first = producer.instant([b"first"], partition=0)
    large = producer.instant([b"x" * MIB] * 30, partition=0)
    last = producer.instant([b"last"], partition=0)
    found = list(ts.consumer(clicks).read(max_wait=0))
    assert [txn.id for txn in found] == [first, large, last]
    assert [len(list(txn.items)) for txn in found] == [1, 30, 1]


@pytest.mark.parametrize("size", [16 * MIB - 1, 16 * MIB, 16 * MIB + 1, 64 * MIB])
def test_an_item_larger_than_a_frame(ts: Client, clicks: str, size: int) -> None:
    item = random.randbytes(1024) * (size // 1024) + bytes(size % 1024)
    producer = ts.producer(clicks)
    with producer.transaction(0) as txn:
        txn.send(b"before")
        txn.send(item)
        txn.send(b"after")
    read = only(ts, clicks)
    assert len(read) == 3
    assert list(read.items) == [b"before", item, b"after"]
    assert read.items[1] == item
    if size == 16 * MIB + 1:
        assert read.to_arrow()["item"].to_pylist() == [b"before", item, b"after"]


def test_an_instant_of_one_large_item(ts: Client, clicks: str) -> None:
    item = random.randbytes(40 * MIB)
    ts.producer(clicks).instant([item], partition=0)
    assert list(only(ts, clicks).items) == [item]


def test_large_transactions_by_other_ways(ts: Client, clicks: str) -> None:
    txn_id = ts.producer(clicks).instant([b"%02d" % n * MIB for n in range(20)], partition=0)
    consumer = ts.consumer(clicks)
    by_id, last = consumer.by_id(0, txn_id), consumer.last(0)
    assert by_id is not None
    assert last is not None
    (between,) = consumer.between(0, 0, txn_id)
    for read in (by_id, last, between):
        assert [item[:2] for item in read.items] == [b"%02d" % n for n in range(20)]


def test_the_rest_of_a_large_transaction_may_be_gone(ts: Client, clicks: str) -> None:
    txn_id = ts.producer(clicks).instant([b"x" * MIB] * 40, partition=0)
    read = only(ts, clicks)
    ts.purge_stream(clicks, before=txn_id + 1)
    with pytest.raises(NotFound, match="rest"):
        list(read.items)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_compression(ts: Client, clicks: str, compression: str) -> None:
    producer = ts.producer(clicks, compression=compression)
    items = [b"the same words again and again %d" % n for n in range(1000)]
    producer.instant(items, partition=0)
    with producer.transaction(0) as txn:
        txn.send_many(items)
    assert [list(txn.items) for txn in ts.consumer(clicks).read(max_wait=0)] == [items, items]


def test_an_unknown_compression_is_refused(ts: Client, clicks: str) -> None:
    with pytest.raises(BadRequest, match="zstd"):
        ts.producer(clicks, compression="brotli")


# Arrow.


def test_items_become_a_column(ts: Client, clicks: str) -> None:
    with ts.producer(clicks).transaction(0) as txn:
        txn.send_many([b"one", b"two"])
    table = only(ts, clicks).to_arrow()
    assert table.to_pydict() == {"item": [b"one", b"two"]}


@pytest.mark.parametrize(
    "data",
    [
        pa.array([b"one", b"two"]),
        pa.array(["one", "two"]),
        pa.chunked_array([[b"one"], [b"two"]]),
        pa.record_batch({"any": pa.array([b"one", b"two"])}),
        pa.table({"any": pa.array([b"one", b"two"], pa.large_binary())}),
    ],
    ids=lambda data: type(data).__name__,
)
@pytest.mark.parametrize("how", ["send_many", "instant"])
def test_a_column_becomes_items(ts: Client, clicks: str, data: Any, how: str) -> None:
    producer = ts.producer(clicks)
    if how == "instant":
        producer.instant(data, partition=0)
    else:
        with producer.transaction(0) as txn:
            txn.send_many(data)
    assert list(only(ts, clicks).items) == [b"one", b"two"]


def test_items_and_columns_keep_their_order(ts: Client, clicks: str) -> None:
    with ts.producer(clicks).transaction(0) as txn:
        txn.send(b"1")
        txn.send_many(pa.array([b"2", b"3"]))
        txn.send(b"4")
    assert list(only(ts, clicks).items) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("how", ["send_many", "instant"])
def test_rows_of_a_schema(ts: Client, how: str) -> None:
    ts.create_stream("orders", schema=ORDERS)
    producer = ts.producer("orders")
    table = pa.table({"user": ["ann", None], "amount": [1, 2]}, schema=ORDERS)
    if how == "instant":
        producer.instant(table)
    else:
        with producer.transaction() as txn:
            txn.send_many(table.to_batches()[0])
            txn.send_many(table)
            txn.cancel()
        with producer.transaction() as txn:
            txn.send_many(table)
    read = only(ts, "orders")
    assert len(read) == 2
    assert read.to_arrow() == table
    with pytest.raises(BadRequest, match="to_arrow"):
        list(read.items)


def test_many_rows(ts: Client) -> None:
    ts.create_stream("orders", schema=ORDERS)
    table = pa.table(
        {
            "user": [f"user {n % 1000} {'x' * 20}" for n in range(1_000_000)],
            "amount": range(1_000_000),
        },
        schema=ORDERS,
    )
    ts.producer("orders", compression="lz4").instant(table)
    read = only(ts, "orders")
    assert len(read) == 1_000_000
    assert read.to_arrow() == table


def test_a_schema_is_kept_to(ts: Client) -> None:
    ts.create_stream("orders", schema=ORDERS)
    producer = ts.producer("orders")
    calls = ts.statistics().connection.calls
    for wrong in ([b"bytes"], pa.table({"user": ["ann"]}), pa.array([b"x"])):
        with pytest.raises(BadRequest):
            producer.instant(wrong)
    assert ts.statistics().connection.calls == calls
    txn = producer.open()
    for wrong in ([b"bytes"], pa.table({"user": ["ann"]})):
        with pytest.raises(BadRequest):
            txn.send_many(wrong)
    with pytest.raises(BadRequest):
        txn.send(b"bytes")
    with pytest.raises(BadRequest):
        producer.instant(pa.table({"user": [], "amount": []}, schema=ORDERS))


def test_prefetching_is_bounded(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    for _ in range(200):
        producer.instant([b"x" * 100_000], partition=0)
    consumer = ts.consumer(clicks, start=Offset.oldest())
    for txn in consumer.read(max_wait=0):
        assert len(txn) == 1
        held = sum(len(it.data) for it in consumer._rules._cursors[0].queue)
        assert held <= 2 * MIB
