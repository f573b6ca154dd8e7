"""Callbacks of subscribers as coroutines: what they may do, and what belongs to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from tstreams import TransactionState, aio
from tstreams.server import Node

from .conftest import Failures, eventually, saved, visible, write

pytestmark = pytest.mark.anyio

Handle = Callable[[aio.Subscriber, aio.ReadTransaction], object]


# Kinds of callbacks.


class Remembers:
    def __init__(self, seen: list[int]) -> None:
        self._seen = seen

    async def __call__(self, subscriber: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        await anyio.lowlevel.checkpoint()
        self._seen.append(txn.id)


@pytest.mark.parametrize("kind", ["plain", "coroutine", "object", "future"])
async def test_kinds_of_callbacks(ts: aio.Client, clicks: str, kind: str) -> None:
    ids, seen = await write(ts, clicks, 20), []

    def plain(subscriber: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        seen.append(txn.id)

    async def coroutine(subscriber: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        await asyncio.sleep(0.001)
        seen.append(txn.id)

    def future(subscriber: aio.Subscriber, txn: aio.ReadTransaction) -> Awaitable[None]:
        return asyncio.ensure_future(coroutine(subscriber, txn))

    kinds: dict[str, Handle] = {
        "plain": plain,
        "coroutine": coroutine,
        "object": Remembers(seen),
        "future": future,
    }
    async with ts.subscriber(clicks, on_transaction=kinds[kind], engines=3) as subscriber:
        await eventually(lambda: subscriber.position(0) == ids[-1])
    assert seen == ids


async def test_on_failure_may_wait_and_stop(ts: aio.Client, clicks: str) -> None:
    await write(ts, clicks, 1)
    errors: list[BaseException] = []

    async def handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        raise ValueError("what a pity")

    async def on_failure(error: BaseException) -> None:
        await asyncio.sleep(0.01)
        errors.append(error)
        async with asyncio.TaskGroup() as group:
            group.create_task(subscriber.stop())

    subscriber = await ts.subscriber(clicks, on_transaction=handle, on_failure=on_failure)
    await subscriber.start()
    assert await subscriber.wait(30)
    assert [str(error) for error in errors] == ["what a pity"]


async def test_plain_callbacks_let_others_go(ts: aio.Client, clicks: str) -> None:
    async with ts.producer(clicks) as producer:
        futures = [await producer.instant([b"x"], 0, wait=False) for _ in range(3000)]
        await asyncio.gather(*futures)
    turns = calls = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    def handle(subscriber: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        nonlocal calls
        calls += 1
        until = time.perf_counter() + 0.0005
        while time.perf_counter() < until:
            pass  # 3000 times half a millisecond of work

    async with anyio.create_task_group() as group:
        group.start_soon(count)
        async with ts.subscriber(clicks, on_transaction=handle):
            await eventually(lambda: calls == 3000)
        group.cancel_scope.cancel()
    assert turns > 100


# What belongs to a call.


async def test_callbacks_side_by_side_commit_each_its_own(
    ts: aio.Client, clicks: str, out: str
) -> None:
    ids = await write(ts, clicks, 4, partitions=4)
    group, producer = ts.checkpoint_group(), await ts.producer(out, "p1")
    gates = [asyncio.Event() for _ in range(4)]
    opened = 0

    async def handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        nonlocal opened
        result = await producer.open(txn.partition)
        await result.send(b"%d" % txn.partition)
        opened += 1
        await gates[txn.partition].wait()
        await group.checkpoint()

    async with ts.subscriber(clicks, "s1", on_transaction=handle, engines=4) as subscriber:
        group.add(producer)
        group.add(subscriber)
        await eventually(lambda: opened == 4)
        for count, partition in enumerate((2, 0, 3, 1), 1):
            gates[partition].set()
            await eventually(lambda p=partition: subscriber.position(p) == ids[p])
            assert len(await visible(ts, out)) == count, "none of the others"
    assert [await saved(ts, clicks, "s1", partition) for partition in range(4)] == ids


async def test_a_task_of_a_callback_is_in_its_call(ts: aio.Client, clicks: str, out: str) -> None:
    ids = await write(ts, clicks, 2)
    group, producer = ts.checkpoint_group(), await ts.producer(out, "p1")
    failures = Failures()

    async def produce(txn: aio.ReadTransaction) -> None:
        result = await producer.open(0)
        await result.send_many(await txn.read_items())

    async def handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce(txn))
        await asyncio.create_task(group.checkpoint())
        raise RuntimeError("after the checkpoint, which covered this call")

    subscriber = await ts.subscriber(clicks, "s1", on_transaction=handle, on_failure=failures.add)
    group.add(producer)
    group.add(subscriber)
    for count in (1, 2):
        await subscriber.start()
        await eventually(lambda n=count: len(failures.found) == n)
        await subscriber.stop()
    assert await visible(ts, out) == [b"0", b"1"]
    assert await saved(ts, clicks, "s1") == ids[1]


async def test_a_task_that_outlives_its_call_takes_nobody_back(
    ts: aio.Client, clicks: str, out: str
) -> None:
    ids = await write(ts, clicks, 5)
    group, producer = ts.checkpoint_group(), await ts.producer(out, "p1")
    go_on = asyncio.Event()
    left: list[asyncio.Task[None]] = []

    async def later() -> None:
        await go_on.wait()
        await (await producer.open(0)).send(b"late")
        await group.checkpoint()

    async def handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        if not left:
            left.append(asyncio.create_task(later()))

    async with ts.subscriber(clicks, "s1", on_transaction=handle) as subscriber:
        group.add(producer)
        group.add(subscriber)
        await eventually(lambda: subscriber.position(0) == ids[4])
        await group.checkpoint()
        go_on.set()
        await left[0]
        assert await visible(ts, out) == [b"late"]
    assert await saved(ts, clicks, "s1") == ids[4]


async def test_a_task_that_outlives_a_failed_call_writes_nothing(
    ts: aio.Client, clicks: str, out: str
) -> None:
    await write(ts, clicks, 1)
    group, producer = ts.checkpoint_group(), await ts.producer(out, "p1")
    failures, go_on = Failures(), asyncio.Event()
    left: list[asyncio.Task[aio.Transaction]] = []

    async def half() -> aio.Transaction:
        await go_on.wait()
        txn = await producer.open(0)
        await txn.send(b"half")
        return txn

    async def fail() -> None:
        raise ZeroDivisionError

    async def handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        left.append(asyncio.create_task(half()))
        await asyncio.gather(fail(), left[0])

    async with ts.subscriber(
        clicks, "s1", on_transaction=handle, on_failure=failures.add
    ) as subscriber:
        group.add(producer)
        group.add(subscriber)
        await eventually(lambda: failures.found)
        go_on.set()
        txn = await left[0]
        await group.checkpoint()
        assert txn.state is TransactionState.CANCELLED
    assert await visible(ts, out) == []


async def test_a_subscriber_started_in_a_callback_is_in_no_call(
    ts: aio.Client, clicks: str, out: str
) -> None:
    """Its engines are tasks that the callback started; but what they do is not the callback's."""
    await write(ts, clicks, 1)
    inner_ids = await write(ts, out, 3)
    await ts.create_stream("results")
    group, producer = ts.checkpoint_group(), await ts.producer("results", "p1")
    go_on, failed = asyncio.Event(), asyncio.Event()
    inner: list[aio.Subscriber] = []

    async def inner_handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        if txn.id == inner_ids[2]:
            raise ValueError("this one")
        await (await producer.open()).send_many(await txn.read_items())

    async def inner_failure(error: BaseException) -> None:
        await (await producer.open()).send(str(error).encode())
        failed.set()

    async def handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        inner.append(
            await ts.subscriber(out, "inner", on_transaction=inner_handle, on_failure=inner_failure)
        )
        group.add(inner[0])
        await inner[0].start()
        await go_on.wait()

    async with ts.subscriber(clicks, "outer", on_transaction=handle) as outer:
        group.add(producer)
        group.add(outer)
        await failed.wait()
        await group.checkpoint()
        found = await visible(ts, "results")
        go_on.set()
        await inner[0].stop()
    assert found == [b"0", b"1", b"this one"]


@pytest.mark.parametrize("how", ["stop", "close", "client"])
async def test_a_task_of_a_callback_may_end_everything(
    node: Node, ts: aio.Client, clicks: str, how: str
) -> None:
    """It does not wait for the callback, which waits for it."""
    await write(ts, clicks, 10)
    ended: list[str] = []
    other = await aio.connect(node.addresses[0])

    async def handle(subscriber: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        ends = {"stop": subscriber.stop, "close": subscriber.close, "client": other.close}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ends[how]())
        ended.append(how)

    subscriber = await other.subscriber(clicks, on_transaction=handle)
    await subscriber.start()
    with anyio.fail_after(30):
        assert await subscriber.wait()
        await other.close()
    assert ended == [how]
