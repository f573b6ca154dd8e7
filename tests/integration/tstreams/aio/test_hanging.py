"""Calls that are cancelled while the server hangs, or is away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from tstreams import TransactionState, aio

from ..servers import ServerProcess
from .conftest import all_items, eventually
from .watchdog import Watchdog

pytestmark = pytest.mark.anyio


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "data")
    server.start()
    yield server
    server.close()


@pytest.fixture
async def ts(server: ServerProcess, watchdog: Watchdog) -> AsyncIterator[aio.Client]:
    async with aio.connect(server.address) as ts:
        await ts.create_stream("clicks", partitions=4)
        yield ts


async def test_what_was_cancelled_while_the_server_hung_holds_nobody_up(
    server: ServerProcess, ts: aio.Client
) -> None:
    producer, consumer = await ts.producer("clicks", "p1"), await ts.consumer("clicks")
    left_open = await producer.open(0)
    await left_open.send(b"left")
    server.pause()
    async with anyio.create_task_group() as group:

        async def open_one() -> None:
            async with producer.transaction(0) as txn:
                await txn.send(b"never")

        async def leave() -> None:
            async with left_open:
                pass

        async def make() -> None:
            await ts.producer("clicks", "p2")

        async def get() -> None:
            await consumer.get(0, timeout=None)

        for use in (open_one, leave, make, get):
            group.start_soon(use)
        await anyio.sleep(0.3)
        group.cancel_scope.cancel()
    server.go_on()
    await producer.instant([b"behind"], 0)
    with anyio.fail_after(30):
        found: list[list[bytes]] = []
        while [b"behind"] not in found:
            found += await all_items(consumer)
    assert found in ([[b"behind"]], [[b"left"], [b"behind"]])
    await eventually(lambda: left_open.state is not TransactionState.OPENED)
    seen = left_open.state is TransactionState.CHECKPOINTED
    assert seen == ([b"left"] in found), "its state says what has become of it"
    await eventually(lambda: ts.statistics().requests_under_way == 0)


async def test_closing_is_cancelled_while_the_server_is_away(server: ServerProcess) -> None:
    ts = await aio.connect(server.address)
    await ts.create_stream("clicks")
    txn = await (await ts.producer("clicks")).open()
    server.kill()
    with anyio.move_on_after(0.2) as scope:
        await ts.close()
    assert scope.cancelled_caught
    assert ts.closed
    assert txn.state is TransactionState.CANCELLED
