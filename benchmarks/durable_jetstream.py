"""How `durable` speaks to NATS JetStream: nats-py on uvloop, one atomic batch per transaction."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Sequence

import nats
import uvloop
from nats.aio.msg import Msg

HOST = "127.0.0.1"


class JetStreamWriter:
    """nats-py. The window is a semaphore that acknowledgements release.

    The messages of a batch are published without a reply address but for the last, which commits it:
    that is the fewest messages the protocol allows. A single message is published plainly.
    """

    def __init__(self, *ports: int, replicas: int = 1) -> None:
        self._replicas = replicas
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._runner.run(self._connect(ports))

    async def _connect(self, ports: Sequence[int]) -> None:
        self._client = await nats.connect([f"nats://{HOST}:{port}" for port in ports])
        self._inbox = self._client.new_inbox()
        self._subject = ""
        self._failure: str | None = None
        await self._client.subscribe(self._inbox, cb=self._acknowledged)

    def create(self, stream: str, partitions: int) -> None:
        """A stream of its own for each client: faster than one stream with several subjects."""
        self._runner.run(self._create(stream, partitions))

    async def _create(self, stream: str, partitions: int) -> None:
        for partition in range(partitions):
            name = f"{stream}-{partition}"
            config = {"name": name, "subjects": [name], "storage": "file", "allow_atomic": True}
            config |= {"retention": "limits", "num_replicas": self._replicas}
            await self._ask(f"STREAM.CREATE.{name}", json.dumps(config).encode())

    async def _ask(self, what: str, request: bytes = b"") -> None:
        answer = await self._client.request(f"$JS.API.{what}", request, timeout=30)
        error = json.loads(answer.data).get("error")
        if error is not None:
            raise RuntimeError(f"JetStream refused {what}: {error}")

    def open(self, stream: str, partition: int) -> None:
        """The subject of this client's own stream."""
        self._subject = f"{stream}-{partition}"

    def write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        """Atomic batches."""
        return self._runner.run(self._write(items, window, seconds, count_max))

    async def _write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        self._free = asyncio.Semaphore(window)
        self._count = len(items)
        publish = self._publish_batch if len(items) > 1 else self._publish_one
        deadline = time.perf_counter() + seconds
        sent = 0
        while sent < count_max and time.perf_counter() < deadline:
            await self._free.acquire()
            await publish(items)
            sent += 1
        for _ in range(window):
            await self._free.acquire()
        if self._failure is not None:
            raise RuntimeError(f"JetStream refused a batch: {self._failure}")
        return sent

    async def _publish_one(self, items: list[bytes]) -> None:
        await self._client.publish(self._subject, items[0], reply=self._inbox)

    async def _publish_batch(self, items: list[bytes]) -> None:
        publish, subject, batch = self._client.publish, self._subject, uuid.uuid4().hex
        for number, item in enumerate(items[:-1], 1):
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            await publish(subject, item, headers=headers)
        headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(items))}
        headers["Nats-Batch-Commit"] = "1"
        await publish(subject, items[-1], reply=self._inbox, headers=headers)

    async def _acknowledged(self, message: Msg) -> None:
        answer = json.loads(message.data)
        if "error" in answer or answer.get("count", 1) != self._count:
            self._failure = message.data.decode()
        self._free.release()

    def drop(self, stream: str, partition: int) -> None:
        """Delete the stream."""
        self._runner.run(self._ask(f"STREAM.DELETE.{stream}-{partition}"))

    def close(self) -> None:
        """Disconnect."""
        self._runner.run(self._client.close())
        self._runner.close()
