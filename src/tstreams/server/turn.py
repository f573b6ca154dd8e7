"""A turn of a shard: what was decided in it, who asked, and who waits for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec

from moebius import Request

from ..core.facts import Session
from ..core.records import AnyRecord
from ..errors import Error
from ..items import Buffer
from ..ledger.port import Record
from ..protocol import AnyReply, Change
from .kin import Caller
from .kinship import Held

Pending: TypeAlias = list[tuple[AnyRecord, Record, Buffer | None]]
"""Records, as they go to the log, and the batch of each that has one."""


class Written:
    """Takes the place of a `Request` for a record that nobody asked for: what it waits for comes when that is durable."""

    __slots__ = ("client", "future")

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.client = self

    def answer(self, result: object) -> None:
        """It is durable."""
        if not self.future.done():
            self.future.set_result(None)

    def fail(self, error: BaseException) -> None:
        """It is not, as far as is known."""
        if not self.future.done():
            self.future.set_exception(error)

    def flush(self) -> None:
        """Nobody is far away."""


Answer: TypeAlias = tuple[Request | Caller | Held | Written, AnyReply | Error]
"""Who asked, and what for an answer: it goes out when the turn is over."""

Read: TypeAlias = tuple[Request | Caller, Callable[[Any], Any]]
"""Who reads, and what answers it then."""


class Turn(msgspec.Struct):
    """All of a turn, from when nothing more is added to it. A struct of msgspec, because that is made faster than a
    dataclass."""

    pending: Pending
    pending_bytes: int
    """Of the batches that use room which others could use."""
    answers: list[Answer]
    reads: list[Read]
    touched: dict[int, Session]
    """The sessions that its records belong to."""
    begun_ns: int
    """When the first record was decided on, on the clock that only runs forward."""
    decided_ms: int
    """When the last change was decided on; 0 if there was none."""


class Keeper(Protocol):
    """Who keeps the log of a shard."""

    def write(self, turn: Turn) -> None:
        """Make a turn durable, now or later: then `Shard.finish`, or `Shard.refuse`."""

    def take_back(self) -> None:
        """What was decided last did not become durable: the core has to go back to what is."""

    def stopped(self, error: Error) -> None:
        """The shard has failed."""


class Barrier(Protocol):
    """Stands before a shard that cannot always decide."""

    @property
    def leading(self) -> bool:
        """Whether it decides at all, or only has what others decided."""

    def check(self) -> None:
        """Refuse everything that only a leader does, if this is none."""

    async def admit(self) -> None:
        """Wait while it is about to lead; refuse as `check` does."""

    def holds(self, request: Request | Caller, again: Callable[[], object], size: int = 0) -> bool:
        """Whether a request has to wait, and is handed in again later. Refuses as `check` does."""

    def check_order(self, message: Change) -> None:
        """Refuse a change that has come before those ahead of it."""

    def elsewhere(self, reason: str) -> Error:
        """What clients get that must ask again, here or elsewhere, what has become of a request."""
