"""Streams with a schema: rows that fit, rows that do not, and columns that are added later."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tstreams import BadRequest, Client, InvalidState, NotFound

ORDERS = pa.schema([pa.field("user", pa.string(), nullable=False), ("cents", pa.int64())])
WITH_SHOP = ORDERS.append(pa.field("shop", pa.string()))


def rows(ts: Client, stream: str) -> list[tuple[object, ...]]:
    """All rows, as a reader sees them that is made now."""
    tables = [txn.to_arrow() for txn in ts.consumer(stream).read(max_wait=0)]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def test_rows_are_sent_as_arrow(ts: Client) -> None:
    ts.create_stream("orders", schema=ORDERS)
    ts.create_stream("items")
    table = pa.table({"user": ["ann"], "cents": [5]}, schema=ORDERS)
    with ts.producer("orders") as producer, producer.transaction() as txn:
        txn.send_arrow(table)
        txn.send_arrow(table.to_batches()[0])
        with pytest.raises(TypeError, match="no Arrow data, but list"):
            txn.send_arrow([b"one"])
    with ts.producer("items") as producer, producer.transaction() as txn:
        txn.send_arrow(pa.array([b"one", b"two"]))
    assert rows(ts, "orders") == [("ann", 5), ("ann", 5)]
    assert rows(ts, "items") == [(b"one",), (b"two",)]


def test_what_does_not_fit_is_refused_by_the_name_of_its_column(ts: Client) -> None:
    ts.create_stream("orders", schema=ORDERS)
    with ts.producer("orders") as producer:
        for data, words in (
            ({"user": ["ann"], "cents": ["5"]}, "'cents' is string, and int64"),
            ({"user": ["ann"], "price": [5]}, "no column 'price'"),
            ({"user": ["ann"]}, "'cents' of the stream's schema is missing"),
            ({"user": pa.array([None], pa.string()), "cents": [5]}, "'user' has nulls"),
        ):
            with pytest.raises(BadRequest, match=words):
                producer.instant(pa.table(data))
    assert rows(ts, "orders") == []


def test_columns_are_added(ts: Client) -> None:
    ts.create_stream("orders", schema=ORDERS)
    old = ts.producer("orders")
    old.instant(pa.table({"user": ["ann"], "cents": [5]}, ORDERS))
    reader = ts.consumer("orders", "early")
    assert ts.alter_stream("orders", schema=WITH_SHOP).schema == WITH_SHOP
    assert ts.stream("orders").schema == WITH_SHOP
    old.instant(pa.table({"user": ["bob"], "cents": [7]}, ORDERS))
    new = ts.producer("orders")
    new.instant(pa.table({"user": ["cid"], "cents": [9], "shop": ["west"]}, WITH_SHOP))
    new.instant(pa.table({"user": ["dan"], "cents": [1]}, ORDERS))
    assert rows(ts, "orders") == [
        ("ann", 5, None),
        ("bob", 7, None),
        ("cid", 9, "west"),
        ("dan", 1, None),
    ]
    early = [txn.to_arrow() for txn in reader.read(max_wait=0)]
    assert all(table.schema == ORDERS for table in early)
    assert [table["user"][0].as_py() for table in early] == ["ann", "bob", "cid", "dan"]


def test_nothing_else_can_be_done_to_a_schema(ts: Client) -> None:
    ts.create_stream("orders", schema=ORDERS)
    ts.create_stream("items")
    with pytest.raises(BadRequest, match="'cents' is int64 and cannot become string"):
        ts.alter_stream("orders", schema=ORDERS.set(1, pa.field("cents", pa.string())))
    with pytest.raises(BadRequest, match="'user' is missing"):
        ts.alter_stream("orders", ttl="1d", schema=ORDERS.remove(0))
    with pytest.raises(BadRequest, match=r"a pyarrow\.Schema, not bytes"):
        ts.alter_stream("orders", schema=b"bytes")
    with pytest.raises(InvalidState, match="'items' has no schema"):
        ts.alter_stream("items", schema=ORDERS)
    with pytest.raises(NotFound, match="nowhere"):
        ts.alter_stream("nowhere", schema=ORDERS)
    found = ts.stream("orders")
    assert (found.schema, found.ttl.days) == (ORDERS, 7)
