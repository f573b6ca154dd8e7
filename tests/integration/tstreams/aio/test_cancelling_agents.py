"""Subscribers, groups and loops may be cancelled wherever they wait: everything counts once all the same."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from tstreams import TransactionState, aio
from tstreams.server import Node

from .conftest import agents_of, all_items, eventually, open_in
from .interrupting import ENOUGH, interrupted

pytestmark = pytest.mark.anyio
LATE = pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])

KIB = 1024


async def last_items(ts: aio.Client, stream: str) -> list[bytes]:
    """The last items of all transactions."""
    async with ts.consumer(stream) as consumer:
        return [(await txn.read_items())[-1] async for txn in consumer.read(max_wait=0)]


def engines() -> list[str]:
    """The tasks of subscribers."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith("tstreams-s")]


# Groups.


@LATE
async def test_a_groups_checkpoint(ts: aio.Client, clicks: str, out: str, late: bool) -> None:
    """Whatever became of it: transactions and positions agree, here and on the server."""
    source, looker = await ts.producer(clicks), await ts.consumer(out)
    producer, consumer = await ts.producer(out, "p1"), await ts.consumer(clicks, "c1")
    group = ts.checkpoint_group()
    group.add(producer)
    outcomes = set()
    for point in range(ENOUGH):
        await source.instant([b"x"], 0)
        group.add(consumer)
        read, txn = await consumer.get(0, timeout=30), await producer.open(0)
        assert read is not None
        await txn.send_many([b"x" * 300 * KIB, b"last"])
        reached = await interrupted(group.checkpoint(), point, late)
        await group.cancel()
        took_effect = await looker.by_id(0, txn.id) is not None
        outcomes.add(took_effect)
        expected = TransactionState.CHECKPOINTED if took_effect else TransactionState.CANCELLED
        assert txn.state is expected
        assert (consumer.position(0) == read.id) == took_effect
        group.remove(consumer)
        newer = await ts.consumer(clicks, "c1")
        assert newer.position(0) == consumer.position(0)
        consumer = newer
        if not reached:
            break
    assert point > 1
    assert outcomes == {False, True}


@LATE
async def test_the_block_of_a_group(
    node: Node, ts: aio.Client, clicks: str, out: str, late: bool
) -> None:
    source = await ts.producer(clicks)
    for number in range(100):
        await source.instant([b"%d" % number], 0)
    producer, consumer = await ts.producer(out, "p1"), await ts.consumer(clicks, "c1")
    group = ts.checkpoint_group()
    group.add(producer)
    group.add(consumer)

    async def step() -> None:
        async with group:
            read = await consumer.get(0, timeout=0)
            if read is not None:
                txn = await producer.open(0)
                await txn.send_many([b"x" * 300 * KIB, *await read.read_items()])

    for point in range(ENOUGH):
        if not await interrupted(step(), point, late):
            break
    assert point > 3
    async with group:
        pass  # all that was begun has ended
    assert not open_in(node)
    while len(await last_items(ts, out)) < 100:
        await step()
    assert await last_items(ts, out) == [b"%d" % number for number in range(100)]
    await eventually(lambda: ts.statistics().requests_under_way == 0)
    assert ts.statistics().bytes_under_way == 0


@LATE
async def test_a_groups_cancel(
    node: Node, ts: aio.Client, clicks: str, out: str, late: bool
) -> None:
    txn_id = await (await ts.producer(clicks)).instant([b"x"], 0)
    producers = [await ts.producer(out, name) for name in ("p1", "p2")]
    consumer = await ts.consumer(clicks, "c1")
    group = ts.checkpoint_group()
    for producer in producers:
        group.add(producer)
    group.add(consumer)
    for point in range(ENOUGH):
        txns = [await producer.open(0) for producer in producers]
        read = await consumer.get(0, timeout=30)
        assert read is not None
        assert read.id == txn_id
        reached = await interrupted(group.cancel(), point, late)
        async with group:
            assert {txn.state for txn in txns} == {TransactionState.CANCELLED}
            assert not open_in(node)
        if not reached:
            break
    assert point > 0


# Subscribers.


async def handle_nothing(subscriber: aio.Subscriber, txn: aio.ReadTransaction) -> None:
    pass


