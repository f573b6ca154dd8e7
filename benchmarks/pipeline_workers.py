"""How `pipeline` handles batches with each contestant: through its usual Python client.

A worker takes a batch of its own partition, puts each item into upper case, and writes the results with
one commit that also says how far it has read. It notes how long each commit took, from the moment at
which the results are there until they are acknowledged.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Protocol, TypeAlias

import redis

import tstreams
from tstreams import Offset

from .pipeline_kafka import KafkaWorker
from .pipeline_plan import ITEM_BYTES
from .pipeline_postgres import PostgresWorker

HOST = "127.0.0.1"
_FILL_WINDOW = 64
Worked: TypeAlias = tuple[float, float, list[float]]
"""When it began and ended, by the machine's monotonic clock; and the seconds of each commit."""


class WrongAnswer(Exception):
    """A server did not do what it must."""


class Worker(Protocol):
    """One connection to a contestant."""

    def create(self, job: str, partitions: int) -> None:
        """Make the input and the output of a job; one worker does it for all."""

    def fill(self, job: str, partition: int, batches: int, items: list[bytes]) -> None:
        """Write the input: so many times these items."""

    def work(self, job: str, partition: int, batches: int, count: int) -> Worked:
        """Handle all of it, in batches of so many items."""

    def output(self, job: str, partition: int) -> tuple[int, bytes]:
        """The number of items in the output, and the last of them."""

    def drop(self, job: str, partition: int) -> None:
        """It is not needed any more."""

    def close(self) -> None:
        """Disconnect."""


@cache
def make_items(count: int) -> list[bytes]:
    """The same items in every process; they do not compress."""
    source = random.Random(count)
    return [source.randbytes(ITEM_BYTES) for _ in range(count)]


def transform(items: Iterable[bytes]) -> list[bytes]:
    """The work that is done on every item, the same for all contestants."""
    return [item.upper() for item in items]


class TstreamsWorker:
    """`ts.process`: one input transaction is a batch, and each has a commit of its own."""

    def __init__(self, port: int) -> None:
        self._client = tstreams.connect(f"tcp://{HOST}:{port}")

    def create(self, job: str, partitions: int) -> None:
        """Two streams; each worker has a partition of both."""
        for stream in (f"{job}-in", f"{job}-out"):
            self._client.create_stream(stream, partitions=partitions, ttl="1h")

    def fill(self, job: str, partition: int, batches: int, items: list[bytes]) -> None:
        """Instant transactions."""
        with self._client.producer(f"{job}-in", name=f"fill-{partition}") as producer:
            sent = [
                producer.instant(items, partition=partition, wait=False) for _ in range(batches)
            ]
            for future in sent:
                future.result()

    def work(self, job: str, partition: int, batches: int, count: int) -> Worked:
        """Some commits are under way at a time; `on_commit` tells when they have been acknowledged."""
        ended_at: list[float] = []
        took: list[float] = []
        stop = threading.Event()

        def handle(transaction: tstreams.ReadTransaction) -> list[bytes]:
            results = transform(transaction.items)
            ended_at.append(time.perf_counter())
            if len(ended_at) == batches:
                stop.set()
            return results

        def committed(done: tstreams.Processed) -> None:
            now = time.perf_counter()
            took.extend(now - ended for ended in ended_at[len(took) : done.commits])

        begun = time.perf_counter()
        done = self._client.process(
            f"{job}-in",
            f"work-{partition}",
            f"{job}-out",
            handle,
            partitions=[partition],
            batch=1,
            stop=stop,
            on_commit=committed,
        )
        ended = time.perf_counter()
        if (done.commits, done.items) != (batches, batches * count):
            raise WrongAnswer(f"{batches} batches of {count} items became {done}")
        return begun, ended, took

    def output(self, job: str, partition: int) -> tuple[int, bytes]:
        """A consumer reads it back."""
        items, last = 0, b""
        with self._client.consumer(
            f"{job}-out", name="check", start=Offset.oldest(), partitions={partition}
        ) as consumer:
            for transaction in consumer.read(max_wait=0.0):
                items += len(transaction)
                last = transaction.items[-1]
        return items, last

    def drop(self, job: str, partition: int) -> None:
        """The first worker drops the streams for all."""
        if partition == 0:
            for stream in (f"{job}-in", f"{job}-out"):
                self._client.delete_stream(stream)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


class TstreamsGroupWorker(TstreamsWorker):
    """The same by hand: a consumer, a producer, and a checkpoint group of the two."""

    def work(self, job: str, partition: int, batches: int, count: int) -> Worked:
        """The commit is the call of `checkpoint`; opening the transaction is work too."""
        took: list[float] = []
        begun = time.perf_counter()
        with (
            self._client.consumer(
                f"{job}-in",
                name=f"work-{partition}",
                start=Offset.oldest(),
                partitions={partition},
            ) as consumer,
            self._client.producer(f"{job}-out", name=f"work-{partition}") as producer,
        ):
            group = self._client.checkpoint_group()
            group.add(consumer)
            group.add(producer)
            for _ in range(batches):
                transaction = consumer.get(partition, timeout=10.0)
                if transaction is None:
                    raise WrongAnswer("the input ended too early")
                results = transform(transaction.items)
                before = time.perf_counter()
                producer.open(partition).send_many(results)
                group.checkpoint()
                took.append(time.perf_counter() - before)
        return begun, time.perf_counter(), took


