"""What a shard does for the other shards of its cluster: it is asked and told, and hears answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from moebius import LATER, Request
from moebius.errors import Error as WireError

from ..core.records import AnyRecord
from ..core.rules import info_of
from ..core.waits import CopyNeeded
from ..errors import BadRequest, Error
from ..limits import DOUBT_WAIT_S
from ..protocol import AnyReply, AskDecision, Done, GetStream, Settle, StreamInfo, TellStream
from ..sharding import giver_of
from .kin import Caller, KinMessage

if TYPE_CHECKING:
    from .errands import Errands
    from .shard import Shard


class Kinship:
    """Between one shard and the others."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def from_kin(self, caller: Caller, message: KinMessage) -> None:
        """Answer another shard, now or later."""
        self._answer_with(caller, lambda: self.answer(caller, message))

    def _answer_with(self, caller: Caller, ask: Callable[[], object]) -> None:
        try:
            answer = ask()
        except WireError as error:
            caller.fail(error)
        else:
            if answer is not LATER:
                caller.answer(answer)

    def answer(self, caller: Request | Caller, message: KinMessage) -> object:
        """The answer to another shard, or `LATER`; any error if it is refused."""
        shard = self._shard
        match message:
            case Settle():
                return self.settle(caller, message)
            case AskDecision():
                return shard.hear(
                    caller, lambda: shard.core.decide(shard.clock(), message), confirmed=True
                )
            case TellStream():
                return shard.hear(caller, lambda: shard.core.tell(shard.clock(), message))
            case GetStream():
                return shard.hear(caller, lambda: ((), self.stream_info(message)), confirmed=True)

    def settle(self, request: Request | Caller, message: Settle) -> object:
        """The decision on a group that is prepared here."""
        shard = self._shard
        return shard.hear(
            request,
            lambda: shard.core.settle(shard.clock(), message),
            confirmed=not message.session,
        )

    def hear(self, message: KinMessage) -> Awaitable[AnyReply]:
        """What another shard has answered, as if it had told us: until it is durable."""
        caller = Caller()
        self.from_kin(caller, message)
        return caller.wait()

    def told(
        self, groups: list[tuple[int, int, int]], streams: list[tuple[int, int, int]]
    ) -> Awaitable[AnyReply]:
        """Others know of this: until that is durable."""
        shard = self._shard
        return self._in_turn(lambda: (shard.core.told(shard.clock(), groups, streams), Done()))

    def refuse_copy(self, waits: CopyNeeded, error: Error) -> Awaitable[AnyReply]:
        """A home has no such stream: whoever waits for it is refused."""
        shard = self._shard

        def refuse() -> tuple[tuple[AnyRecord, ...], AnyReply]:
            shard.parking.refuse(waits, error, shard.clock())
            return (), Done()

        return self._in_turn(refuse)

    def _in_turn(
        self, decide: Callable[[], tuple[tuple[AnyRecord, ...], AnyReply]]
    ) -> Awaitable[AnyReply]:
        caller = Caller()
        self._answer_with(caller, lambda: self._shard.hear(caller, decide))
        return caller.wait()

    def stream_info(self, message: GetStream) -> StreamInfo:
        """A stream whose home is here."""
        state = self._shard.core.state
        if message.name:
            state.check_home(message.name)
            return info_of(state.stream_named(message.name))
        if giver_of(message.number) != state.number:
            raise BadRequest(f"stream {message.number} is not at home in shard {state.number}")
        return info_of(state.stream(message.number))


class Held:
    """Takes the place of a `Request` whose answer is held back until all shards of a stream know of its change, or for half
    of the time that its caller waits: it has happened in any case."""

    __slots__ = ("_errands", "_request", "_stream", "client")

    def __init__(self, request: Request, errands: Errands, stream: int) -> None:
        self._request = request
        self._errands = errands
        self._stream = stream
        self.client = request.client

    def answer(self, result: Any) -> None:
        """It is durable: now the others have to know."""
        remaining_s = self._request.remaining_s()
        wait_s = DOUBT_WAIT_S if remaining_s is None else remaining_s / 2

        def let_out() -> None:
            self._request.answer(result)
            self.client.flush()

        self._errands.when_told(self._stream, let_out, wait_s)

    def fail(self, error: BaseException) -> None:
        """It did not happen."""
        self._request.fail(error)
