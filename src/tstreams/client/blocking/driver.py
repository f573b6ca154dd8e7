"""Runs operations for threads: waits where they wait."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any, TypeVar

import moebius

from ...errors import Error
from ..rules.link import Link
from ..rules.ticket import AnyOf, Steps, Ticket

T = TypeVar("T")
_TIMEOUT_NONE = -1.0
"""How a lock is told to wait for ever."""


class Driver:
    """Runs the operations of one client, and sends its keepalives from a thread of its own."""

    def __init__(self, wire: moebius.Client, link: Link) -> None:
        self._wire = wire
        self._link = link
        self._wake = threading.Event()
        self._closed = False
        link.on_leases = self._wake.set
        self._keeper = threading.Thread(
            target=self._keep_alive, name="tstreams-keepalive", daemon=True
        )
        self._keeper.start()

    def close(self) -> None:
        """Send no more keepalives."""
        self._closed = True
        self._wake.set()
        self._keeper.join()

    def run(self, steps: Steps[T]) -> T:
        """Run an operation to its end, waiting where it waits. An interrupt ends it there."""
        try:
            target = next(steps)
            while True:
                try:
                    self._wait(target)
                except BaseException as interrupt:
                    target = steps.throw(interrupt)
                else:
                    target = next(steps)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def spawn(self, steps: Steps[T]) -> Future[T]:
        """Run an operation as far as it gets without waiting; the answers carry it on to its end.

        It must wait for single tickets only: there is nobody who could look at a clock.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # it has begun, and cannot be cancelled

        def resume(_: Ticket | None = None) -> None:
            try:
                target = next(steps)
                while isinstance(target, Ticket) and target.ended:
                    target = next(steps)
            except StopIteration as stop:
                future.set_result(stop.value)
            except BaseException as error:
                future.set_exception(error)
            else:
                assert isinstance(target, Ticket)
                target.add_callback(resume)

        resume()
        self._wire.go_on()
        return future

    def wait(self, ticket: Ticket) -> None:
        """Wait for one thing."""
        gate = threading.Lock()
        gate.acquire()
        ticket.add_callback(lambda _: gate.release())
        # Any connection would do; that on which the answer comes is the quickest.
        session = ticket.session
        wire: Any = ticket.wire if session is None else session.route.wire
        (wire or self._wire).wait(gate)

    def may_wait(self) -> bool:
        """Whether this thread may wait: the one that brings the answers may not."""
        try:
            self._wire.check_caller()
        except RuntimeError:
            return False
        return True

    def _wait(self, target: Ticket | AnyOf) -> None:
        if isinstance(target, Ticket):
            if not target.ended:
                self.wait(target)
            return
        gate = threading.Lock()  # half of what an event costs
        gate.acquire()

        def wake(_: Ticket) -> None:
            try:
                gate.release()
            except RuntimeError:
                return  # another one was faster

        for ticket in target.tickets:
            ticket.add_callback(wake)
        try:
            wire = target.tickets[0].wire or self._wire if target.tickets else self._wire
            wire.wait(gate, _TIMEOUT_NONE if target.timeout_s is None else target.timeout_s)
        finally:
            for ticket in target.tickets:
                if not ticket.ended:
                    ticket.drop_callback(wake)

    def _keep_alive(self) -> None:
        beaten_at = time.monotonic()
        while not self._closed:
            left_s = beaten_at + self._link.beat_s() - time.monotonic()
            if left_s > 0:
                self._wake.wait(left_s)
                self._wake.clear()
                continue
            beaten_at = time.monotonic()
            try:
                self._link.beat()
            except Error:
                return  # the connection was closed
