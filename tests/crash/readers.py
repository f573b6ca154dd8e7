"""Readers, each in a process of its own: they see everything once, in order, whatever happens to the server."""

from __future__ import annotations

import random
from threading import Event

import tstreams
from tests.crash.account import ReaderAccount, Seen
from tests.crash.items import read_items
from tests.crash.writers import STREAM
from tstreams import Offset


def seen(transaction: tstreams.ReadTransaction) -> Seen:
    """What of a transaction counts."""
    batch = read_items(transaction.items)
    return Seen(transaction.partition, transaction.id, batch)


def read(url: str, reader: int, seed: int, stop: Event) -> ReaderAccount:
    """The body of a reader's process: read, checkpoint now and then, and go on under the same name."""
    rng = random.Random(seed * 1000 + 500 + reader)
    account = ReaderAccount(f"reader-{reader}")
    with tstreams.connect(url) as ts:
        try:
            while not stop.is_set():
                with ts.consumer(STREAM, name=account.name) as consumer:
                    for transaction in consumer.read(max_wait=0.5):
                        account.seen.append(seen(transaction))
                        if rng.random() < 0.002 or stop.is_set():
                            break
                    consumer.checkpoint()
        except tstreams.Error as error:
            account.errors.append(f"{account.name}: {type(error).__name__}: {error}")
            stop.set()
    return account


def drain(url: str) -> list[Seen]:
    """Everything that is there, seen by someone who has seen nothing before."""
    with tstreams.connect(url) as ts, ts.consumer(STREAM, start=Offset.oldest()) as consumer:
        return [seen(transaction) for transaction in consumer.read(max_wait=3.0)]
