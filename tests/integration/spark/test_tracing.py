"""Headers of transactions as a column, and contexts that go through a query."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tstreams
from tests.integration.tstreams.spans import about, id_of, is_child, links_of, record, trace_of
from tstreams import BadRequest, Client
from tstreams.client.config import ClientConfig
from tstreams.spark import slices, tracing_options
from tstreams.spark.columns import Columns, Layout
from tstreams.spark.options import ReadOptions, WriteOptions
from tstreams.spark.writing import _write

from .conftest import Pipe

Make = Callable[..., str]

pytestmark = pytest.mark.xdist_group("spark")
"""All in one process: each would start a Java of its own."""

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_headers_are_a_column_if_they_are_wanted(pipe: Pipe, ts: Client, make: Make) -> None:
    plain, typed = make(1), make(1, schema=pa.schema([("n", pa.int64())]))
    with ts.producer(plain) as producer:
        producer.instant([b"a", b"b"], headers={"k": b"1", "l": b""})
        producer.instant([b"c"])
        producer.instant([b"d"], headers={"k": b"2"})
    with ts.producer(typed) as producer:
        producer.instant(pa.table({"n": [1, 2]}), headers={"k": b"3"})
    df = pipe.read(plain, headers="true")
    assert df.schema["headers"].dataType.simpleString() == "map<string,binary>"
    assert [(bytes(it["item"]), it["headers"]) for it in df.orderBy("item").collect()] == [
        (b"a", {"k": b"1", "l": b""}),
        (b"b", {"k": b"1", "l": b""}),
        (b"c", {}),
        (b"d", {"k": b"2"}),
    ]
    rows = pipe.read(typed, headers="true").orderBy("n").collect()
    assert [(it["n"], it["_headers"]) for it in rows] == [(1, {"k": b"3"}), (2, {"k": b"3"})]
    assert "headers" not in pipe.read(plain).columns
    assert pipe.read(typed, metadata="true").columns[-1] == "_time"
    only_items = pipe.read(plain, headers="true", metadata="false")
    assert only_items.columns == ["headers", "item"]


def test_a_query_hands_its_context_on(
    spark: SparkSession, pipe: Pipe, ts: Client, make: Make
) -> None:
    """From a producer through a streaming query to what it writes, in the processes of Spark."""
    source, sink = make(2), make(2)
    with ts.producer(source) as producer:
        producer.instant([b"a"], 0, headers={"traceparent": PARENT.encode()})
        producer.instant([b"b"], 1)
    df = pipe.stream(source, headers="true", tracing="true")
    written = df.selectExpr("concat(item, X'2D', coalesce(headers['traceparent'], X'')) AS item")
    pipe.run(written, sink, traceparent=PARENT)
    found = [txn for p in range(2) for txn in ts.scan(sink, p)]
    assert {bytes(it) for txn in found for it in txn.items} == {b"a-" + PARENT.encode(), b"b-"}
    assert {bytes(txn.headers["traceparent"][3:35]).decode() for txn in found} == {TRACE}
    untraced = make(1)
    pipe.write(pipe.read(source).select("item"), untraced)
    assert {len(txn.headers) for txn in ts.scan(untraced, 0)} == {0}


def test_tasks_make_spans(url: str, ts: Client, make: Make) -> None:
    """What tasks do, done here, where the spans can be seen."""
    spans = record()
    spans.clear()
    source, sink = make(1), make(1)
    with tstreams.connect(url, tracing=True) as traced, traced.producer(source) as producer:
        for n in range(3):
            producer.instant([b"%d" % n, b"."])
    with spans.tracer.start_as_current_span("nightly"):
        given = {"url": url, **tracing_options()}
    read = ReadOptions.parse({**given, "stream": source, "headers": "true"})
    write = WriteOptions.parse({**given, "stream": sink})
    (last,) = ts.survey(source).values()
    assert last.last_id is not None
    part = slices.Slice(source, 0, 0, last.last_id)
    layout = Layout.of(None, headers=True)
    rows = list(slices.read(read.client, layout, part, True, read.traceparent))
    done = _write(write, "job", 0, [it.select(["item"]) for it in rows])
    traced = tstreams.connect(write.client)
    traced.job("job").commit(0, done.staged)
    traced.close()

    nightly, sent = spans.one("nightly"), spans.named(f"send {source}")
    received, written = spans.one(f"receive {source}"), spans.one(f"send {sink}")
    assert is_child(received, nightly)
    assert links_of(received) == [id_of(it) for it in sent]
    assert about(received)["messaging.batch.message_count"] == 6
    assert about(received)["tstreams.transactions"] == 3
    assert is_child(written, nightly)
    assert about(written)["tstreams.transaction.state"] == "staged"
    (found,) = ts.scan(sink, 0)
    assert found.headers["traceparent"].startswith(b"00-%032x-" % trace_of(nightly))
    spans.clear()


def test_many_transactions_make_one_column(url: str, ts: Client, make: Make) -> None:
    stream = make(1)
    with ts.producer(stream) as producer:
        for n in range(100):
            headers = {"n": b"%d" % n} if n % 3 else None
            producer.instant([b"x"] * (n % 7 + 1), headers=headers, wait=False)
    transactions = list(ts.scan(stream, 0))
    assert len(transactions) == 100
    (batch,) = Columns(Layout.of(None, headers=True), stream, 0).batches(transactions)
    wanted = [[*it.headers.items()] for it in transactions for _ in range(len(it))]
    assert batch.column("headers").to_pylist() == wanted
    batch.validate(full=True)


def test_options_that_make_no_sense(pipe: Pipe, make: Make) -> None:
    given = {"url": pipe.url, "stream": make(1)}
    for wrong in (
        {"traceparent": "00-1-2-3"},
        {"tracing": "perhaps"},
        {"headers": "1"},
    ):
        (name,) = wrong
        with pytest.raises(BadRequest, match=name):
            ReadOptions.parse({**given, **wrong})
    assert ReadOptions.parse(given).client == ClientConfig(pipe.url)
    assert ReadOptions.parse({**given, "traceparent": PARENT}).client.tracing is True
    off = ReadOptions.parse({**given, "traceparent": PARENT, "tracing": "false"})
    assert off.client.tracing is False
    with pytest.raises(PySparkException, match="traceparent"):
        pipe.read(given["stream"], traceparent="x")
