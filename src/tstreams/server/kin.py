"""How a shard reaches the other shards of its cluster: the port, and the way there if they are in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from moebius import Error as WireError

from ..errors import Error, Unavailable
from ..protocol import AnyReply, AskDecision, GetStream, Settle, TellStream, decode_reply

if TYPE_CHECKING:
    from .shard import Shard

KinMessage: TypeAlias = GetStream | TellStream | Settle | AskDecision
"""What shards say to each other."""

KIN = "kin:"
"""What the commands begin with that only other shards may use (`0:kin:Settle`)."""


class Kin(Protocol):
    """The other shards. What they answer is durable there."""

    def ask(self, shard: int, message: KinMessage) -> Awaitable[AnyReply]:
        """The answer of another shard. Any `Error` if it refuses; `Unavailable` if it cannot be reached, and then
        nobody knows whether it took effect: all messages may be repeated."""


class Caller:
    """Takes the place of a `Request` where another shard asks: its answer becomes the result of a future."""

    __slots__ = ("_future", "client")

    gone = False

    def __init__(self) -> None:
        self._future: asyncio.Future[AnyReply] = asyncio.get_running_loop().create_future()
        self.client = self

    def answer(self, result: Any) -> None:
        """The answer, as it would travel."""
        if not self._future.done():
            self._future.set_result(decode_reply(result))

    def fail(self, error: BaseException) -> None:
        """The refusal, as it would travel."""
        if not self._future.done():
            code = error.code if isinstance(error, WireError) else Error.code
            self._future.set_exception(Error.from_wire(code, str(error)))

    @property
    def unanswered(self) -> bool:
        """Whether it has no answer yet."""
        return not self._future.done()

    def remaining_s(self) -> float | None:
        """Shards ask again by themselves."""
        return None

    def flush(self) -> None:
        """Nothing is held back on this way."""

    async def wait(self) -> AnyReply:
        """The answer, when there is one."""
        return await self._future


class LocalKin:
    """Shards of the same process: messages are handed over, not sent."""

    def __init__(self, shards: Mapping[int, Shard]) -> None:
        self._shards = shards

    async def ask(self, shard: int, message: KinMessage) -> AnyReply:
        """The answer of another shard."""
        asked = self._shards.get(shard)
        if asked is None:
            raise Unavailable(f"shard {shard} is not there")
        caller = Caller()
        asked.kinship.from_kin(caller, message)
        return await caller.wait()
