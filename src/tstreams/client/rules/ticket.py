"""What an operation waits for, and how it says so.

An operation is a generator (`Steps`). It yields what it waits for, a `Ticket` or an `AnyOf`, and is
resumed when that has ended: by a thread that blocked, by an event loop, or by whoever ended it. So the
rules are written once, and a driver of a dozen lines makes each kind of client out of them.

An operation never waits with a lock held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import moebius

from ...errors import Error, Timeout
from ...protocol import AnyReply, decode_reply
from .failures import translated

if TYPE_CHECKING:
    from moebius.messages import Parts

    from .session import Session

T = TypeVar("T")
R = TypeVar("R", bound=AnyReply)

Callback: TypeAlias = Callable[["Ticket"], None]


class Ticket:
    """Something that ends once: a request under way, a turn, a place in a window. A moebius sink."""

    __slots__ = (
        "_callbacks",
        "_lock",
        "ended",
        "error",
        "handle",
        "number",
        "parts",
        "session",
        "size",
        "wire",
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callback] = []
        self.ended = False
        self.parts: Parts = ()
        self.error: Error | None = None
        self.session: Session | None = None
        """The session that counts this request, if it is a change."""
        self.number = 0
        """Its number in that session."""
        self.size = 0
        """What it takes of the window."""
        self.handle: Any = None
        """What the connection calls the request."""
        self.wire: Any = None
        """That connection, for what may be cancelled."""

    # From the connection, on its own thread.

    def item(self, parts: Parts) -> None:
        """One response of many: there are no such requests."""

    def done(self, parts: Parts | None) -> None:
        """The request was answered."""
        self._end(parts or (), None)

    def fail(self, error: moebius.Error) -> None:
        """The request failed."""
        failure = translated(error)
        self._end((), failure if self.session is None else self.session.named(failure))

    # For the rules.

    def end(self) -> None:
        """It is so far: for what no session counts. `_end`, without the call."""
        assert self.session is None, "a session waits for the answer"
        with self._lock:
            if self.ended:
                return
            self.ended = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def reply(self, kind: type[R]) -> R:
        """The answer, once there is one; the error, if it failed."""
        assert self.ended, "an answer is taken after it came"
        if self.error is not None:
            raise self.error
        message = decode_reply(self.parts[0]) if self.parts else None
        if not isinstance(message, kind):
            raise Error(f"the server answered with {type(message).__name__}, not {kind.__name__}")
        return message

    def add_callback(self, callback: Callback) -> None:
        """Call this once when it has ended; now, if it has."""
        with self._lock:
            if not self.ended:
                self._callbacks.append(callback)
                return
        callback(self)

    def drop_callback(self, callback: Callback) -> None:
        """Nobody waits with this any more."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def _end(self, parts: Parts, error: Error | None) -> None:
        if self.session is not None:
            self.session.answered(self.number, self.size, error)
        with self._lock:
            if self.ended:
                return
            self.parts = parts
            self.error = error
            self.ended = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


PAUSE = Ticket()
"""Yielded after work that took a while, to wait for nothing: an event loop may let others go first."""
PAUSE.end()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Wait until one of these has ended, or the time is over."""

    tickets: Sequence[Ticket]
    timeout_s: float | None


Steps: TypeAlias = Generator[Ticket | AnyOf, None, T]
"""An operation that ends with a T."""


def answer(ticket: Ticket, kind: type[R]) -> Steps[R]:
    """Wait for the answer to a request."""
    if not ticket.ended:
        yield ticket
    return ticket.reply(kind)


def answer_within(ticket: Ticket, kind: type[R], timeout_s: float, what: str) -> Steps[R]:
    """Wait for the answer to a request that goes on also if nobody waits for it any more."""
    if not ticket.ended:
        yield AnyOf((ticket,), timeout_s)
    if not ticket.ended:
        raise Timeout(f"{what}: the server did not answer within {timeout_s:g} s")
    return ticket.reply(kind)