@LATE
async def test_making_and_using_a_subscriber(
    node: Node, ts: aio.Client, clicks: str, late: bool
) -> None:
    producer = await ts.producer(clicks)
    seen: list[int] = []

    async def handle(subscriber: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        await asyncio.sleep(0)
        seen.append(txn.id)

    for point in range(ENOUGH):
        seen.clear()
        written = await producer.instant([b"x"], 0)

        async def use(written: int = written) -> None:
            async with ts.subscriber(clicks, "s1", on_transaction=handle) as subscriber:
                await eventually(lambda: subscriber.position(0) == written)
                await subscriber.checkpoint()
                await subscriber.stop()

        reached = await interrupted(use(), point, late)
        assert engines() == []
        await eventually(lambda: agents_of(node) == 1)
        if not reached:
            break
    assert point > 3
    assert ts.statistics().agents == 1
    async with ts.consumer(clicks, "s1") as consumer:
        assert consumer.position(0) == written


@LATE
async def test_a_subscribers_checkpoint(ts: aio.Client, clicks: str, late: bool) -> None:
    producer = await ts.producer(clicks)
    for point in range(ENOUGH):
        async with ts.subscriber(clicks, "s1", on_transaction=handle_nothing) as subscriber:
            before = subscriber.position(0)
            written = await producer.instant([b"x"], 0)
            await eventually(lambda s=subscriber, last=written: s.position(0) == last)
            reached = await interrupted(subscriber.checkpoint(), point, late)
        async with ts.subscriber(clicks, "s1", on_transaction=handle_nothing) as subscriber:
            assert subscriber.position(0) in (before, written)
            await eventually(lambda s=subscriber, last=written: s.position(0) == last)
            await interrupted(subscriber.checkpoint(), point, late)
            await subscriber.checkpoint()
        if not reached:
            break
    async with ts.consumer(clicks, "s1") as consumer:
        assert consumer.position(0) == written


class Gate:
    """A callback that waits until it may go on, and remembers how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ends: list[str] = []

    async def handle(self, subscriber: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)  # it may tidy up
            self.ends.append("cancelled")
            raise
        self.ends.append("returned")


@LATE
async def test_a_stop_that_is_cancelled_goes_on(ts: aio.Client, clicks: str, late: bool) -> None:
    written = await (await ts.producer(clicks)).instant([b"x"], 0)
    for point, use in itertools.product(range(2), ("stop", "wait")):
        gate = Gate()
        async with ts.subscriber(clicks, on_transaction=gate.handle) as subscriber:
            await gate.begun.wait()
            if use == "wait":
                with anyio.move_on_after(0.05):
                    await subscriber.wait()
                assert subscriber.running
                assert not await subscriber.wait(0.01)
            else:
                task = asyncio.create_task(subscriber.stop())
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert not subscriber.running
            assert gate.ends == []
            gate.go_on.set()
            if use == "stop":
                assert await subscriber.wait(30)
                assert subscriber.position(0) == written
            await interrupted(subscriber.wait(0.01), point, late)
        assert gate.ends == ["returned"]


@pytest.mark.parametrize("what", ["subscriber", "client", "block"])
async def test_closing_that_is_cancelled_cancels_the_callbacks(
    node: Node, ts: aio.Client, clicks: str, what: str
) -> None:
    written = await (await ts.producer(clicks)).instant([b"x"], 0)
    gate = Gate()
    other = await aio.connect(node.addresses[0])
    subscriber = await other.subscriber(clicks, "s1", on_transaction=gate.handle)

    async def use() -> None:
        if what == "block":
            async with subscriber:
                await asyncio.sleep(60)
        await subscriber.start()
        await gate.begun.wait()
        await (subscriber.close() if what == "subscriber" else other.close())

    task = asyncio.create_task(use())
    await gate.begun.wait()
    await asyncio.sleep(0.02)
    task.cancel()
    if what == "block":
        await asyncio.sleep(0.02)
        assert gate.ends == [], "it waits for the callback, until it is cancelled again"
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.ends == ["cancelled"]
    assert engines() == []
    assert subscriber.closed
    await eventually(lambda: agents_of(node) == 1)
    await other.close()
    reader = await ts.consumer(clicks, "s1")
    assert reader.position(0) is None
    again = await reader.get(0, timeout=30)
    assert again is not None
    assert again.id == written


async def test_engines_that_are_cancelled_anywhere(
    node: Node, ts: aio.Client, clicks: str, out: str
) -> None:
    """From outside, as a loop does that is shut down: each transaction counts once."""
    source = await ts.producer(clicks)
    for number in range(200):
        await source.instant([b"%d" % number], number % 4)
    group, producer = ts.checkpoint_group(), await ts.producer(out, "p1")

    async def handle(subscriber: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        result = await producer.open(txn.partition)
        await result.send_many([item async for item in txn.items])
        await group.checkpoint()

    subscriber = await ts.subscriber(clicks, "s1", on_transaction=handle, engines=3)
    group.add(producer)
    group.add(subscriber)
    cancelled = 0
    rng = random.Random(3)
    for times in range(ENOUGH):
        await subscriber.start()
        tasks = [task for task in asyncio.all_tasks() if task.get_name() in engines()]
        assert len(tasks) == 3
        if rng.random() < 0.9:  # else before they have begun
            await asyncio.sleep(rng.uniform(0, 0.03 * (1 + times // 20)))  # a server may be slow
        for task in tasks:
            cancelled += task.cancel()
        assert await subscriber.wait(30)
        assert not subscriber.running
        if len(await last_items(ts, out)) == 200:
            break
    assert cancelled > 20
    await group.checkpoint()
    assert not open_in(node)
    assert sorted(map(int, await last_items(ts, out))) == list(range(200))
    await subscriber.close()
    async with ts.consumer(clicks, "s1") as consumer:
        assert [txn.id async for txn in consumer.read(max_wait=0)] == []


# Loops.


async def slowly(txn: aio.ReadTransaction) -> list[bytes]:
    await asyncio.sleep(0)
    return list(await txn.read_items())


async def bit_by_bit(txn: aio.ReadTransaction) -> AsyncIterator[tuple[int, bytes]]:
    async for item in txn.items:
        await asyncio.sleep(0)
        yield txn.partition, item


def as_they_are(txn: aio.ReadTransaction) -> aio.ReceivedItems:
    return txn.items


@LATE
@pytest.mark.parametrize("fn", [slowly, bit_by_bit, as_they_are])
async def test_a_loop(
    node: Node,
    ts: aio.Client,
    clicks: str,
    out: str,
    fn: Callable[[aio.ReadTransaction], Any],
    late: bool,
) -> None:
    source = await ts.producer(clicks)
    futures = [await source.instant([b"%d" % n], n % 4, wait=False) for n in range(400)]
    await asyncio.gather(*futures)
    for point in range(ENOUGH):
        loop = ts.process(clicks, "job", out, fn, max_wait=0, batch=7)
        if not await interrupted(loop, point, late):
            break
        await eventually(lambda: agents_of(node) == 1)
        assert not open_in(node)
    assert point > 5
    assert (await ts.process(clicks, "job", out, fn, max_wait=0)).transactions == 0
    for partition in range(4):
        async with ts.consumer(out, partitions=[partition]) as consumer:
            found = [item for items in await all_items(consumer) for item in items]
        assert found == [b"%d" % n for n in range(partition, 400, 4)]


async def test_a_cancelled_loop_and_a_closed_client(
    node: Node, ts: aio.Client, clicks: str
) -> None:
    """In a cancelled scope nobody waits: the names are given back all the same."""
    await (await ts.producer(clicks)).instant([b"x"], 0)
    await ts.create_stream("out")
    begun = asyncio.Event()

    async def fn(txn: aio.ReadTransaction) -> None:
        begun.set()
        await asyncio.sleep(60)

    async def work() -> None:
        async with aio.connect(node.addresses[0]) as other:
            await other.process(clicks, "job", "out", fn)

    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await begun.wait()
        assert agents_of(node) == 3
        group.cancel_scope.cancel()
    await eventually(lambda: agents_of(node) == 1)
    stop = asyncio.Event()
    stop.set()
    done = await ts.process(clicks, "job", "out", slowly, stop=stop)
    assert done.transactions == 0
    done = await ts.process(clicks, "job", "out", slowly, max_wait=0)
    assert done.transactions == 1
