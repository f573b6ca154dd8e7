"""A real server, real clients that are recorded, and the verdict on them."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import tstreams
from tests.checker.check import check
from tests.checker.history import (
    OK,
    UNKNOWN,
    AnyOperation,
    Commit,
    Empty,
    Instant,
    Read,
    read,
)
from tests.checker.recording import RecordedSubscriber, Recorder
from tstreams.server import Node

pytestmark = pytest.mark.xdist_group("recorded")

ROUNDS = 60


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[AnyOperation]:
    """A short run of many clients at once, and an audit of all that is there in the end."""
    folder = tmp_path_factory.mktemp("recorded")
    recorder = Recorder(folder / "history.jsonl")
    with (
        Node(folder / "data", listen=["tcp://127.0.0.1:0"]).in_thread() as node,
        tstreams.connect(node.addresses[0]) as ts,
    ):
        for name in ("a", "b"):
            ts.create_stream(name, partitions=2)
        Run(recorder, ts).all()
    recorder.close()
    return list(read([folder / "history.jsonl"]))


class Run:
    """The clients."""

    def __init__(self, recorder: Recorder, ts: tstreams.Client) -> None:
        self.recorder = recorder
        self.ts = ts
        self.failures: list[BaseException] = []
        self._numbers: Iterator[int] = iter(range(10**9))

    def all(self) -> None:
        """Run them side by side."""
        handled = threading.Semaphore(0)

        def handle(subscriber: RecordedSubscriber, transaction: object) -> None:
            handled.release()

        subscriber = self.recorder.subscriber(self.ts, "a", "s", handle)
        subscriber.start()
        clients: list[Callable[[], None]] = [self.writer, self.rivals, self.processor, self.reader]
        threads = [threading.Thread(target=self.guarded, args=(it,)) for it in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        assert handled.acquire(timeout=60)
        subscriber.stop()
        subscriber.checkpoint()
        subscriber.close()
        self.recorder.audit(self.ts, "a")
        self.recorder.audit(self.ts, "b")

    def guarded(self, client: Callable[[], None]) -> None:
        try:
            client()
        except BaseException as error:
            self.failures.append(error)

    def items(self) -> list[bytes]:
        number = next(self._numbers)
        return [b"%d-%d" % (number, at) for at in range(1 + number % 3)]

    def writer(self) -> None:
        """Instants and transactions, some of them cancelled."""
        choose = random.Random(1)
        producer = self.recorder.producer(self.ts, "a", "w")
        for _ in range(ROUNDS):
            producer.instant(self.items(), choose.randrange(2))
            producer.window([self.items() for _ in range(3)], choose.randrange(2))
            first, second = producer.open(0), producer.open(1)
            for transaction in (first, second, first):
                transaction.send_many(self.items())
            if choose.random() < 0.3:
                first.cancel()
                second.checkpoint()
            else:
                producer.checkpoint()
        producer.close()

    def rivals(self) -> None:
        """A producer that is fenced by another of its name, again and again."""
        old = self.recorder.producer(self.ts, "b", "rival")
        for _ in range(ROUNDS // 4):
            transaction = old.open(0)
            transaction.send_many(self.items())
            new = self.recorder.producer(self.ts, "b", "rival")
            with pytest.raises(tstreams.Fenced):
                transaction.checkpoint()
            with pytest.raises(tstreams.Fenced):
                old.instant(self.items(), 0)
            new.instant(self.items(), 0)
            old = new
        old.close()

    def processor(self) -> None:
        """From one stream into another, with cancels, and begun anew now and then."""
        for _ in range(4):
            source = self.recorder.consumer(self.ts, "a", "processor")
            target = self.recorder.producer(self.ts, "b", "processor")
            group = self.recorder.group(self.ts, source, target)
            for turn in range(ROUNDS // 4):
                for partition in (0, 1):
                    if source.get(partition, 0.05) is not None:
                        target.open(partition).send_many(self.items())
                group.cancel() if turn % 5 == 4 else group.checkpoint()
            source.close()
            target.close()

    def reader(self) -> None:
        """Reads, looks up, saves, resumes, and goes back."""
        for turn in range(4):
            consumer = self.recorder.consumer(self.ts, "b", "reader")
            for _ in range(ROUNDS // 4):
                found = consumer.get(turn % 2, 0.02)
                if found is not None:
                    consumer.by_id(turn % 2, found.id)
            consumer.checkpoint()
            if turn == 2:
                consumer.seek_to_oldest()
                consumer.get(0)
            consumer.close()


def test_a_real_run_is_clean(history: list[AnyOperation]) -> None:
    findings = check(history)
    assert not findings, findings.shown
    counts = Counter(type(it) for it in history)
    assert counts[Instant] > ROUNDS
    assert counts[Commit] > ROUNDS
    assert counts[Read] > 4 * ROUNDS
    assert counts[Empty] >= 4


def test_what_a_dead_client_had_under_way_is_unknown(tmp_path: Path) -> None:
    """Whatever is in the file when it dies is all that it can say."""
    recorder, path = Recorder(tmp_path / "history.jsonl"), tmp_path / "history.jsonl"
    operation = Instant(0, 0, OK, "producer:a#1/p", 1, "a#1", 0, 0, 1, 17)

    def instant() -> int:
        (_, found) = read([path])
        assert isinstance(found, Instant)
        assert (found.outcome, found.digest, found.id) == (UNKNOWN, 17, 0)
        return 5

    recorder.during(operation, instant)
    (_, found) = read([path])
    assert isinstance(found, Instant)
    assert (found.outcome, found.id) == (OK, 5)
    recorder.close()


def test_it_would_have_been_seen(history: list[AnyOperation]) -> None:
    """The same run, tampered with: what the recorders write down is enough to find it."""
    first = next(it for it in history if isinstance(it, Instant) and it.outcome == OK)
    key = (first.stream, first.partition, first.id)
    reads = [
        it for it in history if isinstance(it, Read) and (it.stream, it.partition, it.id) == key
    ]
    without = [it for it in history if it not in reads]
    assert "lost-write" in check(without).kinds
    flipped = [msgspec.structs.replace(it, digest=it.digest + 1) for it in reads[:1]]
    assert check([*without, *flipped]).kinds >= {"torn-read"}
    assert check([*without, *reads[:1], *flipped]).kinds >= {"disagreement"}
