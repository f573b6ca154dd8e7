"""Feeders, each in a process of its own: they write the inputs, and find out by themselves what became of it.

A feeder gives the server little time, so that it often does not know. It then takes its name anew, which
ends whatever it has under way, and looks at the last item of each partition: the next one follows it.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from threading import Event

import tstreams
from tests.crash.chain.items import FEEDS, PARTITIONS, Fed, decode, encode

TIMEOUT_S = 1.0
ITEMS_MAX = 6
PAUSE_S_MAX = 0.01


@dataclass(slots=True)
class FeederAccount:
    """What a feeder has to say."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    """For each partition, how many items it knows to be there."""
    unknown: int = 0
    """How often it did not know what had become of a write."""


def feed(url: str, stream: str, seed: int, stop: Event) -> FeederAccount:
    """The body of a feeder's process."""
    account = FeederAccount()
    rng = random.Random(f"{seed} {stream}")
    while not stop.is_set():
        try:
            with tstreams.connect(url, timeout=TIMEOUT_S) as ts:
                _feed(ts, stream, rng, account, stop)
        except tstreams.Unavailable:
            time.sleep(0.05)
    return account


def _feed(
    ts: tstreams.Client, stream: str, rng: random.Random, account: FeederAccount, stop: Event
) -> None:
    producer = ts.producer(stream, name="feeder")
    numbers = _find_out(ts, stream)
    while not stop.is_set():
        partition = rng.randrange(PARTITIONS)
        count = rng.randint(1, ITEMS_MAX)
        first = numbers[partition]
        made = [FEEDS[stream](partition, first + index) for index in range(count)]
        try:
            if rng.random() < 0.5:
                producer.instant(map(encode, made), partition)
            else:
                with producer.transaction(partition) as transaction:
                    transaction.send_many(map(encode, made))
        except tstreams.Unavailable:
            account.unknown += 1
            raise
        numbers[partition] = account.acknowledged[partition] = first + count
        time.sleep(rng.uniform(0, PAUSE_S_MAX))


def _find_out(ts: tstreams.Client, stream: str) -> list[int]:
    """The number of the next item of each partition. Nobody else writes: the name is ours."""
    numbers = [0] * PARTITIONS
    with ts.consumer(stream) as consumer:
        for partition in range(PARTITIONS):
            if (found := consumer.last(partition)) is not None:
                numbers[partition] = decode(found.items[-1], Fed).number + 1
    return numbers
