"""A client: a process that does its deeds one after the other, and goes on with the next when it was killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import tstreams.aio
from tests.checker.history import OK, Altered, Cancel, Commit, Created, Deleted, Purged
from tests.checker.recording import outcome_of
from tests.simulation.system.agents import SimulatedGroup, SimulatedProducer, SimulatedReader
from tests.simulation.system.machine import URL
from tests.simulation.system.plan import Deed
from tests.simulation.system.planning import DAY_MS, SHORT_MS
from tests.simulation.system.scheduler import Process
from tstreams import errors

if TYPE_CHECKING:
    from tests.simulation.system.run import Run

TIMEOUT_S = 6.0
STAGING_S = 4.0

_EXPECTED = (
    errors.Unavailable,
    errors.Fenced,
    errors.InvalidState,
    errors.NotFound,
    errors.AlreadyExists,
)
"""What may come of a deed in a bad world. Everything else is a mistake."""


class Actor:
    """One life of a client."""

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self._recorder = run.recorder
        self.name = name
        self._ts: Any = None
        self._producers: dict[tuple[str, str], SimulatedProducer] = {}
        self._readers: dict[tuple[str, str, str], SimulatedReader] = {}
        self._deeds: dict[str, Callable[[Deed], Awaitable[None]]] = {
            "instant": self._instant,
            "window": self._window,
            "transaction": self._transaction,
            "several": self._several,
            "renew": self._renew,
            "read": self._read,
            "save": self._save,
            "look": self._look,
            "resume": self._resume,
            "rewind": self._rewind,
            "pass-on": self._pass_on,
            "listen": self._listen,
            "step": self._step,
            "purge": self._purge,
            "alter": self._alter,
            "make": self._make,
            "delete": self._delete,
            "instant-there": self._instant,
            "read-there": self._read,
        }

    async def live(self) -> None:
        """Do what is left to be done, then leave."""
        left = self._run.left[self.name]
        self._ts = await connect()
        while left:
            deed = left.pop(0)
            await asyncio.sleep(deed.pause_ms / 1000)
            self._run.scheduler.note(f"does {deed}")
            self._run.faults.come_to(deed.number)
            try:
                await self._deeds[deed.kind](deed)
            except _EXPECTED as error:
                self._run.scheduler.note(f"{self.name} #{deed.number}: {error.code}")
                self._run.refusals[error.code] += 1
                self._forget()
            except Exception as error:
                self._run.scheduler.complain(f"{deed}: {error!r}", error)
                self._forget()
        await self._ts.close()
        self._run.finished(self.name)

    def _forget(self) -> None:
        """Begin with new agents; the old ones lose their names to them."""
        self._producers.clear()
        self._readers.clear()

    def _items(self, deed: Deed, part: int = 0, count: int | None = None) -> list[bytes]:
        """Items like no others."""
        size = (deed.number * 37 + part * 11) % 150 * (1 if deed.number % 2 else 10)
        return [
            b"%d.%d.%d." % (deed.number, part, at) + b"x" * size
            for at in range(deed.count if count is None else count)
        ]

    def _stream(self, deed: Deed) -> str:
        return f"temporary-{self.name}" if deed.stream == "temporary" else deed.stream

    async def _producer(self, stream: str, name: str) -> SimulatedProducer:
        found = self._producers.get((stream, name))
        if found is None:
            found = await SimulatedProducer.begin(self._recorder, self._ts, stream, name)
            self._producers[stream, name] = found
            self._run.names[stream, name] = None
        return found

    async def _reader(self, kind: str, stream: str, name: str) -> SimulatedReader:
        found = self._readers.get((kind, stream, name))
        if found is None:
            make = SimulatedReader.subscribe if kind == "subscriber" else SimulatedReader.begin
            found = await make(self._recorder, self._ts, stream, name)
            self._readers[kind, stream, name] = found
        return found

    # Writing.

    async def _instant(self, deed: Deed) -> None:
        producer = await self._producer(self._stream(deed), deed.agent)
        partition = 0 if deed.stream == "temporary" else deed.partition
        await producer.instant(self._items(deed), partition)

    async def _window(self, deed: Deed) -> None:
        producer = await self._producer(deed.stream, deed.agent)
        batches = [self._items(deed, part, 1) for part in range(deed.count + 3)]
        await producer.window(batches, deed.partition)

    async def _transaction(self, deed: Deed) -> None:
        producer = await self._producer(deed.stream, deed.agent)
        if producer.open:
            await producer.checkpoint_all()
        key = await producer.begin_transaction(deed.partition)
        for part in range(deed.count):
            await producer.send(key, self._items(deed, part))
        if deed.how == "late":
            await asyncio.sleep(1.5)
        if deed.how == "cancel":
            await producer.cancel(key)
        elif deed.how != "leave":
            await producer.checkpoint(key)

    async def _several(self, deed: Deed) -> None:
        """One in each partition, and two in one of them, all at once."""
        producer = await self._producer(deed.stream, deed.agent)
        partitions = [*range(self._run.plan.partitions(deed.stream)), deed.partition]
        for part, partition in enumerate(partitions):
            key = await producer.begin_transaction(partition)
            await producer.send(key, self._items(deed, part))
        await self._linger(deed, producer)
        if deed.how == "cancel":
            await producer.cancel_all()
        else:
            await producer.checkpoint_all()

    async def _linger(self, deed: Deed, producer: SimulatedProducer) -> None:
        """Come back to what is open when its lease may be over, and go on before the answer is here."""
        if deed.how != "late":
            return
        await asyncio.sleep(1.2)
        for part, key in enumerate(list(producer.open)):
            await producer.send(key, [b"%d.late.%d." % (deed.number, part) + b"x" * 300])
        await asyncio.sleep(0.01)

    async def _renew(self, deed: Deed) -> None:
        """Take one's own name again: what held it before must be refused."""
        old = await self._producer(deed.stream, deed.agent)
        key = await old.begin_transaction(deed.partition)
        await old.send(key, self._items(deed, 0))
        del self._producers[deed.stream, deed.agent]
        new = await self._producer(deed.stream, deed.agent)
        attempts: list[Callable[[], Awaitable[None]]] = [
            lambda: old.checkpoint(key),
            lambda: old.instant(self._items(deed, 1), deed.partition),
        ]
        for attempt in attempts:
            with contextlib.suppress(errors.Fenced, errors.InvalidState):
                await attempt()
        await new.instant(self._items(deed, 2), deed.partition)

    async def _step(self, deed: Deed) -> None:
        """A step of a job: transactions are staged, and committed from outside of their producer."""
        job = self._ts.job(self.name, staging_ttl=STAGING_S)
        producer = await self._producer(deed.stream, deed.agent)
        who = (f"job:{self.name}", deed.number)
        partitions = range(self._run.plan.partitions(deed.stream))
        keys = []
        for part, partition in enumerate(partitions):
            keys.append(await producer.begin_transaction(partition, who))
            await producer.send(keys[-1], self._items(deed, part))
        producer.take_open()
        staged = await job.stage(producer.producer, deed.number)
        if deed.how == "cancel":
            operation = Cancel(0, 0, OK, *who, keys, by_name=False)
            await self._recorder.during(operation, job.cancel(deed.number))
            return
        for _ in range(3):
            commit = Commit(0, 0, OK, *who, keys)
            try:
                await self._recorder.during(commit, job.commit(deed.number, [staged]))
            except errors.Unavailable:
                continue  # it may be asked again: a step that was committed is done
            break
        else:
            return
        last = await job.last_step()
        if last is None or last < deed.number:
            self._run.scheduler.complain(f"step {deed.number} was committed, the last is {last}")

    # Reading.

    async def _read(self, deed: Deed) -> None:
        reader = await self._reader("consumer", self._stream(deed), deed.agent)
        partition = 0 if deed.stream == "temporary" else deed.partition
        if deed.how == "all":
            await reader.read(3 * deed.count)
            return
        for _ in range(deed.count):
            await reader.get(partition, 0.3 if deed.number % 3 == 0 else 0.0)

    async def _save(self, deed: Deed) -> None:
        reader = await self._reader("consumer", deed.stream, deed.agent)
        await reader.save()

    async def _look(self, deed: Deed) -> None:
        reader = await self._reader("consumer", deed.stream, deed.agent)
        await reader.look(deed.how, deed.partition)

    async def _resume(self, deed: Deed) -> None:
        """Close readers; the next of their names go on where these were saved."""
        for key in list(self._readers):
            reader = self._readers.pop(key)
            if deed.number % 2:
                await reader.close()

    async def _rewind(self, deed: Deed) -> None:
        reader = await self._reader("consumer", deed.stream, deed.agent)
        await reader.rewind()

    async def _listen(self, deed: Deed) -> None:
        reader = await self._reader("subscriber", deed.stream, deed.agent)
        if reader.failure is not None:
            self._forget()
            return
        reader.stands(False, self._recorder.now())
        await reader.reader.start()
        await asyncio.sleep(0.2 * deed.count)
        await reader.reader.stop()
        if deed.how == "save":
            await reader.save()

    async def _pass_on(self, deed: Deed) -> None:
        """From one stream into another, exactly once."""
        reader = await self._reader("consumer", "a", deed.agent)
        producer = await self._producer("b", deed.agent)
        group = SimulatedGroup(self._recorder, self._ts, reader, producer)
        target = self._run.plan.partitions("b")
        for part in range(deed.count):
            found = await reader.get((deed.partition + part) % len(reader.partitions), 0.05)
            if found is not None:
                key = await producer.begin_transaction(part % target)
                await producer.send(key, self._items(deed, part))
        await self._linger(deed, producer)
        if deed.how == "cancel":
            await group.cancel()
        else:
            await group.checkpoint()

    # Streams.

    async def _purge(self, deed: Deed) -> None:
        label = self._run.labels[deed.stream]
        given = self._recorder.given[label][-3 * deed.count :]
        before = given[0] if given else 1
        operation = Purged(0, 0, stream=label, before=before)
        await self._recorder.during(operation, self._ts.purge_stream(deed.stream, before))

    async def _alter(self, deed: Deed) -> None:
        ttl_ms = DAY_MS if deed.count % 2 else SHORT_MS
        operation = Altered(0, 0, stream=self._run.labels["b"], ttl_ms=ttl_ms)
        await self._recorder.during(operation, self._ts.alter_stream("b", ttl=ttl_ms / 1000))

    async def _make(self, deed: Deed) -> None:
        made = await self._ts.create_stream(self._stream(deed), partitions=1)
        now = self._recorder.now()
        self._recorder.add(Created(now, now, stream=f"{made.name}#{made.id}", ttl_ms=7 * DAY_MS))

    async def _delete(self, deed: Deed) -> None:
        found = await self._ts.stream(self._stream(deed))
        operation = self._recorder.begin(Deleted(0, 0, stream=f"{found.name}#{found.id}"))
        try:
            await self._ts.delete_stream(found.name)
        except BaseException as error:
            self._recorder.end(operation, outcome_of(error))
            raise
        self._recorder.end(operation, OK)
        self._forget()


async def connect() -> Any:
    """Connect, however often it takes."""
    while True:
        try:
            return await tstreams.aio.connect(URL, timeout=TIMEOUT_S)
        except errors.Unavailable:
            await asyncio.sleep(0.1)


def start(run: Run, name: str) -> Process:
    """Start a client, on a machine of its own."""
    process = run.scheduler.start(name, name)
    process.spawn(Actor(run, name).live())
    return process
