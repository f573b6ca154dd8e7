"""The spans of a client, and how they find one another: contexts travel in the headers of transactions.

Names and attributes are those of OpenTelemetry's conventions for messaging. A message is a transaction, a
destination a stream:

send      PRODUCER  from when a transaction is opened until it is checkpointed, cancelled or lost
receive   CLIENT    a consumer gets a transaction, or a task of Spark a range of them
process   CONSUMER  a callback, a function of a loop, or a block `with txn.traced()` works on it

What is about a transaction that was read has a link to the span that sent it. That is its parent too, unless
the program has a span at hand.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ...errors import BadRequest, Corrupt
from ...items import Buffer
from ...limits import TRACE_LINKS_MAX
from ...version import __version__
from .sending import Sending

if TYPE_CHECKING:
    from ..blocking.received import ReadTransaction
    from ..rules.agent import Agent
    from ..rules.delivery import Delivery

log = logging.getLogger("tstreams.client")

FIELDS = ("traceparent", "tracestate")
"""The headers of W3C Trace Context."""

_W3C = TraceContextTextMapPropagator()


class Tracing:
    """Makes the spans of a client. Whether anybody records them is for the program's SDK to say."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("tstreams", __version__)

    # Writing.

    def send(
        self, agent: Agent, partition: int, given: Mapping[str, Buffer]
    ) -> tuple[Sending, dict[str, Buffer]]:
        """A span for a transaction that is opened now, and its headers: those given, and the span's context.

        A context among those given is replaced: it is that of another transaction, handed on.
        """
        name = agent.stream.name
        span = self._tracer.start_span(
            f"send {name}",
            kind=SpanKind.PRODUCER,
            attributes={
                **_about("send", name, partition),
                "messaging.client.id": agent.name,
            },
        )
        return Sending(span), {
            **{name: value for name, value in given.items() if name not in FIELDS},
            **{name: value.encode() for name, value in inject(span).items()},
        }

    # Reading.

    def receive(self, delivery: Delivery) -> None:
        """A consumer got a transaction."""
        self._begin("receive", SpanKind.CLIENT, delivery).end()

    @contextmanager
    def handling(self, delivery: Delivery) -> Iterator[Span]:
        """While somebody works on a transaction. The span is the current one; an exception is noted in it."""
        span = self._begin("process", SpanKind.CONSUMER, delivery)
        with trace.use_span(span, end_on_exit=True):
            yield span

    def _begin(self, operation: str, kind: SpanKind, delivery: Delivery) -> Span:
        source, entry = delivery.source, delivery.entry
        sent = _context_in(delivery)
        parent = None
        if sent is not None and not trace.get_current_span().get_span_context().is_valid:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(sent))
        attributes: dict[str, str | int] = {
            **_about(operation, source.stream.name, entry.partition),
            "messaging.message.id": str(delivery.id),
            "messaging.batch.message_count": entry.items,
        }
        if source.reader:
            attributes["messaging.consumer.group.name"] = source.reader
        return self._tracer.start_span(
            f"{operation} {source.stream.name}",
            context=parent,
            kind=kind,
            attributes=attributes,
            links=() if sent is None else (Link(sent),),
        )

    @contextmanager
    def within(self, carrier: Mapping[str, str]) -> Iterator[None]:
        """Spans that begin in here are children of the one that was injected."""
        token = contexts.attach(_W3C.extract(carrier, contexts.get_current()))
        try:
            yield
        finally:
            contexts.detach(token)

    def scanning(
        self,
        transactions: Iterable[ReadTransaction],
        stream: str,
        partition: int,
        carrier: Mapping[str, str],
    ) -> Iterator[ReadTransaction]:
        """Transactions, under one span for all of them, with a link to each of the first. Its parent is the
        span that was injected, if one was."""
        span = self._tracer.start_span(
            f"receive {stream}",
            context=_W3C.extract(carrier, contexts.get_current()),
            kind=SpanKind.CLIENT,
            attributes=_about("receive", stream, partition),
        )
        count = items = 0
        try:
            for transaction in transactions:
                if count < TRACE_LINKS_MAX:
                    sent = _context_in(transaction._delivery)
                    if sent is not None:
                        span.add_link(sent)
                count += 1
                items += len(transaction)
                yield transaction
        finally:
            span.set_attribute("messaging.batch.message_count", items)
            span.set_attribute("tstreams.transactions", count)
            span.end()


def inject(span: Span | None = None) -> dict[str, str]:
    """The context of a span, or of the one at hand, as headers. Empty if there is none."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, None if span is None else trace.set_span_in_context(span))
    return carrier


def extract(carrier: Mapping[str, str]) -> SpanContext | None:
    """The context of the span that was injected, if there is one that makes sense."""
    found = trace.get_current_span(_W3C.extract(carrier, Context())).get_span_context()
    return found if found.is_valid else None


def _about(operation: str, stream: str, partition: int) -> dict[str, str | int]:
    return {
        "messaging.system": "tstreams",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": stream,
        "messaging.destination.partition.id": str(partition),
    }


def _context_in(delivery: Delivery) -> SpanContext | None:
    """The context of the span that sent a transaction, if its headers tell."""
    try:
        headers = delivery.headers()
    except (
        BadRequest,
        Corrupt,
    ) as error:  # who looks at the items will see what is wrong with them
        log.warning("transaction %d: its headers cannot be read: %s", delivery.id, error)
        return None
    carrier = {name: str(headers[name], "ascii", "replace") for name in FIELDS if name in headers}
    return extract(carrier) if carrier else None
