"""Those who write to a log while its servers die: one after the other, or two against each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tests.integration.log.sites import EngineSite
from tstreams.errors import InvalidState
from tstreams.ledger.engine import EngineUnavailable
from tstreams.ledger.port import LogFenced
from tstreams.ledger.replicated import ReplicatedLog

WITHIN_S = 60.0
"""Servers that replace one another take some seconds; a busy machine takes longer."""


class Writer:
    """Appends numbered groups, one after the other, in the background; what was confirmed is in `confirmed`."""

    def __init__(self, log: ReplicatedLog) -> None:
        self._log = log
        self.confirmed: list[bytes] = []
        self._more = asyncio.Event()
        self._task = asyncio.ensure_future(self._write())
        self._stop = False

    async def _write(self) -> None:
        number = 0
        while not self._stop:
            number += 1
            record = b"%d:" % number + bytes(100 * (number % 20))
            await self._log.append([[record]], 0)
            self.confirmed.append(record)
            self._more.set()

    async def write(self, count: int) -> None:
        """Wait until so many more are confirmed."""
        wanted = len(self.confirmed) + count
        async with asyncio.timeout(WITHIN_S):
            while len(self.confirmed) < wanted:
                if self._task.done():
                    self._task.result()
                self._more.clear()
                await asyncio.wait(
                    [self._task, waiting := asyncio.ensure_future(self._more.wait())],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                waiting.cancel()

    async def stop(self) -> list[bytes]:
        self._stop = True
        async with asyncio.timeout(WITHIN_S):
            await self._task
        return self.confirmed


async def again(what: Callable[[], Awaitable[ReplicatedLog]]) -> ReplicatedLog:
    """Try until the servers answer."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return await what()
            except EngineUnavailable:
                await asyncio.sleep(0.1)


Confirm = Callable[[int], Awaitable[None]]
"""Waits until so many more groups are confirmed."""


@asynccontextmanager
async def fighting(site: EngineSite) -> AsyncIterator[Confirm]:
    """Two nodes take the log over from each other and write. At the end: whatever was confirmed to either is there, once,
    where it was said to be; and all see the same."""
    logs = {node: await site.open(node, ledger_bytes=64 * 1024) for node in "ab"}
    confirmed: dict[int, bytes] = {}
    unknown: set[bytes] = set()
    fenced = 0
    stop = asyncio.Event()

    async def write(node: str) -> None:
        nonlocal fenced
        log, number = logs[node], 0
        while not stop.is_set():
            try:
                await log.take_over(log.epoch + 1, 0)
                for _ in range(15):
                    number += 1
                    record = b"%s-%d" % (node.encode(), number) + bytes(1000 * (number % 7))
                    unknown.add(record)
                    (position,) = await log.append([[record]], 0)
                    confirmed[position] = record
            except (LogFenced, InvalidState):
                fenced += 1
            except EngineUnavailable:
                await asyncio.sleep(0.05)

    async def confirm(count: int) -> None:
        wanted = len(confirmed) + count
        async with asyncio.timeout(WITHIN_S):
            while len(confirmed) < wanted:  # noqa: ASYNC110 - two writers, and none may get through
                await asyncio.sleep(0.01)

    tasks = [asyncio.ensure_future(write(node)) for node in logs]
    yield confirm
    stop.set()
    async with asyncio.timeout(WITHIN_S):
        await asyncio.gather(*tasks)
    assert fenced > 1, "or else this test says nothing"
    for log in logs.values():
        await log.catch_up()
    fresh = await site.open("c")
    found = [(at, bytes(it)) for _, group in fresh.scan(0) for at, it in group]
    for log in logs.values():
        assert [(at, bytes(it)) for _, group in log.scan(0) for at, it in group] == found
    assert set(confirmed.items()) <= set(found)
    assert len({record for _, record in found}) == len(found)
    assert {record for _, record in found} <= unknown
