"""The second processor: a group of two consumers and two producers, that joins two streams by their key.

What waits for the other side is kept in memory, and every change of it in a stream of its own, which is
written in the same checkpoint as the results and the positions. A new process reads it to the end first.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, field

import tstreams
from tests.crash.chain.items import (
    BILLS,
    PAYMENTS,
    PRICED,
    WAITING,
    Bill,
    Change,
    Fed,
    bill,
    bill_partition,
    decode,
    encode,
)
from tests.crash.chain.life import Life

NAME = "join"
BATCH = 30
POLL_S = 0.02


@dataclass(slots=True)
class Memory:
    """Who waits for whom."""

    waiting: dict[tuple[str, int], Fed] = field(default_factory=dict)

    @classmethod
    def read(cls, ts: tstreams.Client) -> Memory:
        """As the stream has it. Nobody else writes there any more: the producer's name is ours."""
        memory = cls()
        with ts.consumer(WAITING) as consumer:
            for transaction in consumer.read(max_wait=0):
                for item in transaction.items:
                    memory.apply(decode(item, Change))
        return memory

    def apply(self, change: Change) -> None:
        """Take a change in."""
        if change.waits:
            self.waiting[change.side, change.fed.key] = change.fed
        else:
            del self.waiting[change.side, change.fed.key]

    def meet(self, side: str, fed: Fed) -> tuple[Change, Bill | None]:
        """One has come: it waits, or meets the other one, and a bill is made."""
        other_side = PAYMENTS if side == PRICED else PRICED
        other = self.waiting.get((other_side, fed.key))
        if other is None:
            change, made = Change(True, side, fed), None
        else:
            change = Change(False, other_side, other)
            made = bill(fed, other, side) if side == PRICED else bill(other, fed, side)
        self.apply(change)
        return change, made


class Results:
    """What one checkpoint will make visible: a transaction in each partition that gets something."""

    def __init__(self, producer: tstreams.Producer) -> None:
        self._producer = producer
        self._open: dict[int, tstreams.Transaction] = {}

    def add(self, partition: int, item: bytes) -> None:
        """One more."""
        if partition not in self._open:
            self._open[partition] = self._producer.open(partition)
        self._open[partition].send(item)


def run(ts: tstreams.Client, life: Life) -> None:
    """Join until there is no more, or for ever. Some lives begin anew after a failure, some go on."""
    sides = [ts.consumer(stream, NAME) for stream in (PRICED, PAYMENTS)]
    bills, waiting = (ts.producer(stream, NAME) for stream in (BILLS, WAITING))
    group = ts.checkpoint_group()
    agents: list[tstreams.Consumer | tstreams.Producer] = [*sides, bills, waiting]
    for agent in agents:
        group.add(agent)
    goes_on = life.rng.random() < 0.5
    memory = Memory.read(ts)
    last_at = time.monotonic()
    while life.max_wait_s is None or time.monotonic() - last_at < life.max_wait_s:
        try:
            with group:
                if _join(sides, memory, Results(bills), Results(waiting)):
                    life.works()
                    last_at = time.monotonic()
        except tstreams.Unavailable:
            if not goes_on:
                raise
            memory = Memory.read(ts)  # what was done to the old one did not happen


def _join(sides: list[tstreams.Consumer], memory: Memory, made: Results, changes: Results) -> int:
    """One batch of each side; how many transactions there were."""
    count = 0
    for side in sides:
        for transaction in itertools.islice(side.read(max_wait=POLL_S), BATCH):
            count += 1
            for item in transaction.items:
                fed = decode(item, Fed)
                change, done = memory.meet(side.stream, fed)
                changes.add(bill_partition(fed.key), encode(change))
                if done is not None:
                    made.add(bill_partition(done.key), encode(done))
    return count
