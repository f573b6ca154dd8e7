"""A real Spark on this machine, and a real server for it to read from and to write to."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tstreams
from tstreams import Client
from tstreams.server import Node
from tstreams.spark import session

_names = itertools.count()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    spark = session("tests", "local[2,2]", settings)  # a task may fail once
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def node(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Node]:
    """One server for all tests: each makes streams of its own. `--shards` says of how many shards."""
    shards = request.config.getoption("shards") or 1
    node = Node(tmp_path_factory.mktemp("data"), ["tcp://127.0.0.1:0"], shards=shards)
    with node.in_thread():
        yield node


@pytest.fixture
def url(node: Node) -> str:
    return node.addresses[0]


@pytest.fixture
def ts(url: str) -> Iterator[Client]:
    with tstreams.connect(url) as ts:
        yield ts


@pytest.fixture
def make(ts: Client) -> Callable[..., str]:
    """Make a stream with a name of its own."""

    def make(partitions: int = 2, **options: Any) -> str:
        return ts.create_stream(f"stream-{next(_names)}", partitions, **options).name

    return make


def items_of(ts: Client, stream: str) -> list[bytes]:
    """All that is visible in a stream, partition by partition."""
    partitions = range(ts.stream(stream).partitions)
    return [bytes(it) for p in partitions for txn in ts.scan(stream, p) for it in txn.items]


@dataclass
class Pipe:
    """Shorthand for reading and writing with the test's server."""

    spark: SparkSession
    url: str
    ts: Client
    folder: Path

    def read(self, stream: str, **options: Any) -> DataFrame:
        df: DataFrame = self._options(self.spark.read, stream, options).load()
        return df

    def stream(self, stream: str, **options: Any) -> DataFrame:
        df: DataFrame = self._options(self.spark.readStream, stream, options).load()
        return df

    def write(
        self, df: DataFrame, stream: str | None, mode: str = "append", **options: Any
    ) -> None:
        self._options(df.write, stream, options).mode(mode).save()

    def start(
        self, df: DataFrame, stream: str | None, checkpoint: str = "checkpoint", **options: Any
    ) -> StreamingQuery:
        options["checkpointLocation"] = str(self.folder / checkpoint)
        trigger = options.pop("trigger", {"availableNow": True})
        writer = self._options(df.writeStream, stream, options)
        query: StreamingQuery = writer.trigger(**trigger).start()
        return query

    def run(
        self, df: DataFrame, stream: str | None, checkpoint: str = "checkpoint", **options: Any
    ) -> StreamingQuery:
        """All that there is, and no more."""
        query = self.start(df, stream, checkpoint, **options)
        query.awaitTermination()
        return query

    def _options(self, what: Any, stream: str | None, options: dict[str, Any]) -> Any:
        what = what.format(options.pop("format", "tstreams")).option("url", self.url)
        if stream is not None:
            what = what.option("stream", stream)
        for name, value in options.items():
            what = what.option(name, str(value))
        return what

    def items(self, stream: str) -> list[bytes]:
        return items_of(self.ts, stream)


@pytest.fixture
def pipe(spark: SparkSession, url: str, ts: Client, tmp_path: Path) -> Pipe:
    return Pipe(spark, url, ts, tmp_path)
