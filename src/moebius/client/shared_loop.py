"""The loop of all blocking clients of a process, and who waits for what it brings.

A thread of its own runs the loop. A message that a thread waits for makes a detour then: one thread reads
it and wakes the other. Where messages follow each other quickly, the detour costs more than the message.
So a thread that waits alone borrows the loop: it has the loop's thread stand still, and reads its
connection by itself.

    RUNNING --ask--> ASKED --the loop's thread stands still--> LENT <--> FREE
       ^_________________________________________________________|________|

FREE: the loop stands still, and nobody reads. It is so for a moment only, in case that the thread which
has just got its message soon waits for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, ClassVar, TypeVar

import uvloop

from .. import loop_thread, process
from ..errors import Closed
from ..transports.tcp import DialledLink
from .connection import Connection

T = TypeVar("T")

_STILL_S = 0.02
"""How long the loop stands still at a time: timers and other connections are late by about as much."""

_CROWDED_S = 0.1
"""After two threads have waited at once, nobody borrows the loop for so long."""

FOR_EVER = -1.0
"""How a lock is told to wait without an end."""


class _Mode(Enum):
    RUNNING = "running"
    ASKED = "asked"
    LENT = "lent"
    FREE = "free"


# Bound once: looking up a member of an enum costs as much as a call.
_RUNNING, _ASKED, _LENT, _FREE = _Mode.RUNNING, _Mode.ASKED, _Mode.LENT, _Mode.FREE


class SharedLoop:
    """The loop, its thread, and whoever reads in place of it.

    Invariants: at any time one thread at most uses what belongs to the loop: its own while the mode is
    RUNNING or ASKED, the borrower while it is LENT, none while it is FREE. All else here is changed under
    `_guard`. The main thread never borrows: an interrupt could come in the midst of a message.
    """

    _instance: ClassVar[SharedLoop | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.pid = process.pid
        self.loop = uvloop.new_event_loop()
        self._connections: tuple[Connection, ...] = ()
        """Those that this loop serves. Replaced as a whole: others may be looking at it."""
        self._guard = threading.Lock()
        self._mode = _RUNNING
        self._granted = threading.Lock()
        self._granted.acquire()
        self._resume = threading.Lock()
        self._resume.acquire()
        self._needed = False
        """Whether the loop has to go on as soon as the borrower can give it back."""
        self._kicked = False
        """Whether the borrower was told so: it may be waiting for bytes."""
        self._main_ident = threading.main_thread().ident
        self._waiting = 0
        """Threads that wait for messages."""
        self._waited_at = 0.0
        self._crowded_until = 0.0
        self._borrower: int | None = None
        """The thread that hands on messages in place of the loop's."""
        self._tasks: set[asyncio.Task[None]] = set()
        """What was begun and nobody waits for: the loop itself would let go of it."""
        self._kick_in, self._kick_out = os.pipe()
        self.ended = False
        """Whether the interpreter ends: nothing comes any more."""
        self._ident = loop_thread.start("moebius-client", self.loop.run_forever, self._end).ident

    @classmethod
    def get(cls) -> SharedLoop:
        """The one of this process: a forked child gets its own."""
        with cls._lock:
            if cls._instance is None or cls._instance.pid != process.pid:
                cls._instance = cls()
            return cls._instance

    def add(self, connection: Connection) -> None:
        """A client begins."""
        with self._guard:
            self._connections = (*self._connections, connection)

    def remove(self, connection: Connection) -> None:
        """A client has been closed. May be called again."""
        with self._guard:
            self._connections = tuple(it for it in self._connections if it is not connection)

    # Using the loop.

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it."""
        self.check_caller()
        with self.crowd():
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
            try:
                return future.result()
            except BaseException:
                future.cancel()
                raise

    def begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine there, from there, and wait for nothing."""
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def post(self, callback: Callable[[], None]) -> None:
        """Call this on the loop's thread, soon."""
        self.loop.call_soon_threadsafe(callback)
        # After that: who sees RUNNING here has come before the request to stand still.
        self.go_on()

    def check_caller(self) -> None:
        """Refuse to wait on the thread that all waiting depends on."""
        if self.ended:
            raise Closed("the interpreter is about to end: close clients before that")
        if threading.get_ident() in (self._ident, self._borrower):
            raise RuntimeError(
                "a blocking call inside on_push, on_state or a future's callback would never return: "
                "hand the work to another thread"
            )

    def go_on(self) -> None:
        """Something is to be done that no thread waits for: let the loop run, if it stands still."""
        if self._mode is not _RUNNING:
            with self._guard:
                self._go_on()

    def _go_on(self) -> None:
        if self._mode is _FREE:
            self._mode = _RUNNING
            self._resume.release()
        elif self._mode is not _RUNNING:
            self._needed = True
            if not self._kicked:
                self._kicked = True
                os.write(self._kick_out, b"!")

    def _end(self) -> None:
        """The interpreter ends."""
        self.ended = True
        self.post(self.loop.stop)

    # Waiting.

    def wait(self, gate: threading.Lock, connection: Connection, timeout_s: float) -> bool:
        """Wait until a message of this connection has released the lock. Whether it was released in time."""
        self.check_caller()
        if gate.acquire(blocking=False):
            return True
        with self._guard:
            self._waiting += 1
            is_alone = self._waiting == 1
        begun_at = time.monotonic()
        has_left = False
        try:
            if is_alone and self._borrow(connection, begun_at):
                if has_left := self._read(connection, gate, timeout_s):
                    return True
                if timeout_s != FOR_EVER:
                    timeout_s = max(0.0, begun_at + timeout_s - time.monotonic())
            else:
                self.go_on()
            return gate.acquire(timeout=timeout_s)
        finally:
            if not has_left:
                with self._guard:
                    self._leave()
                    if not is_alone:
                        self._crowded_until = self._waited_at + _CROWDED_S

    def _leave(self) -> None:
        self._waiting -= 1
        self._waited_at = time.monotonic()

    def crowd(self) -> contextlib.AbstractContextManager[None]:
        """Within it a thread waits for something that only the loop's thread can bring."""
        return _Crowd(self)

    def enter_crowd(self) -> None:
        """Begin to wait for the loop's thread."""
        with self._guard:
            self._waiting += 1
            self._go_on()

    def leave_crowd(self) -> None:
        """It has come."""
        with self._guard:
            self._waiting -= 1
            if self._waiting:
                self._crowded_until = time.monotonic() + _CROWDED_S

    # Borrowing the loop.

    def _borrow(self, connection: Connection, now: float) -> bool:
        """Have the loop stand still, if it is worth it and harms nobody. Whether it does."""
        link = connection.link
        if (
            now - self._waited_at > _STILL_S
            or now < self._crowded_until
            or not isinstance(link, DialledLink)
            or not link.is_plain
            or threading.get_ident() == self._main_ident
        ):
            return False
        for other in self._connections:
            if other.exchange.busy and other is not connection:
                return False
        with self._guard:
            if self._waiting > 1:
                return False
            if self._mode is _FREE:
                self._mode = _LENT
                self._needed = False
                return True
            if self._mode is not _RUNNING:
                return False
            self._mode = _ASKED
            self._needed = False
        self.loop.call_soon_threadsafe(self._stand_still)
        self._granted.acquire()
        return True

    def _stand_still(self) -> None:
        """On the loop's thread: let another thread use what is the loop's."""
        with self._guard:
            self._mode = _LENT
        self._granted.release()
        while not self._resume.acquire(timeout=_STILL_S):
            with self._guard:
                if self._mode is _FREE:
                    self._mode = _RUNNING
                    return
                if self._mode is _LENT:
                    self._needed = True  # others have waited long enough

    def _read(self, connection: Connection, gate: threading.Lock, timeout_s: float) -> bool:
        """Read until the lock is released, as long as messages come quickly. Whether it was released: then
        this thread waits no more."""
        link = connection.link
        still_s = _STILL_S if timeout_s == FOR_EVER else min(_STILL_S, timeout_s)
        # The loop's thread may have brought it before it stood still: no more bytes would come then.
        is_done = gate.acquire(blocking=False)
        goes_well = isinstance(link, DialledLink) and link.is_plain
        try:
            while goes_well and not is_done and not self._needed:
                assert isinstance(link, DialledLink)
                if not link.wait_for_bytes(self._kick_in, still_s):
                    break
                self._borrower = threading.get_ident()
                try:
                    goes_well = link.take_in()
                finally:
                    self._borrower = None
                is_done = gate.acquire(blocking=False)
        finally:
            self._give_back(is_done, is_done and goes_well and connection.exchange.is_quiet)
        return is_done

    def _give_back(self, is_done: bool, keep: bool) -> None:
        with self._guard:
            if is_done:  # `_leave`, without the call
                self._waiting -= 1
                self._waited_at = time.monotonic()
            if keep and not self._needed:
                self._mode = _FREE
                return
            if self._kicked:
                self._kicked = False
                os.read(self._kick_in, 1)
            self._mode = _RUNNING
            self._resume.release()


class _Crowd:
    """A plain context manager: a generator would cost more than what it guards."""

    __slots__ = ("_loop",)

    def __init__(self, loop: SharedLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self._loop.enter_crowd()

    def __exit__(self, *_: object) -> None:
        self._loop.leave_crowd()
