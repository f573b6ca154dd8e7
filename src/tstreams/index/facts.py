"""What the index knows, asked by name or number: the core's port, and what readers and lists need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from ..core.facts import (
    Agent,
    DecidedGroup,
    OpenTransactionState,
    PreparedGroup,
    Session,
    StreamState,
    Untold,
)
from ..errors import Corrupt
from ..model import ID_MAX
from ..protocol import DECODE_ERRORS, Group, Reply
from . import keys
from .keys import Place
from .store import Store

T = TypeVar("T")


class StoredStream(msgspec.Struct, array_like=True, frozen=True):
    """The value of an M key."""

    name: str
    partitions: int
    ttl_ms: int
    description: str
    schema: bytes | None
    purged_before: int
    version: int = 1


class StoredAgent(msgspec.Struct, array_like=True, frozen=True):
    """The value of a G key."""

    kind: str
    stream: int
    name: str
    session: int
    rank: int = 0


class StoredOpen(msgspec.Struct, array_like=True, frozen=True):
    """The value of an O key."""

    stream: int
    partition: int
    agent: int
    lease_ms: int
    job: str = ""
    step: int = 0


class StoredJob(msgspec.Struct, array_like=True, frozen=True):
    """The value of a J key."""

    last_step: int
    used_ms: int


class StoredSession(msgspec.Struct, array_like=True, frozen=True):
    """The value of an S key."""

    last: int
    acked: int
    replies: dict[int, Reply]
    refused: dict[int, str] = {}
    refused_to: int = 0


class StoredPrepared(msgspec.Struct, array_like=True, frozen=True):
    """The value of a B key."""

    group: Group
    session: int
    lease_ms: int
    agents: list[int]
    transactions: list[int]
    empty: list[int]
    positions: list[tuple[int, str, int, int]]
    job: str = ""
    step: int = 0
    dropped: list[int] = []
    replaced: list[tuple[int, int]] = []
    final: bool = False
    kept: list[int] = []
    cut: list[tuple[int, int, bool]] = []


class StoredDecided(msgspec.Struct, array_like=True, frozen=True):
    """The value of a V key."""

    committed: bool
    others: list[int]


class StoredUntold(msgspec.Struct, array_like=True, frozen=True):
    """The value of a W key."""

    version: int
    shards: list[int]


encode = msgspec.msgpack.Encoder().encode


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Reads the values of one kind of keys; `Corrupt` if they cannot be read."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(value: bytes) -> T:
        try:
            return decode(value)
        except DECODE_ERRORS as error:
            raise Corrupt(
                f"the index is damaged: {len(value)} bytes are no {kind.__name__} ({error}): "
                "see `tstreams verify`"
            ) from None

    return read


decode_stream = decoder(StoredStream)
decode_agent = decoder(StoredAgent)
decode_open = decoder(StoredOpen)
decode_job = decoder(StoredJob)
decode_session = decoder(StoredSession)
decode_prepared = decoder(StoredPrepared)
decode_decided = decoder(StoredDecided)
decode_untold = decoder(StoredUntold)


class IndexFacts:
    """Look-ups. Implements `core.facts.Facts`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # For the core.

    def stream_named(self, name: str) -> StreamState | None:
        """A stream by its name."""
        number = self._store.get(keys.name_key(name)) or self._store.get(keys.copy_name_key(name))
        return None if number is None else self.stream(int.from_bytes(number, "big"))

    def stream(self, stream_id: int) -> StreamState | None:
        """A stream by its number."""
        value = self._store.get(keys.stream_key(stream_id))
        return None if value is None else _state_of(stream_id, decode_stream(value))

    def agent(self, agent_id: int) -> Agent | None:
        """An agent that holds its name."""
        value = self._store.get(keys.agent_key(agent_id))
        if value is None:
            return None
        stored = decode_agent(value)
        return Agent(agent_id, stored.kind, stored.stream, stored.name, stored.session, stored.rank)

    def agent_named(self, kind: str, stream_id: int, name: str) -> int | None:
        """The agent that holds a name."""
        value = self._store.get(keys.holder_key(kind, stream_id, name))
        return None if value is None else int.from_bytes(value, "big")

    def open_transactions(self) -> Iterator[OpenTransactionState]:
        """All that were open, in the order of their ids."""
        for key, value in self._store.scan(b"O"):
            stored = decode_open(value)
            transaction = keys.number_of(key)
            batches = list(self.batches_of_open(transaction))
            yield OpenTransactionState(
                transaction,
                stored.stream,
                stored.partition,
                stored.agent,
                stored.lease_ms,
                items=sum(count for _, count in batches),
                batches=len(batches),
                unfinished=bool(batches) and batches[-1][1] == 0,
                job=stored.job,
                step=stored.step,
            )

    def last_step(self, job: str) -> int | None:
        """The step of a job that was committed last."""
        value = self._store.get(keys.job_key(job))
        return None if value is None else decode_job(value).last_step

    def sessions(self) -> Iterator[Session]:
        """All sessions, with the agents that they opened."""
        for key, value in self._store.scan(b"S"):
            stored = decode_session(value)
            session = Session(keys.number_of(key), stored.last, stored.acked)
            session.replies.update(stored.replies)
            session.refused.update(stored.refused)
            session.refused_to = stored.refused_to
            prefix = keys.session_agent_key(session.id, 0)[:9]
            for pair, _ in self._store.scan(prefix):
                session.agents.add(int.from_bytes(pair[9:], "big"))
            yield session

    def prepared(self) -> Iterator[PreparedGroup]:
        """All groups that wait for their decision."""
        for _, value in self._store.scan(b"B"):
            it = decode_prepared(value)
            yield PreparedGroup(
                it.group,
                it.session,
                it.lease_ms,
                it.agents,
                it.transactions,
                it.empty,
                it.positions,
                it.job,
                it.step,
                it.dropped,
                it.replaced,
                it.final,
                it.kept,
                it.cut,
            )

    def decided(self) -> Iterator[tuple[tuple[int, int], DecidedGroup]]:
        """The groups that were decided here and of which not all know, by session and number."""
        for key, value in self._store.scan(b"V"):
            it = decode_decided(value)
            yield keys.split_decided(key), DecidedGroup(it.committed, set(it.others))

    def untold(self) -> Iterator[tuple[int, Untold]]:
        """Streams of which other shards have something to be told."""
        for key, value in self._store.scan(b"W"):
            it = decode_untold(value)
            yield keys.number_of(key), Untold(it.version, set(it.shards))

    def dropped_copies(self) -> Iterator[tuple[int, int]]:
        """Streams of other shards that were deleted lately, and when: those that were first come first."""
        found = [
            (int.from_bytes(value, "big"), keys.number_of(key))
            for key, value in self._store.scan(b"Y")
        ]
        for at_ms, stream in sorted(found):
            yield stream, at_ms

    # For the applier.

    def batches_of_open(self, transaction: int) -> Iterator[tuple[Place, int]]:
        """The batches of an open transaction: where each lies, and how many items it has."""
        for _, value in self._store.scan(keys.open_key(transaction).replace(b"O", b"D", 1)):
            yield keys.unpack_batch(value)

    # For readers.

    def streams(self, prefix: str, after: str, limit: int) -> list[StreamState]:
        """Streams in the order of their names."""
        first = keys.name_key(max(prefix, after))
        found: list[StreamState] = []
        for key, value in self._store.scan(keys.name_key(prefix), first):
            if after and key == keys.name_key(after):
                continue
            stream = self.stream(int.from_bytes(value, "big"))
            assert stream is not None, "a name and its stream are written and deleted together"
            found.append(stream)
            if len(found) == limit:
                break
        return found

    def position(self, stream_id: int, reader: str, partition: int) -> int | None:
        """What a reader has checkpointed in a partition."""
        value = self._store.get(keys.position_key(stream_id, reader, partition))
        return None if value is None else int.from_bytes(value, "big")

    def positions(self, stream_id: int, reader: str) -> list[tuple[int, int]]:
        """(partition, transaction) that a reader has checkpointed."""
        prefix = keys.reader_prefix(stream_id, reader)
        return [
            (int.from_bytes(key[-2:], "big"), int.from_bytes(value, "big"))
            for key, value in self._store.scan(prefix)
        ]

    def transactions(
        self, stream_id: int, partition: int, from_id: int, to_id: int
    ) -> Iterator[tuple[int, bytes]]:
        """Checkpointed transactions with ids in [from_id, to_id], and their values."""
        prefix = keys.partition_prefix(stream_id, partition)
        iterator = self._store.iterator()
        iterator.seek(keys.transaction_key(b"T", stream_id, partition, from_id))
        while iterator.valid():
            key = iterator.key()
            if key[:11] != prefix:
                return
            transaction = int.from_bytes(key[11:], "big")
            if transaction > to_id:
                return
            yield transaction, iterator.value()
            iterator.next()
        self._store.check(iterator)

    def transactions_back(
        self, stream_id: int, partition: int, from_id: int, to_id: int
    ) -> Iterator[tuple[int, bytes]]:
        """The same, the newest first."""
        prefix = keys.partition_prefix(stream_id, partition)
        iterator = self._store.iterator()
        iterator.seek_for_prev(keys.transaction_key(b"T", stream_id, partition, to_id))
        while iterator.valid():
            key = iterator.key()
            if key[:11] != prefix:
                return
            transaction = int.from_bytes(key[11:], "big")
            if transaction < from_id:
                return
            yield transaction, iterator.value()
            iterator.prev()
        self._store.check(iterator)

    def transaction(self, stream_id: int, partition: int, transaction: int) -> bytes | None:
        """The value of one checkpointed transaction."""
        return self._store.get(keys.transaction_key(b"T", stream_id, partition, transaction))

    def last_transaction(
        self, stream_id: int, partition: int, from_id: int, to_id: int
    ) -> tuple[int, bytes] | None:
        """The last checkpointed transaction with an id in [from_id, to_id]."""
        iterator = self._store.iterator()
        iterator.seek_for_prev(keys.transaction_key(b"T", stream_id, partition, min(to_id, ID_MAX)))
        if not iterator.valid():
            self._store.check(iterator)
            return None
        key = iterator.key()
        if key[:11] != keys.partition_prefix(stream_id, partition):
            return None
        transaction = int.from_bytes(key[11:], "big")
        return (transaction, iterator.value()) if transaction >= from_id else None


def _state_of(stream_id: int, stored: StoredStream) -> StreamState:
    return StreamState(
        stream_id,
        stored.name,
        stored.partitions,
        stored.ttl_ms,
        stored.description,
        stored.schema,
        stored.purged_before,
        stored.version,
    )
