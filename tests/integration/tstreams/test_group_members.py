"""Who is in a checkpoint group, and who shares it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tstreams import (
    BadRequest,
    Client,
    InvalidState,
    NotFound,
)

from .conftest import Connect
from .test_group import group_of, out, visible

__all__ = ["out"]


def test_members(ts: Client, connect: Connect, clicks: str) -> None:
    group, other = ts.checkpoint_group(), ts.checkpoint_group()
    producer, consumer = ts.producer(clicks, "p1"), ts.consumer(clicks, "c1")
    group.add(producer)
    assert (group.exists(producer), group.exists(consumer), len(group)) == (True, False, 1)
    assert producer in group
    for taken in (group, other):
        with pytest.raises(InvalidState, match="producer 'p1' of stream 'clicks' is in"):
            taken.add(producer)
    group.remove(producer)
    with pytest.raises(NotFound, match="'p1'"):
        group.remove(producer)
    other.add(producer)
    other.add(consumer)
    other.clear()
    assert (len(other), other.exists(producer)) == (0, False)
    group.add(producer)
    stranger = connect().producer(clicks, "p2")
    with pytest.raises(BadRequest, match=r"'p2'.* another client"):
        group.add(stranger)
    for nonsense in (None, "p1", ts):
        with pytest.raises(BadRequest):
            group.add(nonsense)  # type: ignore[arg-type]
    assert repr(group) == "<checkpoint group of 1 agents>"


def test_a_group_that_nobody_has_any_more_holds_nobody(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    for _ in range(3):
        group = ts.checkpoint_group()
        group.add(producer)
        del group


def test_a_closed_member(ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks, "p1"), ts.consumer(clicks, "c1")
    group = group_of(ts, producer, consumer)
    consumer.close()
    for use in (group.checkpoint, group.cancel):
        with pytest.raises(InvalidState, match="reader 'c1' of stream 'clicks' is closed"):
            use()
    with pytest.raises(InvalidState), group:
        pass
    with pytest.raises(InvalidState):
        ts.checkpoint_group().add(consumer)
    group.remove(consumer)
    group.checkpoint()


def test_members_may_be_checkpointed_on_their_own(ts: Client, clicks: str, out: str) -> None:
    producer, consumer = ts.producer(out, "p1"), ts.consumer(clicks, "c1")
    group = group_of(ts, producer, consumer)
    with producer.transaction(0) as txn:
        txn.send(b"alone")
    consumer.checkpoint()
    group.checkpoint()
    assert visible(ts, out) == [b"alone"]


def test_threads_share_a_group(ts: Client, clicks: str, out: str) -> None:
    """Checkpoints at once come one after the other; none is torn."""
    source = ts.producer(clicks)
    for number in range(200):
        source.instant([b"%d" % number], partition=0)
    consumer, producer = ts.consumer(clicks, "c1"), ts.producer(out, "p1")
    group = group_of(ts, consumer, producer)
    failures: list[BaseException] = []
    stop = threading.Event()

    def checkpoint(use: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                use()
        except BaseException as error:
            failures.append(error)

    uses = [group.checkpoint, group.checkpoint, consumer.checkpoint, producer.checkpoint]
    threads = [threading.Thread(target=checkpoint, args=(use,)) for use in uses]
    for thread in threads:
        thread.start()
    for txn in consumer.read(max_wait=0.2):
        while True:
            result = producer.open(0)
            try:
                result.send_many(list(txn.items))
                break
            except InvalidState:
                continue  # a checkpoint took it before anything was in it
    stop.set()
    for thread in threads:
        thread.join()
    assert [type(error) for error in failures] == []
    group.checkpoint()
    assert len(visible(ts, out)) == 200
