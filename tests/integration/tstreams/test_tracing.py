"""Tracing: with the real SDK, over a real server, from the producer to every kind of reader."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

import tstreams
from tstreams import BadRequest, Client, Expired
from tstreams.limits import HEADERS_MAX, SEND_BATCH_BYTES
from tstreams.server import Node

from .conftest import ONE_SHARD, Clock, Connect, eventually
from .spans import Spans, about, id_of, is_child, links_of, parent_of, record, trace_of


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = record()
    found.clear()
    yield found
    found.clear()


@pytest.fixture
def ts(connect: Connect, spans: Spans) -> Client:
    return connect(tracing=True)


def traceparent(span: Any) -> bytes:
    return b"00-%032x-%016x-%02x" % (trace_of(span), id_of(span), span.context.trace_flags)


def by_partition(spans: list[ReadableSpan]) -> dict[str, ReadableSpan]:
    return {about(it)["messaging.destination.partition.id"]: it for it in spans}


def test_a_transaction_is_a_span_and_its_headers_say_which(
    ts: Client, clicks: str, spans: Spans
) -> None:
    with ts.producer(clicks, name="p") as producer, producer.transaction(2) as txn:
        txn.send_many([b"a", b"b"])
        assert spans.named("send clicks") == []
    span = spans.one("send clicks")
    assert span.kind is SpanKind.PRODUCER
    assert txn.headers == {"traceparent": traceparent(span)}
    assert about(span) == {
        "messaging.system": "tstreams",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "clicks",
        "messaging.destination.partition.id": "2",
        "messaging.client.id": "p",
        "messaging.message.id": str(txn.id),
        "messaging.batch.message_count": 2,
        "tstreams.transaction.state": "checkpointed",
    }
    (found,) = ts.scan(clicks, 2)
    assert found.headers == txn.headers


def test_instants_of_all_kinds_are_spans(ts: Client, clicks: str, spans: Spans) -> None:
    with ts.producer(clicks) as producer:
        first = producer.instant([b"1"], 0, headers={"n": b"1", "traceparent": b"of another"})
        second = producer.instant([b"2"], 0, wait=False).result()
        producer.instant([b"3"], 0, reliable=False)
        fourth = producer.instant([b"x" * SEND_BATCH_BYTES] * 100, 0)
    found = spans.wait("send clicks", 4)
    ids = [about(it).get("messaging.message.id") for it in found]
    assert sorted(it for it in ids if it) == [str(first), str(second), str(fourth)]
    states = sorted(about(it)["tstreams.transaction.state"] for it in found)
    assert states == ["checkpointed", "checkpointed", "checkpointed", "sent"]
    assert sorted(about(it)["messaging.batch.message_count"] for it in found) == [1, 1, 1, 100]
    sent = {traceparent(it) for it in found}
    read = eventually(lambda: len(them := list(ts.scan(clicks, 0))) == 4 and them)
    assert {it.headers["traceparent"] for it in read} == sent
    assert read[0].headers["n"] == b"1"


def test_how_transactions_end(ts: Client, clicks: str, spans: Spans, clock: Clock) -> None:
    producer = ts.producer(clicks, transaction_ttl=1.0)
    producer.open(0).cancel()
    assert about(spans.one("send clicks"))["tstreams.transaction.state"] == "cancelled"
    spans.clear()
    late = producer.open(0)
    late.send(b"x")
    clock.advance(60)
    with pytest.raises(Expired):
        late.checkpoint()
    span = spans.one("send clicks")
    assert span.status.status_code is StatusCode.ERROR
    assert about(span)["error.type"] == "Expired"
    spans.clear()
    producer.open(1).send(b"left open")
    producer.close()
    assert about(spans.one("send clicks"))["tstreams.transaction.state"] == "cancelled"


def test_what_cannot_be_sent_is_a_failed_span(ts: Client, clicks: str, spans: Spans) -> None:
    with ts.producer(clicks) as producer:
        with pytest.raises(BadRequest):
            producer.instant([], 0)
        span = spans.one("send clicks")
        assert span.status.status_code is StatusCode.ERROR
        assert about(span)["error.type"] == "BadRequest"
        assert [it.name for it in span.events] == ["exception"]
        spans.clear()
        producer.open(0)
        with pytest.raises(tstreams.InvalidState):
            producer.open(0, policy="error")
        assert about(spans.one("send clicks"))["error.type"] == "InvalidState"


def test_headers_of_a_user_are_not_pushed_out(ts: Client, clicks: str, spans: Spans) -> None:
    """A transaction must not fail because it is traced: there the context is left out."""
    full = {str(n): b"" for n in range(HEADERS_MAX)}
    with ts.producer(clicks) as producer:
        producer.instant([b"a"], 0, headers=full)
    (found,) = ts.scan(clicks, 0)
    assert found.headers == full
    spans.one("send clicks")


def test_a_consumer_receives_and_handles(ts: Client, clicks: str, spans: Spans) -> None:
    with ts.producer(clicks) as producer:
        first = producer.instant([b"1", b"2"], 0)
        producer.instant([b"3"], 1)
    with ts.consumer(clicks, name="c") as consumer:
        txn = consumer.get(0)
        assert txn is not None
        with txn.traced():
            pass
        consumer.seek(0, tstreams.Offset.oldest())
        assert len(list(consumer.read(max_wait=0.0))) == 2
    sent = {about(it)["messaging.message.id"]: it for it in spans.wait("send clicks", 2)}
    received = spans.wait("receive clicks", 3)
    (handled,) = spans.wait("process clicks", 1)
    for span in (*received, handled):
        producers = sent[about(span)["messaging.message.id"]]
        assert is_child(span, producers)
        assert links_of(span) == [id_of(producers)]
        assert about(span)["messaging.consumer.group.name"] == "c"
    assert {it.kind for it in received} == {SpanKind.CLIENT}
    assert handled.kind is SpanKind.CONSUMER
    assert about(handled) == {
        "messaging.system": "tstreams",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "clicks",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": str(first),
        "messaging.batch.message_count": 2,
        "messaging.consumer.group.name": "c",
    }


def test_a_subscriber_leads_on_to_what_it_writes(ts: Client, clicks: str, spans: Spans) -> None:
    ts.create_stream("out")
    out = ts.producer("out")

    def handle(subscriber: Any, txn: Any) -> None:
        if txn.partition == 1:
            raise ValueError("a mistake")
        out.instant([b"result"], 0, headers=txn.headers)

    failures: list[BaseException] = []
    with ts.producer(clicks) as producer:
        producer.instant([b"good"], 0)
        producer.instant([b"bad"], 1)
    with ts.subscriber(
        clicks, name="s", on_transaction=handle, on_failure=failures.append
    ) as subscriber:
        eventually(lambda: subscriber.position(0) and subscriber.failures)
    sent = by_partition(spans.wait("send clicks", 2))
    handled = by_partition(spans.wait("process clicks", 2))
    for partition in ("0", "1"):
        assert is_child(handled[partition], sent[partition])
        assert links_of(handled[partition]) == [id_of(sent[partition])]
    assert handled["0"].status.status_code is StatusCode.UNSET
    assert handled["1"].status.status_code is StatusCode.ERROR
    assert isinstance(failures[0], ValueError)
    result = spans.one("send out")
    assert trace_of(result) == trace_of(sent["0"])
    (found,) = ts.scan("out", 0)
    assert found.headers == {"traceparent": traceparent(result)}


@pytest.mark.parametrize(
    ("delivery", "size"),
    [
        ("exactly-once", 1),
        ("exactly-once", SEND_BATCH_BYTES),
        ("at-least-once", 1),
        ("at-most-once", 1),
    ],
)
@ONE_SHARD  # what was read from each shard is committed on its own
def test_a_loop_links_what_it_reads_and_writes(
    ts: Client, clicks: str, spans: Spans, delivery: str, size: int
) -> None:
    ts.create_stream("out")
    with ts.producer(clicks) as producer:
        for n in range(3):
            producer.instant([b"%d" % n], n)
    done = ts.process(
        clicks,
        "loop",
        "out",
        lambda txn: [b"result" * size],
        delivery=delivery,
        max_wait=0.0,
        commit_every=60.0,
    )
    assert (done.transactions, done.commits) == (3, 1)
    sent = spans.wait("send clicks", 3)
    handled = spans.wait("process clicks", 3)
    assert {parent_of(it) for it in handled} == {id_of(it) for it in sent}
    assert {links_of(it)[0] for it in handled} == {id_of(it) for it in sent}
    result = spans.one("send out")
    first, *others = sorted(handled, key=lambda it: it.start_time or 0)
    assert is_child(result, first)
    assert links_of(result) == [id_of(it) for it in others]
    assert about(result)["tstreams.transaction.state"] == "checkpointed"
    assert about(result)["messaging.batch.message_count"] == 3
    (found,) = ts.scan("out", 0)
    assert found.headers == {"traceparent": traceparent(result)}
    assert list(found.items) == [b"result" * size] * 3


def test_a_loop_that_fails_ends_its_spans(ts: Client, clicks: str, spans: Spans) -> None:
    ts.create_stream("out")
    with ts.producer(clicks) as producer:
        producer.instant([b"good"], 0)
        producer.instant([b"bad"], 0)

    def work(txn: Any) -> list[bytes]:
        if len(spans.named("process clicks")) == 1:
            raise ValueError("a mistake")
        return [b"result"]

    with pytest.raises(ValueError, match="a mistake"):
        ts.process(clicks, "loop", "out", work, max_wait=0.0)
    good, bad = spans.wait("process clicks", 2)
    assert (good.status.status_code, bad.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert about(spans.one("send out"))["tstreams.transaction.state"] == "cancelled"


def test_who_does_not_want_it_has_no_spans(
    connect: Connect, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use(**options: Any) -> list[bytes]:
        ts = connect(**options)
        ts.create_stream("s")
        with ts.producer("s") as producer:
            producer.instant([b"a"], 0)
        with ts.consumer("s") as consumer:
            (txn,) = consumer.read(max_wait=0.0)
            with txn.traced():
                names = [*map(str.encode, txn.headers)]
        ts.delete_stream("s")
        return names

    assert use() == []
    monkeypatch.setenv("TSTREAMS_TRACING", "1")
    assert use(tracing=False) == []
    assert spans.named("send s") == []
    assert use() == [b"traceparent"]
    assert len(spans.named("send s")) == len(spans.named("process s")) == 1
    with pytest.raises(BadRequest, match="tracing is True, False or None"):
        connect(tracing="yes")


def test_a_program_that_is_at_something_stays_at_it(node: Node, spans: Spans) -> None:
    """A span at hand is the parent; what was sent is linked."""
    with tstreams.connect(node.addresses[0], tracing=True) as ts:
        ts.create_stream("s")
        with spans.tracer.start_as_current_span("request"), ts.producer("s") as producer:
            producer.instant([b"a"], 0)
        with spans.tracer.start_as_current_span("poll"), ts.consumer("s") as consumer:
            (txn,) = consumer.read(max_wait=0.0)
            with txn.traced() as span:
                span.set_attribute("mine", 1)
    sent, handled = spans.one("send s"), spans.one("process s")
    assert is_child(sent, spans.one("request"))
    assert is_child(handled, spans.one("poll"))
    assert links_of(handled) == [id_of(sent)]
    assert about(handled)["mine"] == 1


def test_without_opentelemetry_it_says_what_to_install() -> None:
    program = """
import logging, os, sys, tempfile
sys.modules["opentelemetry"] = None
logging.basicConfig(level="WARNING", stream=sys.stdout, format="%(message)s")
import tstreams
try:
    tstreams.embedded(tempfile.mkdtemp(), tracing=True)
except ImportError as error:
    print(error)
os.environ["TSTREAMS_TRACING"] = "1"
with tstreams.embedded(tempfile.mkdtemp()) as ts:
    ts.create_stream("s")
    ts.producer("s").instant([b"a"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    advice = "tracing needs opentelemetry: pip install 'tstreams[tracing]'"
    assert done.stdout.splitlines() == [advice, f"TSTREAMS_TRACING is set: {advice}"]


def test_nothing_is_imported_before_it_is_switched_on() -> None:
    program = """
import sys, tempfile
import tstreams
with tstreams.embedded(tempfile.mkdtemp()) as ts:
    ts.create_stream("s")
print([name for name in sys.modules if "opentelemetry" in name])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
