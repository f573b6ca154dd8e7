"""What readers get, and in which order, whoever closes first, cancels, or dies."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tstreams import Client, Expired, Offset

from .collecting import Collector, client_process, line_of
from .conftest import Connect, eventually

Watch = Callable[..., AbstractContextManager[Collector]]


@pytest.fixture(params=["before", "after"])
def watch(request: pytest.FixtureRequest, ts: Client) -> Watch:
    """A subscriber that was started before a block, or is started after it."""

    @contextmanager
    def watching(stream: str, **options: Any) -> Iterator[Collector]:
        got = Collector()
        subscriber = ts.subscriber(
            stream, "watch", start=Offset.oldest(), **options, **got.callbacks
        )
        if request.param == "before":
            subscriber.start()
        yield got
        if request.param == "after":
            subscriber.start()

    return watching


def test_closed_in_another_order_than_opened(watch: Watch, ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    with watch(clicks) as got:
        one, two, three = [producer.open(0) for _ in range(3)]
        for txn in (one, two, three):
            txn.send(b"x")
        for txn in (three, one, two):
            txn.checkpoint()
    got.wait_for(3)
    assert got.ids == [one.id, two.id, three.id]


def test_the_first_that_was_opened_finishes_last(watch: Watch, ts: Client, clicks: str) -> None:
    first, second = ts.producer(clicks, "p1"), ts.producer(clicks, "p2")
    with watch(clicks) as got:
        early = first.open(0)
        late = [second.instant([b"late"], partition=0) for _ in range(10)]
        other = second.instant([b"other"], partition=1)
        if got.found:
            assert got.ids == [other]
        early.send(b"early")
        early.checkpoint()
    got.wait_for(12)
    assert got.of(0) == [early.id, *late]


def test_a_thousand_cancelled_and_a_thousand_checkpointed(
    watch: Watch, ts: Client, clicks: str
) -> None:
    producer = ts.producer(clicks)
    with watch(clicks) as got:
        for _ in range(10):
            for _ in range(100):
                producer.open(0).send(b"never")
            producer.cancel()
        kept = [producer.open(0) for _ in range(1000)]
        for txn in kept:
            txn.send(b"x")
        producer.checkpoint()
    got.wait_for(1000)
    assert got.ids == [txn.id for txn in kept]


def test_ten_thousand_of_which_some_are_cancelled(watch: Watch, ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    rng = random.Random(5)
    kept: list[int] = []
    with watch(clicks, engines=2) as got:
        for _ in range(100):
            window = [producer.open(n % 4) for n in range(100)]
            rng.shuffle(window)
            closing = []
            for txn in window:
                txn.send(b"x")
                if rng.random() < 0.05:
                    txn.cancel()
                else:
                    closing.append(txn.checkpoint(wait=False))
                    kept.append(txn.id)
            for future in closing:
                future.result()
    got.wait_for(len(kept))
    assert 9000 < len(kept) < 9800
    assert sorted(got.ids) == sorted(kept)
    for partition in range(4):
        assert got.of(partition) == sorted(got.of(partition))


def test_ten_producers_come_and_go(watch: Watch, ts: Client, connect: Connect, clicks: str) -> None:
    written: list[list[bytes]] = [[] for _ in range(10)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            client = connect()
            for life in range(5):
                with client.producer(clicks, f"p{number}") as producer:
                    for count in range(10):
                        item = b"%d %d %d" % (number, life, count)
                        with producer.transaction(number % 4) as txn:
                            txn.send(item)
                        written[number].append(item)
                    left_open = producer.open(number % 4)
                    left_open.send(b"left open")
        except BaseException as error:
            failures.append(error)

    with watch(clicks, engines=4) as got:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    got.wait_for(500)
    for number in range(10):
        mine = [item for item in got.items if item.startswith(b"%d " % number)]
        assert mine == written[number]


_VANISHES = """
import sys, tstreams
with tstreams.connect(sys.argv[1]) as ts:
    producer = ts.producer("clicks", "vanishes", transaction_ttl=0.5)
    txn = producer.open(0)
    txn.send(b"never seen")
    print(txn.id, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.over_tcp
def test_a_producer_is_killed_with_an_open_head(watch: Watch, ts: Client, clicks: str) -> None:
    with watch(clicks) as got, client_process(_VANISHES, ts.config.url) as process:
        head = int(line_of(process))
        behind = [ts.producer(clicks).instant([b"x"], partition=0) for _ in range(5)]
        assert behind[0] > head
        assert got.ids == []
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    got.wait_for(5)
    assert got.ids == behind


def test_a_producer_falls_silent_with_an_open_head(
    watch: Watch, ts: Client, connect: Connect, clicks: str
) -> None:
    """It is there, but nobody hears of it: as good as dead, over any connection."""
    other = connect()
    with watch(clicks) as got:
        head = other.producer(clicks, "silent", transaction_ttl=0.5).open(0)
        head.send(b"never seen")
        behind = [ts.producer(clicks).instant([b"x"], partition=0) for _ in range(5)]
        assert got.ids == []
        other._driver.close()  # it sends the keepalives
    got.wait_for(5)
    assert got.ids == behind
    with pytest.raises(Expired):
        head.checkpoint()


def test_read_a_third_and_come_back_for_the_rest(ts: Client, clicks: str) -> None:
    producer = ts.producer(clicks)
    ids = [producer.instant([b"x"], partition=0) for _ in range(1000)]
    with ts.consumer(clicks, "c1") as consumer:
        read = consumer.read(max_wait=10)
        assert [next(read).id for _ in range(333)] == ids[:333]
        consumer.checkpoint()
        assert next(read).id == ids[333], "read on, but not checkpointed"
    with ts.consumer(clicks, "c1") as consumer:
        assert [txn.id for txn in consumer.read(max_wait=0)] == ids[333:]
    got = Collector()
    with ts.subscriber(clicks, "c1", **got.callbacks):
        got.wait_for(667)
    assert got.ids == ids[333:]


# Transactions that stay open for long.


def test_thousands_of_open_transactions_are_kept_alive(ts: Client, clicks: str) -> None:
    lease_s = 2.5  # a machine that is busy elsewhere is late, too
    producer = ts.producer(clicks, transaction_ttl=lease_s)
    txns = [producer.open(n % 4) for n in range(4000)]
    for txn in txns:
        txn.send(b"%d" % txn.id)
    behind = ts.producer(clicks).instant([b"behind"], partition=0)
    got = Collector()
    waited = threading.Event()
    with ts.subscriber(clicks, engines=2, **got.callbacks):
        assert not waited.wait(1.5 * lease_s), "more than a lease"
        assert got.ids == []
        producer.checkpoint()
        got.wait_for(4001)
    assert sorted(got.ids) == sorted([*(txn.id for txn in txns), behind])
    assert all(items == [b"%d" % txn_id] for _, txn_id, items in got.found if txn_id != behind)


@pytest.mark.over_tcp
def test_who_vanishes_with_thousands_open_holds_readers_up_for_a_lease(
    ts: Client, clicks: str
) -> None:
    code = _VANISHES.replace(
        "txn = producer.open(0)", "txn = [producer.open(0) for _ in range(2000)][0]"
    )
    with client_process(code, ts.config.url) as process:
        line_of(process)
        behind = ts.producer(clicks).instant([b"x"], partition=0)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    consumer = ts.consumer(clicks)
    read = consumer.get(0, timeout=60)
    assert read is not None
    assert read.id == behind
    eventually(lambda: consumer.get(0) is None)
