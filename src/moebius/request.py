"""What a handler is called with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import Closed
from .messages import Buffer, Call, Parts, Payload, as_bytes, as_parts

if TYPE_CHECKING:
    from .peer import Peer
    from .server import Server


class _Later:
    """The type of `LATER`."""

    def __repr__(self) -> str:
        return "LATER"


LATER = _Later()
"""Return this from a plain function that will answer later, by `request.answer` or `request.fail`. The
request's turn is over when the function returns; only its answer is still to come. So many requests can be
taken in order and answered together, without a task for each."""


class Request:
    """One request: its payload, who sent it, and how much time is left for it."""

    __slots__ = ("_call", "client", "expires_at", "id", "parts", "postponed_bytes", "unanswered")

    def __init__(self, client: Peer, call: Call, parts: Parts) -> None:
        self.client = client
        """The client's handle: `id`, `identity`, `send`, `close`, `tags`."""
        self.parts = parts
        """The payload as it came: one buffer per part, large ones as views without a copy."""
        self.expires_at = time.monotonic() + call.deadline_ms / 1000 if call.deadline_ms else None
        """When the caller stops waiting, on the clock of `time.monotonic`; None if it never does."""
        self._call = call
        self.id = call.id
        """The caller's number for this request; 0 if it wants no response."""
        self.unanswered = True
        """Whether `answer` or `fail` is still to be called, if the handler returned `LATER`."""
        self.postponed_bytes = -1
        """Its size, once its answer was put off; -1 before."""

    @property
    def command(self) -> str:
        """The name it was called by."""
        return self._call.command

    @property
    def payload(self) -> bytes:
        """The payload as one `bytes`."""
        return as_bytes(self.parts)

    @property
    def server(self) -> Server:
        """The server: `request.server.clients.broadcast(...)`."""
        return self.client.server

    @property
    def identity(self) -> Any:
        """What the `authenticate` hook returned for this client."""
        return self.client.identity

    def remaining_s(self) -> float | None:
        """Seconds until the caller gives up; None if it set no deadline."""
        if self.expires_at is None:
            return None
        return max(0.0, self.expires_at - time.monotonic())

    def emit(self, payload: Payload) -> bool:
        """Send one response of a streaming handler at once, if the reader has room for it, without waiting
        for the handler's turn: for a handler that waits, on behalf of whoever it waits for.

        Whether it was sent; if not, let the handler yield it. Belongs to the server's thread. Nothing is
        sent before the handler has begun to wait, nor for a reader that gives no credit.
        """
        activity = self.client.lane.activities.get(self.id)
        if activity is None or activity.request is not self:
            return False
        return activity.emit_now(as_parts(payload))

    def answer(self, result: Any = None) -> None:
        """The answer to a request whose handler returned `LATER`: what it would have returned.

        Belongs to the server's thread. Nothing happens if the client is gone. `Closed` if it was
        answered before.
        """
        self._close()
        self.client.answer(self, result)

    def answer_in_pieces(self, first: Buffer, pieces: Sequence[Buffer]) -> None:
        """The same with two parts, the second of which lies in several buffers: the client gets them as one, but
        they need not be copied together here. Nobody may change them any more. It pays from some KiB each on."""
        self._close()
        self.client.answer_in_pieces(self, first, pieces)

    def fail(self, error: BaseException) -> None:
        """The other way to end a request whose handler returned `LATER`: as if it had raised this."""
        self._close()
        self.client.failed(self, error)

    def _close(self) -> None:
        if not self.unanswered:
            raise Closed(f"{self!r} has been answered already")
        self.unanswered = False
        self.client.no_longer_later(self)

    def __repr__(self) -> str:
        return f"<Request {self.id} {self.command!r} from {self.client!r}>"
