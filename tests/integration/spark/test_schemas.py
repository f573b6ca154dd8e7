"""Streams with a schema, through Spark: all types that both have, and columns that are added."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tstreams import BadRequest, Client
from tstreams.spark.columns import Columns, Layout

from .conftest import Pipe

Make = Callable[..., str]

pytestmark = pytest.mark.xdist_group("spark")
"""All in one process: each would start a Java of its own."""

NOON = dt.datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=dt.UTC)
TYPES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int16()),
        ("ratio", pa.float32()),
        ("name", pa.large_string()),
        ("raw", pa.binary()),
        ("yes", pa.bool_()),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 2)),
        ("at", pa.timestamp("ms", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
    ]
)
ROW = {
    "id": 1,
    "small": 2,
    "ratio": 0.5,
    "name": "ann",
    "raw": b"raw",
    "yes": True,
    "day": dt.date(2026, 1, 1),
    "price": Decimal("1.25"),
    "at": NOON,
    "tags": ["a", None],
    "place": {"x": 1.0, "y": None},
}
ORDERS = pa.schema([pa.field("user", pa.string(), nullable=False), ("cents", pa.int64())])
WITH_SHOP = ORDERS.append(pa.field("shop", pa.string()))


def rows(ts: Client, stream: str) -> list[tuple[object, ...]]:
    """All rows of a stream, sorted."""
    partitions = range(ts.stream(stream).partitions)
    tables = [txn.to_arrow() for it in partitions for txn in ts.scan(stream, it)]
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())


def test_every_type_goes_there_and_back(pipe: Pipe, ts: Client, make: Make) -> None:
    source, sink = make(1, schema=TYPES), make(1, schema=TYPES)
    nulls = dict.fromkeys(TYPES.names) | {"id": 2}
    table = pa.Table.from_pylist([ROW, nulls], TYPES)
    with ts.producer(source) as producer:
        producer.instant(table, 0)
    read = pipe.read(source)
    assert read.schema.simpleString() == (
        "struct<id:bigint,small:smallint,ratio:float,name:string,raw:binary,yes:boolean,day:date,"
        "price:decimal(12,2),at:timestamp,tags:array<string>,place:struct<x:double,y:double>>"
    )
    pipe.write(read.select(*reversed(TYPES.names)), sink)
    (written,) = ts.scan(sink, 0)
    assert written.to_arrow().equals(table)


def test_a_type_that_spark_has_not(pipe: Pipe, make: Make) -> None:
    stream = make(1, schema=pa.schema([("a", pa.int8()), ("odd", pa.uint64())]))
    with pytest.raises(Exception, match="Spark has no type for column 'odd'"):
        pipe.read(stream)


def test_a_column_that_does_not_fit_is_named(pipe: Pipe, spark: SparkSession, make: Make) -> None:
    stream = make(1, schema=ORDERS)
    for query, words in (
        ("select 'ann' as user, 5 as cents", "column 'cents' is int32, and int64"),
        ("select 'ann' as user", "column 'cents' of the stream's schema is missing"),
        ("select string(null) as user, 5L as cents", "column 'user' has nulls"),
        ("select 'ann' as user, 5L as cents, 1 as shop", "has no column 'shop'"),
    ):
        with pytest.raises(Exception, match=words):
            pipe.write(spark.sql(query), stream)
    assert pipe.read(stream).count() == 0


def test_columns_are_added(pipe: Pipe, spark: SparkSession, ts: Client, make: Make) -> None:
    stream = make(1, schema=ORDERS)
    pipe.write(spark.sql("select 'ann' as user, 1L as cents"), stream)
    before = pipe.read(stream)
    ts.alter_stream(stream, schema=WITH_SHOP)
    pipe.write(spark.sql("select 2L as cents, 'bob' as user"), stream)
    pipe.write(spark.sql("select 'cid' as user, 'west' as shop, 3L as cents"), stream)
    expected = [("ann", 1, None), ("bob", 2, None), ("cid", 3, "west")]
    assert rows(ts, stream) == expected
    found = [tuple(row) for row in pipe.read(stream).orderBy("user").collect()]
    assert found == expected
    # A plan that was made before knows the columns of that moment.
    assert [tuple(row) for row in before.orderBy("user").collect()] == [it[:2] for it in expected]


def test_a_query_takes_new_columns_up_when_it_is_started_again(
    pipe: Pipe, ts: Client, make: Make
) -> None:
    source, sink = make(2, schema=ORDERS), make(1, schema=WITH_SHOP)
    with ts.producer(source) as producer:
        producer.instant(pa.table({"user": ["ann"], "cents": [1]}, ORDERS), 0)
    pipe.run(pipe.stream(source).selectExpr("*", "'none' as shop"), sink)
    ts.alter_stream(source, schema=WITH_SHOP)
    with ts.producer(source) as producer:
        producer.instant(pa.table({"user": ["bob"], "cents": [2]}, ORDERS), 0)
        producer.instant(pa.table({"user": ["cid"], "cents": [3], "shop": ["west"]}, WITH_SHOP), 1)
    pipe.run(pipe.stream(source), sink)
    assert rows(ts, sink) == [("ann", 1, "none"), ("bob", 2, None), ("cid", 3, "west")]


def test_a_stream_that_came_later_with_other_columns(ts: Client, make: Make) -> None:
    """A running query of a prefix of items comes upon it."""
    stream = make(1, schema=ORDERS)
    with ts.producer(stream) as producer:
        producer.instant(pa.table({"user": ["ann"], "cents": [1]}, ORDERS), 0)
    columns = Columns(Layout.of(None), stream, 0)
    with pytest.raises(BadRequest, match=f"'{stream}' has no column 'item'"):
        list(columns.batches(ts.scan(stream, 0)))
