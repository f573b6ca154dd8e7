"""Many tasks, task groups and cancel scopes on one client."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import anyio
import anyio.lowlevel
import pytest

import tstreams
from tstreams import Fenced, InvalidState, TransactionState, aio
from tstreams.server import Node

from .conftest import agents_of, all_items, eventually, open_in
from .watchdog import BUSY_S_MAX, Watchdog

pytestmark = pytest.mark.anyio

KIB, MIB = 1024, 1024 * 1024


async def test_many_tasks_share_a_client(ts: aio.Client, clicks: str) -> None:
    consumer = await ts.consumer(clicks)

    async def work(number: int) -> None:
        async with ts.producer(clicks, f"p{number}") as producer:
            for turn in range(5):
                async with producer.transaction(number % 4) as txn:
                    await txn.send(b"%d %d txn" % (number, turn))
                await producer.instant([b"%d %d instant" % (number, turn)], number % 4)

    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(work, number)
    seen = [items[0] for items in await all_items(consumer)]
    kinds = (b"txn", b"instant")
    assert Counter(seen) == Counter(
        b"%d %d %s" % (number, turn, kind)
        for number in range(100)
        for turn in range(5)
        for kind in kinds
    )


async def test_tasks_share_an_agent(ts: aio.Client, clicks: str) -> None:
    producer, consumer = await ts.producer(clicks), await ts.consumer(clicks)
    txn = await producer.open(0)
    found: list[bytes] = []

    async def write(number: int) -> None:
        for turn in range(200):
            await txn.send(b"%d %d " % (number, turn) + b"x" * 3000)
        await producer.instant([b"%d" % number], 1)

    async def read() -> None:
        async for read in consumer.read():
            found.extend(await read.read_items())

    async with anyio.create_task_group() as readers:
        for _ in range(3):
            readers.start_soon(read)
        async with anyio.create_task_group() as writers:
            for number in range(10):
                writers.start_soon(write, number)
        await txn.checkpoint()
        await eventually(lambda: len(found) == 10 * 200 + 10)
        readers.cancel_scope.cancel()
    assert len(set(found)) == len(found)


async def test_deadlines_of_scopes(ts: aio.Client, clicks: str) -> None:
    producer, consumer = await ts.producer(clicks), await ts.consumer(clicks)
    with anyio.move_on_after(0.1) as scope:
        await consumer.get(0, timeout=None)
    assert scope.cancelled_caught
    with anyio.move_on_after(0.1) as scope:
        async for _ in consumer.read():
            pytest.fail("there is nothing to read")
    assert scope.cancelled_caught
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await consumer.get(0, timeout=None)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(consumer.read()), 0.1)
    written = await producer.instant([b"x"], 0)
    with anyio.fail_after(30):
        assert [txn.id async for txn in consumer.read(max_wait=0)] == [written]


async def test_a_reader_with_random_deadlines_loses_nothing(ts: aio.Client, clicks: str) -> None:
    consumer = await ts.consumer(clicks)
    expected: list[int] = []
    found: list[int] = []

    async def write() -> None:
        async with ts.producer(clicks) as producer:
            for number in range(200):
                expected.append(await producer.instant([b"x"], number % 4))
                await anyio.sleep(random.random() / 500)

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        while len(found) < 200:
            with anyio.move_on_after(random.random() / 100):
                if random.random() < 0.5:
                    async for txn in consumer.read():
                        found += [txn.id]
                else:
                    got = await consumer.get(random.randrange(4), timeout=1)
                    if got is not None:
                        found.append(got.id)
    assert sorted(found) == expected


async def test_a_task_group_that_fails_leaves_nothing_open(
    node: Node, ts: aio.Client, clicks: str
) -> None:
    consumer = await ts.consumer(clicks)
    transactions: list[aio.Transaction] = []

    async def write() -> None:
        async with ts.producer(clicks) as producer, producer.transaction(0) as txn:
            transactions.append(txn)
            while True:
                await txn.send(b"x" * 10 * KIB)

    async def write_and_fail() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(write)
            await eventually(lambda: len(transactions) == 10)
            raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        await write_and_fail()
    assert caught.group_contains(ZeroDivisionError)
    assert {txn.state for txn in transactions} == {TransactionState.CANCELLED}
    await eventually(lambda: not open_in(node))
    await eventually(lambda: agents_of(node) == 1)
    await eventually(lambda: ts.statistics().bytes_under_way == 0)
    assert await all_items(consumer) == []


async def test_a_cancelled_scope_around_a_client(node: Node, ts: aio.Client, clicks: str) -> None:
    """In a cancelled scope every await is cancelled anew: the server hears of the end all the same."""
    opened: list[aio.Transaction] = []
    async with anyio.create_task_group() as group:

        async def work() -> None:
            async with (
                aio.connect(node.addresses[0]) as other,
                other.producer(clicks) as producer,
                producer.transaction(0) as txn,
            ):
                await txn.send(b"never")
                opened.append(txn)
                await anyio.sleep_forever()

        group.start_soon(work)
        await eventually(lambda: opened)
        assert open_in(node)
        group.cancel_scope.cancel()
    assert opened[0].state is TransactionState.CANCELLED
    await eventually(lambda: not open_in(node))
    await eventually(lambda: agents_of(node) == 0)
    behind = await (await ts.producer(clicks)).instant([b"x"], 0)
    read = await (await ts.consumer(clicks)).get(0, timeout=30)
    assert read is not None
    assert read.id == behind


async def test_whoever_waits_is_woken_by_the_end(ts: aio.Client, clicks: str) -> None:
    consumer = await ts.consumer(clicks)
    caught: list[InvalidState] = []

    async def wait() -> None:
        try:
            await consumer.get(0, timeout=None)
        except InvalidState as error:
            caught.append(error)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(wait)
        await eventually(lambda: len(consumer._rules._asks) == 5)
        await consumer.close()
    assert len(caught) == 5


async def test_closing_at_the_same_time(node: Node) -> None:
    ts = await aio.connect(node.addresses[0])
    await ts.create_stream("clicks")
    await ts.producer("clicks")
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(ts.close)
    assert ts.closed
    await ts.close()


async def test_room_in_the_window_is_given_back(ts: aio.Client, clicks: str) -> None:
    producer, consumer = await ts.producer(clicks), await ts.consumer(clicks)
    batch = [b"x" * MIB] * 8
    tasks = [asyncio.create_task(producer.instant(batch, 0)) for _ in range(16)]
    await eventually(lambda: ts.statistics().bytes_under_way > 16 * MIB)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(it, int) for it in results[1::2])
    await eventually(lambda: ts.statistics().requests_under_way == 0)
    assert ts.statistics().bytes_under_way == 0
    await producer.instant([b"last"], 0)
    seen = await all_items(consumer)
    assert seen[-1] == [b"last"]
    assert 8 <= len(seen) - 1 <= 16


# Futures.


async def test_a_future_nobody_wants_calls_nothing_back(ts: aio.Client, clicks: str) -> None:
    producer, consumer = await ts.producer(clicks), await ts.consumer(clicks)
    future = await producer.instant([b"instant"], 0, wait=False)
    assert future.cancel()
    txn = await producer.open(0)
    await txn.send(b"txn")
    future_of_txn = await txn.checkpoint(wait=False)
    assert future_of_txn.cancel()
    await producer.instant([b"behind"], 0)
    assert await all_items(consumer) == [[b"instant"], [b"txn"], [b"behind"]]
    assert txn.state is TransactionState.CHECKPOINTED


async def test_futures_can_be_gathered(ts: aio.Client, clicks: str) -> None:
    producer = await ts.producer(clicks)
    futures = [await producer.instant([b"x"], 0, wait=False) for _ in range(3000)]
    ids = await asyncio.gather(*futures)
    assert ids == sorted(set(ids))


async def test_a_future_fails_with_what_went_wrong(ts: aio.Client, clicks: str) -> None:
    producer = await ts.producer(clicks, "p1")
    await ts.producer(clicks, "p1")
    with pytest.raises(Fenced):
        await (await producer.instant([b"x"], wait=False))


# The loop.


async def test_work_lets_others_go(ts: aio.Client, clicks: str, watchdog: Watchdog) -> None:
    """Items by the million, all of them here: nobody has to wait for an answer, but others must go on."""
    producer = await ts.producer(clicks, compression="zstd")
    async with producer.transaction(0) as txn:
        await txn.send_many([b"%07d" % number for number in range(1_000_000)])
    async with producer.transaction(0) as txn:
        await txn.send_many(b"%07d" % number for number in range(300_000))
    async with producer.transaction(0) as txn:
        for number in range(300_000):
            await txn.send(b"%07d" % number)
    await producer.instant([random.randbytes(MIB) for _ in range(64)], 0)
    for _ in range(2000):
        await producer.instant([b"x"], 0, wait=False)
    count = 0
    consumer = await ts.consumer(clicks)
    async for read in consumer.read(max_wait=0):
        async for _ in read.items:
            count += 1
    assert count == 1_600_000 + 64 + 2000
    first = await consumer.by_id(0, txn.id)
    assert first is not None
    assert (await first.to_arrow()).num_rows == len(await first.read_items()) == 300_000


async def test_a_reader_that_never_waits_lets_others_go(ts: aio.Client, clicks: str) -> None:
    producer = await ts.producer(clicks)
    futures = [await producer.instant([b"x"], 0, wait=False) for _ in range(3000)]
    await asyncio.gather(*futures)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    consumer = await ts.consumer(clicks)
    async with anyio.create_task_group() as group:
        group.start_soon(count)
        async for _ in consumer.read(max_wait=0):
            until = time.perf_counter() + 0.0005
            while time.perf_counter() < until:
                pass  # 3000 times half a millisecond of work
        group.cancel_scope.cancel()
    assert turns > 100


async def test_the_watchdog_barks() -> None:
    with Watchdog() as watchdog:
        await anyio.sleep(0.1)
        assert watchdog.complaints == []
        until = time.thread_time() + 2 * BUSY_S_MAX
        while time.thread_time() < until:
            pass
        await anyio.sleep(0.1)
    assert "test_the_watchdog_barks" in watchdog.complaints[0]


async def test_a_client_belongs_to_its_loop(ts: aio.Client, clicks: str) -> None:
    producer, consumer = await ts.producer(clicks), await ts.consumer(clicks)
    txn = await producer.open(0)

    async def elsewhere() -> None:
        for use in (
            ts.streams,
            lambda: producer.instant([b"x"]),
            producer.open,
            lambda: txn.send(b"x"),
            txn.checkpoint,
            txn.cancel,
            lambda: consumer.get(0),
            lambda: anext(consumer.read()),
            ts.close,
        ):
            with pytest.raises(InvalidState, match="loop"):
                await use()

    await anyio.to_thread.run_sync(lambda: asyncio.run(elsewhere()))
    await txn.send(b"here")
    await txn.checkpoint()
    async with aio.connect(ts.config) as other:
        assert [it.name for it in await other.streams()] == [clicks]
    assert isinstance(ts.config, tstreams.ClientConfig)
