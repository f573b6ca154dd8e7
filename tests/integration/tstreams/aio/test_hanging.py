"""Calls that are cancelled while the server hangs, or is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import anyio
import pytest

from tstreams import TransactionState, aio

from ..conftest import ONE_SHARD
from ..servers import ServerProcess
from .conftest import Failures, all_items, eventually, saved, visible
from .watchdog import Watchdog

pytestmark = pytest.mark.anyio


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


async def test_a_block_of_a_group_with_a_deadline(server: ServerProcess, ts: aio.Client) -> None:
    """Whoever goes on after it has results and position as they are on the server."""
    await ts.create_stream("out")
    source = await ts.producer("clicks")
    producer, consumer = await ts.producer("out", "job"), await ts.consumer("clicks", "job")
    group = ts.checkpoint_group()
    group.add(producer)
    group.add(consumer)
    for number in range(30):
        await source.instant([b"%d" % number], 0)

    async def step() -> bool:
        async with group:
            read = await consumer.get(0)
            if read is not None:
                await (await producer.open(0)).send_many(await read.read_items())
        return read is not None

    cancelled = 0
    for _ in range(10):
        task = asyncio.create_task(step())
        await asyncio.sleep(0)
        server.pause()
        with anyio.move_on_after(0.05) as scope:
            await task
        cancelled += scope.cancelled_caught
        server.go_on()
    assert cancelled
    while await step():
        pass
    assert await visible(ts, "out") == [b"%d" % number for number in range(30)]


@ONE_SHARD  # a checkpoint that was not prepared everywhere is not in doubt: nobody waits for it
async def test_a_block_whose_checkpoint_worked_after_all_takes_nobody_back(
    server: ServerProcess, ts: aio.Client
) -> None:
    await ts.create_stream("out")
    source, producer = await ts.producer("clicks"), await ts.producer("out", "job")
    ids = [await source.instant([b"x"], 0) for _ in range(2)]
    consumer, group = await ts.consumer("clicks", "job"), ts.checkpoint_group()
    group.add(producer)
    group.add(consumer)

    async def step() -> None:
        async with group:
            assert await consumer.get(0, timeout=30) is not None
            result = await producer.open(0)
            await result.send(b"x" * 300_000)
            sends = result._draft._sends
            await eventually(lambda: sends and all(ticket.ended for ticket in sends))
            server.pause()

    with anyio.move_on_after(0.5) as scope:
        await step()
    assert scope.cancelled_caught
    read = await consumer.get(0)
    assert read is not None
    assert read.id == ids[1], "it was fetched together with the first"
    server.go_on()
    async with group:
        assert consumer.position(0) == ids[1]
    assert len(await visible(ts, "out")) == 1
    assert await saved(ts, "clicks", "job") == ids[1]


@ONE_SHARD  # as above
@pytest.mark.parametrize("covers", ["group", "subscriber"])
async def test_a_callback_gives_up_its_checkpoint_while_the_server_hangs(
    server: ServerProcess, ts: aio.Client, covers: str
) -> None:
    """The checkpoint took effect after all: what it covered is not handled again."""
    await ts.create_stream("out")
    source, producer = await ts.producer("clicks"), await ts.producer("out", "job")
    ids = [await source.instant([b"%d" % number], 0) for number in range(3)]
    group, failures, calls = ts.checkpoint_group(), Failures(), []

    async def handle(subscriber: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        calls.append(txn.id)
        result = await producer.open(0)
        await result.send_many([b"x" * 300_000, *await txn.read_items()])
        sends = result._draft._sends
        await eventually(lambda: sends and all(ticket.ended for ticket in sends))
        is_second = calls == ids[:2]
        if is_second:
            server.pause()
        async with asyncio.timeout(0.3 if is_second else 30):
            await (group.checkpoint() if covers == "group" else subscriber.checkpoint())

    subscriber = await ts.subscriber(
        "clicks", "job", on_transaction=handle, on_failure=failures.add
    )
    group.add(producer)
    group.add(subscriber)
    await subscriber.start()
    await eventually(lambda: failures.found)
    assert [type(error) for error in failures.found] == [TimeoutError]
    await subscriber.stop()
    resume = asyncio.create_task(subscriber.start())
    await asyncio.sleep(0.05)
    assert not resume.done(), "it waits for the answer"
    server.go_on()
    await resume
    await eventually(lambda: subscriber.position(0) == ids[2])
    await group.checkpoint()
    await subscriber.close()
    assert await saved(ts, "clicks", "job") == ids[2]
    assert sorted((await visible(ts, "out"))[1::2]) == [b"0", b"1", b"2"]
    assert calls == (ids if covers == "group" else [*ids[:2], *ids[1:]])
