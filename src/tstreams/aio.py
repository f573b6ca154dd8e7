"""The asyncio face of tstreams: the same names, the same promises, with `async with`, `await` and `async for`.

async with tstreams.aio.connect("tcp://127.0.0.1:7070") as ts:      # or tstreams.aio.embedded("./data")
    await ts.create_stream("clicks", partitions=4, ttl="7d")
    async with ts.producer("clicks", name="p1") as producer:
        async with producer.transaction(partition=0) as txn:
            await txn.send(b"one")
    async with ts.consumer("clicks", name="c1") as consumer:
        async for txn in consumer.read(max_wait=1.0):
            print([item async for item in txn.items])

What opens something (`connect`, `embedded`, `producer`, `consumer`, `subscriber`, `open`, `transaction`) can
be awaited or entered with `async with`. Any call may be cancelled where it waits; its docstring says what that leaves.
"""

from __future__ import annotations

from .client.asynchronous.client import Client, connect
from .client.asynchronous.consumer import Consumer, Reading
from .client.asynchronous.group import CheckpointGroup
from .client.asynchronous.job import Job
from .client.asynchronous.opening import Opening
from .client.asynchronous.producer import Producer
from .client.asynchronous.received import ItemIterator, ReadTransaction, ReceivedItems
from .client.asynchronous.scan import Scanning
from .client.asynchronous.subscriber import Subscriber
from .client.asynchronous.transaction import Transaction
from .embedding import embedded_aio as embedded

__all__ = [
    "CheckpointGroup",
    "Client",
    "Consumer",
    "ItemIterator",
    "Job",
    "Opening",
    "Producer",
    "ReadTransaction",
    "Reading",
    "ReceivedItems",
    "Scanning",
    "Subscriber",
    "Transaction",
    "connect",
    "embedded",
]
