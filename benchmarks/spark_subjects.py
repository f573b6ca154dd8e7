"""The contestants of `spark`: where each reads from and writes to, and how that is checked."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

import tstreams

from .interface import BenchmarkFailed
from .servers import HOST
from .spark_peers import ROWS_PER_BATCH, TYPED, item_column, typed_rows
from .spark_plan import MICROBATCH_ROWS, Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_JOB_S = 300.0


class Subject(Protocol):
    """One contestant."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Binary and typed, or one of them."""

    def fill(self, kind: str) -> None:
        """Make what the sources read."""

    def read(self, kind: str) -> DataFrame:
        """All of it."""

    def write(self, rows: DataFrame, kind: str) -> None:
        """All of it, to a fresh place."""

    def check(self, kind: str) -> None:
        """Whether all rows are where they were written; then drop them."""


def memory(spark: SparkSession, plan: Plan, kind: str) -> DataFrame:
    """What writes take their rows from: the columns that a sink takes, and no more."""
    reader = spark.read.format("memory-arrow").option("rows", str(plan.rows))
    reader = reader.option("tasks", str(plan.partitions))
    rows = reader.option("typed", str(kind == "typed").lower()).load()
    return rows if kind == "typed" else rows.select("item")


class Ceiling:
    """Nothing at either end."""

    kinds = ("binary", "typed")

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self._spark = spark
        self._plan = plan

    def fill(self, kind: str) -> None:
        """Each worker makes its own when it reads for the first time."""

    def read(self, kind: str) -> DataFrame:
        """With all columns that the source of tstreams gives."""
        reader = self._spark.read.format("memory-arrow").option("rows", str(self._plan.rows))
        reader = reader.option("tasks", str(self._plan.partitions))
        return reader.option("typed", str(kind == "typed").lower()).load()

    def write(self, rows: DataFrame, kind: str) -> None:
        """Rows are counted, and that is checked there. It is handed what the others are handed."""
        rows = rows if kind == "typed" else rows.select("item")
        writer = rows.write.format("memory-arrow").option("rows", str(self._plan.rows))
        writer.mode("append").save()

    def check(self, kind: str) -> None:
        """Done."""

    def stream(self, checkpoint: Path, batches: int) -> StreamingQuery:
        """A query of so many micro-batches."""
        reader = self._spark.readStream.format("memory-arrow")
        reader = reader.option("rows", str(MICROBATCH_ROWS)).option("batches", str(batches))
        writer = reader.load().select("item").writeStream.format("memory-arrow")
        writer = writer.option("rows", str(MICROBATCH_ROWS))
        writer = writer.option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).start()


class Streams:
    """tstreams, with a server in a process of its own."""

    kinds = ("binary", "typed")

    def __init__(self, spark: SparkSession, plan: Plan, port: int) -> None:
        self._spark = spark
        self._plan = plan
        self._url = f"tcp://{HOST}:{port}"
        self._queries = 0

    def fill(self, kind: str) -> None:
        """Transactions in all partitions, by one producer."""
        plan = self._plan
        batch: pa.RecordBatch = (
            typed_rows(ROWS_PER_BATCH)
            if kind == "typed"
            else pa.record_batch({"item": item_column(ROWS_PER_BATCH)})
        )
        with tstreams.connect(self._url) as ts:
            schema = TYPED if kind == "typed" else None
            ts.create_stream(f"{kind}-in", plan.partitions, schema=schema)
            with ts.producer(f"{kind}-in") as producer:
                left, number, sent = plan.rows, 0, []
                while left:
                    count = min(plan.transaction_rows, left)
                    at = number * plan.transaction_rows % (ROWS_PER_BATCH - count + 1)
                    rows = batch.slice(at, count)
                    partition = number % plan.partitions
                    sent.append(producer.instant(rows, partition, wait=False))
                    left, number = left - count, number + 1
                    if len(sent) == 100:
                        for it in sent:
                            it.result(_JOB_S)
                        sent = []
                for it in sent:
                    it.result(_JOB_S)

    def read(self, kind: str) -> DataFrame:
        """All columns of the source."""
        reader = self._spark.read.format("tstreams").option("url", self._url)
        return reader.option("stream", f"{kind}-in").load()

    def write(self, rows: DataFrame, kind: str) -> None:
        """Into a new stream."""
        with tstreams.connect(self._url) as ts:
            schema = TYPED if kind == "typed" else None
            ts.create_stream(f"{kind}-out", self._plan.partitions, schema=schema)
        rows = rows if kind == "typed" else rows.select("item")
        writer = rows.write.format("tstreams").option("url", self._url)
        writer.option("stream", f"{kind}-out").mode("append").save()

    def check(self, kind: str) -> None:
        """Count what is visible."""
        self._count(f"{kind}-out", self._plan.rows)

    def _count(self, stream: str, rows: int) -> None:
        with tstreams.connect(self._url) as ts:
            found = 0
            for partition in range(ts.stream(stream).partitions):
                found += sum(len(txn) for txn in ts.scan(stream, partition))
            if found != rows:
                raise BenchmarkFailed(f"tstreams has {found} rows in {stream!r}, not {rows}")
            ts.delete_stream(stream)

    def stream(self, checkpoint: Path, batches: int) -> StreamingQuery:
        """A query of so many micro-batches, from one stream to another."""
        with tstreams.connect(self._url) as ts:
            source, sink = f"micro-in-{self._queries}", f"micro-out-{self._queries}"
            self._queries += 1
            ts.create_stream(source)
            ts.create_stream(sink)
            with ts.producer(source) as producer:
                items = item_column(MICROBATCH_ROWS)
                for _ in range(batches):
                    producer.instant(items, 0)
        reader = self._spark.readStream.format("tstreams").option("url", self._url)
        reader = reader.option("stream", source).option("maxTransactionsPerTrigger", "1")
        writer = reader.load().select("item").writeStream.format("tstreams")
        writer = writer.option("url", self._url).option("stream", sink)
        writer = writer.option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).start()

    def check_stream(self, batches: int) -> None:
        """Count what the last query has written."""
        self._count(f"micro-out-{self._queries - 1}", batches * MICROBATCH_ROWS)


class Parquet:
    """Files."""

    kinds = ("binary", "typed")

    def __init__(self, spark: SparkSession, plan: Plan, folder: Path) -> None:
        self._spark = spark
        self._plan = plan
        self._folder = folder

    def fill(self, kind: str) -> None:
        """From memory."""
        memory(self._spark, self._plan, kind).write.parquet(str(self._folder / f"{kind}-in"))

    def read(self, kind: str) -> DataFrame:
        """All columns."""
        return self._spark.read.parquet(str(self._folder / f"{kind}-in"))

    def write(self, rows: DataFrame, kind: str) -> None:
        """To a new folder."""
        rows.write.parquet(str(self._folder / f"{kind}-out"))

    def check(self, kind: str) -> None:
        """Count, from the files' footers."""
        place = self._folder / f"{kind}-out"
        found = self._spark.read.parquet(str(place)).count()
        if found != self._plan.rows:
            raise BenchmarkFailed(f"there are {found} rows in Parquet files, not {self._plan.rows}")
        shutil.rmtree(place)
