"""Readers of many partitions: what nothing has happened in is not looked at again, and nothing is overlooked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import tstreams
from tstreams import Offset, limits
from tstreams.client.blocking.client import Client
from tstreams.client.blocking.consumer import Consumer
from tstreams.index.store import Store

PARTITIONS = 200
MORE = 20


def read_exactly(consumer: Consumer, count: int) -> list[tuple[int, bytes]]:
    found = []
    for transaction in consumer.read(max_wait=20.0):
        found += [(transaction.partition, item) for item in transaction.items]
        if len(found) == count:
            break
    return found


class Iterators:
    """Counts how often the index was searched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = Store.iterator

        def counted(store: Store) -> Any:
            self.count += 1
            return real(store)

        monkeypatch.setattr(Store, "iterator", counted)


def caught_up_reader(client: Client) -> Consumer:
    """A reader that has read something in each of many partitions."""
    client.create_stream("wide", partitions=PARTITIONS, ttl="1d")
    producer = client.producer("wide", name="p")
    for partition in range(PARTITIONS):
        producer.instant([b"first"], partition=partition, wait=False)
    consumer = client.consumer("wide", name="c", start=Offset.oldest())
    assert len(read_exactly(consumer, PARTITIONS)) == PARTITIONS
    return consumer


def test_only_what_was_stirred_up_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tstreams.embedded(tmp_path) as client:
        consumer = caught_up_reader(client)
        producer = client.producer("wide", name="q")
        searched = Iterators(monkeypatch)
        for number in range(MORE):
            item = f"{number}".encode()
            producer.instant([item], partition=number)
            assert read_exactly(consumer, 1) == [(number, item)]
        # Each of them needs a few searches; looking at every partition each time would be thousands.
        assert 0 < searched.count < PARTITIONS


def test_what_was_held_back_is_found_when_it_is_free(tmp_path: Path) -> None:
    with tstreams.embedded(tmp_path) as client:
        consumer = caught_up_reader(client)
        producer = client.producer("wide", name="q")
        first = producer.open(7)
        producer.instant([b"behind it"], partition=7)
        assert consumer.get(partition=7, timeout=0.0) is None
        assert consumer.get(partition=7, timeout=0.0) is None
        first.send(b"before it")
        first.checkpoint()
        assert read_exactly(consumer, 2) == [(7, b"before it"), (7, b"behind it")]


def test_readers_at_other_places_see_what_is_there(tmp_path: Path) -> None:
    with tstreams.embedded(tmp_path) as client:
        caught_up_reader(client)
        late = client.consumer("wide", name="late", start=Offset.oldest())
        assert len(read_exactly(late, PARTITIONS)) == PARTITIONS
        late.seek(3, Offset.oldest())
        again = late.get(partition=3, timeout=20.0)
        assert again is not None
        assert list(again.items) == [b"first"]
        assert late.get(partition=3, timeout=0.0) is None
        assert late.by_id(3, again.id) is not None
        assert len(list(late.between(3, again.id - 1, again.id + 1))) == 1


def test_forgetting_it_all_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tstreams.server.caught_up.CAUGHT_UP_MAX", 3)
    assert limits.CAUGHT_UP_MAX >= limits.PARTITIONS_MAX
    pick = random.Random(1)
    with tstreams.embedded(tmp_path) as client:
        consumer = caught_up_reader(client)
        producer = client.producer("wide", name="q")
        for number in range(MORE):
            partition, item = pick.randrange(PARTITIONS), f"{number}".encode()
            producer.instant([item], partition=partition)
            assert read_exactly(consumer, 1) == [(partition, item)]
