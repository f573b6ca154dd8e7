"""A request of a client, and where its responses go."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from ..errors import BadRequest, Error
from ..messages import NO_RESPONSE, Parts

if TYPE_CHECKING:
    from .exchange import Exchange

_NUMBER_MAX = 2**53
_TIMEOUT_S_MAX = 10 * 365 * 86_400.0


class Sink(Protocol):
    """Where the responses of one request go. Exactly one of `done` and `fail` is called, once."""

    def item(self, parts: Parts) -> None:
        """One response of many."""

    def done(self, parts: Parts | None) -> None:
        """The last response, or None: no more."""

    def fail(self, error: Error) -> None:
        """The request failed."""


class _Deaf:
    """The sink of a request that has ended: there is nothing more to hear."""

    def item(self, parts: Parts) -> None:
        """Too late."""

    def done(self, parts: Parts | None) -> None:
        """Too late."""

    def fail(self, error: Error) -> None:
        """Too late."""


DEAF = _Deaf()


class Pending:
    """A request that has not ended."""

    __slots__ = (
        "command",
        "credit",
        "ended",
        "expires_at",
        "id",
        "one_way",
        "parts",
        "repeat",
        "sink",
        "strategy",
        "timer",
        "waiting",
        "watched_by",
    )

    def __init__(
        self,
        sink: Sink,
        command: str,
        parts: Parts,
        *,
        timeout_s: float | None,
        credit: int | None = None,
        strategy: str | None = None,
        repeat: bool = False,
        one_way: bool = False,
    ) -> None:
        if not isinstance(command, str):
            raise TypeError(f"the name of a command is text, not {type(command).__name__}")
        command.encode()  # a name that cannot be written raises here, where the caller sees it
        if credit is not None and (not isinstance(credit, int) or not 0 < credit <= _NUMBER_MAX):
            raise BadRequest(f"a stream's window is a positive number of bytes, not {credit!r}")
        if timeout_s is not None and not timeout_s < _TIMEOUT_S_MAX:
            timeout_s = None  # longer than anyone waits, or not a number
        self.sink = sink
        self.command = command
        self.parts = parts
        self.waiting: Exchange | None = None
        self.expires_at = None if timeout_s is None else time.monotonic() + timeout_s
        self.credit = credit
        self.strategy = strategy
        self.repeat = repeat
        self.one_way = one_way
        self.id = NO_RESPONSE
        self.ended = False
        self.timer: asyncio.TimerHandle | None = None
        self.watched_by: dict[Pending, None] | None = None
