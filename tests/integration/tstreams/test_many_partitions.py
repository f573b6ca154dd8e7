"""Readers of many partitions: what nothing has happened in is not looked at again, and nothing is overlooked."""

from __future__ import annotations

import random
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tstreams
from tstreams import Offset, limits
from tstreams.client.blocking.client import Client
from tstreams.client.blocking.consumer import Consumer
from tstreams.core.transitions import WHOLE_STREAM
from tstreams.index.store import Store
from tstreams.protocol import Fetch, Want
from tstreams.server.reads import Reads
from tstreams.server.waiters import NARROW_MAX, Waiter, Waiters

PARTITIONS = 200
READERS = 12
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


@pytest.mark.parametrize("width", [1, NARROW_MAX + 1])
def test_a_commit_looks_only_at_readers_of_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    looked: list[frozenset[int]] = []
    real = Reads._look_again

    def counted(reads: Reads, now_ms: int, waiter: Waiter, partitions: Collection[int]) -> None:
        looked.append(waiter.partitions)
        real(reads, now_ms, waiter, partitions)

    monkeypatch.setattr(Reads, "_look_again", counted)
    with tstreams.embedded(tmp_path) as client, ThreadPoolExecutor(READERS) as threads:
        client.create_stream("wide", partitions=READERS * width, ttl="1d")
        waiting = []
        for number in range(READERS):
            own = set(range(number * width, (number + 1) * width))
            consumer = client.consumer("wide", name=f"c{number}", partitions=own)
            waiting.append(threads.submit(read_exactly, consumer, 1))
        producer = client.producer("wide", name="p")
        for number, reader in enumerate(waiting):
            partition = number * width
            producer.instant([b"x"], partition=partition)
            assert reader.result(timeout=30.0) == [(partition, b"x")]
    # At most once each, and if one came too late to wait, not at all; and never for what another waits for.
    assert len(looked) <= READERS
    assert len(set(looked)) == len(looked)


def test_waiters_are_found_by_what_they_wait_for() -> None:
    waiters = Waiters()
    for number, (stream, partitions) in enumerate(
        [(1, range(2)), (1, range(1, 3)), (1, range(100)), (2, range(100)), (2, range(1))]
    ):
        wants = [Want(partition, 0) for partition in partitions]
        fetch = Fetch(stream, wants, 1)
        waiters.add(Waiter(number, None, fetch, None, None))  # type: ignore[arg-type]

    def concerned(*stirred: tuple[int, int]) -> list[int]:
        return [waiter.number for waiter, _ in waiters.concerned(stirred)]

    assert concerned((1, 0)) == [0, 2]
    assert concerned((1, 1)) == [0, 1, 2]
    assert concerned((1, 99), (2, 99)) == [2, 3]
    assert concerned((1, 100), (3, 0)) == []
    assert concerned((2, WHOLE_STREAM)) == [3, 4]
    for waiter in waiters.all()[1:4]:
        waiters.remove(waiter)
    assert concerned((1, 1), (2, 0)) == [0, 4]
    assert waiters.get(1) is None
    for waiter in waiters.all():
        waiters.remove(waiter)
    assert (len(waiters), waiters._narrow, waiters._wide) == (0, {}, {})


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
