"""What can be awaited or entered; servers inside of the program."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest

import tstreams
from tstreams import InvalidState, TransactionState, aio
from tstreams.server import Node

from .interrupting import ENOUGH, interrupted
from .watchdog import Watchdog

pytestmark = pytest.mark.anyio


async def test_awaited_or_entered(node: Node) -> None:
    ts = await aio.connect(node.addresses[0])
    async with ts:
        await ts.create_stream("clicks")
        producer = await ts.producer("clicks")
        txn = await producer.open()
        async with txn:
            await txn.send(b"one")
        async with producer.open() as txn:
            await txn.send(b"two")
        async with await producer.transaction() as txn:
            await txn.send(b"three")
        async with ts.consumer("clicks") as consumer:
            found = [await read.read_items() async for read in consumer.read(max_wait=0)]
        assert found == [[b"one"], [b"two"], [b"three"]]
        assert (consumer.closed, producer.closed) == (True, False)
    assert (producer.closed, ts.closed) == (True, True)
    assert txn.state is TransactionState.CHECKPOINTED


async def test_what_nobody_awaits_is_told(ts: aio.Client, clicks: str) -> None:
    producer = await ts.producer(clicks)
    with pytest.warns(RuntimeWarning, match="never awaited"):
        producer.open()


async def test_mistakes_are_told_where_they_are_made(ts: aio.Client, clicks: str) -> None:
    with pytest.raises(tstreams.BadRequest):
        aio.connect("tcp://127.0.0.1:1", timeout=-1)
    with pytest.raises(tstreams.BadRequest):
        (await ts.consumer(clicks)).read(max_wait=-1)


# Items.


async def test_items_can_be_iterated_again(ts: aio.Client, clicks: str) -> None:
    await (await ts.producer(clicks)).instant([b"a", b"b", b"c"], 0)
    read = await (await ts.consumer(clicks)).get(0, timeout=30)
    assert read is not None
    for _ in range(2):
        assert [item async for item in read.items] == [b"a", b"b", b"c"]
    assert len(read) == len(read.items) == 3
    assert await read.read_items() is await read.read_items()


async def test_items_read_side_by_side(ts: aio.Client, clicks: str) -> None:
    items = [bytes([number]) * 1_000_000 for number in range(20)]
    await (await ts.producer(clicks)).instant(items, 0)
    read = await (await ts.consumer(clicks)).get(0, timeout=30)
    assert read is not None

    async def take() -> None:
        assert [item async for item in read.items] == items
        assert await read.read_items() == items

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(take)


# Embedded.


async def test_embedded(tmp_path: Path, watchdog: Watchdog) -> None:
    async with aio.embedded(tmp_path) as ts:
        await ts.create_stream("clicks")
        written = await (await ts.producer("clicks")).instant([b"x"])
        with pytest.raises(InvalidState):
            await aio.embedded(tmp_path)
    async with aio.embedded(tmp_path) as ts:
        read = await (await ts.consumer("clicks")).get(0, timeout=30)
        assert read is not None
        assert read.id == written


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
async def test_a_cancelled_start_leaves_the_directory_free(tmp_path: Path, late: bool) -> None:
    async def use() -> None:
        async with aio.embedded(tmp_path) as ts:
            await ts.streams()

    for point in range(ENOUGH):
        reached = await interrupted(use(), point, late)
        await free(tmp_path)
        if not reached:
            break
    assert point > 2


async def test_a_cancelled_scope_around_an_embedded_server(tmp_path: Path) -> None:
    with anyio.move_on_after(0.5):
        async with aio.embedded(tmp_path) as ts:
            await ts.create_stream("clicks")
            await (await (await ts.producer("clicks")).open()).send(b"x")
            await anyio.sleep_forever()
    await free(tmp_path)


async def free(path: Path) -> None:
    """Wait until no server has a directory: it is asked to go without anyone waiting for it."""
    with anyio.fail_after(30):
        while True:
            try:
                async with aio.embedded(path):
                    return
            except InvalidState:
                await asyncio.sleep(0.01)
