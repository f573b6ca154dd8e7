"""Writers, each in a process of its own. They ride through every restart, and keep account."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Event

import tstreams
from tests.crash.account import Outcome, WriterAccount, Written
from tests.crash.items import Batch, make_items

STREAM = "kept"
PASSING = "passing"
"""A stream whose data dies all the time: ledgers are deleted and compacted beside what is kept."""
PARTITIONS = 3
WINDOW = 64
BATCH_ITEMS_MAX = 8


class Writer:
    """One writer's work and what it knows of it."""

    def __init__(self, ts: tstreams.Client, writer: int, seed: int) -> None:
        self.rng = random.Random(seed * 1000 + writer)
        self.writer = writer
        self.account = WriterAccount()
        self.producer = ts.producer(STREAM, name=f"writer-{writer}")
        self.passing = ts.producer(PASSING, name=f"writer-{writer}")

    def new(self, partition: int) -> tuple[Written, list[bytes]]:
        """A transaction that nobody knows anything of yet, and its items."""
        items = self.rng.randint(1, BATCH_ITEMS_MAX)
        batch = Batch(self.writer, len(self.account.written), items)
        written = Written(batch, partition, Outcome.UNKNOWN)
        self.account.written.append(written)
        return written, make_items(batch, self.rng)

    def instants(self, stop: Event) -> None:
        """Instant transactions, many under way at a time."""
        under_way: deque[tuple[Written, Future[int]]] = deque()
        while under_way or not stop.is_set():
            if not stop.is_set():
                written, items = self.new(self.rng.randrange(PARTITIONS))
                future = self.producer.instant(items, written.partition, wait=False)
                under_way.append((written, future))
                if self.rng.random() < 0.1:
                    self.passing.instant([bytes(2000)], reliable=False)
                    time.sleep(0.01)
            while under_way and (len(under_way) >= WINDOW or stop.is_set()):
                written, future = under_way.popleft()
                try:
                    written.transaction_id = future.result()
                    written.outcome = Outcome.ACKNOWLEDGED
                except tstreams.Unavailable:
                    continue

    def long_ones(self, stop: Event) -> None:
        """Long transactions, several open at a time, filled in chunks, closed in any order."""
        while not stop.is_set():
            open_ones = []
            for _ in range(self.rng.randint(1, 4)):
                partition = self.rng.randrange(PARTITIONS)
                written, items = self.new(partition)
                try:
                    open_ones.append((written, items, self.producer.open(partition)))
                except tstreams.Unavailable:
                    written.outcome = Outcome.DROPPED
            self.rng.shuffle(open_ones)
            for written, items, transaction in open_ones:
                try:
                    cut = self.rng.randint(0, len(items))
                    transaction.send_many(items[:cut])
                    time.sleep(self.rng.random() * 0.02)
                    transaction.send_many(items[cut:])
                    if self.rng.random() < 0.25:
                        written.outcome = Outcome.DROPPED  # whatever becomes of the cancel
                        transaction.cancel()
                    else:
                        transaction.checkpoint()
                        written.outcome = Outcome.ACKNOWLEDGED
                        written.transaction_id = transaction.id
                except tstreams.Unavailable:
                    continue

    def together(self, stop: Event) -> None:
        """A transaction in each partition, checkpointed at once: all or none."""
        number = 0
        while not stop.is_set():
            number += 1
            batches = [self.new(partition) for partition in range(PARTITIONS)]
            for written, _ in batches:
                written.together = number
            try:
                for written, items in batches:
                    self.producer.open(written.partition).send_many(items)
                if self.rng.random() < 0.2:
                    for written, _ in batches:
                        written.outcome = Outcome.DROPPED
                    self.producer.cancel()
                    continue
                self.producer.checkpoint()
            except tstreams.Unavailable:
                self.producer.cancel()  # what is still open must not get into the next set
                continue
            for written, _ in batches:
                written.outcome = Outcome.ACKNOWLEDGED


KINDS: list[Callable[[Writer, Event], None]] = [
    Writer.instants,
    Writer.long_ones,
    Writer.together,
]


def write(url: str, writer: int, seed: int, stop: Event) -> WriterAccount:
    """The body of a writer's process."""
    with tstreams.connect(url) as ts:
        it = Writer(ts, writer, seed)
        try:
            KINDS[writer % len(KINDS)](it, stop)
        except tstreams.Error as error:
            it.account.errors.append(f"writer {writer}: {type(error).__name__}: {error}")
            stop.set()
        return it.account
