"""A server that stops, dies, hangs or is away for a while, and what its clients notice of it: nothing."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from tstreams import Client, Consumer, Timeout, TransactionState, Unavailable

from .faces import Face
from .servers import ServerProcess

End = Callable[[ServerProcess], None]

ENDS = pytest.mark.parametrize(
    "end", [ServerProcess.stop, ServerProcess.kill], ids=["stopped", "killed"]
)


@pytest.fixture
def ts(server: ServerProcess, face: Face) -> Iterator[Client]:
    with face.connect(server.address) as ts:
        ts.create_stream("clicks", partitions=4)
        yield ts


def restart(server: ServerProcess, end: End) -> None:
    end(server)
    server.start()


class Restarts:
    """Ends the server again and again while a block runs."""

    def __init__(self, server: ServerProcess, end: End, times: int) -> None:
        self._thread = threading.Thread(target=self._run, args=(server, end, times))
        self.done = threading.Event()

    def _run(self, server: ServerProcess, end: End, times: int) -> None:
        try:
            for _ in range(times):
                time.sleep(0.3)
                restart(server, end)
        finally:
            self.done.set()

    def __enter__(self) -> Restarts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def seen(consumer: Consumer, partition: int = 0) -> list[bytes]:
    found = [item for txn in consumer.read(max_wait=0) for item in txn.items]
    assert consumer.position(partition) is not None
    return found


@pytest.mark.core
@ENDS
def test_calls_outlive_a_restart(server: ServerProcess, ts: Client, end: End) -> None:
    producer = ts.producer("clicks", "p1")
    count = 0
    with Restarts(server, end, 3) as restarts:
        while not restarts.done.is_set():
            producer.instant([b"%d" % count], partition=0)
            count += 1
    assert seen(ts.consumer("clicks")) == [b"%d" % n for n in range(count)]


@pytest.mark.core
@ENDS
def test_a_window_of_futures_outlives_a_restart(
    server: ServerProcess, ts: Client, end: End
) -> None:
    producer = ts.producer("clicks", "p1")
    window: deque[Future[int]] = deque()
    ids = []
    count = 0
    with Restarts(server, end, 3) as restarts:
        while not restarts.done.is_set():
            window.append(producer.instant([b"%d" % count], partition=0, wait=False))
            count += 1
            if len(window) >= 500:
                ids.append(window.popleft().result())
    ids += [future.result() for future in window]
    assert ids == sorted(set(ids))
    consumer = ts.consumer("clicks")
    assert seen(consumer) == [b"%d" % n for n in range(count)]


@ENDS
def test_transactions_outlive_a_restart(server: ServerProcess, ts: Client, end: End) -> None:
    producer = ts.producer("clicks", "p1")
    checkpoints: list[Future[None]] = []
    count = 0
    with Restarts(server, end, 3) as restarts:
        while not restarts.done.is_set():
            txn = producer.open(0)
            txn.send_many([b"%d" % count, *[b"x" * 1000] * 999])
            checkpoints.append(txn.checkpoint(wait=False))
            count += 1
    for checkpoint in checkpoints:
        checkpoint.result()
    found = [(txn.items[0], len(txn)) for txn in ts.consumer("clicks").read(max_wait=0)]
    assert found == [(b"%d" % n, 1000) for n in range(count)]


@pytest.mark.core
@ENDS
def test_an_open_transaction_outlives_a_restart(
    server: ServerProcess, ts: Client, end: End
) -> None:
    producer, consumer = ts.producer("clicks", "p1"), ts.consumer("clicks")
    items = [b"%04d" % n + b"x" * 1000 for n in range(2000)]
    with producer.transaction(0) as txn:
        txn.send_many(items[:1000])
        restart(server, end)
        assert consumer.get(0) is None
        txn.send_many(items[1000:])
        restart(server, end)
    read = consumer.get(0, timeout=30)
    assert read is not None
    assert (read.id, read.items) == (txn.id, items)


@ENDS
def test_threads_with_all_kinds_of_work_outlive_restarts(
    server: ServerProcess, ts: Client, end: End
) -> None:
    written: list[list[bytes]] = [[], [], [], []]
    failures: list[BaseException] = []

    def work(partition: int, stop: threading.Event) -> None:
        try:
            producer = ts.producer("clicks", f"p{partition}", partitions={partition})
            number = 0
            while not stop.is_set():
                with producer.transaction() as txn:
                    txn.send(b"%d" % number)
                producer.instant([b"%d" % (number + 1)])
                cancelled = producer.open()
                cancelled.send(b"never")
                cancelled.cancel()
                written[partition] += [b"%d" % number, b"%d" % (number + 1)]
                number += 2
        except BaseException as error:
            failures.append(error)

    with Restarts(server, end, 3) as restarts:
        threads = [threading.Thread(target=work, args=(n, restarts.done)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    for partition in range(4):
        assert seen(ts.consumer("clicks", partitions=[partition]), partition) == written[partition]


@ENDS
def test_a_reader_outlives_a_restart(server: ServerProcess, ts: Client, end: End) -> None:
    producer, consumer = ts.producer("clicks"), ts.consumer("clicks", "c1")
    found: list[bytes] = []

    def read() -> None:
        for txn in consumer.read():
            found.extend(txn.items)
            consumer.checkpoint()
            if found[-1] == b"last":
                return

    thread = threading.Thread(target=read)
    thread.start()
    expected = []
    for number in range(6):
        producer.instant([b"%d" % number], partition=0)
        expected.append(b"%d" % number)
        if number % 2:
            restart(server, end)
    producer.instant([b"last"], partition=0)
    thread.join(60)
    assert found == [*expected, b"last"]
    assert ts.consumer("clicks", "c1").position(0) == consumer.position(0)


@ENDS
def test_waiting_outlives_a_restart(server: ServerProcess, ts: Client, end: End) -> None:
    producer, consumer = ts.producer("clicks"), ts.consumer("clicks")
    found: list[list[bytes]] = []

    def get() -> None:
        txn = consumer.get(0, timeout=60)
        assert txn is not None
        found.append(list(txn.items))

    thread = threading.Thread(target=get)
    thread.start()
    restart(server, end)
    producer.instant([b"after"], partition=0)
    thread.join(60)
    assert found == [[b"after"]]


@ENDS
def test_a_large_transaction_is_read_across_a_restart(
    server: ServerProcess, ts: Client, end: End
) -> None:
    items = [b"%02d" % n * 500_000 for n in range(20)]
    ts.producer("clicks").instant(items, partition=0)
    read = ts.consumer("clicks").get(0, timeout=30)
    assert read is not None
    iterator = iter(read.items)
    found = [next(iterator)]
    restart(server, end)
    found += iterator
    assert found == items


def test_a_server_that_hangs_for_a_while(server: ServerProcess, ts: Client) -> None:
    producer = ts.producer("clicks")
    producer.instant([b"0"], partition=0)
    server.pause()
    threading.Timer(1.0, server.go_on).start()
    producer.instant([b"1"], partition=0)
    assert seen(ts.consumer("clicks")) == [b"0", b"1"]


def test_a_deadline_passes_when_the_server_stays_away(face: Face, server: ServerProcess) -> None:
    with face.connect(server.address, timeout=0.4) as ts:
        ts.create_stream("clicks")
        producer, consumer = ts.producer("clicks"), ts.consumer("clicks")
        txn = producer.open(0)
        txn.send(b"x")
        server.stop()
        for use in (
            ts.streams,
            txn.checkpoint,
            producer.open,
            consumer.checkpoint,
            lambda: producer.instant([b"y"]),
            lambda: consumer.get(0),
            lambda: list(consumer.read(max_wait=0.1)),
        ):
            with pytest.raises(Unavailable):
                use()
        with pytest.raises(Timeout):
            producer.instant([b"y"], wait=False).result()
        assert txn.state is TransactionState.OPENED, "nobody knows better"


def test_a_transaction_that_nobody_got_holds_nobody_up(
    face: Face, server: ServerProcess, ts: Client
) -> None:
    with face.connect(server.address, timeout=1.0) as impatient:
        producer = impatient.producer("clicks", "p1")
        server.pause()
        with pytest.raises(Timeout):
            producer.open(0)
        server.go_on()
        behind = ts.producer("clicks").instant([b"x"], partition=0)
        read = ts.consumer("clicks").get(0, timeout=30)
        assert read is not None
        assert read.id == behind


def test_a_block_that_could_not_checkpoint_holds_nobody_up(
    face: Face, server: ServerProcess, ts: Client
) -> None:
    with face.connect(server.address, timeout=1.0) as impatient:
        txn = impatient.producer("clicks", "p1").transaction(0)
        txn.send(b"x")
        server.pause()
        with pytest.raises(Timeout), txn:
            pass
        server.go_on()
        ts.producer("clicks").instant([b"behind"], partition=0)
        consumer = ts.consumer("clicks")
        found = consumer.get(0, timeout=30)
        assert found is not None
        assert found.items in ([b"behind"], [b"x"])


def test_fire_and_forget_outlives_a_restart(server: ServerProcess, ts: Client) -> None:
    producer = ts.producer("clicks")
    server.stop()
    producer.instant([b"sent while nobody was there"], partition=0, reliable=False)
    server.start()
    read = ts.consumer("clicks").get(0, timeout=30)
    assert read is not None


def test_closing_without_a_server_comes_to_an_end(face: Face, server: ServerProcess) -> None:
    ts = face.connect(server.address)
    ts.create_stream("clicks")
    agents = [ts.producer("clicks") for _ in range(5)]
    txn = agents[0].open()
    server.kill()
    ts.close()
    assert txn.state is TransactionState.CANCELLED
