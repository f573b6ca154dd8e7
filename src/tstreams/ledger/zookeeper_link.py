"""A connection to ZooKeeper, for the lists of ledgers of all shards of a process.

kazoo works in threads of its own; its answers are handed over to the loop. Nothing here belongs to a session, so a session
that has ended is no matter: kazoo begins another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from kazoo import exceptions as zk
from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from ..limits import COORDINATION_REQUESTS_MAX
from .engine import EngineUnavailable

ANSWER_S = 5.0
"""How long an answer is waited for."""
CONNECT_S = 15.0
_SESSION_S = 10.0
_NO_ANSWER = (
    zk.ConnectionLoss,
    zk.ConnectionClosedError,
    zk.SessionExpiredError,
    zk.SessionMovedError,
    zk.OperationTimeoutError,
)


class ZooKeeperLink:
    """One connection, which finds another server by itself when its own is gone."""

    def __init__(self, hosts: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._hosts = hosts
        self._room = asyncio.Semaphore(COORDINATION_REQUESTS_MAX)
        self._client = KazooClient(
            hosts=hosts,
            timeout=_SESSION_S,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=0.5),
            logger=logging.getLogger("tstreams.ledger.zookeeper"),
        )

    async def connect(self, within_s: float = CONNECT_S) -> None:
        """`EngineUnavailable` if nobody answers."""
        connected = self._client.start_async()
        if not await asyncio.to_thread(connected.wait, within_s):
            await self.close()
            raise EngineUnavailable(f"no ZooKeeper answers at {self._hosts}")

    async def ask(self, ask: Callable[[KazooClient], Any], within_s: float = ANSWER_S) -> Any:
        """One request. What ZooKeeper refuses is raised as kazoo has it. `EngineUnavailable`: no answer came; it may
        have taken effect, and may yet."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def answered(result: Any) -> None:  # in a thread of kazoo
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                self._loop.call_soon_threadsafe(self._answer, future, result)

        try:
            async with asyncio.timeout(within_s):
                await self._room.acquire()
                try:
                    ask(self._client).rawlink(answered)
                except BaseException:
                    self._room.release()
                    raise
                return await future
        except TimeoutError:
            raise EngineUnavailable(f"ZooKeeper has not answered within {within_s:g} s") from None
        except _NO_ANSWER as error:
            raise EngineUnavailable(f"the connection to ZooKeeper was lost: {error!r}") from None

    def _answer(self, future: asyncio.Future[Any], result: Any) -> None:
        self._room.release()  # also if nobody waits any more: kazoo held the request until now
        if future.done():
            return
        if result.successful():
            future.set_result(result.value)
        else:
            future.set_exception(result.exception)

    def in_loop(self, function: Callable[[], None]) -> Callable[[Any], None]:
        """A watcher for kazoo that calls this in the loop."""

        def told(_: Any) -> None:  # in a thread of kazoo
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function)

        return told

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()
