"""Every call may be cancelled wherever it waits: what is left behind is whole, and holds nobody up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from tstreams import Offset, TransactionState, aio
from tstreams.server import Node

from .conftest import agents_of, all_items, eventually, open_in
from .interrupting import ENOUGH, interrupted

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("late", [False, True], ids=["at once", "late"]),
]

KIB, MIB = 1024, 1024 * 1024

Use = Callable[[aio.Producer, int], Coroutine[Any, Any, None]]


async def block(producer: aio.Producer, number: int) -> None:
    async with producer.transaction(0) as txn:
        await txn.send(b"%d first" % number)
        await txn.send(b"x" * 300 * KIB)
        await txn.send_many([b"y" * 200 * KIB, b"%d last" % number])


async def by_hand(producer: aio.Producer, number: int) -> None:
    async with producer.open(0) as txn:
        await txn.send_many([b"%d first" % number, b"x" * 300 * KIB, b"%d last" % number])
        await txn.checkpoint()


async def by_future(producer: aio.Producer, number: int) -> None:
    async with producer.open(0) as txn:
        await txn.send_many([b"%d first" % number, b"x" * 300 * KIB, b"%d last" % number])
        await (await txn.checkpoint(wait=False))


async def cancelled(producer: aio.Producer, number: int) -> None:
    async with producer.open(0) as txn:
        await txn.send_many([b"%d first" % number, b"x" * 300 * KIB])
        await txn.cancel()


async def failing(producer: aio.Producer, number: int) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with producer.open(0) as txn:
            await txn.send_many([b"%d first" % number, b"x" * 300 * KIB])
            1 / 0


async def all_at_once(producer: aio.Producer, number: int) -> None:
    async with producer.open(0) as txn, producer.open(0) as other:
        await txn.send_many([b"%d first" % number, b"x" * 300 * KIB, b"%d last" % number])
        await other.send_many([b"%d first" % number, b"%d last" % number])
        await producer.checkpoint()


async def instant(producer: aio.Producer, number: int) -> None:
    await producer.instant([b"%d first" % number, b"%d last" % number], 0)


async def instant_future(producer: aio.Producer, number: int) -> None:
    future = await producer.instant([b"%d first" % number, b"%d last" % number], 0, wait=False)
    await future


async def instant_unreliable(producer: aio.Producer, number: int) -> None:
    await producer.instant([b"%d first" % number, b"%d last" % number], 0, reliable=False)


async def behind_others(producer: aio.Producer, number: int) -> None:
    """With something before it whose turn it is."""
    async with producer.open(0) as txn:
        await txn.send_many([b"%d first" % number, b"x" * 300 * KIB, b"%d last" % number])
        before = await txn.checkpoint(wait=False)
        await producer.instant([b"%d first" % number, b"%d last" % number], 0)
        await before


@pytest.mark.parametrize(
    "use",
    [
        block,
        by_hand,
        by_future,
        cancelled,
        failing,
        all_at_once,
        instant,
        instant_future,
        instant_unreliable,
        behind_others,
    ],
)
async def test_a_producer(node: Node, ts: aio.Client, clicks: str, use: Use, late: bool) -> None:
    consumer = await ts.consumer(clicks)
    async with ts.producer(clicks, "p1") as producer:
        for point in range(ENOUGH):
            reached = await interrupted(use(producer, point), point, late)
            if not reached:
                break
        assert point < ENOUGH - 1
        assert point > 0 or use is instant_unreliable, "which waits for nothing"
        await eventually(lambda: not open_in(node))
        await producer.instant([b"%d first" % ENOUGH, b"%d last" % ENOUGH], 0)
    await eventually(lambda: ts.statistics().requests_under_way == 0)
    assert ts.statistics().bytes_under_way == 0
    seen = [(items[0], items[-1]) for items in await all_items(consumer)]
    assert all(first.split()[0] == last.split()[0] for first, last in seen), "each is whole"
    assert seen[-1] == (b"%d first" % ENOUGH, b"%d last" % ENOUGH)


async def test_a_large_instant(node: Node, ts: aio.Client, clicks: str, late: bool) -> None:
    items = [bytes([number]) * MIB for number in range(17)]
    consumer = await ts.consumer(clicks)
    async with ts.producer(clicks, "p1") as producer:
        for point in (0, 1, 2, 5, 17, 30):
            await interrupted(producer.instant(items, 0), point, late)
        await eventually(lambda: not open_in(node))
    await eventually(lambda: ts.statistics().bytes_under_way == 0)
    assert all(found == items for found in await all_items(consumer))


async def test_what_was_sent_into_a_transaction_stays_in_it(
    ts: aio.Client, clicks: str, late: bool
) -> None:
    """A cancelled send has taken its items: none is lost, and none is there twice."""
    items = [b"%02d" % number * 100 * KIB for number in range(50)]  # more than may be under way
    for point in range(ENOUGH):
        txn = await (await ts.producer(clicks)).open(0)
        reached = await interrupted(txn.send_many(items), point, late)
        await txn.send(b"more")
        await txn.checkpoint()
        assert txn.state is TransactionState.CHECKPOINTED
        read = await (await ts.consumer(clicks)).last(0)
        assert read is not None
        assert list(await read.read_items()) == [*items, b"more"]
        if not reached:
            break


async def test_a_checkpoint_took_effect_or_did_not(ts: aio.Client, clicks: str, late: bool) -> None:
    producer, consumer = await ts.producer(clicks), await ts.consumer(clicks)
    states = set()
    for point in range(ENOUGH):
        txn = await producer.open(0)
        await txn.send_many([b"x" * 300 * KIB, b"%d" % point])
        reached = await interrupted(txn.checkpoint(), point, late)
        # The next change of this client is answered after all that it asked before.
        await producer.checkpoint(1)
        states.add(txn.state)
        visible = await consumer.by_id(0, txn.id)
        assert (visible is not None) == (txn.state is TransactionState.CHECKPOINTED)
        if txn.state is TransactionState.OPENED:
            await txn.checkpoint()
        if not reached:
            break
    assert TransactionState.CHECKPOINTED in states


@pytest.mark.parametrize("how", ["get", "get and wait", "read"])
async def test_a_reader_loses_nothing(ts: aio.Client, clicks: str, how: str, late: bool) -> None:
    async with ts.producer(clicks) as producer:
        written = [await producer.instant([b"x" * 30_000], 0) for _ in range(30)]
    consumer = await ts.consumer(clicks)
    found: list[int] = []

    async def take() -> None:
        if how == "read":
            txn = await anext(consumer.read(max_wait=0.0), None)
        else:
            txn = await consumer.get(0, timeout=0.01 if how == "get and wait" else 0.0)
        if txn is not None:
            found.append(txn.id)

    for point in range(ENOUGH):
        await interrupted(take(), point % 4, late)
        if len(found) == len(written):
            break
    assert found == written
    assert consumer.position(0) == written[-1]
    assert await all_items(consumer) == []


async def test_a_reading_can_be_gone_on_with(ts: aio.Client, clicks: str, late: bool) -> None:
    async with ts.producer(clicks) as producer:
        written = [await producer.instant([b"x"], 0) for _ in range(20)]
    reading = (await ts.consumer(clicks)).read(max_wait=0.0)
    found: list[int] = []

    async def take() -> None:
        found.append((await anext(reading)).id)

    for point in range(3):
        await interrupted(take(), point, late)
    found += [txn.id async for txn in reading]
    assert found == written


async def test_items_of_a_large_transaction(ts: aio.Client, clicks: str, late: bool) -> None:
    items = [bytes([number]) * MIB for number in range(12)]
    await (await ts.producer(clicks)).instant(items, 0)
    read = await (await ts.consumer(clicks)).get(0, timeout=30)
    assert read is not None
    for point in range(3):
        iterator = aiter(read.items)
        found: list[bytes] = []

        async def take_all(iterator: aio.ItemIterator, found: list[bytes]) -> None:
            async for item in iterator:
                found += [item]

        await interrupted(take_all(iterator, found), point, late)
        await take_all(iterator, found)
        assert found == items
        await interrupted(read.read_items(), point, late)
        await interrupted(read.to_arrow(), point, late)
    assert list(await read.read_items()) == items
    await eventually(lambda: ts.statistics().connection.inflight == 0)


async def test_a_consumers_checkpoint(ts: aio.Client, clicks: str, late: bool) -> None:
    producer = await ts.producer(clicks)
    consumer = await ts.consumer(clicks, "c1")
    for point in range(ENOUGH):
        txn_id = await producer.instant([b"x"], 0)
        assert (await consumer.get(0, timeout=30)) is not None
        reached = await interrupted(consumer.checkpoint(), point, late)
        await consumer.checkpoint()
        await consumer.close()
        consumer = await ts.consumer(clicks, "c1")
        assert consumer.position(0) == txn_id
        if not reached:
            break


async def test_seeking(ts: aio.Client, clicks: str, late: bool) -> None:
    producer, consumer = await ts.producer(clicks), await ts.consumer(clicks)
    for point in range(ENOUGH):
        txn_id = await producer.instant([b"x"], 0)
        reached = await interrupted(consumer.seek(0, Offset.newest()), point, late)
        found = [txn.id async for txn in consumer.read(max_wait=0)]
        assert found == ([txn_id] if reached else [])
        if not reached:
            break


@pytest.mark.parametrize("kind", ["producer", "consumer"])
async def test_agents_that_nobody_got_are_gone(
    node: Node, ts: aio.Client, clicks: str, kind: str, late: bool
) -> None:
    for point in range(ENOUGH):

        async def make() -> None:
            if kind == "producer":
                async with ts.producer(clicks, "x"):
                    pass
            else:
                async with ts.consumer(clicks, "x", partitions=[0]):
                    pass

        reached = await interrupted(make(), point, late)
        await eventually(lambda: agents_of(node) == 0)
        if not reached:
            break
    assert point > 1
    await eventually(lambda: ts.statistics().agents == 0)


async def test_closing_a_client(node: Node, ts: aio.Client, clicks: str, late: bool) -> None:
    """Whoever is cancelled while closing has told the server all the same."""
    for point in range(ENOUGH):
        other = await aio.connect(node.addresses[0])
        producers = [await other.producer(clicks) for _ in range(3)]
        transactions = [await producer.open(0) for producer in producers]
        reached = await interrupted(other.close(), point, late)
        assert other.closed
        assert {txn.state for txn in transactions} == {TransactionState.CANCELLED}
        await eventually(lambda: not open_in(node))
        await eventually(lambda: agents_of(node) == 0)
        if not reached:
            break
    await eventually(lambda: not any("keepalive" in name for name in _other_tasks(ts)))


def _other_tasks(ts: aio.Client) -> list[str]:
    mine = ts._driver._keeper
    return [task.get_name() for task in asyncio.all_tasks() if task is not mine]


async def test_connecting(node: Node, ts: aio.Client, late: bool) -> None:
    before = len(asyncio.all_tasks())
    for point in range(ENOUGH):

        async def use() -> None:
            async with aio.connect(node.addresses[0]) as other:
                await other.streams()

        if not await interrupted(use(), point, late):
            break
    assert point > 1
    await eventually(lambda: len(asyncio.all_tasks()) == before)
    with anyio.fail_after(30):
        assert await ts.streams() == []
