"""Subscribers, groups and loops beside a server that stops, dies and comes back."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tstreams import Client, Corrupt, ReadTransaction, Subscriber, Timeout
from tstreams.server import Node

from .collecting import Collector
from .conftest import eventually
from .faces import Face
from .servers import ServerProcess
from .test_restarts import ENDS, End, Restarts, restart, ts

__all__ = ["ts"]


@ENDS
def test_a_subscriber_outlives_restarts(server: ServerProcess, ts: Client, end: End) -> None:
    got, producer = Collector(), ts.producer("clicks")
    ids: list[int] = []
    with ts.subscriber("clicks", "s1", engines=2, **got.callbacks) as subscriber:
        with Restarts(server, end, 4) as restarts:
            while not restarts.done.is_set():
                ids.append(producer.instant([b"x"], partition=len(ids) % 4))
        got.wait_for(len(ids))
        eventually(lambda: subscriber.statistics().returned == len(ids))
        subscriber.checkpoint()
    for partition in range(4):
        assert got.of(partition) == ids[partition::4]
    again = Collector()
    with ts.subscriber("clicks", "s1", **again.callbacks):
        last = producer.instant([b"last"], partition=0)
        again.wait_for(1)
    assert again.ids == [last]


def test_a_subscriber_that_catches_up_outlives_a_restart(server: ServerProcess, ts: Client) -> None:
    """The connection breaks with the window full of history."""
    producer, got = ts.producer("clicks"), Collector()
    ids = [producer.instant([b"x" * 50_000], partition=n % 4) for n in range(400)]  # 20 MB

    def handle(subscriber: Subscriber, txn: ReadTransaction) -> None:
        got.on_transaction(subscriber, txn)
        time.sleep(0.002)

    with ts.subscriber("clicks", on_transaction=handle, on_failure=got.on_failure, engines=2):
        for _ in range(3):
            count = len(got.found)
            eventually(lambda count=count: len(got.found) > min(count + 20, 390))
            restart(server, ServerProcess.kill)
        got.wait_for(400)
    for partition in range(4):
        assert got.of(partition) == ids[partition::4]


def test_a_subscriber_started_while_the_server_is_away(server: ServerProcess, ts: Client) -> None:
    got = Collector()
    txn_id = ts.producer("clicks").instant([b"x"], partition=0)
    subscriber = ts.subscriber("clicks", **got.callbacks)
    server.stop()
    subscriber.start()
    server.start()
    got.wait_for(1)
    assert got.ids == [txn_id]
    server.stop()
    subscriber.stop()
    server.start()


@ENDS
def test_a_loop_outlives_restarts(server: ServerProcess, ts: Client, end: End) -> None:
    ts.create_stream("out", partitions=4)
    stop, count, results = threading.Event(), 0, []

    def loop() -> None:
        results.append(
            ts.process("clicks", "job", "out", lambda txn: txn.items, stop=stop, batch=10)
        )

    thread = threading.Thread(target=loop)
    thread.start()
    producer = ts.producer("clicks")
    with Restarts(server, end, 4) as restarts:
        while not restarts.done.is_set():
            producer.instant([b"%d" % count], partition=count % 4)
            count += 1
    found: list[int] = []
    for txn in ts.consumer("out").read(max_wait=30):
        found += map(int, txn.items)
        if len(found) == count:
            break
    stop.set()
    thread.join(60)
    assert results[0].transactions == count
    assert sorted(found) == list(range(count))


@ENDS
def test_a_group_outlives_restarts(server: ServerProcess, ts: Client, end: End) -> None:
    ts.create_stream("out")
    source, consumer = ts.producer("clicks"), ts.consumer("clicks", "job", partitions=[0])
    producer, group, count = ts.producer("out", "job"), ts.checkpoint_group(), 0
    group.add(consumer)
    group.add(producer)
    with Restarts(server, end, 4) as restarts:
        while not restarts.done.is_set():
            source.instant([b"%d" % count], partition=0)
            with group:
                read = consumer.get(0, timeout=30)
                assert read is not None
                producer.open(0).send_many(list(read.items))
            count += 1
    items = [int(item) for txn in ts.consumer("out").read(max_wait=0) for item in txn.items]
    assert items == list(range(count))


@pytest.mark.core
def test_in_doubt_new_agents_know_what_has_become_of_it(
    server: ServerProcess, face: Face, ts: Client
) -> None:
    """A checkpoint whose answer never came: whatever it was, results and position agree."""
    ts.create_stream("out")
    ts.producer("clicks").instant([b"x"], partition=0)
    with face.connect(server.address, timeout=1.0) as impatient:
        consumer, producer = impatient.consumer("clicks", "job"), impatient.producer("out", "job")
        group = impatient.checkpoint_group()
        group.add(consumer)
        group.add(producer)
        assert consumer.get(0, timeout=10) is not None
        producer.open(0).send(b"result")
        server.pause()
        with pytest.raises(Timeout):
            group.checkpoint()
        server.go_on()
        moved = ts.consumer("clicks", "job").position(0) is not None
        ts.producer("out", "job")
        written = ts.consumer("out").get(0) is not None
        assert moved == written


def test_a_damaged_transaction_is_reported_and_not_passed_over(face: Face, tmp_path: Path) -> None:
    data, good = tmp_path / "data", b"g" * 1000
    with (
        Node(data, listen=["tcp://127.0.0.1:0"]).in_thread() as node,
        face.connect(node.addresses[0]) as ts,
    ):
        ts.create_stream("clicks")
        producer = ts.producer("clicks")
        ids = [producer.instant([item]) for item in (good, b"damage me" * 100, good)]
    damaged = 0
    for ledger in data.rglob("*.ledger"):
        content = ledger.read_bytes()
        if b"damage me" in content:
            ledger.write_bytes(content.replace(b"damage me", b"DAMAGE me"))
            damaged += 1
    assert damaged == 1
    got = Collector()
    with (
        Node(data, listen=["tcp://127.0.0.1:0"]).in_thread() as node,
        face.connect(node.addresses[0]) as ts,
    ):
        subscriber = ts.subscriber("clicks", "s1", **got.callbacks).start()
        assert subscriber.wait(30)
        subscriber.checkpoint()
        assert got.ids == ids[:1]
        assert ts.consumer("clicks", "s1").position(0) == ids[0]
    assert [type(error) for error in got.failures] == [Corrupt]