class RedisWorker:
    """redis-py with hiredis, on its connection: as fast as `redis.Redis` lets one go."""

    _reads_ahead = False
    """Whether the next batch is asked for together with the transaction of this one."""

    def __init__(self, port: int) -> None:
        self._client: Any = redis.Redis(HOST, port, protocol=2)
        self._connection: Any = self._client.connection_pool.get_connection()

    def create(self, job: str, partitions: int) -> None:
        """Two streams and a consumer group for each worker."""
        for partition in range(partitions):
            self._client.xgroup_create(f"{job}-in-{partition}", "group", "0", mkstream=True)

    def fill(self, job: str, partition: int, batches: int, items: list[bytes]) -> None:
        """XADD, in pipelines."""
        connection, key = self._connection, f"{job}-in-{partition}"
        batch = connection.pack_commands([("XADD", key, "*", "i", item) for item in items])
        under_way = 0
        for _ in range(batches):
            connection.send_packed_command(batch)
            under_way += len(items)
            while under_way > _FILL_WINDOW:
                connection.read_response()
                under_way -= 1
        for _ in range(under_way):
            connection.read_response()

    def work(self, job: str, partition: int, batches: int, count: int) -> Worked:
        """Two round trips, the batch and then the transaction; or one, see `_reads_ahead`."""
        connection = self._connection
        key, out = f"{job}-in-{partition}", f"{job}-out-{partition}"
        group = ("GROUP", "group", f"work-{partition}")
        read = ("XREADGROUP", *group, "COUNT", count, "STREAMS", key, ">")
        ahead = self._reads_ahead
        took: list[float] = []
        begun = time.perf_counter()
        for number in range(batches):
            if number == 0 or not ahead:
                connection.send_packed_command(connection.pack_commands([read]))
            ((_, entries),) = connection.read_response()
            results = transform([fields[1] for _, fields in entries])
            before = time.perf_counter()
            commands: list[tuple[Any, ...]] = [("MULTI",)]
            commands += [("XADD", out, "*", "i", item) for item in results]
            commands += [("XACK", key, "group", *(entry for entry, _ in entries)), ("EXEC",)]
            if ahead and number + 1 < batches:
                commands.append(read)
            connection.send_packed_command(connection.pack_commands(commands))
            for _ in range(count + 2):  # OK, and QUEUED for each
                connection.read_response()
            done = connection.read_response()
            took.append(time.perf_counter() - before)
            if done[-1] != count:
                raise WrongAnswer(f"redis acknowledged {done[-1]} of {count} entries")
        return begun, time.perf_counter(), took

    def output(self, job: str, partition: int) -> tuple[int, bytes]:
        """XLEN, and the last entry."""
        key = f"{job}-out-{partition}"
        ((_, fields),) = self._client.xrevrange(key, count=1)
        return self._client.xlen(key), fields[b"i"]

    def drop(self, job: str, partition: int) -> None:
        """Give the memory back before the next one is measured."""
        self._client.delete(f"{job}-in-{partition}", f"{job}-out-{partition}")

    def close(self) -> None:
        """Disconnect."""
        self._client.connection_pool.release(self._connection)
        self._client.close()


class RedisAheadWorker(RedisWorker):
    """The same in one round trip: the next batch comes with the answer to the transaction."""

    _reads_ahead = True


WORKERS: dict[str, Callable[[int], Worker]] = {
    "tstreams": TstreamsWorker,
    "tstreams-group": TstreamsGroupWorker,
    "redis": RedisWorker,
    "redis-ahead": RedisAheadWorker,
    "postgres": PostgresWorker,
    "kafka": KafkaWorker,
}


class Contestants:
    """What a worker process holds: a connection to each contestant."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._workers = {name: WORKERS[name](port) for name, port in ports.items()}

    def create(self, name: str, job: str, partitions: int) -> None:
        """Make input and output."""
        self._workers[name].create(job, partitions)

    def fill(self, name: str, job: str, partition: int, batches: int, count: int) -> None:
        """Write the input."""
        self._workers[name].fill(job, partition, batches, make_items(count))

    def work(self, name: str, job: str, partition: int, batches: int, count: int) -> Worked:
        """Handle it."""
        return self._workers[name].work(job, partition, batches, count)

    def finish(self, name: str, job: str, partition: int, batches: int, count: int) -> None:
        """See that the output is what it must be, and drop it all."""
        worker = self._workers[name]
        wanted = (batches * count, transform(make_items(count))[-1])
        found = worker.output(job, partition)
        if found != wanted:
            raise WrongAnswer(f"{name}: {found} is in the output, {wanted} should be")

    def drop(self, name: str, job: str, partition: int) -> None:
        """Drop input and output."""
        self._workers[name].drop(job, partition)

    def close(self) -> None:
        """Disconnect from all."""
        for worker in self._workers.values():
            worker.close()
