"""What a transaction carries beside its items: its headers, and the span that they tell of."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import TooLarge
from ...items import SECTION_OVERHEAD_BYTES, Buffer, completed_by, headed, pack_headers
from ...limits import FRAME_BYTES_MAX
from ...model import TransactionState

if TYPE_CHECKING:
    from ..tracing.sending import Sending
    from .agent import Agent

log = logging.getLogger("tstreams.client")


def make_heading(agent: Agent, partition: int, headers: Mapping[str, Buffer] | None) -> Heading:
    """For a transaction that is opened now: with these headers and, if the client traces, with a span.

    `TypeError`, `BadRequest` or `TooLarge` if the headers are wrong.
    """
    plain = Heading(headers or {})
    tracing = agent.link.tracing
    if tracing is None:
        return plain
    sending, merged = tracing.send(agent, partition, plain.headers)
    try:
        return Heading(merged, sending)
    except TooLarge as error:  # a transaction must not fail because it is traced
        log.debug(
            "%s: the context of its span does not fit into its headers: %s", agent.title, error
        )
        return Heading(plain.headers, sending)


_CHECKPOINTED = TransactionState.CHECKPOINTED.value
_SENT = "sent"
"""Of one whose end nobody waits for."""


class Heading:
    """The headers of a transaction that is being written, and its span if it is traced.

    Invariant: the first batch that is put through `put_on` carries the headers, and no other. Batches come one
    after the other. The span ends once: what is said of its end later is not heard.
    """

    __slots__ = ("_is_due", "_items", "_section", "_sending", "headers")

    def __init__(self, headers: Mapping[str, Buffer], sending: Sending | None = None) -> None:
        self._section = pack_headers(headers)
        self.headers = {name: bytes(value) for name, value in headers.items()}
        """All of them, those of tracing too."""
        self._sending = sending
        self._is_due = bool(self._section)
        self._items = 0

    @property
    def batch_bytes_max(self) -> int:
        """How large a batch may be, so that the headers fit beside it."""
        return FRAME_BYTES_MAX - SECTION_OVERHEAD_BYTES - len(self._section)

    def put_on(self, batch: bytes) -> bytes:
        """A batch as it is sent. `TooLarge` if it is the first, and has no room for the headers."""
        if self._is_due:
            batch = headed(batch, self._section)
            self._is_due = False
        self._items += completed_by(batch)
        return batch

    # The span, if there is one.

    def link(self) -> None:
        """The transaction goes on with what the span at hand has made."""
        if self._sending is not None:
            self._sending.link()

    def end(self, transaction_id: int, state: str) -> None:
        """The transaction has ended, as far as its producer knows. An id of 0: nobody told us."""
        if self._sending is not None:
            self._sending.end(transaction_id, self._items, state)

    def fail(self, error: BaseException) -> None:
        """It came to nothing, or nobody knows."""
        if self._sending is not None:
            self._sending.fail(self._items, error)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """What goes wrong in here ends it."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def settle(self, result: Any) -> None:
        """An instant transaction was sent: its id, a future of that, or nothing if nobody wants to know."""
        if self._sending is None:
            return
        if isinstance(result, int | None):
            self.end(result or 0, _CHECKPOINTED if result else _SENT)
        else:
            result.add_done_callback(self._settled)

    def _settled(self, future: Any) -> None:
        if future.cancelled():
            self.end(0, _SENT)
        elif (error := future.exception()) is not None:
            self.fail(error)
        else:
            self.end(future.result(), _CHECKPOINTED)
