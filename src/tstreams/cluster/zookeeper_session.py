"""One session with ZooKeeper, for an event loop.

kazoo works in threads of its own. Here its answers and its events are handed over to the loop, which never waits
for them. A session that is lost is never used again: whoever needs another makes another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from kazoo import exceptions as zk
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from ..errors import Timeout, Unavailable
from ..limits import COORDINATION_REQUESTS_MAX

log = logging.getLogger("tstreams.cluster")

Found: TypeAlias = tuple[bytes, ZnodeStat]
_NO_ANSWER = (zk.ConnectionLoss, zk.SessionMovedError, zk.OperationTimeoutError)
_OVER = (zk.SessionExpiredError, zk.ConnectionClosedError, zk.AuthFailedError)
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that runs while the machine sleeps, too, where there is one: ZooKeeper's does."""
_BEATS = 4
"""Signs of life in one session timeout: three may go astray."""
_ATTEMPTS = 4
"""Attempts to connect that fit into one session timeout, if servers do not answer."""


class Interrupted(Unavailable):
    """The connection went away before the answer came. Whether it took effect is not known: look, then go on."""


class SessionLost(Unavailable):
    """The session has ended, and with it all entries that belong to it."""


class Session:
    """A session, from `open` to its end.

    - `heard` is when the last request was *sent* that was answered. ZooKeeper does not end the session before
      `heard + timeout_s`, so until then it surely lasts. Threads of kazoo set it, so that a loop that is busy
      does not lose its session.
    - A session that is not heard of for so long counts as lost, whether ZooKeeper says so or not.
    - Callbacks are called in the loop: `on_connection(True or False)` with each change of the connection,
      `on_lost()` once, `on_change(path)` when something changed that was read with `read` or `children`.
      When the connection comes back, nothing is watched any more: read everything anew.
    """

    def __init__(
        self,
        hosts: str,
        timeout_s: float,
        *,
        on_connection: Callable[[bool], None],
        on_lost: Callable[[str], None],
        on_change: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._on_connection = on_connection
        self._on_lost = on_lost
        self._on_change = on_change
        self._slots = asyncio.Semaphore(COORDINATION_REQUESTS_MAX)
        self._connected = asyncio.Event()
        self._ended = asyncio.Event()
        self._calls: set[asyncio.Future[Any]] = set()
        self._check: asyncio.TimerHandle | None = None
        self._quiet = threading.Event()
        self._beating = False
        self._beat_at = 0.0
        self._heard = 0.0
        self._id = 0
        self._client = KazooClient(
            hosts=hosts,
            timeout=timeout_s,
            handler=_hasty(SequentialThreadingHandler(), timeout_s / _ATTEMPTS),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=0.5),
            logger=logging.getLogger("tstreams.cluster.zookeeper"),
        )
        self._client.add_listener(self._listen)

    @property
    def id(self) -> int:
        """The number of the session, which is also the owner of its ephemeral entries. 0: never connected."""
        return self._id

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection at this moment."""
        return self._connected.is_set()

    @property
    def lost(self) -> bool:
        """Whether it is over."""
        return self._ended.is_set()

    def alive(self) -> bool:
        """Whether it surely lasts at this moment."""
        return not self._ended.is_set() and _now() < self._heard + self._timeout_s

    async def open(self, deadline_s: float) -> None:
        """Connect. `Timeout` if that took too long; the session is over then."""
        self._client.start_async()
        try:
            await self.sure(
                lambda c: c.exists_async("/"), deadline_s
            )  # heard of for the first time
        except BaseException:
            self.end()
            raise
        self._check_later(self._timeout_s)
        threading.Thread(target=self._beat, name="tstreams-zookeeper-beat", daemon=True).start()

    async def connected(self, deadline_s: float) -> None:
        """Wait until there is a connection. `Timeout` at the deadline (of the loop's clock), or `SessionLost`."""
        if self._connected.is_set() and not self._ended.is_set():
            return
        waits = [
            asyncio.ensure_future(self._connected.wait()),
            asyncio.ensure_future(self._ended.wait()),
        ]
        try:
            await asyncio.wait(
                waits,
                timeout=max(0.0, deadline_s - self._loop.time()),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for wait in waits:
                wait.cancel()
        if self._ended.is_set():
            raise SessionLost("the session with ZooKeeper has ended")
        if not self._connected.is_set():
            raise Timeout(
                "no connection to ZooKeeper: are its servers up, and is there a majority of them?"
            )

    async def call(self, ask: Callable[[KazooClient], Any], deadline_s: float) -> Any:
        """One request, once. `ask` gets the client and begins something asynchronous.

        ZooKeeper's own refusals are raised as kazoo has them. `Interrupted`: no answer came; it may have taken
        effect, or may even do so later, but not after the next answer of this session.
        """
        await self.connected(deadline_s)
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._slots.acquire()
                if self._ended.is_set():
                    self._slots.release()
                    raise SessionLost("the session with ZooKeeper has ended")
                return await self._ask(ask)
        except TimeoutError:
            raise Timeout("ZooKeeper has not answered in time") from None
        except _NO_ANSWER as error:
            raise Interrupted(f"the connection to ZooKeeper was lost ({error!r})") from None
        except _OVER as error:
            raise SessionLost(f"the session with ZooKeeper has ended ({error!r})") from None

    async def sure(self, ask: Callable[[KazooClient], Any], deadline_s: float) -> Any:
        """One request that may be made twice, until it is answered."""
        while True:
            try:
                return await self.call(ask, deadline_s)
            except Interrupted:
                await self.pause(deadline_s)

    async def read(self, path: str, deadline_s: float, *, watch: bool = False) -> Found | None:
        """What an entry holds; None if there is none. If watched, the next change of it is told."""
        watcher = self._watched if watch else None
        while True:
            try:
                found: Found = await self.sure(lambda c: c.get_async(path, watcher), deadline_s)
            except zk.NoNodeError:
                if not watch:
                    return None
            else:
                return found
            if await self.sure(lambda c: c.exists_async(path, watcher), deadline_s) is None:
                return None

    async def children(self, path: str, deadline_s: float) -> list[str]:
        """The names under an entry, watched. `NoNodeError` if there is no such entry."""
        names: list[str] = await self.sure(
            lambda c: c.get_children_async(path, self._watched), deadline_s
        )
        return names

    def end(self) -> None:
        """Give it up, without waiting. If there is a connection, ZooKeeper removes what belongs to it."""
        if not self._ended.is_set():
            self._end()
            threading.Thread(target=self._stop, name="tstreams-zookeeper-stop", daemon=True).start()

    async def close(self) -> None:
        """Give it up, and wait until ZooKeeper knows, if there is a connection."""
        if not self._connected.is_set():
            self.end()
        elif not self._ended.is_set():
            self._end()
            await asyncio.to_thread(self._stop)

    async def pause(self, deadline_s: float) -> None:
        """Between two attempts: a server that takes connections and drops them is not asked in a tight loop."""
        await asyncio.sleep(0.02)
        await self.connected(deadline_s)

    async def _ask(self, ask: Callable[[KazooClient], Any]) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        sent = _now()

        def answered(result: Any) -> None:  # in a thread of kazoo
            if result.successful():
                self._heard = max(self._heard, sent)
            self._in_loop(self._answer, future, result)

        try:
            ask(self._client).rawlink(answered)
        except BaseException:
            self._slots.release()
            raise
        return await future

    def _answer(self, future: asyncio.Future[Any], result: Any) -> None:
        self._slots.release()  # also if nobody waits any more: kazoo held the request until now
        if future.done():
            return
        if result.successful():
            future.set_result(result.value)
        else:
            future.set_exception(result.exception)

    def _watched(self, event: WatchedEvent) -> None:  # in a thread of kazoo
        if event.type != EventType.NONE:
            self._in_loop(self._changed, event.path)

    def _changed(self, path: str) -> None:
        if not self._ended.is_set():
            self._on_change(path)

    def _listen(self, state: str) -> None:  # in a thread of kazoo
        self._in_loop(self._state, state)

    def _state(self, state: str) -> None:
        if self._ended.is_set():
            return
        if state == KazooState.CONNECTED:
            known = self._client.client_id
            self._id = known[0] if known is not None else self._id
            self._connected.set()
            self._on_connection(True)
        elif state == KazooState.SUSPENDED:
            self._connected.clear()
            self._on_connection(False)
        else:
            self._lose("ZooKeeper has ended it")

    def _check_later(self, delay_s: float) -> None:
        self._check = self._loop.call_later(delay_s, self._check_now)

    def _check_now(self) -> None:
        left_s = self._heard + self._timeout_s - _now()
        if left_s > 0:
            self._check_later(left_s)
        else:
            self._lose(f"ZooKeeper was not heard of for {self._timeout_s:g} s")

    def _lose(self, reason: str) -> None:
        if not self._ended.is_set():
            self.end()
            self._on_lost(reason)

    def _end(self) -> None:
        self._ended.set()
        self._connected.clear()
        self._quiet.set()
        if self._check is not None:
            self._check.cancel()
        for call in self._calls:
            if not call.done():
                call.set_exception(SessionLost("the session with ZooKeeper has ended"))

    def _stop(self) -> None:  # in a thread
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # it is given up in any case
            log.warning("the connection to ZooKeeper was not closed properly: %r", error)

    def _beat(self) -> None:  # a thread
        while not self._quiet.wait(self._timeout_s / _BEATS):
            if self._beating and _now() < self._beat_at + self._timeout_s:
                continue  # kazoo still holds the last one: another would only queue behind it
            self._beating = True
            self._beat_at = sent = _now()

            def answered(result: Any, sent: float = sent) -> None:
                self._beating = False
                if result.successful():
                    self._heard = max(self._heard, sent)

            self._client.exists_async("/").rawlink(answered)

    def _in_loop(self, function: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.call_soon_threadsafe(function, *args)


def _now() -> float:
    return time.clock_gettime(_CLOCK)


def _hasty(handler: Any, patience_s: float) -> Any:
    """Let kazoo wait for one server only so long. By itself it waits for a whole session timeout until a machine that is
    gone refuses a connection, or a server that is just starting answers: then the session is over."""
    connect, select = handler.create_connection, handler.select

    def connect_soon(*args: Any, timeout: float, **kwargs: Any) -> Any:
        return connect(*args, timeout=min(timeout, patience_s), **kwargs)

    def select_soon(readable: Any, writable: Any, failed: Any, timeout: float | None = None) -> Any:
        # With one socket only it waits for the rest of a message, or for the first one; with two it is at rest.
        if timeout is not None and len(readable) + len(writable) == 1:
            timeout = min(timeout, patience_s)
        return select(readable, writable, failed, timeout)

    handler.create_connection, handler.select = connect_soon, select_soon
    return handler


async def together(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of these, side by side. The first error ends the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(call)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
