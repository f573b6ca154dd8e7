"""Recorders: thin covers of the public client's agents that write down what was done and what came of it.

    recorder = Recorder(path)
    stream = recorder.stream(ts, "clicks")
    producer = recorder.producer(ts, "clicks", "p1"); producer.instant([b"one"], partition=0)
    recorder.close()

Threads may share a recorder. Processes have one each: all histories of a run are checked together. What a
client that died has left open is closed, for the checker, when its name is taken by `fence`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.checker.digest import content_of
from tests.checker.history import (
    OK,
    UNKNOWN,
    AnyOperation,
    Begin,
    Cancel,
    Clock,
    Close,
    Commit,
    Created,
    Deleted,
    Empty,
    Instant,
    Key,
    Open,
    Purged,
    Read,
    Send,
    Stand,
    begun,
    encode,
    over,
)
from tstreams import Client, Offset
from tstreams.errors import Error, Unavailable

T = TypeVar("T")
Saved = tuple[str, str, int, int]


def now_us() -> int:
    """All processes of a machine share this clock, and it never goes back."""
    return time.monotonic_ns() // 1000


def outcome_of(error: BaseException) -> str:
    """What an error says. With its session a server forgets what it had done of it."""
    if not isinstance(error, Error) or isinstance(error, Unavailable):
        return UNKNOWN
    return UNKNOWN if "session has ended" in error.message else error.code


class Recorder:
    """Writes a history."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self._lock = threading.Lock()
        self._begun = 0
        now = now_us()
        self.add(Clock(now, now, wall_ms=time.time_ns() // 1_000_000))

    def add(self, operation: AnyOperation) -> None:
        """Write it down, so that it survives this process."""
        self._write(encode(operation))

    def begin(self, operation: AnyOperation) -> int:
        """Write down that it begins now: if this process dies, its outcome is unknown. Its number."""
        operation.start = now_us()
        with self._lock:
            self._begun += 1
            number = self._begun
        self._write(begun(number, operation))
        return number

    def end(self, number: int, operation: AnyOperation) -> None:
        """Write down what came of it."""
        operation.end = now_us()
        self._write(over(number, operation))

    def _write(self, line: bytes) -> None:
        with self._lock:
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        self._file.close()

    def during(self, operation: AnyOperation, call: Callable[[], T]) -> T:
        """Do it, and write down when, and what came of it. Errors are passed on."""
        number = self.begin(operation)
        try:
            result = call()
        except BaseException as error:
            operation.outcome = outcome_of(error)
            raise
        else:
            if isinstance(operation, Open):
                operation.id = result.id  # type: ignore[attr-defined]
            elif isinstance(operation, Instant):
                operation.id = result  # type: ignore[assignment]
            elif isinstance(operation, Begin):
                operation.epoch = result._rules.agent.id  # type: ignore[attr-defined]
            return result
        finally:
            self.end(number, operation)

    # Streams.

    def stream(self, ts: Client, name: str) -> str:
        """What a history calls a stream. Writes down its ttl."""
        now = now_us()
        found = ts.stream(name)
        label = f"{name}#{found.id}"
        self.add(Created(now, now_us(), stream=label, ttl_ms=int(found.ttl.total_seconds() * 1000)))
        return label

    def purge(self, ts: Client, name: str, before: int) -> None:
        operation = Purged(0, 0, stream=self.stream(ts, name), before=before)
        self.during(operation, lambda: ts.purge_stream(name, before))

    def delete(self, ts: Client, name: str) -> None:
        operation = Deleted(0, 0, stream=self.stream(ts, name))
        self.during(operation, lambda: ts.delete_stream(name))

    # Agents.

    def producer(self, ts: Client, stream: str, name: str, **options: Any) -> RecordedProducer:
        label = self.stream(ts, stream)
        begin = Begin(0, 0, agent=f"producer:{label}/{name}")
        made = self.during(begin, lambda: ts.producer(stream, name=name, **options))
        return RecordedProducer(self, label, made)

    def consumer(
        self, ts: Client, stream: str, name: str, *, resume: bool = True, **options: Any
    ) -> RecordedConsumer:
        """A consumer that resumes, or begins with the oldest."""
        label = self.stream(ts, stream)
        begin = Begin(0, 0, agent=f"reader:{label}/{name}")
        options = {"start": Offset.oldest(), "resume": resume, **options}
        made = self.during(begin, lambda: ts.consumer(stream, name=name, **options))
        return RecordedConsumer(self, label, made, resume, begin.start)

    def subscriber(
        self,
        ts: Client,
        stream: str,
        name: str,
        on_transaction: Callable[[RecordedSubscriber, Any], object],
        **options: Any,
    ) -> RecordedSubscriber:
        """A subscriber that resumes, or begins with the oldest. Start it."""
        return RecordedSubscriber(self, ts, stream, name, on_transaction, options)

    def group(self, ts: Client, *members: RecordedProducer | RecordedReader) -> RecordedGroup:
        return RecordedGroup(self, ts, members)

    def fence(self, ts: Client, stream: str, name: str) -> None:
        """Take the name of a producer that is gone: nothing of it is open after that."""
        self.producer(ts, stream, name).close()

    def audit(self, ts: Client, stream: str, name: str = "auditor") -> int:
        """Read all that there is, from the oldest to the end of each partition: how many."""
        consumer = self.consumer(ts, stream, name, resume=False)
        count = 0
        for partition in consumer.partitions:
            while consumer.get(partition) is not None:
                count += 1
        consumer.close()
        return count


class RecordedProducer:
    """A producer."""

    def __init__(self, recorder: Recorder, label: str, producer: Any) -> None:
        self.recorder = recorder
        self.label = label
        self.producer = producer
        self.agent = f"producer:{label}/{producer.name}"
        self.epoch: int = producer._rules.agent.id
        self.open_ones: dict[Key, RecordedTransaction] = {}

    def instant(self, items: Sequence[bytes], partition: int) -> int:
        content = content_of(items)
        operation = Instant(0, 0, OK, self.agent, self.epoch, self.label, partition, 0, *content)
        return self.recorder.during(operation, lambda: self.producer.instant(items, partition))  # type: ignore[no-any-return]

    def window(self, batches: Iterable[Sequence[bytes]], partition: int) -> None:
        """Many instants at a time; each is over when its own answer comes. Raises the first error."""
        futures: list[Future[int]] = []
        for items in batches:
            what = (self.label, partition, 0, *content_of(items))
            operation = Instant(0, 0, UNKNOWN, self.agent, self.epoch, *what)
            number = self.recorder.begin(operation)
            future = self.producer.instant(items, partition, wait=False)
            future.add_done_callback(partial(self._answered, number, operation))
            futures.append(future)
        wait(futures)
        for future in futures:
            future.result()

    def _answered(self, number: int, operation: Instant, future: Future[int]) -> None:
        error = future.exception()
        if error is None:
            operation.outcome, operation.id = OK, future.result()
        else:
            operation.outcome = outcome_of(error)
        self.recorder.end(number, operation)

    def open(self, partition: int) -> RecordedTransaction:
        operation = Open(0, 0, OK, self.agent, self.epoch, self.label, partition)
        made = self.recorder.during(operation, lambda: self.producer.open(partition))
        transaction = RecordedTransaction(self, (self.label, partition, made.id), made)
        self.open_ones[transaction.key] = transaction
        return transaction

    def checkpoint(self) -> None:
        """All that is open, together."""
        keys = list(self.open_ones)
        self.open_ones.clear()
        members = [(self.agent, self.epoch)]
        operation = Commit(0, 0, OK, self.agent, self.epoch, keys, [], members)
        self.recorder.during(operation, self.producer.checkpoint)

    def close(self) -> None:
        self.open_ones.clear()
        self.recorder.during(Close(0, 0, OK, self.agent, self.epoch), self.producer.close)


class RecordedTransaction:
    """A transaction that is written."""

    def __init__(self, producer: RecordedProducer, key: Key, transaction: Any) -> None:
        self.key = key
        self._producer = producer
        self._transaction = transaction

    def send_many(self, items: Sequence[bytes]) -> None:
        who = self._producer
        operation = Send(0, 0, OK, who.agent, who.epoch, *self.key, *content_of(items))
        who.recorder.during(operation, lambda: self._transaction.send_many(items))

    def checkpoint(self) -> None:
        who = self._producer
        who.open_ones.pop(self.key, None)
        members = [(who.agent, who.epoch)]
        operation = Commit(0, 0, OK, who.agent, who.epoch, [self.key], [], members)
        who.recorder.during(operation, self._transaction.checkpoint)

    def cancel(self) -> None:
        who = self._producer
        who.open_ones.pop(self.key, None)
        operation = Cancel(0, 0, OK, who.agent, who.epoch, [self.key])
        who.recorder.during(operation, self._transaction.cancel)


class RecordedReader:
    """What a consumer and a subscriber have in common."""

    def __init__(self, recorder: Recorder, label: str, reader: Any) -> None:
        self.recorder = recorder
        self.label = label
        self.reader = reader
        self.agent = f"reader:{label}/{reader.name}"
        self.epoch: int = reader._rules.agent.id
        self.partitions: list[int] = list(reader.partitions)

    def stands(self, resumed: bool, since: int) -> None:
        """Write down where it stands in all partitions."""
        for partition in self.partitions:
            after = self.reader.position(partition) or 0
            where = (self.label, partition, after, resumed)
            self.recorder.add(Stand(since, now_us(), OK, self.agent, self.epoch, *where))

    def offsets(self) -> list[Saved]:
        """What a checkpoint of it would save now."""
        at = ((it, self.reader.position(it)) for it in self.partitions)
        return [(self.agent, self.label, partition, it) for partition, it in at if it]

    def checkpoint(self) -> None:
        members = [(self.agent, self.epoch)]
        operation = Commit(0, 0, OK, self.agent, self.epoch, [], self.offsets(), members)
        self.recorder.during(operation, self.reader.checkpoint)

    def close(self) -> None:
        self.recorder.during(Close(0, 0, OK, self.agent, self.epoch), self.reader.close)

    def saw(self, start: int, transaction: Any, moves: bool = True) -> None:
        """It was handed this."""
        what = (self.label, transaction.partition, transaction.id, *content_of(transaction.items))
        self.recorder.add(Read(start, now_us(), OK, self.agent, self.epoch, *what, moves))


class RecordedConsumer(RecordedReader):
    """A consumer."""

    def __init__(
        self, recorder: Recorder, label: str, consumer: Any, resumed: bool, since: int
    ) -> None:
        super().__init__(recorder, label, consumer)
        self.stands(resumed, since)

    def get(self, partition: int, timeout: float = 0.0) -> Any:
        start, after = now_us(), self.reader.position(partition) or 0
        found = self.reader.get(partition, timeout)
        if found is not None:
            self.saw(start, found)
        else:
            what = (self.label, partition, after)
            self.recorder.add(Empty(start, now_us(), OK, self.agent, self.epoch, *what))
        return found

    def by_id(self, partition: int, number: int) -> Any:
        start = now_us()
        found = self.reader.by_id(partition, number)
        if found is not None:
            self.saw(start, found, moves=False)
        else:
            what = (self.label, partition, number - 1, number, False)
            self.recorder.add(Empty(start, now_us(), OK, self.agent, self.epoch, *what))
        return found

    def seek_to_oldest(self) -> None:
        start = now_us()
        for partition in self.partitions:
            self.reader.seek(partition, Offset.oldest())
        self.stands(False, start)


class RecordedSubscriber(RecordedReader):
    """A subscriber. Its callback is given this, and the transaction."""

    def __init__(
        self,
        recorder: Recorder,
        ts: Client,
        stream: str,
        name: str,
        on_transaction: Callable[[RecordedSubscriber, Any], object],
        options: dict[str, Any],
    ) -> None:
        self._here = threading.local()
        label = recorder.stream(ts, stream)
        begin = Begin(0, 0, agent=f"reader:{label}/{name}")

        def handle(_: Any, transaction: Any) -> None:
            self.saw(now_us(), transaction)
            self._here.at = (self.agent, self.label, transaction.partition, transaction.id)
            try:
                on_transaction(self, transaction)
            finally:
                self._here.at = None

        options = {"start": Offset.oldest(), **options}
        made = recorder.during(
            begin, lambda: ts.subscriber(stream, name=name, on_transaction=handle, **options)
        )
        super().__init__(recorder, label, made)
        self.stands(True, begin.start)

    def start(self) -> None:
        self.stands(False, now_us())
        self.reader.start()

    def stop(self) -> None:
        self.reader.stop()

    def offsets_with_this(self) -> list[Saved]:
        """What a group's checkpoint would save: inside of a callback, its transaction too."""
        here: Saved | None = getattr(self._here, "at", None)
        found = {it[2]: it for it in self.offsets()}
        if here is not None:
            found[here[2]] = here
        return list(found.values())


class RecordedGroup:
    """A checkpoint group."""

    def __init__(
        self, recorder: Recorder, ts: Client, members: Iterable[RecordedProducer | RecordedReader]
    ) -> None:
        self._recorder = recorder
        self._group = ts.checkpoint_group()
        self._producers: list[RecordedProducer] = []
        self._readers: list[RecordedReader] = []
        for member in members:
            if isinstance(member, RecordedProducer):
                self._producers.append(member)
                self._group.add(member.producer)
            else:
                self._readers.append(member)
                self._group.add(member.reader)

    def _taken(self) -> list[Key]:
        keys = [key for producer in self._producers for key in producer.open_ones]
        for producer in self._producers:
            producer.open_ones.clear()
        return keys

    def checkpoint(self) -> None:
        offsets = [
            it
            for reader in self._readers
            for it in (
                reader.offsets_with_this()
                if isinstance(reader, RecordedSubscriber)
                else reader.offsets()
            )
        ]
        agents: list[RecordedProducer | RecordedReader] = [*self._producers, *self._readers]
        members = [(it.agent, it.epoch) for it in agents]
        operation = Commit(0, 0, OK, *members[0], self._taken(), offsets, members)
        self._recorder.during(operation, self._group.checkpoint)

    def cancel(self) -> None:
        operation = Cancel(0, 0, transactions=self._taken(), by_name=False)
        self._recorder.during(operation, self._group.cancel)
        for reader in self._readers:
            reader.stands(False, operation.start)
