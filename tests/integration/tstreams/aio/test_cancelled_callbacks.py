"""Callbacks of subscribers that are cancelled, by whomever."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from tstreams import InvalidState, TransactionState, aio
from tstreams.server import Node

from .conftest import Failures, agents_of, eventually, open_in, visible, write

pytestmark = pytest.mark.anyio


async def test_a_cancelled_error_of_something_else_is_a_failure(
    ts: aio.Client, clicks: str
) -> None:
    ids = await write(ts, clicks, 8, partitions=4)
    failures = Failures()

    async def handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        if txn.partition == 2:
            task = asyncio.create_task(asyncio.sleep(60))
            task.cancel()
            await task

    async with ts.subscriber(
        clicks, "s1", on_transaction=handle, on_failure=failures.add
    ) as subscriber:
        await eventually(lambda: failures.found)
        await eventually(lambda: [subscriber.position(n) for n in (0, 1, 3)] == [*ids[4:6], ids[7]])
        assert [type(error) for error in failures.found] == [asyncio.CancelledError]
        assert "of partition 2" in failures.found[0].__notes__[0]
        assert list(subscriber.failures) == [2]
        assert subscriber.position(2) is None
        assert subscriber.running


@pytest.mark.parametrize("swallow", [False, True])
async def test_a_callback_whose_task_is_cancelled(
    ts: aio.Client, clicks: str, swallow: bool
) -> None:
    """It has not handled its transaction; but one that returns nevertheless has."""
    ids = await write(ts, clicks, 3)
    failures, calls = Failures(), []

    async def handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        calls.append(txn.id)
        if len(calls) == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if not swallow:
                    raise

    subscriber = await ts.subscriber(
        clicks, "s1", on_transaction=handle, on_failure=failures.add, engines=2
    )
    await subscriber.start()
    assert await subscriber.wait(30)
    assert calls == ids[:2]
    assert subscriber.position(0) == (ids[1] if swallow else ids[0])
    await subscriber.stop()
    with pytest.raises(InvalidState):
        await subscriber.stop()
    await subscriber.start()
    await eventually(lambda: subscriber.position(0) == ids[2])
    assert calls == (ids if swallow else [*ids[:2], *ids[1:]])
    assert failures.found == []
    await subscriber.close()


async def test_a_loop_that_is_shut_down_has_handled_nothing(node: Node) -> None:
    """`asyncio.run` cancels what is left, all at once: the callback at work, engines that wait, and whoever
    would have closed them."""
    calls: list[int] = []

    async def serve(ids: list[int], begun: asyncio.Event) -> None:
        async with aio.connect(node.addresses[0]) as ts:
            await ts.create_stream("shut", partitions=4)
            group, producer = ts.checkpoint_group(), await ts.producer("shut", "p1")
            ids += await write(ts, "shut", 2)

            async def handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
                calls.append(txn.id)
                await (await producer.open(3)).send(b"half")
                begun.set()
                await asyncio.sleep(60)

            async with ts.subscriber("shut", "s1", on_transaction=handle, engines=3) as subscriber:
                group.add(subscriber)
                group.add(producer)
                async with group:
                    await asyncio.sleep(60)

    async def main() -> list[int]:
        ids: list[int] = []
        begun = asyncio.Event()
        served = asyncio.create_task(serve(ids, begun))
        await begun.wait()
        assert not served.done()
        return ids

    ids = await anyio.to_thread.run_sync(lambda: asyncio.run(main()))
    assert calls == ids[:1]
    async with aio.connect(node.addresses[0]) as ts, ts.consumer("shut", "s1") as consumer:
        assert consumer.position(0) is None
        assert [txn.id async for txn in consumer.read(max_wait=0)] == ids


async def test_a_client_that_is_closed_cancels_slow_callbacks(
    node: Node, ts: aio.Client, clicks: str
) -> None:
    """They have a few seconds."""
    await write(ts, clicks, 1)
    other = await aio.connect(node.addresses[0])
    out, ends = await other.producer(clicks, "out"), []

    async def handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        try:
            async with out.transaction(1) as result:
                await result.send(b"never")
                await asyncio.sleep(600)
        finally:
            ends.append(result.state)

    subscriber = await other.subscriber(clicks, "s1", on_transaction=handle)
    await subscriber.start()
    await eventually(lambda: subscriber.statistics().at_work)
    with anyio.fail_after(60):
        await other.close()
    assert ends == [TransactionState.CANCELLED]
    await eventually(lambda: agents_of(node) == 0)
    assert not open_in(node)


# anyio.


async def test_under_anyio(node: Node, ts: aio.Client, clicks: str, out: str) -> None:
    """Scopes and task groups around subscribers, and inside callbacks."""
    ids = await write(ts, clicks, 40, partitions=4)
    group, producer = ts.checkpoint_group(), await ts.producer(out, "p1")
    group.add(producer)

    async def handle(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        with anyio.move_on_after(0.001) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        result = await producer.open(txn.partition)

        async def produce() -> None:
            await result.send_many(await txn.read_items())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(produce)
        with anyio.fail_after(30):
            await group.checkpoint()
        if txn.id == ids[20]:
            everything.cancel_scope.cancel()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as everything:

        async def work() -> None:
            async with ts.subscriber(clicks, "s1", on_transaction=handle, engines=4) as first:
                group.add(first)
                await anyio.sleep_forever()

        everything.start_soon(work)
    await eventually(lambda: agents_of(node) == 1)
    assert 0 < len(await visible(ts, out)) < 40
    group.clear()
    group.add(producer)
    with anyio.fail_after(30):
        async with ts.subscriber(clicks, "s1", on_transaction=_copy(producer, group)) as second:
            group.add(second)
            await eventually(lambda: [second.position(n) for n in range(4)] == ids[36:])
    assert sorted(map(int, await visible(ts, out))) == list(range(40))


def _copy(producer: aio.Producer, group: aio.CheckpointGroup) -> Any:
    async def copy(_: aio.Subscriber, txn: aio.ReadTransaction) -> None:
        result = await producer.open(txn.partition)
        await result.send_many(await txn.read_items())
        await group.checkpoint()

    return copy
