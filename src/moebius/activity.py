"""One request that does not finish at once: it waits in its client's lane, runs, streams, ends.

WAITING -> RUNNING -> ENDED        ENDED: the client got its last word; nothing more is sent.
   \\___________________/          The task may still be unwinding; the lane waits for that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .drive import dispose, drive
from .errors import Cancelled, DeadlineExceeded, Error, Overloaded
from .messages import ITEM_OVERHEAD_BYTES, NO_RESPONSE, Item, Parts

if TYPE_CHECKING:
    from .lane import Lane
    from .request import Request
    from .router import Command


class Activity:
    """A request under way.

    Invariants: `ended` is set before the last message of the request is sent, and nothing is sent
    after it; `_task` exists from `run` on and its end is reported to the lane exactly once.
    `key` is the request id, or a negative number where the request wants no response.
    """

    __slots__ = (
        "_lane",
        "_peer",
        "_produced",
        "_room",
        "_started",
        "_task",
        "_timer",
        "_unpaced_bytes",
        "command",
        "credit",
        "ended",
        "in_turn",
        "key",
        "payload_bytes",
        "request",
    )

    def __init__(
        self,
        lane: Lane,
        key: int,
        command: Command,
        request: Request,
        credit: int | None,
        in_turn: bool,
    ) -> None:
        self._lane = lane
        self._peer = peer = request.client
        self.key = key
        self.command = command
        self.request = request
        self.in_turn = in_turn
        self.credit = credit
        self._unpaced_bytes = peer.link.unpaced_bytes_max
        self.payload_bytes = sum(map(len, request.parts))
        self.ended = False
        self._task: asyncio.Task[None] | None = None
        self._produced: Any = None
        self._started = False
        self._room: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        remaining_s = request.remaining_s()
        if remaining_s is not None:
            self._timer = peer.loop.call_later(remaining_s, self._expire)

    def run(self, produced: Any) -> None:
        """Drive what the handler returned: a generator, an async generator or an awaitable."""
        self._produced = produced
        self._task = self._peer.loop.create_task(self._drive())
        self._task.add_done_callback(self._unwound)

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        """The handler finished at once: answer, and give the turn back."""
        self._end()
        if error is None:
            self._peer.answer(self.request, result)
        else:
            self._peer.failed(self.request, error)
        self._lane.unwound(self)

    def hand_over(self) -> None:
        """The handler will answer later: give the turn back."""
        self._end()
        self._peer.postpone(self.request)
        self._lane.unwound(self)

    def cancel(self, error: Error | None) -> None:
        """End it now; the client is told `error`, if any. The handler's `finally` blocks run."""
        if self.ended:
            return
        self._end()
        if error is not None:
            self._peer.fail(self.request.id, error)
        if self._task is None:
            self._lane.unwound(self)
        else:
            self._task.cancel()

    def grant(self, credit_bytes: int) -> None:
        """The reader has room for more."""
        if self.credit is not None:
            self.credit += credit_bytes
        self.wake()

    def wake(self) -> None:
        """Look again whether there is room to send."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _end(self) -> None:
        self.ended = True
        self._lane.live -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        name = self.command.name
        self.cancel(DeadlineExceeded(f"{name!r} did not finish within the caller's deadline"))

    def _unwound(self, task: asyncio.Task[None]) -> None:
        if not self._started:
            dispose(self._produced)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._peer.report(self.request, error)
        if not self.ended:  # the task was cancelled by someone else: the loop is closing
            self._end()
            self._peer.fail(self.request.id, Cancelled("the server ended the request"))
        self._task = None
        self._lane.unwound(self)

    async def _drive(self) -> None:
        self._started = True
        peer, request_id = self._peer, self.request.id
        try:
            final = await drive(self._produced, self.emit)
        except asyncio.CancelledError:
            if self.ended:
                raise
            self._end()
            peer.fail(request_id, Cancelled(f"{self.command.name!r} was cancelled on the server"))
        except Exception as error:
            if self.ended:
                peer.report(self.request, error)
            else:
                self._end()
                peer.failed(self.request, error)
        else:
            if not self.ended:
                self._end()
                peer.answer(self.request, final)
        # Before the answer leaves: a client that has it must find its turn free.
        self._lane.unwound(self)

    def emit_now(self, parts: Parts) -> bool:
        """Send one response of many at once, if there is room for it. Whether it was sent."""
        peer, credit = self._peer, self.credit
        link = peer.link
        if self.ended or credit is None or credit <= 0 or link.blocked or self.key <= 0:
            return False
        # `_send_item` for a reader that gives credit, without the call.
        size = sum(map(len, parts))
        if size > peer.response_bytes_max or len(parts) > peer.limits.parts_max:
            peer.check_size(parts)  # which refuses it
        self.credit = credit - size - ITEM_OVERHEAD_BYTES
        peer.counts.items += 1
        item = Item(self.key)
        if not link.send_now(item, parts):
            link.send(item, parts)
            link.flush()
        return True

    def _send_item(self, parts: Parts) -> None:
        peer = self._peer
        cost = peer.check_size(parts) + ITEM_OVERHEAD_BYTES
        peer.counts.items += 1
        peer.link.send(Item(self.key), parts)
        if self.credit is not None:
            self.credit -= cost
        elif self._unpaced_bytes is not None:
            self._unpaced_bytes -= cost
            if self._unpaced_bytes < 0:
                raise Overloaded("a stream this long needs a reader that gives credit")

    async def emit(self, parts: Parts) -> None:
        """Send one response of many, let others run, and wait until there is room for the next."""
        if self.request.id == NO_RESPONSE:
            await asyncio.sleep(0)
            return
        self._send_item(parts)
        if not self._must_wait():
            await asyncio.sleep(0)
            return
        while self._must_wait():
            self._room = self._peer.loop.create_future()
            try:
                await self._room
            finally:
                self._room = None

    def _must_wait(self) -> bool:
        return (self.credit is not None and self.credit <= 0) or self._peer.link.blocked
