"""Requests that cannot be decided on until other shards have been heard: they wait here, and are handed in again."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from moebius import LATER, Request
from moebius.errors import Error as WireError

from ..core.shard import Shard as Core
from ..core.waits import CopyNeeded, InDoubt
from ..errors import Error, Unavailable
from ..items import Buffer
from ..limits import DOUBT_WAIT_S, PARKED_BYTES_MAX, PARKED_MAX
from ..protocol import Change
from .kin import Caller
from .wire import wire_error

Waits: TypeAlias = InDoubt | CopyNeeded
WAITS = (InDoubt, CopyNeeded)


@dataclass(slots=True, eq=False)
class Parked:
    """A request that waits, and how it is handed in again: it returns the answer, or `LATER`."""

    request: Request | Caller
    again: Callable[[], Any]
    change: Change | None = None
    """None: it has no number, and nobody has to wait behind it."""
    size: int = 0
    waits: Waits | None = None
    """What for; None: for those before it in its session."""
    timer: asyncio.TimerHandle | None = None
    goes: bool = False
    """Whether it was handed in, and has not been sent back to wait."""

    def wait(self, waits: Waits | None) -> None:
        """It was sent back."""
        self.waits, self.goes = waits, False


@dataclass(frozen=True, slots=True)
class ParkingStatistics:
    """How much waits."""

    requests: int
    bytes: int
    sessions: int


@dataclass(slots=True)
class Parking:
    """All that waits in a shard.

    Requests of one session keep their order: what comes behind one that waits, waits too. `InDoubt` and `CopyNeeded`
    were raised before the core has counted a request, so it can be handed in again, as if it had just come.

    Each waits for as long as its caller does, or for `DOUBT_WAIT_S`; then it is refused with `Unavailable`, and all
    behind it with it, since their numbers would otherwise pass its own.
    """

    core: Callable[[], Core]
    need: Callable[[Waits], None]
    """Called with what a request waits for."""
    sessions: dict[int, deque[Parked]] = field(default_factory=dict)
    others: dict[Parked, None] = field(default_factory=dict)
    bytes: int = 0
    is_open: Callable[[], bool] = lambda: True
    """Whether anything can be decided now. If not, somebody looks again when it can."""
    _heard: int = -1
    _trying: Parked | None = None

    def statistics(self) -> ParkingStatistics:
        """How much waits now."""
        changes = sum(map(len, self.sessions.values()))
        return ParkingStatistics(changes + len(self.others), self.bytes, len(self.sessions))

    def is_behind(self, request: Request, message: Change) -> bool:
        """Whether a request has to wait for others of its session."""
        trying = self._trying
        if trying is not None and trying.request is request:
            return False
        return message.session in self.sessions

    def park(
        self,
        request: Request,
        again: Callable[[], Any],
        message: Change,
        batches: Sequence[Buffer],
        waits: Waits | None,
    ) -> object:
        """A change waits. `Unavailable` if too many do."""
        trying = self._trying
        if trying is not None and trying.request is request:
            trying.wait(waits)
            self._need(waits)
            return LATER
        it = Parked(request, again, message, sum(map(len, batches)), waits)
        self._admit(it)
        self.sessions.setdefault(message.session, deque()).append(it)
        self._need(waits)
        return LATER

    def park_other(
        self, request: Request | Caller, again: Callable[[], Any], waits: Waits
    ) -> object:
        """The same for what has no number."""
        trying = self._trying
        if trying is not None and trying.request is request:
            trying.wait(waits)
        else:
            it = Parked(request, again, waits=waits)
            self._admit(it)
            self.others[it] = None
        self._need(waits)
        return LATER

    def _admit(self, it: Parked) -> None:
        waiting = self.statistics()
        if waiting.requests >= PARKED_MAX or self.bytes + it.size > PARKED_BYTES_MAX:
            raise wire_error(Unavailable(f"{waiting.requests} requests wait for other shards"))
        self.bytes += it.size
        remaining_s = it.request.remaining_s()
        wait_s = DOUBT_WAIT_S if remaining_s is None else remaining_s
        it.timer = asyncio.get_running_loop().call_later(wait_s, self._give_up, it)

    def _need(self, waits: Waits | None) -> None:
        if waits is not None:
            self.need(waits)

    # Going on.

    def look(self) -> None:
        """Hand in again what has what it waited for. To be called when all that is decided is durable."""
        if (not self.sessions and not self.others) or self._trying is not None:
            return
        heard = self.core().state.heard
        if heard == self._heard:
            return
        self._heard = heard
        for it in [it for it in self.others if self._may_go(it)]:
            if self.is_open() and it in self.others and self._try(it):
                self.others.pop(it, None)
        for session in list(self.sessions):
            self._go_on(session)
        if not self.is_open():
            self._heard = -1

    def waits_for(self, waits: CopyNeeded) -> bool:
        """Whether somebody waits for this copy."""
        return any(_same(it.waits, waits) for it in self.others) or any(
            _same(queue[0].waits, waits) for queue in self.sessions.values() if queue
        )

    def _go_on(self, session: int) -> None:
        queue = self.sessions.get(session)
        while queue and self.is_open() and self._may_go(queue[0]) and self._try(queue[0]):
            queue.popleft()
        if not queue:
            self.sessions.pop(session, None)

    def _may_go(self, it: Parked) -> bool:
        waits = it.waits
        if isinstance(waits, InDoubt):
            prepared = self.core().state.groups.prepared
            return not any(group in prepared for group in waits.groups)
        return True

    def _try(self, it: Parked) -> bool:
        """Hand it in; whether it waits no more."""
        it.goes = True
        self._trying = it
        try:
            answer = it.again()
        except WireError as error:
            self._leave(it)
            it.request.fail(error)
            return True
        finally:
            self._trying = None
        if not it.goes:
            return False
        self._leave(it)
        if answer is not LATER:
            it.request.answer(answer)
            it.request.client.flush()
        return True

    # Ending.

    def refuse(self, waits: CopyNeeded, error: Error, now_ms: int) -> None:
        """What some wait for will not come: there is no such stream."""
        for it in [it for it in self.others if _same(it.waits, waits)]:
            del self.others[it]
            self._fail(it, error)
        for session, queue in list(self.sessions.items()):
            if queue and _same(queue[0].waits, waits):
                it = queue.popleft()
                assert it.change is not None
                with contextlib.suppress(Error):  # its session may be gone
                    self.core().refuse(now_ms, it.change, error)
                self._fail(it, error)
                self._go_on(session)

    def end_all(self, error: Error) -> None:
        """The shard stops."""
        waiting = [*self.others, *(it for queue in self.sessions.values() for it in queue)]
        self.others.clear()
        self.sessions.clear()
        for it in waiting:
            self._fail(it, error)

    def _give_up(self, it: Parked) -> None:
        error = Unavailable(
            "a shard that has to be heard first has not answered in time: try again"
        )
        if it.change is None:
            self.others.pop(it, None)
            self._fail(it, error)
            return
        session = it.change.session
        queue = self.sessions[session]
        while queue and queue[-1] is not it:
            self._fail(queue.pop(), error)
        self._fail(queue.pop(), error)
        if not queue:
            del self.sessions[session]

    def _fail(self, it: Parked, error: Error) -> None:
        self._leave(it)
        it.request.fail(wire_error(error))
        it.request.client.flush()

    def _leave(self, it: Parked) -> None:
        self.bytes -= it.size
        if it.timer is not None:
            it.timer.cancel()


def _same(waits: Waits | None, other: CopyNeeded) -> bool:
    return isinstance(waits, CopyNeeded) and (waits.number, waits.name) == (
        other.number,
        other.name,
    )
