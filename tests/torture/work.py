"""What clients do while everything fails. Each kind of work goes on until it is told to end, or an error ends it.

writers -> a -> processor -> b -> subscriber -> c
           a -> loop -> d            churner -> churn, which the keeper reads and purges
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import tstreams
from tests.checker.recording import RecordedProducer, RecordedSubscriber, Recorder
from tests.crash.chain.items import ORDERS
from tstreams.client.config import Read

STREAMS = {"a": 3, "b": 2, "c": 2, "d": 4, "churn": 1}
"""Streams that are recorded or counted, and their partitions."""
RECORDED = ("a", "b", "c", "churn")
PASSING = "passing"
"""A stream whose data dies all the time, and whose writers do not care."""
LEASE_S = 1.0
PAUSE_S_MAX = 0.03
LONG_S_MAX = 1.5
"""How long a transaction stays open while its client does something else: longer than its lease at times."""
LARGE_BYTES = 40_000
PURGE_S = 2.0


def make_streams(ts: tstreams.Client) -> None:
    """All of them, when nobody works yet."""
    for stream, partitions in STREAMS.items():
        ts.create_stream(stream, partitions=partitions, ttl="1d")
    ts.create_stream(PASSING, partitions=1, ttl="2s")


@dataclass(slots=True)
class Life:
    """One life of a client: what its work needs."""

    name: str
    rng: random.Random
    recorder: Recorder
    stop: Path
    """A file: when it is there, the work ends."""
    sign: Path
    """A file that is touched whenever something was done."""
    _prefix: str = field(default_factory=lambda: uuid4().hex[:12])
    _count: int = 0

    def ends(self) -> bool:
        """Whether it should end."""
        return self.stop.exists()

    def works(self) -> None:
        """Something was done."""
        self.sign.touch()

    def rest(self, seconds: float = PAUSE_S_MAX) -> None:
        """Do nothing for a while, up to so long."""
        time.sleep(self.rng.uniform(0, seconds))

    def items(self, size: int = 100) -> list[bytes]:
        """Items that nobody else writes, of this size at most."""
        self._count += 1
        head = f"{self.name}/{self._prefix}/{self._count}/".encode()
        count = self.rng.randint(1, 4)
        return [head + b"%d/" % at + os.urandom(self.rng.randrange(size)) for at in range(count)]

    def words(self) -> list[bytes]:
        """The same, as text."""
        self._count += 1
        count = self.rng.randint(1, 4)
        return [f"{self.name}-{self._prefix}-{self._count}-{at}".encode() for at in range(count)]


# Writers.


def write(ts: tstreams.Client, life: Life) -> None:
    """Instants, windows of them, and transactions of all kinds."""
    producer = life.recorder.producer(ts, "a", life.name, transaction_ttl=LEASE_S)
    ways = [_instant, _instant, _instant, _large, _window, _several, _cancelled, _long]
    while not life.ends():
        life.rng.choice(ways)(producer, life)
        life.works()
        life.rest()


def _partition(life: Life) -> int:
    return life.rng.randrange(STREAMS["a"])


def _instant(producer: RecordedProducer, life: Life) -> None:
    producer.instant(life.items(), _partition(life))


def _large(producer: RecordedProducer, life: Life) -> None:
    producer.instant(life.items(LARGE_BYTES), _partition(life))


def _window(producer: RecordedProducer, life: Life) -> None:
    producer.window([life.items() for _ in range(life.rng.randint(2, 16))], _partition(life))


def _several(producer: RecordedProducer, life: Life) -> None:
    """One in each partition, checkpointed at once."""
    for partition in range(STREAMS["a"]):
        transaction = producer.open(partition)
        transaction.send_many(life.items())
        transaction.send_many(life.items())
    producer.checkpoint()


def _cancelled(producer: RecordedProducer, life: Life) -> None:
    transaction = producer.open(_partition(life))
    transaction.send_many(life.items())
    transaction.cancel()


def _long(producer: RecordedProducer, life: Life) -> None:
    """Others write meanwhile, and readers wait."""
    transaction = producer.open(_partition(life))
    transaction.send_many(life.items())
    if life.rng.random() < 0.2:
        life.rest(LONG_S_MAX)
    transaction.send_many(life.items())
    transaction.checkpoint()


def churn(ts: tstreams.Client, life: Life) -> None:
    """What is removed soon: ledgers are deleted and compacted beside what is kept."""
    producer = life.recorder.producer(ts, "churn", life.name, transaction_ttl=LEASE_S)
    passing = ts.producer(PASSING, name=life.name)
    while not life.ends():
        producer.instant(life.items(2000), 0)
        passing.instant([os.urandom(4000)], reliable=False)
        life.works()
        life.rest()


def vanish(ts: tstreams.Client, life: Life) -> None:
    """Opens transactions under a name that nobody will take again, and dies."""
    producer = life.recorder.producer(ts, "b", life.name, transaction_ttl=LEASE_S)
    for partition in range(STREAMS["b"]):
        producer.open(partition).send_many(life.items())
    os.kill(os.getpid(), signal.SIGKILL)


def feed(ts: tstreams.Client, life: Life) -> None:
    """Text, for a query on Spark."""
    producer = life.recorder.producer(ts, ORDERS, life.name, transaction_ttl=LEASE_S)
    while not life.ends():
        partition = life.rng.randrange(2)
        if life.rng.random() < 0.7:
            producer.instant(life.words(), partition)
        else:
            transaction = producer.open(partition)
            transaction.send_many(life.words())
            transaction.send_many(life.words())
            transaction.checkpoint()
        life.works()
        life.rest()


# Readers.


def read(ts: tstreams.Client, life: Life, which: Read = "leader") -> None:
    """Reads, looks up, saves; now and then it resumes."""
    while not life.ends():
        consumer = life.recorder.consumer(ts, "a", life.name, read=which)
        for _ in range(life.rng.randint(50, 500)):
            partition = life.rng.choice(consumer.partitions)
            found = consumer.get(partition, 0.1)
            if found is not None and life.rng.random() < 0.1:
                consumer.by_id(partition, found.id)
            if life.rng.random() < 0.05:
                consumer.checkpoint()
            life.works()
            if life.ends():
                break


def read_anywhere(ts: tstreams.Client, life: Life) -> None:
    """The same, from nodes that follow."""
    read(ts, life, "any")


def keep(ts: tstreams.Client, life: Life) -> None:
    """Reads what is written to be removed, and removes it."""
    consumer = life.recorder.consumer(ts, "churn", life.name)
    purge_at = time.monotonic() + PURGE_S
    while not life.ends():
        found = consumer.get(0, 0.2)
        if found is not None and time.monotonic() > purge_at:
            consumer.checkpoint()
            life.recorder.purge(ts, "churn", found.id)
            purge_at = time.monotonic() + PURGE_S
        life.works()


# Those who read and write.


def process(ts: tstreams.Client, life: Life) -> None:
    """From one stream into another, in a group, with cancels."""
    source = life.recorder.consumer(ts, "a", life.name)
    target = life.recorder.producer(ts, "b", life.name, transaction_ttl=LEASE_S)
    group = life.recorder.group(ts, source, target)
    while not life.ends():
        for partition in source.partitions:
            for _ in range(life.rng.randint(1, 8)):
                if source.get(partition, 0.02) is None:
                    break
            target.open(partition % STREAMS["b"]).send_many(life.items())
        group.cancel() if life.rng.random() < 0.1 else group.checkpoint()
        life.works()


def subscribe(ts: tstreams.Client, life: Life) -> None:
    """What comes is passed on, in a group that is checkpointed in the callback."""
    failures: list[BaseException] = []
    ended = threading.Event()

    def handle(subscriber: RecordedSubscriber, transaction: Any) -> None:
        target.open(transaction.partition).send_many(life.items())
        group.checkpoint()
        life.works()

    def failed(error: BaseException) -> None:
        failures.append(error)
        ended.set()

    subscriber = life.recorder.subscriber(ts, "b", life.name, handle, on_failure=failed)
    target = life.recorder.producer(ts, "c", life.name, transaction_ttl=LEASE_S)
    group = life.recorder.group(ts, subscriber, target)
    subscriber.start()
    while not life.ends() and not ended.wait(0.1):
        if subscriber.reader.wait(0.0):
            break
    if failures:
        raise failures[0]
    subscriber.stop()


LOOP = "loop"


def loop(ts: tstreams.Client, life: Life, max_wait_s: float = 0.5) -> None:
    """`ts.process`: not recorded, but what is in its sink in the end must be what is in its source."""
    stop = threading.Event()

    def pass_on(transaction: tstreams.ReadTransaction) -> Iterator[bytes]:
        life.works()
        if life.ends():
            stop.set()
        yield from passed_on(transaction)

    while not life.ends():
        batch = life.rng.choice((1, 10, 100))
        ts.process(
            "a", LOOP, "d", pass_on, max_wait=max_wait_s, stop=stop, batch=batch,
            commit_every=0.1, transaction_ttl=LEASE_S,
        )  # fmt: skip


def passed_on(transaction: tstreams.ReadTransaction) -> Iterator[bytes]:
    """What the loop makes of a transaction: it says where each item was."""
    for at, item in enumerate(transaction.items):
        yield b"%d/%d/%d/" % (transaction.partition, transaction.id, at) + item[:60]


WORK: dict[str, Callable[[tstreams.Client, Life], None]] = {
    "writer": write,
    "churner": churn,
    "reader": read,
    "any-reader": read_anywhere,
    "keeper": keep,
    "processor": process,
    "subscriber": subscribe,
    LOOP: loop,
    "feeder": feed,
    "orphan": vanish,
}
PRODUCERS = {
    "writer": "a",
    "churner": "churn",
    "processor": "b",
    "subscriber": "c",
    "feeder": ORDERS,
    "orphan": "b",
}
"""In which stream each kind of client has a producer of its name that is recorded."""
