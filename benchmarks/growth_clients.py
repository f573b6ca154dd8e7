"""Client processes of `growth`: connections that commit to many places in turn, with asyncio."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

import uvloop

from tstreams import Offset, aio

from .durable_clients import make_items
from .growth_plan import PROCESSES, Load

HOST = "127.0.0.1"
_AT_ONCE = 64
"""Requests of one process under way while something is prepared."""
_READ_WITHIN_S = 30.0

Target: TypeAlias = tuple[Any, int]
"""A producer, and a partition."""
Timed: TypeAlias = tuple[float, float, list[float]]
"""When the first commit began, when the last one ended, and what each took in seconds."""


class WrongAnswer(Exception):
    """Something else was read than was written."""


def stream_name(number: int) -> str:
    """The name of a stream."""
    return f"stream-{number}"


async def all_of(calls: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Make all of these calls, not too many at a time."""
    left = iter(calls)

    async def work() -> None:
        for call in left:
            await call()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_ONCE):
            tasks.create_task(work())


class Connection:
    """One client, and the places that it commits to in turn."""

    def __init__(self, client: Any, number: int) -> None:
        self.client = client
        self.number = number
        self.first: Target | None = None
        self._targets: Iterator[Target] = iter(())

    async def aim(self, load: Load) -> None:
        """Take a share of all partitions of all streams, with a producer for each stream among them."""
        places = load.streams * load.partitions
        mine = range(self.number, places, load.connections) or [self.number % places]
        streams = sorted({place // load.partitions for place in mine})
        producers: dict[int, Any] = {}

        async def make(stream: int) -> None:
            name = f"writer-{self.number}"
            producers[stream] = await self.client.producer(stream_name(stream), name=name)

        await all_of([partial(make, stream) for stream in streams])
        targets = [(producers[it // load.partitions], it % load.partitions) for it in mine]
        self.first = targets[0]
        self._targets = itertools.cycle(targets)

    async def commit(self, items: list[bytes], deadline: float, count: int) -> list[float]:
        """One commit after the other, until it is time or so many were made: what each took."""
        took = []
        for _ in range(count):
            producer, partition = next(self._targets)
            begun = time.perf_counter()
            await producer.instant(items, partition=partition)
            ended = time.perf_counter()
            took.append(ended - begun)
            if ended > deadline:
                break
        return took


class Place:
    """One server as a client process sees it: its share of the connections to it."""

    def __init__(self, port: int, load: Load, process: int) -> None:
        self._url = f"tcp://{HOST}:{port}"
        self._load = load
        self._process = process
        self._connections: list[Connection] = []
        self._held: list[Any] = []
        self._consumer: Any = None
        self._reading: Any = None

    async def create(self) -> None:
        """The streams; one process does it for all."""
        async with aio.connect(self._url) as client:

            async def create(number: int) -> None:
                partitions = self._load.partitions
                await client.create_stream(stream_name(number), partitions=partitions, ttl="1d")

            names = range(self._load.streams)
            await all_of([partial(create, number) for number in names])

    async def connect(self) -> None:
        """This process' share of the connections, with their producers."""

        async def connect(number: int) -> None:
            client = await aio.connect(self._url)
            connection = Connection(client, number)
            self._connections.append(connection)
            await connection.aim(self._load)

        mine = range(self._process, self._load.connections, PROCESSES)
        await all_of([partial(connect, number) for number in mine])

    async def hold(self) -> None:
        """Open transactions and leave them open; one process does it for all."""
        first = self._connections[0].first
        assert first is not None, "it is connected before"
        producer, partition = first

        async def hold() -> None:
            self._held.append(await producer.open(partition))

        await all_of([hold] * self._load.open_transactions)

    async def fill(self) -> None:
        """This process' share of the history."""
        share, one = -(-self._load.history // PROCESSES), make_items(1, 100)
        tasks = _AT_ONCE * 4
        counts = [share // tasks + (number < share % tasks) for number in range(tasks)]
        connection = self._connections[0]
        await asyncio.gather(*(connection.commit(one, float("inf"), it) for it in counts))

    async def commit(self, seconds: float, window: int) -> Timed:
        """All connections at the same time, each with so many commits under way."""
        items = make_items(self._load.items, self._load.item_bytes)
        begun = time.perf_counter()
        found = await asyncio.gather(
            *(
                connection.commit(items, begun + seconds, 1 << 62)
                for connection in self._connections
                for _ in range(window)
            )
        )
        return begun, time.perf_counter(), list(itertools.chain.from_iterable(found))

    async def rest(self) -> None:
        """Nothing to do."""

    async def begin_reading(self) -> None:
        """A reader of all partitions of the stream that this process writes to first, of what is new there."""
        connection = self._connections[0]
        assert connection.first is not None, "it is connected before"
        stream = connection.first[0].stream
        self._consumer = await connection.client.consumer(
            stream, name="reader", start=Offset.newest()
        )
        self._reading = aiter(self._consumer.read(max_wait=_READ_WITHIN_S))

    async def read(self, seconds: float) -> int:
        """Commit something, wait until it is read, and so on; how often."""
        connection = self._connections[0]
        assert connection.first is not None, "it is connected before"
        items = make_items(self._load.items, self._load.item_bytes)
        producer, partition = connection.first
        deadline = time.perf_counter() + seconds
        count = 0
        while not count or time.perf_counter() < deadline:
            made = await producer.instant(items, partition=partition)
            found = await anext(self._reading, None)
            if found is None or found.id != made:
                raise WrongAnswer(f"{made} was committed, {found!r} was read")
            count += 1
        return count

    async def end_reading(self) -> None:
        """No more reader."""
        await self._consumer.close()

    async def close(self) -> None:
        """Disconnect."""
        for connection in self._connections:
            await connection.client.close()


class Clients:
    """What a client process holds: a place for each point of an axis."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._places: dict[int, Place] = {}

    def add(self, point: int, port: int, load: Load, process: int) -> None:
        """A server, at this port, for this point."""
        self._places[point] = Place(port, load, process)

    def call(self, point: int, method: str, *arguments: Any) -> Any:
        """Call a method of the place for a point."""
        return self._runner.run(getattr(self._places[point], method)(*arguments))

    def close(self) -> None:
        """Disconnect from all."""
        for place in self._places.values():
            self._runner.run(place.close())
        self._runner.close()
