"""How each record of the log changes the index. A group is one batch, together with its position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.facts import Session
from ..core.records import (
    AgentBegun,
    AgentEnded,
    AnyRecord,
    Committed,
    Ended,
    Filled,
    InstantMade,
    ItemsSent,
    LedgersDropped,
    Moved,
    Opened,
    OpenedWith,
    Overruled,
    ReaderReset,
    SessionBegun,
    SessionsEnded,
    SessionsNoted,
    SnapshotBegun,
    SnapshotEnded,
    SnapshotPiece,
    Staged,
    StepCommitted,
    StreamAltered,
    StreamCreated,
    StreamDeleted,
    StreamPurged,
    Swept,
)
from ..errors import Error
from ..limits import STREAMS_CACHED_MAX
from ..model import IDS_PER_MS
from . import keys
from .facts import (
    IndexFacts,
    StoredAgent,
    StoredJob,
    StoredOpen,
    StoredPrepared,
    StoredSession,
    StoredStream,
    decode_agent,
    decode_open,
    decode_stream,
    encode,
)
from .keys import ONE_BATCH, SLOT_MS, Place, transaction_key
from .live import LiveBytes
from .spanning import Spanning
from .store import Store
from .sweeping import sweep


@dataclass(slots=True)
class _Open:
    """An open transaction: where it belongs, and where its batches lie."""

    stream: int
    partition: int
    items: int = 0
    places: list[Place] = field(default_factory=list)
    stored: bool = True
    """Whether it has O and D keys: one that is committed in the group in which it began has none."""


class Applier:
    """Turns records into changes of the index.

    Invariant: between two groups `_open` holds exactly what the O and D keys say. What a record needs of the index is read
    from the database, and from `_changed` where this batch has changed it.
    """

    def __init__(self, store: Store, facts: IndexFacts, live: LiveBytes) -> None:
        self._store = store
        self._facts = facts
        self._live = live
        self.shown: list[int] = []
        """The streams of transactions that were open and became visible, once for each, since somebody emptied
        this."""
        self._batch: Any = None
        self._changed: dict[bytes, bytes | None] = {}
        self._ttls: dict[int, int] = {}
        self._last_slots: dict[tuple[int, int], int] = {}
        self._open: dict[int, _Open] = {}
        for it in facts.open_transactions():
            places = [place for place, _ in facts.batches_of_open(it.id)]
            self._open[it.id] = _Open(it.stream, it.partition, it.items, places)
        self._by_type: dict[type, Callable[[Any, int, int], None]] = {
            SessionBegun: self._session_begun,
            SessionsEnded: self._sessions_ended,
            SessionsNoted: self._nothing,
            Swept: self._swept,
            LedgersDropped: self._ledgers_dropped,
            SnapshotBegun: self._nothing,
            SnapshotPiece: self._nothing,
            SnapshotEnded: self._snapshot_ended,
            StreamCreated: self._stream_created,
            StreamAltered: self._stream_altered,
            StreamDeleted: self._stream_deleted,
            StreamPurged: self._stream_purged,
            AgentBegun: self._agent_begun,
            AgentEnded: self._agent_ended,
            Opened: self._opened,
            ItemsSent: self._items_sent,
            InstantMade: self._instant_made,
            Committed: self._committed,
            Ended: self._ended,
            Moved: self._moved,
            Filled: self._filled,
            Staged: self._staged,
            StepCommitted: self._step_committed,
            ReaderReset: self._reader_reset,
            Overruled: self._overruled,
        }
        self._by_type.update(Spanning(self).by_type)

    def apply(
        self,
        entries: Iterable[tuple[AnyRecord, int, int]],
        end: int,
        last_id: int,
        last_number: int,
        sessions: Iterable[Session],
    ) -> None:
        """Records with their positions and sizes; `end` is the position behind them.

        `sessions` are those that the records belong to: what they may ask for again is stored with what
        they did.
        """
        self._batch = batch = self._store.batch()
        by_type = self._by_type
        for record, position, size in entries:
            by_type[type(record)](record, position, size)
        for session in sessions:
            self._put_session(session)
        self._live.write(batch)
        batch.put(keys.POSITION, keys.HEAD.pack(end, last_id, last_number))
        self._store.write(batch)
        self._changed.clear()
        if len(self._ttls) > STREAMS_CACHED_MAX:
            self._ttls.clear()
        if len(self._last_slots) > STREAMS_CACHED_MAX:
            self._last_slots.clear()

    def number_of_batch(
        self, stream: int, partition: int, transaction: int, position: int
    ) -> int | None:
        """Which batch of a living transaction lies at this position; None: that batch is dead."""
        it = self._open.get(transaction)
        if it is not None:
            places = it.places
        else:
            value = self._store.get(transaction_key(b"T", stream, partition, transaction))
            if value is None:
                return None
            places = keys.unpack_transaction(value)[1]
        for number, place in enumerate(places):
            if place.position == position:
                return number
        return None

    # The most frequent one first.

    def _instant_made(self, record: InstantMade, position: int, size: int) -> None:
        stream, partition, transaction = record.stream, record.partition, record.transaction
        key = transaction_key(b"T", stream, partition, transaction)
        self.put(key, ONE_BATCH.pack(record.count, 1, position, size))
        self._live.add(position, size)
        self._note_death(stream, partition, transaction)
        if record.positions:
            self.move(record.positions)

    def _note_death(self, stream: int, partition: int, transaction: int) -> None:
        """Have somebody look at this partition when this transaction dies."""
        ttl_ms = self._ttls.get(stream)
        if ttl_ms is None:
            ttl_ms = self._ttls[stream] = self._stream(stream).ttl_ms
        slot = (transaction // IDS_PER_MS + ttl_ms) // SLOT_MS + 1
        if self._last_slots.get((stream, partition)) != slot:
            self._last_slots[stream, partition] = slot
            self._batch.put(keys.slot_key(slot, stream, partition), b"")

    # A log that several nodes read.

    def _nothing(self, record: AnyRecord, position: int, size: int) -> None:
        """It changes nothing here; the sessions that were noted are put by `apply`."""

    def _swept(self, record: Swept, position: int, size: int) -> None:
        assert not self._changed, (
            "what is swept is read from the database, so nothing may be under way"
        )
        for partition in sweep(self._store, self._facts, self._live, self._batch, record):
            self._last_slots.pop(partition, None)  # a slot is known only as long as it is there

    def _ledgers_dropped(self, record: LedgersDropped, position: int, size: int) -> None:
        self._live.forget(record.ledgers, self._batch)

    def _snapshot_ended(self, record: SnapshotEnded, position: int, size: int) -> None:
        value = keys.SNAPSHOT_PLACE.pack(record.at, position, record.size_bytes)
        self.put(keys.SNAPSHOT, value)

    # Sessions.

    def _session_begun(self, record: SessionBegun, position: int, size: int) -> None:
        self.put(keys.session_key(record.session), encode(StoredSession(0, 0, {})))

    def _sessions_ended(self, record: SessionsEnded, position: int, size: int) -> None:
        self.drop_open(record.expired)
        for agent in record.agents:
            self._drop_agent(agent)
        for session in record.sessions:
            self.delete(keys.session_key(session))

    def _put_session(self, session: Session) -> None:
        replies = {n: it for n, it in session.replies.items() if not isinstance(it, Error)}
        stored = StoredSession(
            session.last, session.acked, replies, session.refused, session.refused_to
        )
        self._batch.put(keys.session_key(session.id), encode(stored))

    # Streams.

    def _stream_created(self, record: StreamCreated, position: int, size: int) -> None:
        self.put(keys.name_key(record.name), record.stream.to_bytes(8, "big"))
        self.put_stream(
            record.stream,
            StoredStream(
                record.name,
                record.partitions,
                record.ttl_ms,
                record.description,
                record.schema,
                0,
            ),
        )

    def _stream_altered(self, record: StreamAltered, position: int, size: int) -> None:
        old = self._stream(record.stream)
        new = StoredStream(
            old.name,
            old.partitions,
            record.ttl_ms,
            record.description,
            old.schema if record.schema is None else record.schema,
            max(old.purged_before, record.purged_before),
            old.version + 1,
        )
        self.put_stream(record.stream, new)
        if new.ttl_ms < old.ttl_ms:
            self.look_soon(record.stream, old.partitions)

    def _stream_purged(self, record: StreamPurged, position: int, size: int) -> None:
        self._purge(record.stream, record.before_id, 1)

    def _purge(self, stream: int, before_id: int, versions: int = 0) -> None:
        old = self._stream(stream)
        before = max(old.purged_before, before_id)
        new = StoredStream(
            old.name,
            old.partitions,
            old.ttl_ms,
            old.description,
            old.schema,
            before,
            old.version + versions,
        )
        self.put_stream(stream, new)
        self.look_soon(stream, old.partitions)

    def look_soon(self, stream: int, partitions: int) -> None:
        """Have somebody look for the dead in a stream."""
        for partition in range(partitions):
            self._batch.put(keys.slot_key(0, stream, partition), b"")
            self._last_slots.pop((stream, partition), None)

    def _stream_deleted(self, record: StreamDeleted, position: int, size: int) -> None:
        self.drop_open(record.cancelled)
        self.forget_stream(record.stream, keys.name_key(self._stream(record.stream).name))

    def forget_stream(self, stream: int, name_key: bytes) -> None:
        """A stream is gone; what it held is still to be removed."""
        self.delete(name_key)
        self.delete(keys.stream_key(stream))
        self.put(keys.deleted_key(stream), b"")
        self._ttls.pop(stream, None)

    def put_stream(self, stream: int, stored: StoredStream) -> None:
        """A stream is so from now on."""
        self.put(keys.stream_key(stream), encode(stored))
        self._ttls[stream] = stored.ttl_ms

    def _stream(self, stream: int) -> StoredStream:
        value = self.get(keys.stream_key(stream))
        assert value is not None, f"stream {stream} is in the log but not in the index"
        return decode_stream(value)

    # Agents.

    def _agent_begun(self, record: AgentBegun, position: int, size: int) -> None:
        self.drop_open(record.cancelled)
        if record.fenced:
            self._drop_agent(record.fenced)
        stored = StoredAgent(record.kind, record.stream, record.name, record.session, record.rank)
        self.put(keys.agent_key(record.agent), encode(stored))
        holder = keys.holder_key(record.kind, record.stream, record.name)
        self.put(holder, record.agent.to_bytes(8, "big"))
        self.put(keys.session_agent_key(record.session, record.agent), b"")

    def _agent_ended(self, record: AgentEnded, position: int, size: int) -> None:
        self.drop_open(record.cancelled)
        self._drop_agent(record.agent)

    def _drop_agent(self, agent: int) -> None:
        value = self.get(keys.agent_key(agent))
        if value is None:
            return
        stored = decode_agent(value)
        self.delete(keys.agent_key(agent))
        self.delete(keys.session_agent_key(stored.session, agent))
        holder = keys.holder_key(stored.kind, stored.stream, stored.name)
        if self.get(holder) == agent.to_bytes(8, "big"):
            self.delete(holder)

    # Transactions.

    def _opened(self, record: Opened, position: int, size: int) -> None:
        self._open[record.transaction] = _Open(record.stream, record.partition)
        stored = StoredOpen(record.stream, record.partition, record.agent, record.lease_ms)
        self.put(keys.open_key(record.transaction), encode(stored))

    def _items_sent(self, record: ItemsSent, position: int, size: int) -> None:
        transaction = self._open[record.transaction]
        value = keys.PLACE_AND_COUNT.pack(position, size, record.count)
        self.put(keys.batch_key(record.transaction, len(transaction.places)), value)
        transaction.places.append(Place(position, size))
        transaction.items += record.count
        self._live.add(position, size)

    def hold(self, record: OpenedWith, place: Place) -> None:
        """A transaction is open from now on, with its first batch. Its keys have been put."""
        it = _Open(record.stream, record.partition, record.count, [place])
        self._open[record.transaction] = it
        self._live.add(place.position, place.size)

    def _filled(self, record: Filled, position: int, size: int) -> None:
        places = [Place(position, size)]
        it = _Open(record.stream, record.partition, record.count, places, stored=False)
        self._open[record.transaction] = it
        self._live.add(position, size)

    def _committed(self, record: Committed, position: int, size: int) -> None:
        self.show(record.transactions)
        self.drop_open(record.empty)
        self.move(record.positions)

    def show(self, transactions: Sequence[int]) -> None:
        """Open transactions became visible."""
        for transaction in transactions:
            it = self._close(transaction)
            key = transaction_key(b"T", it.stream, it.partition, transaction)
            self.put(key, keys.pack_transaction(it.items, it.places))
            self._note_death(it.stream, it.partition, transaction)
            self.shown.append(it.stream)

    def move(self, positions: Iterable[tuple[int, str, int, int]]) -> None:
        """Readers have come so far."""
        for stream, reader, partition, transaction in positions:
            self.put(keys.position_key(stream, reader, partition), transaction.to_bytes(8, "big"))

    def _ended(self, record: Ended, position: int, size: int) -> None:
        self.drop_open(record.transactions)

    def _moved(self, record: Moved, position: int, size: int) -> None:
        place = Place(position, size)
        transaction = self._open.get(record.transaction)
        if transaction is not None:
            old = transaction.places[record.number]
            transaction.places[record.number] = place
            key = keys.batch_key(record.transaction, record.number)
            value = self.get(key)
            assert value is not None, "the batches of an open transaction are in the index"
            count = keys.unpack_batch(value)[1]
            self.put(key, keys.PLACE_AND_COUNT.pack(position, size, count))
        else:
            key = transaction_key(b"T", record.stream, record.partition, record.transaction)
            value = self.get(key)
            if value is None:
                return  # it died while it was being moved
            items, places = keys.unpack_transaction(value)
            old = places[record.number]
            places[record.number] = place
            self.put(key, keys.pack_transaction(items, places))
        self._live.remove(old.position, old.size)
        self._live.add(position, size)

    # Jobs.

    def _staged(self, record: Staged, position: int, size: int) -> None:
        for transaction in record.transactions:
            key = keys.open_key(transaction)
            value = self.get(key)
            assert value is not None, "what is staged is open"
            old = decode_open(value)
            stored = StoredOpen(
                old.stream, old.partition, 0, record.lease_ms, record.job, record.step
            )
            self.put(key, encode(stored))

    def _step_committed(self, record: StepCommitted, position: int, size: int) -> None:
        self.show(record.transactions)
        self.drop_open(record.empty)
        self.drop_open(record.dropped)
        self.step_over(record, record.now_ms)

    def step_over(self, step: StepCommitted | StoredPrepared, now_ms: int) -> None:
        """A step of a job was committed: what it replaced, and that it is over."""
        for stream, before_id in step.replaced:
            self._purge(stream, before_id)
        key = keys.job_key(step.job)
        if step.final:
            self.delete(key)
        else:
            self.put(key, encode(StoredJob(step.step, now_ms)))

    # Operators.

    def _reader_reset(self, record: ReaderReset, position: int, size: int) -> None:
        if record.fenced:
            self._drop_agent(record.fenced)
        for partition, transaction in record.positions:
            key = keys.position_key(record.stream, record.reader, partition)
            if transaction:
                self.put(key, transaction.to_bytes(8, "big"))
            else:
                self.delete(key)

    def _overruled(self, record: Overruled, position: int, size: int) -> None:
        self.drop_open(record.transactions)

    # Open transactions that end.

    def _close(self, transaction: int) -> _Open:
        """An open transaction is open no more."""
        it = self._open.pop(transaction)
        if not it.stored:
            return it
        self.delete(keys.open_key(transaction))
        if it.places:
            prefix = keys.batch_key(transaction, 0)[:9]
            self._store.delete_prefix(self._batch, prefix)
        return it

    def cut(self, transaction: int, count: int) -> None:
        """An open transaction loses its last batch, which has so many items."""
        it = self._open[transaction]
        place = it.places.pop()
        it.items -= count
        self.delete(keys.batch_key(transaction, len(it.places)))
        self._live.remove(place.position, place.size)

    def drop_open(self, transactions: Sequence[int]) -> None:
        """Open transactions ended without becoming visible."""
        for transaction in transactions:
            for place in self._close(transaction).places:
                self._live.remove(place.position, place.size)

    # The batch, and what it has changed.

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, as this batch leaves it."""
        return self._changed[key] if key in self._changed else self._store.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Change a key."""
        self._batch.put(key, value)
        self._changed[key] = value

    def delete(self, key: bytes) -> None:
        """Remove a key."""
        self._batch.delete(key)
        self._changed[key] = None
