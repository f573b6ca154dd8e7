"""The span of a transaction that is being written."""

from __future__ import annotations

import threading

from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, Status, StatusCode

from ...model import TransactionState

_INVALID = TransactionState.INVALID.value


class Sending:
    """A span that begins with a transaction, and ends once, on whatever thread hears of it."""

    __slots__ = ("_ended", "_linked", "_lock", "_span")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._lock = threading.Lock()
        self._ended = False
        self._linked: SpanContext = trace.get_current_span().get_span_context()
        """The span that made the last part of it: the first is its parent."""

    def link(self) -> None:
        """The span at hand has made a part of the transaction too."""
        here = trace.get_current_span().get_span_context()
        if here.is_valid and here != self._linked:
            self._linked = here
            self._span.add_link(here)

    def end(self, transaction_id: int, items: int, state: str) -> None:
        """The transaction has ended like this."""
        if self._is_first():
            self._conclude(transaction_id, items, state)
            if state == _INVALID:
                self._span.set_status(Status(StatusCode.ERROR, "the transaction has expired"))
                self._span.set_attribute("error.type", "Expired")
            self._span.end()

    def fail(self, items: int, error: BaseException) -> None:
        """It came to nothing."""
        if self._is_first():
            self._conclude(0, items, "")
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.end()

    def _is_first(self) -> bool:
        with self._lock:
            ended, self._ended = self._ended, True
            return not ended

    def _conclude(self, transaction_id: int, items: int, state: str) -> None:
        self._span.set_attribute("messaging.batch.message_count", items)
        if transaction_id:
            self._span.set_attribute("messaging.message.id", str(transaction_id))
        if state:
            self._span.set_attribute("tstreams.transaction.state", state)
