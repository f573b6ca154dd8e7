"""How each record changes the state. No decisions here: what is in the log has happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import Error, Expired, Fenced, InvalidState
from ..limits import SESSION_TTL_MS
from .facts import (
    Agent,
    Cancelled,
    CancelledByOperator,
    OpenTransactionState,
    Session,
    StreamState,
)
from .records import (
    AgentBegun,
    AgentEnded,
    Committed,
    Ended,
    Filled,
    InstantMade,
    ItemsSent,
    LedgersDropped,
    Moved,
    Opened,
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
        self._state.ttl_changed(stream)

    def _stream_deleted(self, now_ms: int, record: StreamDeleted) -> None:
        self._release(record.cancelled, Cancelled)
        self._state.forget_stream(self._state.stream(record.stream))
        self._state.stirred.add((record.stream, WHOLE_STREAM))

    def _stream_purged(self, now_ms: int, record: StreamPurged) -> None:
        stream = self._state.stream(record.stream)
        stream.purged_before = max(stream.purged_before, record.before_id)

    def _agent_begun(self, now_ms: int, record: AgentBegun) -> None:
        self._count(record.agent)
        self._release(record.cancelled, Fenced)
        if record.fenced:
            self._state.forget_agent(record.fenced)
        agent = Agent(record.agent, record.kind, record.stream, record.name, record.session)
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

    def _step_committed(self, now_ms: int, record: StepCommitted) -> None:
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

    def _release(self, transactions: Iterable[int], reason: type[Error]) -> None:
        for transaction in transactions:
            self._state.release(transaction, reason)

    def _give_out(self, transaction: int) -> None:
        assert transaction > self._state.last_id, "ids only rise"
        self._state.last_id = transaction

    def _count(self, number: int) -> None:
        assert number > self._state.last_number, "numbers are given out once"
        self._state.last_number = number
