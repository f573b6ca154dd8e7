"""How `durable` speaks to each contestant: through its usual Python client, as fast as that goes.

A writer keeps a window of transactions in flight: when it is full, the oldest has to be acknowledged
before the next is sent. A drainer reads everything back and looks at every item: it sums their lengths.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Protocol, TypeAlias

import redis

import tstreams
from tstreams import Offset
from tstreams.items import pack

from .durable_bare import PREFIX, REPLY
from .durable_jetstream import JetStreamWriter
from .durable_kafka import KafkaIdempotentWriter, KafkaWriter
from .durable_postgres import PostgresWriter
from .durable_rabbitmq import RabbitBatchWriter, RabbitWriter
from .window import keep_futures, keep_window, void

HOST = "127.0.0.1"
XREAD_COUNT = 1000
"""The best for redis-py: with 10 000 at a time it reads half as fast."""
Drained: TypeAlias = tuple[int, int]
"""Items, and the sum of their lengths."""


class WrongAnswer(Exception):
    """A server did not do what it must."""


class Writer(Protocol):
    """One connection to a contestant. Those that are drained have a method `drain` too."""

    def create(self, stream: str, partitions: int) -> None:
        """Make a stream for that many writers; one of them does it for all."""

    def open(self, stream: str, partition: int) -> None:
        """Write to this part of it from now on."""

    def write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        """Transactions of these items for so long, or so many of them; how many, all acknowledged."""

    def drop(self, stream: str, partition: int) -> None:
        """It is not needed any more."""

    def close(self) -> None:
        """Disconnect."""


@cache
def make_items(count: int, size: int) -> list[bytes]:
    """The same items in every process; they do not compress."""
    source = random.Random(f"{count} {size}")
    return [source.randbytes(size) for _ in range(count)]


class TstreamsWriter:
    """The public client of tstreams; a window is a queue of futures."""

    def __init__(self, port: int) -> None:
        self._url = f"tcp://{HOST}:{port}"
        self._client = tstreams.connect(self._url)
        self._producer: Any = None

    def create(self, stream: str, partitions: int) -> None:
        """One stream; each client has a partition."""
        self._client.create_stream(stream, partitions=partitions, ttl="1h")

    def open(self, stream: str, partition: int) -> None:
        """A producer for this client alone."""
        self._partition = partition
        if self._producer is not None:
            self._producer.close()
        self._producer = self._client.producer(stream, name=f"p{partition}")

    def write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        """Instant transactions."""
        instant, partition = self._producer.instant, self._partition
        return keep_futures(
            lambda: instant(items, partition=partition, wait=False), window, seconds, count_max
        )

    def drain(self, stream: str, partition: int, transactions: int) -> Drained:
        """A consumer of this partition, from the oldest on."""
        return _drain(self._client, stream, partition, transactions)

    def drain_any(self, stream: str, partition: int, transactions: int) -> Drained:
        """The same, by a client that is content with what any node of a cluster has."""
        with tstreams.connect(self._url, read="any") as client:
            return _drain(client, stream, partition, transactions)

    def drop(self, stream: str, partition: int) -> None:
        """Left to its ttl: deleting would go on in the background of what is measured next."""

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


def _drain(client: tstreams.Client, stream: str, partition: int, transactions: int) -> Drained:
    items = size = 0
    with client.consumer(
        stream, name=f"c{partition}", start=Offset.oldest(), partitions={partition}
    ) as consumer:
        for seen, transaction in enumerate(consumer.read(max_wait=10.0), 1):
            size += sum(map(len, transaction.items))
            items += len(transaction.items)
            if seen == transactions:
                break
    return items, size


class RedisWriter:
    """redis-py: a MULTI/EXEC of one XADD for each item.

    The window is kept on one connection of redis-py. Its pipelines wait for their own answer, and
    sixteen threads or tasks with a pipeline each were measured at about half of what this does.
    """

    def __init__(self, port: int) -> None:
        # Untyped, because redis-py's types cover neither its connections nor its two protocols.
        self._client: Any = redis.Redis(host=HOST, port=port, protocol=2)
        self._connection: Any = self._client.connection_pool.get_connection()
        self._key = ""

    def create(self, stream: str, partitions: int) -> None:
        """Nothing: the first XADD does it."""

    def open(self, stream: str, partition: int) -> None:
        """A stream of its own for each client."""
        self._key = f"{stream}:{partition}"

    def write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        """Transactions of XADDs."""
        connection, count = self._connection, len(items)

        def send() -> None:
            connection.send_packed_command(connection.pack_commands(self._commands(items)))

        def receive() -> None:
            for _ in range(count + 1):  # OK, and QUEUED for each
                connection.read_response()
            done = connection.read_response()
            if len(done) != count:
                raise WrongAnswer(f"redis did {len(done)} of {count} commands")

        return keep_window(send, receive, window, seconds, count_max)

    def _commands(self, items: list[bytes]) -> list[tuple[str | bytes, ...]]:
        key = self._key
        return [("MULTI",), *(("XADD", key, "*", "i", item) for item in items), ("EXEC",)]

    def drain(self, stream: str, partition: int, transactions: int) -> Drained:
        """XREAD with a large COUNT, until there is no more."""
        key, after = f"{stream}:{partition}", b"0-0"
        items = size = 0
        while found := self._client.xread({key: after}, count=XREAD_COUNT):
            entries = found[0][1]
            size += sum(len(fields[b"i"]) for _, fields in entries)
            items += len(entries)
            after = entries[-1][0]
        return items, size

    def drop(self, stream: str, partition: int) -> None:
        """Give the memory back before the next one is measured."""
        self._client.delete(f"{stream}:{partition}")

    def close(self) -> None:
        """Disconnect."""
        self._client.connection_pool.release(self._connection)
        self._client.close()


class RedisBlobWriter(RedisWriter):
    """redis-py: one XADD with all items of the transaction end to end in one field."""

    def write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        """One XADD is atomic by itself."""
        connection, key = self._connection, self._key

        def send() -> None:
            command = connection.pack_command("XADD", key, "*", "b", b"".join(items))
            connection.send_packed_command(command)

        return keep_window(
            send, lambda: void(connection.read_response()), window, seconds, count_max
        )


class BareWriter:
    """A blocking socket. It packs the items into the same batch as tstreams does, and no more."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._came = 0

    def create(self, stream: str, partitions: int) -> None:
        """There are no streams."""

    def open(self, stream: str, partition: int) -> None:
        """There is only one file."""

    def write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        """Frames of one batch each."""

        def send() -> None:
            batch = pack(items)
            self._socket.sendall(PREFIX.pack(len(batch)) + batch)

        return keep_window(send, self._receive, window, seconds, count_max)

    def _receive(self) -> None:
        while self._came < len(REPLY):
            more = self._socket.recv(64 * 1024)
            if not more:
                raise WrongAnswer("the bare server hung up")
            self._came += len(more)
        self._came -= len(REPLY)

    def drop(self, stream: str, partition: int) -> None:
        """It goes with the folder."""

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()


