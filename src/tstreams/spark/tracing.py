"""How the spans of a query find their way through Spark: its options carry the context of the driver."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from ..client.blocking.client import Client
from ..client.blocking.received import ReadTransaction
from ..client.tracing import missing


def tracing_options() -> dict[str, str]:
    """Options for `format("tstreams")` that switch tracing on and name the span at hand: what the query does,
    wherever it runs, belongs to that one. `df.write.format("tstreams").options(**tracing_options())`.

    `ImportError` if OpenTelemetry is not installed.
    """
    try:
        from ..client.tracing.spans import inject
    except ImportError:
        raise missing() from None
    found = inject()
    if "traceparent" not in found:
        return {"tracing": "true"}
    return {"tracing": "true", "traceparent": found["traceparent"]}


def belonging_to(ts: Client, traceparent: str | None) -> AbstractContextManager[None]:
    """What is written in here belongs to this span, if the client traces."""
    if traceparent is None or ts._link.tracing is None:
        return nullcontext()
    return ts._link.tracing.within({"traceparent": traceparent})


def received(
    ts: Client,
    transactions: Iterable[ReadTransaction],
    stream: str,
    partition: int,
    traceparent: str | None,
) -> Iterable[ReadTransaction]:
    """Transactions that a task reads; in a span, if the client traces."""
    tracing = ts._link.tracing
    if tracing is None:
        return transactions
    carrier = {} if traceparent is None else {"traceparent": traceparent}
    return tracing.scanning(transactions, stream, partition, carrier)
