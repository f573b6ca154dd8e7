"""How each record changes the state. No decisions here: what is in the log has happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import Error, Expired, Fenced, InvalidState
from ..limits import REFUSED_MAX, SESSION_TTL_MS
from .facts import (
    Agent,
    Cancelled,
    CancelledByOperator,
    DecidedGroup,
    OpenTransactionState,
    PreparedGroup,
    Session,
    StreamState,
)
from .records import (
    AgentBegun,
    AgentEnded,
    Committed,
    CopiesForgotten,
    CopyDropped,
    Decided,
    Ended,
    Filled,
    InstantMade,
    ItemsSent,
    LedgersDropped,
    Moved,
    Opened,
    OpenedWith,
    Overruled,
    Prepared,
    ReaderReset,
    Refused,
    SessionBegun,
    SessionsEnded,
    SessionsNoted,
    Settled,
    SnapshotBegun,
    SnapshotEnded,
    SnapshotPiece,
    Staged,
    StepCommitted,
    StepPrepared,
    StreamAltered,
    StreamCopied,
    StreamCreated,
    StreamDeleted,
    StreamPurged,
    Swept,
    Told,
    ToTell,
)
from .state import State

WHOLE_STREAM = -1
"""In `State.stirred`, instead of a partition: the stream is gone."""


class Transitions:
    """Applies records to a state: `by_type` has what to call for each kind of them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.by_type: dict[type, Callable[[int, Any], None]] = {
            SessionBegun: self._session_begun,
            SessionsEnded: self._sessions_ended,
            SessionsNoted: self._sessions_noted,
            Swept: self._moved,
            LedgersDropped: self._moved,
            SnapshotBegun: self._moved,
            SnapshotPiece: self._moved,
            SnapshotEnded: self._moved,
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
            OpenedWith: self._opened_with,
            Prepared: self._prepared,
            StepPrepared: self._step_prepared,
            Settled: self._settled,
            Decided: self._decided,
            Refused: self._refused,
            ToTell: self._to_tell,
            Told: self._told,
            StreamCopied: self._stream_copied,
            CopyDropped: self._copy_dropped,
            CopiesForgotten: self._copies_forgotten,
        }

    def _session_begun(self, now_ms: int, record: SessionBegun) -> None:
        self._count(record.session)
        expires_at_ms = now_ms + SESSION_TTL_MS
        self._state.sessions[record.session] = Session(record.session, expires_at_ms=expires_at_ms)

    def _sessions_ended(self, now_ms: int, record: SessionsEnded) -> None:
        self._release(record.expired, Expired)
        for agent in record.agents:
            self._state.forget_agent(agent)
        for session in record.sessions:
            del self._state.sessions[session]

    def _sessions_noted(self, now_ms: int, record: SessionsNoted) -> None:
        for number, last, acked in record.sessions:
            session = self._state.sessions[number]
            session.last, session.acked = last, acked
            for answered in [it for it in session.replies if it <= acked]:
                del session.replies[answered]

    def _stream_created(self, now_ms: int, record: StreamCreated) -> None:
        self._count(record.stream)
        self._state.remember_stream(
            StreamState(
                record.stream,
                record.name,
                record.partitions,
                record.ttl_ms,
                record.description,
                record.schema,
            )
        )

    def _stream_altered(self, now_ms: int, record: StreamAltered) -> None:
        stream = self._state.stream(record.stream)
        stream.ttl_ms = record.ttl_ms
        stream.description = record.description
        if record.schema is not None:
            stream.schema = record.schema
        stream.purged_before = max(stream.purged_before, record.purged_before)
        stream.version += 1
        self._state.ttl_changed(stream)

    def _stream_deleted(self, now_ms: int, record: StreamDeleted) -> None:
        self._release(record.cancelled, Cancelled)
        self._state.forget_stream(self._state.stream(record.stream))
        self._state.stirred.add((record.stream, WHOLE_STREAM))

    def _stream_purged(self, now_ms: int, record: StreamPurged) -> None:
        stream = self._state.stream(record.stream)
        stream.purged_before = max(stream.purged_before, record.before_id)
        stream.version += 1
        self._state.last_id = max(self._state.last_id, record.before_id - 1)

    def _agent_begun(self, now_ms: int, record: AgentBegun) -> None:
        self._count(record.agent)
        self._release(record.cancelled, Fenced)
        if record.fenced:
            self._state.forget_agent(record.fenced)
        agent = Agent(
            record.agent, record.kind, record.stream, record.name, record.session, record.rank
        )
        self._state.remember_agent(agent)

    def _agent_ended(self, now_ms: int, record: AgentEnded) -> None:
        self._release(record.cancelled, Cancelled)
        self._state.forget_agent(record.agent)

    def _opened(self, now_ms: int, record: Opened) -> None:
        self._give_out(record.transaction)
        transaction = OpenTransactionState(
            record.transaction,
            record.stream,
            record.partition,
            record.agent,
            record.lease_ms,
        )
        self._state.hold(transaction, now_ms)

    def _items_sent(self, now_ms: int, record: ItemsSent) -> None:
        transaction = self._state.open[record.transaction]
        transaction.items += record.count
        transaction.batches += 1
        transaction.unfinished = record.count == 0

    def _filled(self, now_ms: int, record: Filled) -> None:
        self._give_out(record.transaction)
        transaction = OpenTransactionState(
            record.transaction, record.stream, record.partition, record.agent, 0
        )
        transaction.items, transaction.batches = record.count, 1
        self._state.place(transaction)

    def _instant_made(self, now_ms: int, record: InstantMade) -> None:
        state = self._state
        assert record.transaction > state.last_id, "ids only rise"
        state.last_id = record.transaction  # `_give_out`, without the call
        state.stirred.add((record.stream, record.partition))
        for position in record.positions:
            state.move(*position)

    def _committed(self, now_ms: int, record: Committed) -> None:
        self._release(record.transactions, InvalidState)
        self._release(record.empty, Cancelled)
        for position in record.positions:
            self._state.move(*position)

    def _ended(self, now_ms: int, record: Ended) -> None:
        self._release(record.transactions, Expired if record.expired else Cancelled)

    def _moved(self, now_ms: int, record: Moved) -> None:
        """Where things lie, and what is removed when it is dead, is the index's business."""

    def _staged(self, now_ms: int, record: Staged) -> None:
        for transaction in record.transactions:
            self._state.stage(transaction, record.job, record.step, record.lease_ms)
        self._state.extend_step(record.job, record.step, now_ms)

    def _step_committed(self, now_ms: int, record: StepCommitted | PreparedGroup) -> None:
        self._release(record.transactions, InvalidState)
        self._release(record.empty, Cancelled)
        self._release(record.dropped, Cancelled)
        for stream_id, before_id in record.replaced:
            stream = self._state.stream(stream_id)
            stream.purged_before = max(stream.purged_before, before_id)
        self._state.step_committed(record.job, record.step, record.final)

    def _reader_reset(self, now_ms: int, record: ReaderReset) -> None:
        if record.fenced:
            self._state.forget_agent(record.fenced)
        for partition, transaction in record.positions:
            self._state.move(record.stream, record.reader, partition, transaction)

    def _overruled(self, now_ms: int, record: Overruled) -> None:
        self._release(record.transactions, CancelledByOperator)

    # Groups that span shards.

    def _opened_with(self, now_ms: int, record: OpenedWith) -> None:
        self._give_out(record.transaction)
        transaction = OpenTransactionState(
            record.transaction, record.stream, record.partition, record.agent, record.lease_ms
        )
        transaction.items, transaction.batches = record.count, 1
        self._state.hold(transaction, now_ms)

    def _prepared(self, now_ms: int, record: Prepared) -> None:
        prepared = PreparedGroup(
            record.group,
            record.session,
            record.lease_ms,
            record.agents,
            record.transactions,
            record.empty,
            record.positions,
            kept=record.kept,
            cut=record.cut,
        )
        self._state.prepare(prepared, now_ms)

    def _step_prepared(self, now_ms: int, record: StepPrepared) -> None:
        prepared = PreparedGroup(
            record.group,
            record.session,
            record.lease_ms,
            transactions=record.transactions,
            empty=record.empty,
            job=record.job,
            step=record.step,
            dropped=record.dropped,
            replaced=record.replaced,
            final=record.final,
        )
        self._state.prepare(prepared, now_ms)

    def _settled(self, now_ms: int, record: Settled) -> None:
        prepared = self._state.settle(record.group)
        if not record.committed:
            for number, count, unfinished in prepared.cut:
                self._state.open[number].cut(count, unfinished)
            self._release(prepared.cancelled, Cancelled)
            for transaction in (*prepared.kept, *prepared.dropped):
                self._state.give_back(transaction, now_ms)
        elif prepared.job:
            self._step_committed(now_ms, prepared)
        else:
            self._release(prepared.transactions, InvalidState)
            self._release(prepared.empty, Cancelled)
            for position in prepared.positions:
                self._state.move(*position)

    def _decided(self, now_ms: int, record: Decided) -> None:
        key = (record.session, record.number)
        self._state.groups.decided[key] = DecidedGroup(True, set(record.others))

    def _refused(self, now_ms: int, record: Refused) -> None:
        session = self._state.sessions[record.session]
        session.refused[record.number] = record.reason
        if len(session.refused) > REFUSED_MAX:
            lowest = min(session.refused)
            del session.refused[lowest]
            session.refused_to = max(session.refused_to, lowest)
        if record.others:
            key = (record.session, record.number)
            self._state.groups.decided[key] = DecidedGroup(False, set(record.others))

    def _to_tell(self, now_ms: int, record: ToTell) -> None:
        self._state.to_tell(record.stream, record.version, record.shards)

    def _told(self, now_ms: int, record: Told) -> None:
        decided = self._state.groups.decided
        for session, number, shard in record.groups:
            it = decided.get((session, number))
            if it is not None:
                it.others.discard(shard)
                if not it.others:
                    del decided[session, number]
        for told in record.streams:
            self._state.told(*told)

    def _stream_copied(self, now_ms: int, record: StreamCopied) -> None:
        stream = StreamState(
            record.stream,
            record.name,
            record.partitions,
            record.ttl_ms,
            record.description,
            record.schema,
            record.purged_before,
            record.version,
        )
        # What is written from now on was not there when its home was told to purge.
        self._state.last_id = max(self._state.last_id, record.purged_before - 1)
        known = self._state.find_stream(record.name)
        if known is not None:
            stream.purged_before = max(stream.purged_before, known.purged_before)
        self._state.remember_stream(stream)
        self._state.ttl_changed(stream)
        self._state.heard += 1

    def _copy_dropped(self, now_ms: int, record: CopyDropped) -> None:
        self._release(record.cancelled, Cancelled)
        self._state.drop_copy(record.stream, record.now_ms)
        self._state.stirred.add((record.stream, WHOLE_STREAM))

    def _copies_forgotten(self, now_ms: int, record: CopiesForgotten) -> None:
        for stream in record.streams:
            self._state.deleted.pop(stream, None)

    def _release(self, transactions: Iterable[int], reason: type[Error]) -> None:
        for transaction in transactions:
            self._state.release(transaction, reason)

    def _give_out(self, transaction: int) -> None:
        assert transaction > self._state.last_id, "ids only rise"
        self._state.last_id = transaction

    def _count(self, number: int) -> None:
        assert number > self._state.last_number, "numbers are given out once"
        self._state.last_number = number
