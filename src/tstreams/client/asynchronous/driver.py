"""Runs operations on an event loop: awaits where they wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from moebius import process

from ...errors import Error, InvalidState
from ..rules.agent import forked
from ..rules.link import Link
from ..rules.ticket import AnyOf, Steps, Ticket

T = TypeVar("T")
log = logging.getLogger("tstreams.client")

_TURN_S = 0.005
"""How long a task may work before others get their turn."""
_WAIT_S_MAX = 10 * 365 * 86_400.0


class Driver:
    """Runs the operations of one client on the loop it was made on, and sends its keepalives from a task."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._pid = process.pid
        self._turned_at = self._loop.time()
        self._leases = asyncio.Event()
        link.on_leases = self._leases.set
        self._keeper = self._loop.create_task(self._keep_alive(), name="tstreams-keepalive")

    def close(self) -> None:
        """Send no more keepalives."""
        self._keeper.cancel()

    def check(self) -> None:
        """Refuse to be used on another loop, or in a process that was forked off."""
        if asyncio.get_running_loop() is not self._loop:
            if self._pid != process.pid:
                raise forked("this client")
            raise InvalidState(
                "this client belongs to the event loop that it was opened on: open another one here"
            )

    async def run(self, steps: Steps[T]) -> T:
        """Run an operation to its end. If the task is cancelled, the operation ends where it waits."""
        self.check()
        try:
            target = next(steps)
            while True:
                try:
                    await self._wait(target)
                except BaseException as interrupt:
                    target = steps.throw(interrupt)
                else:
                    target = next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def spawn(self, steps: Steps[T]) -> asyncio.Future[T]:
        """Run an operation as far as it gets without waiting; from there it goes on by itself.

        Cancelling the future says only that nobody wants to know how it ended.
        """
        self.check()
        future: asyncio.Future[T] = self._loop.create_future()

        def resume() -> None:
            try:
                target = next(steps)
                while _is_here(target):
                    target = next(steps)
            except StopIteration as stop:
                if not future.done():
                    future.set_result(stop.value)
            except BaseException as error:
                if future.done():
                    log.debug("what nobody waited for has failed: %s", error)
                else:
                    future.set_exception(error)
            else:
                # An answer comes from the connection, and futures end in the order of the answers. Whoever
                # ends another ticket may hold a lock that the operation needs: never at once, then.
                is_answer = isinstance(target, Ticket) and target.session is not None
                _Alarm(
                    self._loop,
                    target,
                    resume if is_answer else lambda: self._loop.call_soon(resume),
                )

        resume()
        return future

    async def finish(self, steps: Steps[T]) -> T:
        """Run an operation to its end. If the task is cancelled, it goes on by itself."""
        return await self.spawn(steps)

    async def wait(self, ticket: Ticket) -> None:
        """Wait for one thing."""
        await self._wait(ticket)

    async def breathe(self) -> None:
        """Let others have their turn, if this one has been long."""
        if self._loop.time() - self._turned_at > _TURN_S:
            await asyncio.sleep(0)
            self._turned_at = self._loop.time()

    async def _wait(self, target: Ticket | AnyOf) -> None:
        if _is_here(target):
            await self.breathe()
            return
        waiter: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        alarm = _Alarm(self._loop, target, wake)
        try:
            await waiter
        finally:
            alarm.drop()
            self._turned_at = self._loop.time()

    async def _keep_alive(self) -> None:
        beaten_at = self._loop.time()
        while True:
            self._leases.clear()
            left_s = beaten_at + self._link.beat_s() - self._loop.time()
            if left_s > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._leases.wait()
                continue
            beaten_at = self._loop.time()
            try:
                self._link.beat()
            except Error:
                return  # the connection was closed


class _Alarm:
    """Calls once, when what an operation waits for has come or the time is over."""

    __slots__ = ("_call", "_tickets", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, target: Ticket | AnyOf, call: Callable[[], object]
    ) -> None:
        self._call: Callable[[], object] | None = call
        self._timer: asyncio.TimerHandle | None = None
        if isinstance(target, Ticket):
            self._tickets = [target]
        else:
            self._tickets = list(target.tickets)
            if target.timeout_s is not None:
                self._timer = loop.call_later(min(target.timeout_s, _WAIT_S_MAX), self._ring)
        for ticket in self._tickets:
            ticket.add_callback(self._ring)

    def drop(self) -> None:
        """Nobody waits any more."""
        self._call = None
        if self._timer is not None:
            self._timer.cancel()
        for ticket in self._tickets:
            ticket.drop_callback(self._ring)

    def _ring(self, _: Ticket | None = None) -> None:
        call = self._call
        if call is not None:
            self.drop()
            call()


def _is_here(target: Ticket | AnyOf) -> bool:
    """Whether there is nothing to wait for."""
    if isinstance(target, Ticket):
        return target.ended
    if target.timeout_s is not None and target.timeout_s <= 0:
        return True
    return any(ticket.ended for ticket in target.tickets)
