"""Producers, readers and groups of a simulated client, each with what the history needs of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.checker.digest import content_of
from tests.checker.history import OK, Begin, Cancel, Close, Commit, Instant, Key, Open, Send
from tests.checker.recording import outcome_of
from tests.simulation.system.recording import Recorder
from tstreams import Offset

LEASE_S = 1.0
Who = tuple[str, int]


class SimulatedProducer:
    """A producer."""

    def __init__(self, recorder: Recorder, producer: Any, label: str, who: Who) -> None:
        self._recorder = recorder
        self.producer = producer
        self.label = label
        self.who = who
        self.open: dict[Key, Any] = {}

    @classmethod
    async def begin(cls, recorder: Recorder, ts: Any, stream: str, name: str) -> SimulatedProducer:
        operation = recorder.begin(Begin(0, 0))
        try:
            made = await ts.producer(stream, name=name, transaction_ttl=LEASE_S)
        except BaseException as error:
            recorder.end(operation, outcome_of(error))
            raise
        label = recorder.label(made)
        operation.agent, operation.epoch = f"producer:{label}/{name}", made._rules.agent.id
        recorder.end(operation, OK)
        return cls(recorder, made, label, (operation.agent, operation.epoch))

    async def instant(self, items: list[bytes], partition: int) -> None:
        operation = Instant(0, 0, OK, *self.who, self.label, partition, 0, *content_of(items))
        await self._recorder.during(operation, self.producer.instant(items, partition))

    async def window(self, batches: Sequence[list[bytes]], partition: int) -> None:
        """Many at a time; each is over when its own answer comes."""
        recorder, futures = self._recorder, []
        for items in batches:
            count, digest = content_of(items)
            operation = Instant(0, 0, OK, *self.who, self.label, partition, 0, count, digest)
            recorder.begin(operation)
            try:
                future = await self.producer.instant(items, partition, wait=False)
            except BaseException as error:
                recorder.end(operation, outcome_of(error))
                raise
            future.add_done_callback(lambda it, op=operation: self._answered(op, it))
            futures.append(future)
        answers = await asyncio.gather(*futures, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    def _answered(self, operation: Instant, future: asyncio.Future[int]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._recorder.end(operation, outcome_of(error))
        elif not future.cancelled():
            operation.id = future.result()
            self._recorder.end(operation, OK)

    async def begin_transaction(self, partition: int, who: Who | None = None) -> Key:
        operation = Open(0, 0, OK, *(who or self.who), self.label, partition)
        made = await self._recorder.during(operation, self.producer.open(partition))
        key = (self.label, partition, made.id)
        self.open[key] = made
        return key

    async def send(self, key: Key, items: list[bytes]) -> None:
        (label, partition, number), (count, digest) = key, content_of(items)
        operation = Send(0, 0, OK, *self.who, label, partition, number, count, digest)
        await self._recorder.during(operation, self.open[key].send_many(items))

    async def checkpoint(self, key: Key) -> None:
        transaction = self.open.pop(key)
        operation = Commit(0, 0, OK, *self.who, [key], [], [self.who])
        await self._recorder.during(operation, transaction.checkpoint())

    async def cancel(self, key: Key) -> None:
        transaction = self.open.pop(key)
        operation = Cancel(0, 0, OK, *self.who, [key])
        await self._recorder.during(operation, transaction.cancel())

    async def checkpoint_all(self) -> None:
        keys = self.take_open()
        operation = Commit(0, 0, OK, *self.who, keys, [], [self.who])
        await self._recorder.during(operation, self.producer.checkpoint())

    async def cancel_all(self) -> None:
        operation = Cancel(0, 0, OK, *self.who, self.take_open(), by_name=False)
        await self._recorder.during(operation, self.producer.cancel())

    def take_open(self) -> list[Key]:
        """What is open, and is about to end."""
        keys = list(self.open)
        self.open.clear()
        return keys

    async def close(self) -> None:
        self.open.clear()
        await self._recorder.during(Close(0, 0, OK, *self.who), self.producer.close())


class SimulatedReader:
    """A consumer or a subscriber."""

    def __init__(self, recorder: Recorder, reader: Any, label: str, who: Who) -> None:
        self._recorder = recorder
        self.reader = reader
        self.label = label
        self.who = who

    @classmethod
    async def begin(
        cls, recorder: Recorder, ts: Any, stream: str, name: str, resume: bool = True
    ) -> SimulatedReader:
        """A consumer."""
        making = ts.consumer(stream, name=name, start=Offset.oldest(), resume=resume)
        return await cls._begun(recorder, making, name, resume)

    @classmethod
    async def subscribe(
        cls, recorder: Recorder, ts: Any, stream: str, name: str
    ) -> SimulatedReader:
        """A subscriber; it is not started."""
        holder: list[SimulatedReader] = []

        async def handle(_: Any, transaction: Any) -> None:
            start, it = recorder.now(), holder[0]
            items = await transaction.read_items()
            recorder.saw(it.who, it.label, start, transaction, items, True)

        def failed(error: BaseException) -> None:
            for it in holder:
                it.failed(error)

        making = ts.subscriber(
            stream,
            name=name,
            on_transaction=handle,
            on_failure=failed,
            start=Offset.oldest(),
            engines=2,
        )
        holder.append(await cls._begun(recorder, making, name, True))
        return holder[0]

    @classmethod
    async def _begun(
        cls, recorder: Recorder, making: Any, name: str, resume: bool
    ) -> SimulatedReader:
        operation = recorder.begin(Begin(0, 0))
        try:
            made = await making
        except BaseException as error:
            recorder.end(operation, outcome_of(error))
            raise
        label = recorder.label(made)
        operation.agent, operation.epoch = f"reader:{label}/{name}", made._rules.agent.id
        recorder.end(operation, OK)
        reader = cls(recorder, made, label, (operation.agent, operation.epoch))
        reader.stands(resume, operation.start)
        reader._saved = {it: made.position(it) or 0 for it in reader.partitions}
        return reader

    failure: BaseException | None = None
    _saved: dict[int, int]
    """Where it would be taken back to, by partition."""

    def failed(self, error: BaseException) -> None:
        """A subscriber has stopped by itself, or one of its partitions."""
        self.failure = error

    @property
    def partitions(self) -> list[int]:
        return list(self.reader.partitions)

    def stands(self, resumed: bool, since: int) -> None:
        where = {it: self.reader.position(it) or 0 for it in self.partitions}
        self._recorder.stands(self.who, self.label, since, where, resumed)

    def offsets(self) -> list[tuple[str, str, int, int]]:
        """What a checkpoint of it would save now."""
        at = ((it, self.reader.position(it)) for it in self.partitions)
        return [(self.who[0], self.label, partition, it) for partition, it in at if it]

    async def get(self, partition: int, timeout: float) -> Any:
        start, after = self._recorder.now(), self.reader.position(partition) or 0
        found = await self.reader.get(partition, timeout)
        if found is None:
            where = (partition, after, 0)
            self._recorder.saw_nothing(self.who, self.label, start, where, True)
            return None
        try:
            items = await found.read_items()
        except BaseException:
            self.stands(False, start)  # it was handed out; nobody knows what was in it
            raise
        self._recorder.saw(self.who, self.label, start, found, items, True)
        return found

    async def read(self, count: int) -> None:
        """So many of all partitions, as they come."""
        start = self._recorder.now()
        async for found in self.reader.read(max_wait=0.05):
            items = await found.read_items()
            self._recorder.saw(self.who, self.label, start, found, items, True)
            start = self._recorder.now()
            count -= 1
            if count <= 0:
                return

    async def look(self, how: str, partition: int) -> None:
        """Look at what is there without moving."""
        start, recorder = self._recorder.now(), self._recorder
        position = self.reader.position(partition) or 0
        if how == "between":
            found = await self.reader.between(partition, max(0, position - 10**9), position)
        elif how == "by-id" and position:
            one = await self.reader.by_id(partition, position)
            found = [] if one is None else [one]
            if one is None:
                where = (partition, position - 1, position)
                recorder.saw_nothing(self.who, self.label, start, where, False)
        else:
            one = await self.reader.last(partition)
            found = [] if one is None else [one]
        for it in found:
            items = await it.read_items()
            recorder.saw(self.who, self.label, start, it, items, False)

    async def save(self) -> None:
        operation = Commit(0, 0, OK, *self.who, [], self.offsets(), [self.who])
        await self._recorder.during(operation, self.reader.checkpoint())
        self.saved(operation.offsets)

    def saved(self, offsets: list[tuple[str, str, int, int]]) -> None:
        """A checkpoint has worked."""
        self._saved.update({partition: last_id for _, _, partition, last_id in offsets})

    def taken_back(self, since: int) -> None:
        """A cancel has worked: it stands where it was saved, or began."""
        self._recorder.stands(self.who, self.label, since, self._saved, False)

    async def rewind(self) -> None:
        """To the beginning, by an id: what is saved then is not nothing."""
        start = self._recorder.now()
        try:
            for partition in self.partitions:
                await self.reader.seek(partition, Offset.after(1))
        finally:
            self.stands(False, start)

    async def close(self) -> None:
        await self._recorder.during(Close(0, 0, OK, *self.who), self.reader.close())


class SimulatedGroup:
    """A reader and a producer that checkpoint together."""

    def __init__(
        self, recorder: Recorder, ts: Any, reader: SimulatedReader, producer: SimulatedProducer
    ) -> None:
        self._recorder = recorder
        self.reader = reader
        self.producer = producer
        self._group = ts.checkpoint_group()
        self._group.add(producer.producer)
        self._group.add(reader.reader)

    async def checkpoint(self) -> None:
        members = [self.producer.who, self.reader.who]
        keys, offsets = self.producer.take_open(), self.reader.offsets()
        operation = Commit(0, 0, OK, *members[0], keys, offsets, members)
        await self._recorder.during(operation, self._group.checkpoint())
        self.reader.saved(offsets)

    async def cancel(self) -> None:
        operation = Cancel(0, 0, OK, *self.producer.who, self.producer.take_open(), by_name=False)
        await self._recorder.during(operation, self._group.cancel())
        self.reader.taken_back(operation.start)
