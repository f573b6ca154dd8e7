"""Two agents of one name: the newer one wins, and the older one does no harm."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tstreams import Client, Consumer, Fenced, TransactionState

from .collecting import client_process, line_of
from .conftest import Connect
from .forked import Forked


def seen(consumer: Consumer) -> list[bytes]:
    return [item for txn in consumer.read(max_wait=0) for item in txn.items]


def test_the_same_name_started_twice(ts: Client, connect: Connect, clicks: str) -> None:
    older, newer = ts.producer(clicks, "p1"), connect().producer(clicks, "p1")
    uses: list[Callable[[], object]] = [
        lambda: older.open(0),
        lambda: older.instant([b"zombie"], partition=0),
        older.checkpoint,
    ]
    for use in uses:
        with pytest.raises(Fenced, match="producer 'p1' of stream 'clicks'"):
            use()
    newer.instant([b"alive"], partition=0)
    assert seen(ts.consumer(clicks)) == [b"alive"]


def test_what_the_older_had_open_ends_with_its_name(
    ts: Client, connect: Connect, clicks: str
) -> None:
    older = ts.producer(clicks, "p1")
    txn = older.open(0)
    txn.send_many([b"x" * 100_000] * 10)
    newer = connect().producer(clicks, "p1")
    newer.instant([b"alive"], partition=0)
    assert seen(ts.consumer(clicks)) == [b"alive"], "nothing holds readers up"
    with pytest.raises(Fenced):
        txn.checkpoint()
    assert txn.state is TransactionState.CANCELLED


def test_with_requests_under_way_all_before_it_count_and_none_after(
    ts: Client, connect: Connect, clicks: str
) -> None:
    older, other = ts.producer(clicks, "p1"), connect()
    futures = [older.instant([b"%d" % n], partition=0, wait=False) for n in range(2000)]
    newer = other.producer(clicks, "p1")
    boundary = newer.instant([b"newer"], partition=0)
    kept, refused = [], 0
    for future in futures:
        error = future.exception(60)
        if error is None:
            assert refused == 0, "what was refused stays refused"
            kept.append(future.result())
        else:
            assert isinstance(error, Fenced)
            refused += 1
    assert all(txn_id < boundary for txn_id in kept)
    found = [txn.id for txn in ts.consumer(clicks).read(max_wait=0)]
    assert found == [*kept, boundary]


def test_a_group_checkpoint_under_way_counts_whole_or_not_at_all(
    ts: Client, connect: Connect, clicks: str
) -> None:
    ts.create_stream("out")
    ts.producer(clicks).instant([b"in"], partition=0)
    for _ in range(20):
        reader, writer = ts.consumer(clicks, "job", resume=False), ts.producer("out", "job")
        group = ts.checkpoint_group()
        group.add(reader)
        group.add(writer)
        assert reader.get(0, timeout=10) is not None
        txn = writer.open(0)
        txn.send(b"out")
        with ThreadPoolExecutor(1) as pool:
            checkpoint = pool.submit(group.checkpoint)
            newer = connect().consumer(clicks, "job")
            error = checkpoint.exception(60)
        moved = newer.position(0) is not None
        written = any(it.id == txn.id for it in ts.consumer("out").read(max_wait=0))
        assert (error is None) == written
        assert not written or moved
        newer.close()
        if written:
            return
        writer.close()


_ZOMBIE = """
import sys, tstreams
with tstreams.connect(sys.argv[1]) as ts:
    producer = ts.producer("clicks", "p1")
    consumer = ts.consumer("clicks", "c1", partitions=[1])
    assert consumer.get(1, timeout=30) is not None
    txn = producer.open(0)
    txn.send(b"zombie")
    group = ts.checkpoint_group()
    group.add(producer)
    group.add(consumer)
    print("ready", flush=True)
    sys.stdin.readline()
    tries = [txn.checkpoint, group.checkpoint, consumer.checkpoint,
             lambda: producer.instant([b"zombie"], partition=0), lambda: producer.open(0)]
    for attempt in tries:
        try:
            attempt()
            print("took effect", flush=True)
        except tstreams.Error as error:
            print(type(error).__name__, flush=True)
"""


@pytest.mark.over_tcp
def test_a_process_that_slept_wakes_up_as_a_zombie(ts: Client, clicks: str) -> None:
    first = ts.producer(clicks, "p0").instant([b"in"], partition=1)
    with client_process(_ZOMBIE, ts.config.url) as zombie:
        assert line_of(zombie) == "ready"
        zombie.send_signal(signal.SIGSTOP)
        write_line(zombie)  # it will find this when it wakes up
        newer = ts.producer(clicks, "p1")
        reader = ts.consumer(clicks, "c1")
        newer.instant([b"alive"], partition=0)
        zombie.send_signal(signal.SIGCONT)
        assert [line_of(zombie) for _ in range(5)] == ["Fenced"] * 5
        zombie.wait(30)
    assert seen(ts.consumer(clicks, partitions=[0])) == [b"alive"]
    assert reader.position(1) is None
    read = reader.get(1, timeout=10)
    assert read is not None
    assert read.id == first
    reader.checkpoint()


def write_line(process: Forked) -> None:
    process.stdin.write("\n")
    process.stdin.flush()
