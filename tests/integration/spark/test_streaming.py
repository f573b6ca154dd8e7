"""Streaming queries: where they begin, how much they take at a time, and what happens around them."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import moebius
import tstreams
from tstreams import Client
from tstreams.limits import FETCH_BYTES_MAX
from tstreams.protocol import Fetch, Fetched, Want, decode_reply, encode

from ..tstreams.servers import ServerProcess, server_of
from .conftest import Pipe
from .test_source import fill

Make = Callable[..., str]

pytestmark = pytest.mark.xdist_group("spark")
"""All in one process: each would start a Java of its own."""


class Batches:
    """Keeps what each micro-batch held: its transactions, with their numbers of rows."""

    def __init__(self, then: Callable[[int], Any] = lambda batch: None) -> None:
        self.found: dict[int, dict[int, int]] = {}
        self._then = then

    def __call__(self, df: Any, batch: int) -> None:
        counted = df.groupBy("transaction").count().orderBy("transaction").collect()
        self.found[batch] = {row.transaction: row["count"] for row in counted}
        self._then(batch)

    def run(self, pipe: Pipe, df: Any, checkpoint: str) -> None:
        writer = df.writeStream.foreachBatch(self)
        writer = writer.option("checkpointLocation", str(pipe.folder / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()


def test_how_much_a_micro_batch_takes(pipe: Pipe, ts: Client, make: Make) -> None:
    stream = make(2)
    ids = fill(ts, stream, 24)
    size = sum(it.size for it in ts.survey(stream, transactions=100).values())
    for options, least in (
        ({"maxTransactionsPerTrigger": 8}, 3),
        ({"maxBytesPerTrigger": size // 3}, 3),
        ({}, 1),
    ):
        batches = Batches()
        batches.run(pipe, pipe.stream(stream, **options), f"checkpoint-{len(options)}-{options}")
        taken = [it for batch in batches.found.values() for it in batch]
        assert sorted(taken) == sorted(ids)
        assert {count for batch in batches.found.values() for count in batch.values()} == {5}
        assert least <= len(batches.found) <= least + 2


def test_available_now_ends_where_the_stream_ended_when_it_began(
    pipe: Pipe, ts: Client, make: Make
) -> None:
    stream = make(1)
    first = fill(ts, stream, 6)
    later: list[int] = []
    batches = Batches(lambda _: later.extend(fill(ts, stream, 1)))
    df = pipe.stream(stream, maxTransactionsPerTrigger=2)
    batches.run(pipe, df, "checkpoint")
    assert [*batches.found[0], *batches.found[1], *batches.found[2]] == first
    assert len(batches.found) == 3
    again = Batches()
    again.run(pipe, df, "checkpoint")
    assert [it for batch in again.found.values() for it in batch] == later


def test_where_a_query_starts(pipe: Pipe, ts: Client, make: Make) -> None:
    stream = make(1)
    ids = fill(ts, stream, 4)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for start, expected in (
        ("oldest", 4),
        ("newest", 0),
        (json.dumps({"0": ids[2]}), 1),
        (tomorrow.isoformat(), 0),
        ((tomorrow - timedelta(days=2)).isoformat(), 4),
    ):
        batches = Batches()
        batches.run(pipe, pipe.stream(stream, start=start), f"checkpoint {start[:12]}")
        assert sum(map(len, batches.found.values())) == expected, start


def test_many_streams_in_and_many_out(pipe: Pipe, ts: Client, make: Make) -> None:
    one, two, even, odd = make(1), make(2), make(1), make(2)
    fill(ts, one, 4)
    fill(ts, two, 6)
    df = pipe.stream(f"{one},{two}").selectExpr(
        f"if(index % 2 = 0, '{even}', '{odd}') as stream", "concat(stream, ':', index) as item"
    )
    pipe.run(df, None)
    expected = Counter({one: 4, two: 6})
    for sink, indices in ((even, (0, 2, 4)), (odd, (1, 3))):
        assert Counter(pipe.items(sink)) == {
            b"%b:%d" % (name.encode(), index): count
            for name, count in expected.items()
            for index in indices
        }


def test_a_micro_batch_appears_at_once(pipe: Pipe, ts: Client, make: Make) -> None:
    source, sink = make(1), make(1)
    fill(ts, source, 60)
    df = pipe.stream(source, maxTransactionsPerTrigger=20, minPartitions=2)
    with watching(pipe, sink) as seen:
        pipe.run(df.select("item"), sink)
    sizes = [sum(it.values()) for it in seen]
    assert sizes[-1] == 300
    assert set(sizes) <= {0, 100, 200, 300}


def test_an_overwrite_is_seen_whole_or_not_at_all(
    pipe: Pipe, spark: SparkSession, ts: Client, make: Make
) -> None:
    stream = make(1)
    fill(ts, stream, 20)
    new = [b"new %d" % n for n in range(400)]
    rows = spark.range(0, 400, 1, 4).selectExpr("concat('new ', id) as item", "0 as partition")
    with watching(pipe, stream) as seen:
        pipe.write(rows, stream, "overwrite", maxTransactionBytes=1)
    assert sorted(pipe.items(stream)) == sorted(new)
    old, whole = seen[0], seen[-1]
    assert len(old) == 20
    assert not old.keys() & whole.keys()
    assert all(it in (old, whole) for it in seen)


class watching:  # noqa: N801
    """The transactions that one request sees in a stream, with their numbers of items, again and again while
    something is done to it, and at the end. Not a scan: that asks several times, and what it was about to
    read may be gone by then."""

    def __init__(self, pipe: Pipe, stream: str) -> None:
        self._url = pipe.url
        self._fetch = encode(Fetch(pipe.ts.stream(stream).id, [Want(0, 0)], FETCH_BYTES_MAX, 0))
        self._ended = threading.Event()
        self._seen: list[dict[int, int]] = []
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        with moebius.connect(self._url) as wire:
            while True:
                ended = self._ended.is_set()
                found = decode_reply(wire.call_parts("0:Fetch", self._fetch)[0])
                assert isinstance(found, Fetched)
                self._seen.append({it.id: it.items for it in found.transactions})
                if ended:
                    return
                time.sleep(0.002)

    def __enter__(self) -> list[dict[int, int]]:
        self._thread.start()
        while not self._seen:
            assert self._thread.is_alive(), "the watch failed"
            time.sleep(0.002)
        return self._seen

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def test_two_queries_write_into_one_stream(pipe: Pipe, ts: Client, make: Make) -> None:
    one, two, sink = make(1), make(1), make(2)
    fill(ts, one, 10)
    fill(ts, two, 10)
    queries = []
    for source in (one, two):
        df = pipe.stream(source, maxTransactionsPerTrigger=4).select("item")
        queries.append(pipe.start(df, sink, source, trigger={"processingTime": "0 seconds"}))
        queries[-1].processAllAvailable()
    fill(ts, one, 10)
    fill(ts, two, 10)
    for query in queries:
        query.processAllAvailable()
        query.stop()
    assert Counter(pipe.items(sink)) == Counter([*pipe.items(one), *pipe.items(two)])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = server_of(tmp_path / "data")
    process.start()
    yield process
    process.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_server_is_restarted_in_mid_query(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, end: str
) -> None:
    with tstreams.connect(server.address) as ts:
        pipe = Pipe(spark, server.address, ts, tmp_path)
        for name in ("source", "sink"):
            ts.create_stream(name, 2)
        fill(ts, "source", 100)
        df = pipe.stream("source", maxTransactionsPerTrigger=10).select("item")
        query = pipe.start(df, "sink", trigger={"processingTime": "0 seconds"})
        try:
            for _ in range(2):
                written = len(pipe.items("sink"))
                while len(pipe.items("sink")) == written:
                    assert query.isActive, query.exception()
                    time.sleep(0.05)
                getattr(server, end)()
                server.start()
            fill(ts, "source", 20)
            query.processAllAvailable()
        finally:
            query.stop()
        assert Counter(pipe.items("sink")) == Counter(pipe.items("source"))
