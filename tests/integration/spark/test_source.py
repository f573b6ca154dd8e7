"""Streams as a source of Spark, in batch and in streaming queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from tstreams import Client
from tstreams.spark.reading import BatchReader
from tstreams.spark.slices import DataLost
from tstreams.spark.source import Source

from .conftest import Pipe

Make = Callable[..., str]

pytestmark = pytest.mark.xdist_group("spark")
"""All in one process: each would start a Java of its own."""


def fill(ts: Client, stream: str, transactions: int, items: int = 5) -> list[int]:
    """Transactions over all partitions in turn; their ids."""
    partitions = ts.stream(stream).partitions
    with ts.producer(stream) as producer:
        return [
            producer.instant([b"%d.%d" % (n, i) for i in range(items)], n % partitions)
            for n in range(transactions)
        ]


def test_all_columns_of_a_batch_read(pipe: Pipe, ts: Client, make: Make) -> None:
    stream = make(2)
    ids = fill(ts, stream, 4)
    rows = pipe.read(stream).orderBy("transaction", "index").collect()
    assert len(rows) == 20
    assert [row.transaction for row in rows[::5]] == ids
    assert [row["index"] for row in rows[:5]] == [0, 1, 2, 3, 4]
    assert [row.partition for row in rows[::5]] == [0, 1, 0, 1]
    assert bytes(rows[7].item) == b"1.2"
    assert {row.stream for row in rows} == {stream}
    txn = next(iter(ts.scan(stream, 0)))
    assert rows[0].time == txn.time.replace(tzinfo=None)


def test_a_read_that_is_overtaken_by_an_overwrite_fails(pipe: Pipe, ts: Client, make: Make) -> None:
    """It was planned for what is gone: some rows of the old state, or none, would be neither state."""
    stream = make(2)
    fill(ts, stream, 20)

    def planned(**options: str) -> tuple[BatchReader, list[InputPartition]]:
        source = Source({"url": pipe.url, "stream": stream, **options})
        reader = source.reader(source.schema())
        return reader, list(reader.partitions())

    reader, (first, second) = planned()
    lenient, (kept, _) = planned(failOnDataLoss="false")
    assert sum(batch.num_rows for batch in reader.read(first)) == 50
    pipe.write(pipe.read(stream).limit(1).select("item"), stream, "overwrite")
    for overtaken in (first, second):
        with pytest.raises(DataLost, match="while it was read: read it again"):
            list(reader.read(overtaken))
    assert list(lenient.read(kept)) == []
    reader, (only,) = planned()
    assert sum(batch.num_rows for batch in reader.read(only)) == 1
    ts.delete_stream(stream)
    ts.create_stream(stream, 2)
    with pytest.raises(DataLost, match="made anew while it was read"):
        list(reader.read(only))


def test_only_the_columns_that_are_wanted(pipe: Pipe, ts: Client, make: Make) -> None:
    stream = make(1)
    (only,) = fill(ts, stream, 1, 2)
    rows = pipe.read(stream, metadata="false").collect()
    assert [row.asDict() for row in rows] == [{"item": b"0.0"}, {"item": b"0.1"}]
    reader = pipe.spark.read.format("tstreams").option("url", pipe.url).option("stream", stream)
    chosen = reader.schema("item binary not null, transaction bigint not null").load().collect()
    assert [tuple(row) for row in chosen] == [(b"0.0", only), (b"0.1", only)]
    with pytest.raises(Exception, match="there is no column 'key'"):
        reader.schema("key binary").load().collect()


def test_what_is_open_or_cancelled_is_not_read(pipe: Pipe, ts: Client, make: Make) -> None:
    stream = make(1)
    fill(ts, stream, 2)
    with ts.producer(stream) as producer:
        producer.open().cancel()
        held = producer.open()
        held.send(b"not yet")
        fill(ts, stream, 1)  # behind the one that is open
        assert pipe.read(stream).count() == 10
        held.checkpoint()
    assert pipe.read(stream).count() == 16


def test_filters_are_pushed_down(pipe: Pipe, ts: Client, make: Make) -> None:
    stream = make(4)
    ids = fill(ts, stream, 40)
    df = pipe.read(stream)
    assert df.where("partition = 3").count() == 50
    assert df.where("partition in (0, 1) and index = 0").count() == 20
    assert df.where(f"transaction > {ids[29]}").count() == 50
    assert df.where(f"transaction <= {ids[9]} and partition = 1").select("partition").count() == 15
    when = next(iter(ts.scan(stream, 0, after=ids[19]))).time
    later = df.where(f"time >= timestamp'{when:%Y-%m-%d %H:%M:%S.%f}'")
    expected = sum(5 for it in ids if it // 100_000 >= round(when.timestamp() * 1000))
    assert later.count() == expected
    # Fewer tasks are planned for fewer partitions.
    assert df.where("partition = 3").rdd.getNumPartitions() == 1


@pytest.mark.parametrize("start", ["oldest", "newest", "time", "ids"])
def test_where_a_batch_read_starts_and_ends(pipe: Pipe, ts: Client, make: Make, start: str) -> None:
    stream = make(1)
    ids = fill(ts, stream, 6)
    txn = list(ts.scan(stream, 0))[3]
    points = {
        "oldest": ("oldest", 30),
        "newest": ("newest", 0),
        "time": ((txn.time - timedelta(days=1)).isoformat(), 30),
        "ids": (json.dumps({"0": ids[3]}), 10),
    }
    option, expected = points[start]
    assert pipe.read(stream, start=option).count() == expected
    assert pipe.read(stream, end=json.dumps({stream: {"0": ids[1]}})).count() == 10
    assert pipe.read(stream, end=(txn.time - timedelta(days=1)).isoformat()).count() == 0


def test_several_streams_and_a_prefix(pipe: Pipe, ts: Client, make: Make) -> None:
    one, two = make(1), make(2)
    fill(ts, one, 2)
    fill(ts, two, 4)
    both = pipe.read(f"{one},{two}")
    assert {row.stream: row["count"] for row in both.groupBy("stream").count().collect()} == {
        one: 10,
        two: 20,
    }
    assert pipe.read(json.dumps([one])).count() == 10
    ts.create_stream(one + "-more")
    fill(ts, one + "-more", 1)
    assert pipe.read(one + "*").where(f"stream like '{one}-%'").count() == 5


def test_more_tasks_than_partitions(pipe: Pipe, ts: Client, make: Make) -> None:
    stream = make(2)
    fill(ts, stream, 100)
    df = pipe.read(stream, minPartitions=6)
    assert df.rdd.getNumPartitions() == 6
    assert df.selectExpr("count(distinct transaction, index)").collect()[0][0] == 500
    # A transaction is read by one task, whole.
    assert df.selectExpr("transaction", "spark_partition_id() as task").distinct().count() == 100


def test_a_stream_with_a_schema_has_its_own_columns(pipe: Pipe, ts: Client, make: Make) -> None:
    schema = pa.schema([("card", pa.string()), ("cents", pa.int64())])
    stream = make(2, schema=schema)
    with ts.producer(stream) as producer:
        producer.instant(pa.table({"card": ["a", "b"], "cents": [5, 7]}, schema=schema), 0)
        producer.instant(pa.table({"card": ["c"], "cents": [None]}, schema=schema), 1)
    rows = pipe.read(stream).orderBy("card").collect()
    assert [tuple(row) for row in rows] == [("a", 5), ("b", 7), ("c", None)]
    known = pipe.read(stream, metadata="true").orderBy("card").collect()
    assert [(row.card, row._partition, row._index) for row in known] == [
        ("a", 0, 0),
        ("b", 0, 1),
        ("c", 1, 0),
    ]
    assert pipe.read(stream, metadata="true").where("_partition = 1").count() == 1


def test_long_transactions_are_read_whole(pipe: Pipe, ts: Client, make: Make) -> None:
    stream = make(1)
    with ts.producer(stream) as producer, producer.transaction(0) as txn:
        for _ in range(40):
            txn.send_many([b"x" * 1000] * 1000)  # 40 MB: more than an answer holds
    found = pipe.read(stream).selectExpr("count(*)", "sum(length(item))", "max(index)").collect()
    assert tuple(found[0]) == (40_000, 40_000_000, 39_999)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": "yesterday"}, "option start: oldest, newest, a time"),
        (
            {"maxTransactionsPerTrigger": "0"},
            "option maxTransactionsPerTrigger is a number from 1 on",
        ),
        ({"strem": "x"}, "knows no option 'strem'"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
    ],
)
def test_mistakes_are_named(pipe: Pipe, make: Make, options: dict[str, str], words: str) -> None:
    with pytest.raises(Exception, match=words):
        pipe.read(make(1), **options).count()


def test_a_stream_that_is_not_there(pipe: Pipe) -> None:
    with pytest.raises(Exception, match="there is no stream 'nowhere'"):
        pipe.read("nowhere").count()