WRITERS: dict[str, Callable[[int], Writer]] = {
    "tstreams": TstreamsWriter,
    "tstreams-nofsync": TstreamsWriter,
    "redis": RedisWriter,
    "redis-blob": RedisBlobWriter,
    "jetstream": JetStreamWriter,
    "kafka": KafkaWriter,
    "kafka-idempotent": KafkaIdempotentWriter,
    "postgres": PostgresWriter,
    "rabbitmq-streams": RabbitWriter,
    "rabbitmq-batch": RabbitBatchWriter,
    "ceiling": BareWriter,
}


def writers_to(ports: Mapping[str, int]) -> dict[str, Callable[[], Writer]]:
    """How a client process connects to servers at these ports."""
    return {name: partial(WRITERS[name], port) for name, port in ports.items()}


class Contestants:
    """What a client process holds: a connection to each contestant, made as it is told."""

    def __init__(self, connect: Mapping[str, Callable[[], Writer]]) -> None:
        self._writers = {name: make() for name, make in connect.items()}

    def call(self, name: str, method: str, *arguments: Any) -> Any:
        """Call the writer of that contestant."""
        return getattr(self._writers[name], method)(*arguments)

    def write(
        self, name: str, count: int, size: int, window: int, seconds: float, count_max: int
    ) -> int:
        """Write transactions of `count` items of `size` bytes."""
        return self._writers[name].write(make_items(count, size), window, seconds, count_max)

    def cpu_s(self) -> float:
        """Processor time that this client process has used."""
        return time.process_time()

    def close(self) -> None:
        """Disconnect from all."""
        for writer in self._writers.values():
            writer.close()
