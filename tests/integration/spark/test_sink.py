"""Streams as a sink of Spark: what a job or a micro-batch writes becomes visible at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tstreams import Client
from tstreams.client.rules.partitioning import place_of

from .conftest import Pipe
from .test_source import fill

Make = Callable[..., str]

pytestmark = pytest.mark.xdist_group("spark")
"""All in one process: each would start a Java of its own."""


def test_a_batch_of_items_and_of_texts(
    pipe: Pipe, spark: SparkSession, ts: Client, make: Make
) -> None:
    stream = make(2)
    pipe.write(spark.createDataFrame([(b"one",), (b"two",)], "item binary"), stream)
    pipe.write(spark.createDataFrame([("drei",)], "item string"), stream)
    packed = spark.createDataFrame([("vier" * 1000,)], "item string")
    pipe.write(packed, stream, compression="zstd")
    assert sorted(pipe.items(stream)) == [b"drei", b"one", b"two", b"vier" * 1000]
    assert sum(it.size for it in ts.survey(stream, transactions=9).values()) < 1000
    with pytest.raises(Exception, match="gzip"):
        pipe.write(packed, stream, compression="gzip")


def test_by_partition_and_by_key(pipe: Pipe, spark: SparkSession, ts: Client, make: Make) -> None:
    by_partition, by_key = make(3), make(8)
    rows = spark.range(300).selectExpr(
        "cast(id as string) as item", "cast(id % 3 as int) as partition"
    )
    pipe.write(rows, by_partition)
    for partition in range(3):
        found = [int(bytes(it)) for txn in ts.scan(by_partition, partition) for it in txn.items]
        assert sorted(found) == list(range(partition, 300, 3))
    pipe.write(spark.range(100).selectExpr("'x' as item", "concat('k', id) as key"), by_key)
    expected = Counter(place_of(b"k%d" % n, 8) for n in range(100))
    found_ = {p: sum(map(len, ts.scan(by_key, p))) for p in range(8)}
    assert {p: n for p, n in found_.items() if n} == expected


def test_one_write_into_many_streams(pipe: Pipe, spark: SparkSession, make: Make) -> None:
    one, two = make(1), make(1)
    rows = [(one, "a"), (two, "b"), (one, "c")]
    pipe.write(spark.createDataFrame(rows, "stream string, item string").coalesce(1), None)
    assert (pipe.items(one), pipe.items(two)) == ([b"a", b"c"], [b"b"])


def test_rows_for_a_stream_with_a_schema(
    pipe: Pipe, spark: SparkSession, ts: Client, make: Make
) -> None:
    schema = pa.schema([("card", pa.string()), ("cents", pa.int64())])
    stream = make(2, schema=schema)
    pipe.write(spark.sql("select 'a' as card, 5L as cents, 1 as partition"), stream)
    assert [txn.to_arrow().to_pylist() for txn in ts.scan(stream, 1)] == [
        [{"card": "a", "cents": 5}]
    ]
    with pytest.raises(Exception, match="cents"):
        pipe.write(spark.sql("select 'a' as card, 'many' as cents"), stream)
    with pytest.raises(Exception, match="has no column 'extra'"):
        pipe.write(spark.sql("select 'a' as card, 5L as cents, 1 as extra"), stream)
    assert len(list(ts.scan(stream, 0))) == 0


def test_a_failing_job_leaves_nothing(
    pipe: Pipe, spark: SparkSession, ts: Client, make: Make
) -> None:
    """One task fails, when the others have long staged what they wrote: a task that is still at work when a job is given up may
    stage something after that."""
    stream = make(2)

    def fail_late(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if 990 in batch.column(0).to_pylist():
                time.sleep(5)
                raise ValueError("on purpose")
            yield pa.RecordBatch.from_arrays([batch.column(0).cast(pa.string())], ["item"])

    rows = spark.range(0, 1000, 1, 4).mapInArrow(fail_late, "item string")
    with pytest.raises(Exception, match="on purpose"):
        pipe.write(rows, stream)
    assert pipe.items(stream) == []
    # Nothing is left open that would hold up readers.
    fill(ts, stream, 2)
    assert len(pipe.items(stream)) == 10


def test_overwrite_replaces_at_once(
    pipe: Pipe, spark: SparkSession, ts: Client, make: Make
) -> None:
    stream = make(2)
    fill(ts, stream, 20)
    pipe.write(spark.createDataFrame([("new",)], "item string"), stream, "overwrite")
    assert pipe.items(stream) == [b"new"]
    pipe.write(spark.createDataFrame([], "item string"), stream, "overwrite")
    assert pipe.items(stream) == []


def test_transactions_are_of_bounded_size(
    pipe: Pipe, spark: SparkSession, ts: Client, make: Make
) -> None:
    stream = make(1)
    rows = spark.range(0, 60_000, 1, 1).selectExpr("repeat('x', 100) as item")
    pipe.write(rows, stream, maxTransactionBytes=1_000_000)
    sizes = [len(txn) for txn in ts.scan(stream, 0)]
    assert sum(sizes) == 60_000
    assert len(sizes) >= 5


def test_from_stream_to_stream(pipe: Pipe, ts: Client, make: Make) -> None:
    source, sink = make(4), make(2)
    fill(ts, source, 100)
    df = pipe.stream(source, maxTransactionsPerTrigger=30).selectExpr(
        "concat('<', cast(item as string), '>') as item"
    )
    query = pipe.run(df, sink)
    assert len(query.recentProgress) >= 3
    assert Counter(pipe.items(sink)) == Counter(b"<" + it + b">" for it in pipe.items(source))
    # The same checkpoint: only what is new. A fresh one: all of it again, for it is another query.
    fill(ts, source, 10)
    pipe.run(df, sink)
    assert len(pipe.items(sink)) == 550
    pipe.run(df, sink, "another-checkpoint")
    assert len(pipe.items(sink)) == 1100


def test_progress_as_the_checkpoint_of_a_consumer(pipe: Pipe, ts: Client, make: Make) -> None:
    source, sink = make(2), make(1)
    fill(ts, source, 20)
    df = pipe.stream(source, consumer="query-7", maxTransactionsPerTrigger=5).select("item")
    pipe.run(df, sink)
    with ts.consumer(source, "query-7") as consumer:
        left = sum(1 for _ in consumer.read(max_wait=0.1))
    # Spark does not tell a source of its last micro-batch.
    assert 0 < left <= 6


def test_a_prefix_takes_in_streams_that_come_later(pipe: Pipe, ts: Client, make: Make) -> None:
    first, sink = make(1), make(1)
    fill(ts, first, 2)
    df = pipe.stream(first + "*").selectExpr("concat(stream, ' ', cast(item as string)) as item")
    pipe.run(df, sink)
    ts.create_stream(first + "-later")
    fill(ts, first + "-later", 1)
    pipe.run(df, sink)
    assert Counter(it.split()[0].decode() for it in pipe.items(sink)) == {
        first: 10,
        first + "-later": 5,
    }
    other = ts.create_stream(first + "-typed", schema=pa.schema([("a", pa.int64())]))
    with ts.producer(other.name) as producer:
        producer.instant(pa.table({"a": [1]}))
    with pytest.raises(Exception, match="have different schemas"):
        pipe.run(df, sink)


def test_what_was_lost_is_not_passed_over_in_silence(
    pipe: Pipe, ts: Client, make: Make, spark: SparkSession
) -> None:
    source, sink = make(1), make(1)
    ids = fill(ts, source, 4)

    class Purging:
        """Purges a stream after the micro-batch was planned."""

        def __call__(self, df: Any, batch: int) -> None:
            ts.purge_stream(source, ids[-1] + 1)
            df.count()

    df = pipe.stream(source)
    query = (
        df.writeStream.foreachBatch(Purging())
        .option("checkpointLocation", str(pipe.folder / "x"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="not there any more"):
        query.awaitTermination()
    pipe.run(pipe.stream(source, failOnDataLoss="false").select("item"), sink, "x2")
