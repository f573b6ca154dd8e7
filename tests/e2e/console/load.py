"""Makes a server look lived in: many streams, and a few that are written and read all the time.

    python -m tests.e2e.console.load URL STREAMS

It says `ready` when the streams are there and the writing has begun, and goes on until its input ends.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from tstreams import Offset, aio

IN_FLIGHT = 1000
KINDS = ("sensor", "device", "meter", "user", "cart", "billing", "audit")
ORDERS, CLICKS, PAYMENTS = "shop/orders", "shop/clicks", "shop/payments"
WRITTEN = (0, 1, 2)
"""Partitions of `shop/orders` that the load writes; the fourth is for tests."""


def stream_name(number: int) -> str:
    """The name of one of the many."""
    return f"{KINDS[number % len(KINDS)]}/{number % 97:02d}/{number:06d}"


async def create(ts: aio.Client, streams: int) -> None:
    """Many streams, many requests in flight."""
    numbers = iter(range(streams))

    async def work() -> None:
        for number in numbers:
            await ts.create_stream(stream_name(number), partitions=1, ttl="1d")

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    text = "Every order of the shop, as it is placed"
    await ts.create_stream(ORDERS, partitions=4, ttl="7d", description=text)
    await ts.create_stream(CLICKS, partitions=8, ttl="1d", description="What visitors look at")
    await ts.create_stream(PAYMENTS, partitions=2, ttl="30d", description="Card payments")


def order(number: int) -> bytes:
    """An order, as JSON."""
    lines = [{"sku": f"S-{random.randrange(999):03d}", "quantity": random.randrange(1, 5)}]
    customer = f"c-{random.randrange(9999):04d}"
    total = round(random.random() * 300, 2)
    shown = {"order": number, "customer": customer, "total": total, "lines": lines}
    return json.dumps(shown).encode()


async def place_orders(ts: aio.Client) -> None:
    """More and fewer of them, in waves."""
    producer = await ts.producer(ORDERS, name="checkout", partitions=set(WRITTEN))
    number = 0
    while True:
        many = 2 + int(6 * (1 + math.sin(time.time() / 7)) + random.random() * 4)
        await producer.instant([order(number + each) for each in range(many)])
        number += many
        await asyncio.sleep(0.05)


async def click(ts: aio.Client) -> None:
    """Small binary items."""
    producer = await ts.producer(CLICKS, name="web")
    while True:
        await producer.instant([random.randbytes(90) for _ in range(30)])
        await asyncio.sleep(0.05)


async def pay(ts: aio.Client) -> None:
    """Text items, now and then."""
    producer = await ts.producer(PAYMENTS, name="gateway", partitions={0})
    while True:
        await producer.instant([f"captured {random.random() * 100:.2f} EUR".encode()])
        await asyncio.sleep(0.25)


def consuming(stream: str, name: str, pause_s: float) -> Callable[[aio.Client], Any]:
    """A consumer that keeps up, or, with a pause after each transaction, does not."""

    async def consume(ts: aio.Client) -> None:
        consumer = await ts.consumer(stream, name=name, start=Offset.oldest())
        saved_at = time.monotonic()
        async for _ in consumer.read():
            if time.monotonic() - saved_at > 0.5:
                await consumer.checkpoint()
                saved_at = time.monotonic()
            await asyncio.sleep(pause_s)

    return consume


async def main(url: str, streams: int) -> None:
    """Everything at once, until the input ends."""
    async with aio.connect(url) as ts:
        await create(ts, streams)
        works = (
            place_orders,
            click,
            pay,
            consuming(ORDERS, "billing", 0),
            consuming(ORDERS, "warehouse", 0.07),
            consuming(CLICKS, "heatmap", 0),
            consuming(PAYMENTS, "bookkeeping", 0),
        )
        async with asyncio.TaskGroup() as group:
            begun: list[Coroutine[Any, Any, None]] = [work(ts) for work in works]
            tasks = [group.create_task(each) for each in begun]
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.read)
            for task in tasks:
                task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
