"""Tests as coroutines, on both loops, with somebody who watches the loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tstreams import aio
from tstreams.server import Node

from .watchdog import Watchdog


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The loops that tests run on."""
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def watchdog() -> AsyncIterator[Watchdog]:
    """Fails the test if the loop stood still."""
    with Watchdog() as watchdog:
        yield watchdog
    assert watchdog.complaints == []


@pytest.fixture
async def ts(node: Node, watchdog: Watchdog) -> AsyncIterator[aio.Client]:
    """A client."""
    async with aio.connect(node.addresses[0]) as ts:
        yield ts


@pytest.fixture
async def clicks(ts: aio.Client) -> str:
    """A stream of four partitions."""
    return (await ts.create_stream("clicks", partitions=4)).name


@pytest.fixture
async def out(ts: aio.Client) -> str:
    """Another one."""
    return (await ts.create_stream("out", partitions=4)).name


async def eventually(condition: Callable[..., Any], timeout_s: float = 20.0) -> Any:
    """Wait until the condition is true; fail if it never is."""
    deadline = anyio.current_time() + timeout_s
    while anyio.current_time() < deadline:
        if result := condition():
            return result
        await anyio.sleep(0.01)
    pytest.fail(f"not true within {timeout_s} s: {condition}")


async def all_items(consumer: aio.Consumer, max_wait: float = 0) -> list[list[bytes]]:
    """What is visible."""
    return [list(await txn.read_items()) async for txn in consumer.read(max_wait)]


def agents_of(node: Node) -> int:
    """How many agents hold a name on the server. One that spans shards has the same rank in all of them."""
    assert node.shards, "they are in this process"
    ranks = set()
    for shard in node.shards.values():
        state = shard.core.state
        numbers = [it for session in list(state.sessions.values()) for it in list(session.agents)]
        ranks |= {agent.rank for it in numbers if (agent := state.agent(it)) is not None}
    return len(ranks)


def open_in(node: Node) -> set[int]:
    """What is open on the server."""
    assert node.shards, "they are in this process"
    return {it for shard in node.shards.values() for it in list(shard.core.state.open)}


async def write(ts: aio.Client, stream: str, count: int, partitions: int = 1) -> list[int]:
    """Write numbers, each in a transaction of its own."""
    async with ts.producer(stream) as producer:
        return [await producer.instant([b"%d" % n], n % partitions) for n in range(count)]


async def visible(ts: aio.Client, stream: str) -> list[bytes]:
    """All items of a stream."""
    async with ts.consumer(stream) as consumer:
        return [item for items in await all_items(consumer) for item in items]


async def saved(ts: aio.Client, stream: str, name: str, partition: int = 0) -> int | None:
    """Where a reader of this name would begin. It takes the name."""
    async with ts.consumer(stream, name) as consumer:
        return consumer.position(partition)


class Failures:
    """Remembers what `on_failure` was called with."""

    def __init__(self) -> None:
        self.found: list[BaseException] = []

    async def add(self, error: BaseException) -> None:
        """What `on_failure` is."""
        await anyio.lowlevel.checkpoint()
        self.found.append(error)
