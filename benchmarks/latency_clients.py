"""How `latency` sends to and receives from each contestant: through its usual Python client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import nats
import redis
import uvloop

import tstreams
from tstreams import Offset

from .latency_peers import KafkaTalker, PostgresTalker, RabbitTalker
from .latency_talk import HOST, WITHIN_S, Heard, Pace, Talker, send_paced, stamped


class TstreamsTalker:
    """Instant transactions of one item; a subscriber."""

    def __init__(self, port: int) -> None:
        self._client = tstreams.connect(f"tcp://{HOST}:{port}")
        self._heard: Heard | None = None

    def create(self, job: str) -> None:
        """A stream with one partition."""
        self._client.create_stream(job, partitions=1, ttl="1h")

    def send(self, job: str, count: int, rate: int) -> float:
        """`instant` opens, fills and checkpoints."""
        with self._client.producer(job, name="sender") as producer:
            return send_paced(lambda item: producer.instant([item], 0), count, rate)

    def listen(self, job: str, count: int) -> None:
        """A subscriber with one engine."""
        heard = self._heard = Heard(count)
        self._subscriber = self._client.subscriber(
            job,
            name="receiver",
            start=Offset.oldest(),
            on_transaction=lambda _, transaction: heard.note(transaction.items[0]),
        ).start()

    def heard(self) -> list[float]:
        """Wait for the last callback."""
        assert self._heard is not None
        found = self._heard.wait()
        self._subscriber.close()
        return found

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


class RedisTalker:
    """XADD; XREAD BLOCK in a thread of its own, as a callback would need one too."""

    def __init__(self, port: int) -> None:
        self._client: Any = redis.Redis(HOST, port)

    def create(self, job: str) -> None:
        """A stream is there when something is in it."""

    def send(self, job: str, count: int, rate: int) -> float:
        """XADD waits for its answer."""
        return send_paced(lambda item: self._client.xadd(job, {"i": item}), count, rate)

    def listen(self, job: str, count: int) -> None:
        """A thread that does nothing else."""
        self._heard = Heard(count)
        threading.Thread(target=self._read, args=(job, self._heard), daemon=True).start()

    def _read(self, job: str, heard: Heard) -> None:
        after, ended = b"0-0", False
        while not ended:
            for _, entries in self._client.xread({job: after}, count=1000, block=10_000):
                for _, fields in entries:
                    ended = heard.note(fields[b"i"])
                after = entries[-1][0]

    def heard(self) -> list[float]:
        """Wait for the last message."""
        return self._heard.wait()

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


class NatsTalker:
    """nats-py on uvloop, in a thread: core NATS."""

    def __init__(self, port: int) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._connect(port))

    def _run(self, steps: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(steps, self._loop).result(WITHIN_S)

    async def _connect(self, port: int) -> None:
        self._client = await nats.connect(f"nats://{HOST}:{port}")

    def create(self, job: str) -> None:
        """There are only subjects."""

    def send(self, job: str, count: int, rate: int) -> float:
        """On the loop, without a hand-over to a thread for each message."""
        took: float = self._run(self._send(job, count, rate))
        return took

    async def _send(self, job: str, count: int, rate: int) -> float:
        publish = self._publisher(job)
        pace = Pace(rate)
        begun = time.perf_counter()
        for _ in range(count):
            await asyncio.sleep(pace.left_s())
            await publish(stamped())
        return time.perf_counter() - begun

    def _publisher(self, job: str) -> Callable[[bytes], Awaitable[object]]:
        async def publish(message: bytes) -> None:
            await self._client.publish(job, message)
            await self._client.flush()

        return publish

    def listen(self, job: str, count: int) -> None:
        """A callback on the loop."""
        heard = self._heard = Heard(count)

        async def note(message: Any) -> None:
            heard.note(message.data)

        self._run(self._subscribe(job, note))

    async def _subscribe(self, job: str, note: Any) -> None:
        await self._client.subscribe(job, cb=note)
        await self._client.flush()

    def heard(self) -> list[float]:
        """Wait for the last message."""
        return self._heard.wait()

    def close(self) -> None:
        """Disconnect."""
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class JetStreamTalker(NatsTalker):
    """The same with a file stream and a push consumer."""

    def create(self, job: str) -> None:
        """A stream of one subject."""
        self._run(self._client.jetstream().add_stream(name=job, subjects=[job]))

    def _publisher(self, job: str) -> Callable[[bytes], Awaitable[object]]:
        stream = self._client.jetstream()
        return lambda message: stream.publish(job, message)

    async def _subscribe(self, job: str, note: Any) -> None:
        await self._client.jetstream().subscribe(job, cb=note, ordered_consumer=True)


TALKERS: dict[str, Callable[[int], Talker]] = {
    "tstreams": TstreamsTalker,
    "redis": RedisTalker,
    "jetstream": JetStreamTalker,
    "nats-core": NatsTalker,
    "kafka": KafkaTalker,
    "postgres": PostgresTalker,
    "rabbitmq-streams": RabbitTalker,
}


class Contestants:
    """What the sender and the receiver hold: a connection to each contestant."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._talkers = {
            name: TALKERS[name.removesuffix("-nofsync")](port) for name, port in ports.items()
        }

    def call(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of that contestant's talker."""
        return getattr(self._talkers[name], method)(*arguments)

    def close(self) -> None:
        """Disconnect from all."""
        for talker in self._talkers.values():
            talker.close()
