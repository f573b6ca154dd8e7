"""What a shard has to ask other shards, and to tell them, until it is done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.rules import info_of
from ..core.waits import CopyNeeded, InDoubt
from ..errors import Error, NotFound, Unavailable
from ..limits import ERRANDS_MAX, KIN_RETRY_S_MAX, KIN_RETRY_S_MIN, TELL_MAX
from ..protocol import (
    AskDecision,
    Decision,
    GetStream,
    Group,
    Settle,
    StreamInfo,
    TellStream,
)
from .kin import Kin, KinMessage

if TYPE_CHECKING:
    from .shard import Shard

log = logging.getLogger("tstreams.server")

TOLD_AFTER_S = 0.05
"""What others have confirmed is written down so much later, together. If we die before, it is told once more."""

Known = tuple[int, int, int]
"""Session, number and shard of a group that this shard knows of; or stream, version and shard."""


Message = tuple[set[Known], Known, KinMessage]
"""What is to be told; and where it is put when it is known."""


@dataclass(frozen=True, slots=True)
class ErrandsStatistics:
    """What is under way."""

    asking: int
    """Groups whose deciders are being asked."""
    copying: int
    telling: int
    """Shards that are being told something."""


class Errands:
    """The errands of one shard. Each is repeated, with growing pauses, until it is done: nothing is ever given up, because
    all that is to be done is in the state of the shard, and is found there again after a restart.

    Invariant: for each group, copy and shard there is one task at most.
    """

    def __init__(self, shard: Shard, kin: Kin, *, resting: bool = False) -> None:
        """`resting`: it begins with `start`."""
        self._shard = shard
        self._kin = kin
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._groups_known: set[Known] = set()
        self._streams_known: set[Known] = set()
        self._write: asyncio.TimerHandle | None = None
        self._held: dict[int, dict[Callable[[], None], None]] = {}
        """Answers that wait until all know of a change of a stream."""
        self._stopped = resting

    def statistics(self) -> ErrandsStatistics:
        """What is under way now."""
        kinds = [key[0] if isinstance(key, tuple) else "" for key in self._tasks]
        return ErrandsStatistics(kinds.count("ask"), kinds.count("copy"), kinds.count("tell"))

    async def stop(self) -> None:
        """End all of them. What was not done is begun again with the next start."""
        self.rest()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def start(self) -> None:
        """The shard leads: go on with what its state says is to be done."""
        self._stopped = False
        self.look()

    def rest(self) -> None:
        """The shard does not lead: whoever does goes on with it."""
        self._stopped = True
        self.reset()

    def look(self) -> None:
        """Begin what is to be done."""
        if self._stopped:
            return
        state = self._shard.core.state
        due = state.groups.due
        while due and len(self._tasks) < ERRANDS_MAX:
            group, reason = due.popitem()
            self._begin(("ask", group), partial(self._ask, group, reason))
        if state.groups.decided or state.untold:
            for shard in self._to_be_told():
                self._begin(("tell", shard), partial(self._tell, shard))
        if self._held:
            self._let_out()

    def reset(self) -> None:
        """The shard has stopped: what is to be done is found in its state again when it goes on."""
        if self._write is not None:
            self._write.cancel()
            self._write = None
        for task in self._tasks.values():
            task.cancel()
        self._groups_known.clear()
        self._streams_known.clear()
        self.let_all_out()

    def let_all_out(self) -> None:
        """Nobody waits any longer for others to know."""
        for answers in list(self._held.values()):
            for let_out in list(answers):
                let_out()

    def need(self, waits: InDoubt | CopyNeeded) -> None:
        """A request waits for this."""
        if self._stopped:
            return
        if isinstance(waits, CopyNeeded):
            self._begin(("copy", waits.number, waits.name), partial(self._copy, waits))
        elif waits.reason:
            self._shard.core.state.groups.ask(waits.groups, waits.reason)
            self.look()

    def when_told(self, stream: int, answer: Callable[[], None], wait_s: float) -> None:
        """Call this when all shards know how a stream is now, or after so many seconds: they will be told then."""
        if self._stopped:
            answer()
            return
        timer: asyncio.TimerHandle

        def let_out() -> None:
            timer.cancel()
            answers = self._held.get(stream, {})
            answers.pop(let_out, None)
            if not answers:
                self._held.pop(stream, None)
            answer()

        timer = asyncio.get_running_loop().call_later(wait_s, let_out)
        self._held.setdefault(stream, {})[let_out] = None
        self.look()

    async def have(self, stream: int) -> None:
        """Wait until a stream is known here, if there is one. `Unavailable` if its home does not answer."""
        try:
            self._shard.core.state.stream(stream)
        except CopyNeeded as waits:
            if self._stopped:
                self._shard.check_usable()  # only who leads can ask for it
            await self._copy_once(waits)

    def _begin(self, key: Hashable, errand: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if key in self._tasks or self._stopped:
            return

        def ended(task: asyncio.Task[None]) -> None:
            del self._tasks[key]
            if task.cancelled():
                return
            if (error := task.exception()) is not None:
                log.error("a mistake in the program", exc_info=error)
            elif self._shard.failed is None:
                self._look_again()

        task = asyncio.get_running_loop().create_task(errand())
        self._tasks[key] = task
        task.add_done_callback(ended)

    def _look_again(self) -> None:
        """What came while an errand was about to end was not begun: there is one task at most for each."""
        if self._groups_known or self._streams_known:
            self._write_soon()
        self.look()

    async def _until_answered(
        self, shard: int, message: KinMessage, wanted: Callable[[], bool]
    ) -> Any:
        """The answer of another shard, which is asked until it gives one; None if nobody wants it any more."""
        pause_s = KIN_RETRY_S_MIN
        while wanted():
            try:
                return await self._kin.ask(shard, message)
            except Error as error:
                log.debug("shard %d does not answer: %s", shard, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, KIN_RETRY_S_MAX)
        return None

    # Asking.

    async def _ask(self, group: Group, reason: str) -> None:
        """Ask for the decision on a group until it is settled."""
        message = AskDecision(group, reason)
        decision = await self._until_answered(group.shard, message, lambda: self._is_open(group))
        if isinstance(decision, Decision):
            await self._until_done(lambda: self._settle(group, decision.committed))

    def _is_open(self, group: Group) -> bool:
        return self._shard.failed is None and group in self._shard.core.state.groups.prepared

    def _settle(self, group: Group, committed: bool) -> Awaitable[object]:
        return self._shard.kinship.hear(Settle(0, group, committed))

    async def _until_done(self, do: Callable[[], Awaitable[object]]) -> None:
        """Do something in this shard, which may have no room on its disk for a while."""
        pause_s = KIN_RETRY_S_MIN
        while self._shard.failed is None:
            try:
                await do()
                return
            except Unavailable:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, KIN_RETRY_S_MAX)

    # Copies.

    async def _copy(self, waits: CopyNeeded) -> None:
        """Ask a home for a stream, for as long as somebody waits for it."""
        pause_s = KIN_RETRY_S_MIN
        while self._shard.failed is None and self._shard.parking.waits_for(waits):
            try:
                await self._copy_once(waits)
                if not self._shard.parking.waits_for(waits):
                    return
            except Unavailable as error:
                log.debug("shard %d does not answer: %s", waits.home, error)
            except Error as error:
                refuse = partial(self._shard.kinship.refuse_copy, waits, error)
                await self._until_done(refuse)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, KIN_RETRY_S_MAX)

    async def _copy_once(self, waits: CopyNeeded) -> None:
        reply = await self._kin.ask(waits.home, GetStream(waits.name, waits.number))
        assert isinstance(reply, StreamInfo)
        if reply.version < waits.version:
            raise Unavailable(f"shard {waits.home} knows no version {waits.version} of it yet")
        await self._shard.kinship.hear(TellStream(reply.id, reply))

    # Telling.

    def _to_be_told(self) -> set[int]:
        state = self._shard.core.state
        known = self._groups_known
        shards = {
            shard
            for (session, number), it in state.groups.decided.items()
            for shard in it.others
            if (session, number, shard) not in known
        }
        return shards | {
            shard
            for stream, untold in state.untold.items()
            for shard in untold.shards
            if (stream, untold.version, shard) not in self._streams_known
        }

    async def _tell(self, shard: int) -> None:
        """Tell another shard all that it has to know."""
        pause_s = KIN_RETRY_S_MIN
        while self._shard.failed is None:
            messages = await self._collected(shard)
            if not messages:
                return
            answers = await asyncio.gather(
                *(self._kin.ask(shard, message) for _, _, message in messages),
                return_exceptions=True,
            )
            failed = False
            for (known, key, _), answer in zip(messages, answers, strict=True):
                if isinstance(answer, Error):
                    failed = True
                    log.debug("shard %d was not told: %s", shard, answer)
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    known.add(key)
            self._write_soon()
            if failed:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, KIN_RETRY_S_MAX)
            else:
                pause_s = KIN_RETRY_S_MIN

    def _collected(self, shard: int) -> asyncio.Future[list[Message]]:
        """What another shard has to know, when that is durable."""
        collected: asyncio.Future[list[Message]] = asyncio.get_running_loop().create_future()

        def collect() -> None:
            if not collected.done():
                collected.set_result(self._messages_for(shard))

        self._shard.when_settled(collect)
        return collected

    def _messages_for(self, shard: int) -> list[Message]:
        state, number = self._shard.core.state, self._shard.number
        found: list[Message] = []
        for (session, group), it in state.groups.decided.items():
            known = (session, group, shard)
            if shard in it.others and known not in self._groups_known:
                settle = Settle(0, Group(number, session, group), it.committed)
                found.append((self._groups_known, known, settle))
                if len(found) == TELL_MAX:
                    return found
        for stream, untold in state.untold.items():
            known = (stream, untold.version, shard)
            if shard in untold.shards and known not in self._streams_known:
                found.append((self._streams_known, known, self._telling(stream, untold.version)))
                if len(found) == TELL_MAX:
                    return found
        return found

    def _telling(self, stream: int, version: int) -> TellStream:
        if not version:
            return TellStream(stream, None)
        try:
            return TellStream(stream, info_of(self._shard.core.state.stream(stream)))
        except NotFound:  # it was deleted since, and that is what is to be told
            return TellStream(stream, None)

    def _write_soon(self) -> None:
        if self._held:
            self._write_now()
        elif self._write is None and not self._stopped:
            loop = asyncio.get_running_loop()
            self._write = loop.call_later(TOLD_AFTER_S, self._write_now)

    def _write_now(self) -> None:
        """Write down what the others have confirmed."""
        if self._write is not None:
            self._write.cancel()
            self._write = None
        if self._groups_known or self._streams_known:
            self._begin(("write",), self._write_told)

    async def _write_told(self) -> None:
        groups, streams = sorted(self._groups_known), sorted(self._streams_known)
        try:
            await self._shard.kinship.told(groups, streams)
        except Error as error:
            log.debug("shard %d: what others know is not written: %s", self._shard.number, error)
            await asyncio.sleep(TOLD_AFTER_S)
            return
        self._groups_known.difference_update(groups)
        self._streams_known.difference_update(streams)

    # Answers that wait for others to know.

    def _let_out(self) -> None:
        untold = self._shard.core.state.untold
        for stream in [it for it in self._held if it not in untold]:
            for let_out in list(self._held[stream]):
                let_out()
