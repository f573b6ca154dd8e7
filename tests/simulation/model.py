"""What a shard promises, in the plainest form: dictionaries, and no disk to lose them on.

`Model.handle` says what a request must be answered with. Ids and numbers are predicted too: the clock of a
simulation stands still unless it is told to move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tstreams.limits import SESSION_TTL_MS
from tstreams.model import IDS_PER_MS, TransactionState
from tstreams.protocol import (
    AgentOpened,
    AlterStream,
    Brought,
    CancelStep,
    CancelTransactions,
    Change,
    CloseAgent,
    Commit,
    CommitStep,
    CreateStream,
    DeleteStream,
    Done,
    EndTransactions,
    Instant,
    KeepAlive,
    OpenAgent,
    OpenTransaction,
    PurgeStream,
    Reply,
    ResetReader,
    SendItems,
    SessionOpened,
    Stage,
    StreamInfo,
)

SESSIONS_EVERY_MS = 10_000
ADDING = (CreateStream, OpenTransaction, SendItems, Instant)
OPENED, CHECKPOINTED, CANCELLED, INVALID = TransactionState


class Refusal(Exception):
    """A request must be refused with one of these codes."""

    def __init__(self, *codes: str) -> None:
        self.codes = frozenset(codes)


@dataclass(slots=True)
class Stream:
    id: int
    name: str
    partitions: int
    ttl_ms: int
    description: str
    schema: bytes | None
    purged_before: int = 0
    version: int = 1

    def info(self) -> StreamInfo:
        return StreamInfo(
            self.id,
            self.name,
            self.partitions,
            self.ttl_ms,
            self.description,
            self.schema,
            self.purged_before,
            self.version,
        )


@dataclass(slots=True)
class Agent:
    id: int
    kind: str
    stream: int
    name: str
    session: int


@dataclass(slots=True)
class Transaction:
    id: int
    stream: int
    partition: int
    agent: int
    lease_ms: int
    expires_at_ms: int = 0
    batches: list[list[bytes]] = field(default_factory=list)
    state: TransactionState = OPENED
    ended_codes: frozenset[str] = frozenset()
    """What a late caller is told."""
    staged: tuple[str, int] | None = None
    """The job and the step that it was handed over to."""


@dataclass(slots=True)
class Session:
    id: int
    expires_at_ms: int
    last: int = 0
    acked: int = 0
    answers: dict[int, Reply | Refusal] = field(default_factory=dict)


class Model:
    """The state of a shard, and what must become of it."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.last_id = 0
        self.last_number = 0
        self.full = False
        self.streams: dict[int, Stream] = {}
        self.agents: dict[int, Agent] = {}
        self.transactions: dict[int, Transaction] = {}
        self.positions: dict[tuple[int, str, int], int] = {}
        self.sessions: dict[int, Session] = {}
        self.last_steps: dict[str, int] = {}
        self.sessions_due_ms = 0

    # What happens.

    def handle(self, message: Change, items: Sequence[bytes] = ()) -> Reply | Refusal:
        """The answer to a request, which may have been sent before."""
        known = self.sessions.get(message.session)
        is_new = known is None or message.sequence > known.last
        if self.full and is_new and (isinstance(message, ADDING) or items):
            return Refusal("unavailable")
        try:
            session = self._heard_of(message.session, message.acked)
        except Refusal as refusal:
            return refusal
        if message.sequence <= session.last:
            return session.answers.get(message.sequence, Refusal("invalid_state"))
        session.last = message.sequence
        decide: Callable[[Any, Sequence[bytes]], Reply] = _RULES[type(message)].__get__(self)
        try:
            answer: Reply | Refusal = decide(message, items)
        except Refusal as refusal:
            answer = refusal
        session.answers[message.sequence] = answer
        return answer

    def open_session(self) -> SessionOpened:
        session = Session(self._number(), self.now_ms + SESSION_TTL_MS)
        self.sessions[session.id] = session
        return SessionOpened(session.id, SESSION_TTL_MS)

    def keep_alive(self, message: KeepAlive) -> Reply | Refusal:
        try:
            session = self._heard_of(message.session, message.acked)
        except Refusal as refusal:
            return refusal
        mine = {it.id for it in self.agents.values() if it.session == session.id}
        self._renew(it for it in self.open() if it.agent in mine)
        return Done()

    def tick(self) -> None:
        self._end((it for it in self.open() if it.expires_at_ms <= self.now_ms), INVALID, "expired")
        if self.now_ms < self.sessions_due_ms:
            return
        self.sessions_due_ms = self.now_ms + SESSIONS_EVERY_MS
        for session in list(self.sessions.values()):
            if session.expires_at_ms <= self.now_ms:
                del self.sessions[session.id]
                for agent in [it for it in self.agents.values() if it.session == session.id]:
                    self._end(self.open_of(agent.id), INVALID, "expired")
                    del self.agents[agent.id]

    def forgot_memory(self, last_id: int, last_number: int, lasts: dict[int, int]) -> None:
        """The shard has read its state from the disk. What was refused need not be known any more, and
        nobody could keep a lease meanwhile. `lasts`: the last number of each session, as it says now."""
        assert last_id >= max(self.transactions, default=0), "ids never go back"
        assert last_number >= max([*self.streams, *self.agents, *self.sessions], default=0), (
            "numbers never go back"
        )
        assert lasts.keys() == self.sessions.keys()
        self.last_id, self.last_number = last_id, last_number
        self._renew(self.open())
        for transaction in self.transactions.values():
            transaction.ended_codes |= {"invalid_state"}
        self.sessions_due_ms = 0
        for session in self.sessions.values():
            accepted: dict[int, Reply | Refusal] = {
                n: it for n, it in session.answers.items() if not isinstance(it, Refusal)
            }
            last = lasts[session.id]
            assert max(accepted, default=0) <= last <= session.last, "answers are not forgotten"
            session.answers, session.last = accepted, last
            session.expires_at_ms = self.now_ms + SESSION_TTL_MS

    # What can be seen.

    def visible(self, stream: Stream, partition: int) -> list[Transaction]:
        """What a reader of this partition sees, in order."""
        floor = max(stream.purged_before, (self.now_ms - stream.ttl_ms) * IDS_PER_MS)
        inside = [
            it
            for it in self.transactions.values()
            if (it.stream, it.partition) == (stream.id, partition)
        ]
        first_open = min((it.id for it in inside if it.state is OPENED), default=None)
        return sorted(
            (
                it
                for it in inside
                if it.state is CHECKPOINTED
                and it.id >= floor
                and (first_open is None or it.id < first_open)
            ),
            key=lambda it: it.id,
        )

    def heads(self, stream: Stream) -> list[tuple[int, int]]:
        """(partition, id) of the first open transaction of each partition that has one."""
        first: dict[int, int] = {}
        for it in self.open():
            if it.stream == stream.id:
                first[it.partition] = min(it.id, first.get(it.partition, it.id))
        return sorted(first.items())

    def open(self) -> list[Transaction]:
        return [it for it in self.transactions.values() if it.state is OPENED]

    def open_of(self, agent: int) -> list[Transaction]:
        return [it for it in self.open() if it.agent == agent]

    # Streams.

    def _create_stream(self, message: CreateStream, items: Sequence[bytes]) -> Reply:
        if self._find_stream(message.name) is not None:
            raise Refusal("already_exists")
        stream = Stream(
            self._number(),
            message.name,
            message.partitions,
            message.ttl_ms,
            message.description,
            message.schema,
        )
        self.streams[stream.id] = stream
        return stream.info()

    def _alter_stream(self, message: AlterStream, items: Sequence[bytes]) -> Reply:
        stream = self._stream_named(message.name)
        if message.schema is not None:
            if stream.schema is None or stream.schema != message.old_schema:
                raise Refusal("invalid_state")
            stream.schema = message.schema
        if message.ttl_ms is not None:
            if message.ttl_ms > stream.ttl_ms:  # what has died stays dead
                died_before = (self.now_ms - stream.ttl_ms) * IDS_PER_MS
                stream.purged_before = max(stream.purged_before, died_before)
            stream.ttl_ms = message.ttl_ms
            for it in self.open():
                if it.stream == stream.id:
                    dies_at_ms = it.id // IDS_PER_MS + stream.ttl_ms
                    it.expires_at_ms = min(it.expires_at_ms, dies_at_ms)
        if message.description is not None:
            stream.description = message.description
        stream.version += 1
        return stream.info()

    def _delete_stream(self, message: DeleteStream, items: Sequence[bytes]) -> Reply:
        stream = self._stream_named(message.name)
        inside = (it for it in self.open() if it.stream == stream.id)
        self._end(inside, CANCELLED, "invalid_state")
        del self.streams[stream.id]
        return Done()

    def _purge_stream(self, message: PurgeStream, items: Sequence[bytes]) -> Reply:
        stream = self._stream_named(message.name)
        stream.version += 1
        before_id = min(message.before_id, self.last_id + 1)  # not what is still to come
        stream.purged_before = max(stream.purged_before, before_id)
        return Done()

    # Agents.

    def _open_agent(self, message: OpenAgent, items: Sequence[bytes]) -> Reply:
        stream = self._stream_named(message.stream)
        for old in list(self.agents.values()):
            if (old.kind, old.stream, old.name) == (message.kind, stream.id, message.name):
                self._end(self.open_of(old.id), CANCELLED, "fenced")
                del self.agents[old.id]
        agent = Agent(self._number(), message.kind, stream.id, message.name, message.session)
        self.agents[agent.id] = agent
        return AgentOpened(agent.id, stream.info())

    def _close_agent(self, message: CloseAgent, items: Sequence[bytes]) -> Reply:
        self._agent(message.agent)
        self._end(self.open_of(message.agent), CANCELLED, "invalid_state")
        del self.agents[message.agent]
        return Done()

    # Transactions.

    def _open_transaction(self, message: OpenTransaction, items: Sequence[bytes]) -> Reply:
        transaction = self._new(message.agent, message.partition, message.lease_ms)
        self._renew([transaction])
        return Done(transaction.id)

    def _instant(self, message: Instant, items: Sequence[bytes]) -> Reply:
        transaction = self._new(message.agent, message.partition, 0)
        transaction.batches = [list(items)]
        transaction.state = CHECKPOINTED
        transaction.ended_codes = frozenset({"invalid_state"})
        return Done(transaction.id)

    def _send_items(self, message: SendItems, items: Sequence[bytes]) -> Reply:
        agent = self._agent(message.agent)
        transaction = self._open(message.transaction)
        if transaction.agent != agent.id:
            raise Refusal("bad_request")
        transaction.batches.append(list(items))
        return Done()

    def _commit(self, message: Commit, items: Sequence[bytes]) -> Reply:
        for agent in message.agents:
            self._agent(agent)
        for it in message.brought:
            self._check_brought(it, message)
        mine = self._members(message.agents, message.transactions)
        if any(self.agents[it].stream not in self.streams for it in message.agents):
            raise Refusal("not_found")
        moves = {}
        for position in message.positions:
            if position.agent not in message.agents:
                raise Refusal("bad_request")
            reader = self._agent(position.agent)
            if reader.kind != "reader":
                raise Refusal("bad_request")
            self._check_partition(reader.stream, position.partition)
            moves[reader.stream, reader.name, position.partition] = position.transaction
        for it in message.brought:
            if it.transaction:
                self.transactions[it.transaction].batches.append(list(items))
            else:
                mine.append(self._new(it.agent, it.partition, 0))
                mine[-1].batches = [list(items)]
        for transaction in mine:
            state = CHECKPOINTED if transaction.batches else CANCELLED
            self._end([transaction], state, "invalid_state")
        self.positions.update(moves)
        return Done()

    def _check_brought(self, it: Brought, message: Commit) -> None:
        if it.agent not in message.agents:
            raise Refusal("bad_request")
        if not it.transaction:
            self._check_producer(it.agent, it.partition)
        elif (
            it.transaction not in message.transactions
            or self._open(it.transaction).agent != it.agent
        ):
            raise Refusal("bad_request")

    def _cancel(self, message: CancelTransactions, items: Sequence[bytes]) -> Reply:
        mine = self._members(message.agents, message.transactions)
        self._end(mine, CANCELLED, "invalid_state")
        return Done()

    # Jobs.

    def _stage(self, message: Stage, items: Sequence[bytes]) -> Reply:
        agent = self._agent(message.agent)
        if message.step <= self.last_steps.get(message.job, -1):
            raise Refusal("invalid_state")
        mine = [self._open(it) for it in message.transactions]
        if any(it.agent != agent.id for it in mine):
            raise Refusal("bad_request")
        for it in mine:
            it.agent, it.staged = 0, (message.job, message.step)
            it.lease_ms = message.lease_ms
        self._renew(it for it in self.open() if it.staged == (message.job, message.step))
        return Done()

    def _commit_step(self, message: CommitStep, items: Sequence[bytes]) -> Reply:
        if message.step <= self.last_steps.get(message.job, -1):
            return Done()
        mine = [self._open(it) for it in message.transactions]
        if any(it.staged != (message.job, message.step) for it in mine):
            raise Refusal("bad_request")
        for stream in [self._stream_named(name) for name in message.replace]:
            first = min((it.id for it in mine if it.stream == stream.id), default=self.last_id + 1)
            stream.purged_before = max(stream.purged_before, first)
        for it in mine:
            self._end([it], CHECKPOINTED if it.batches else CANCELLED, "invalid_state")
        for it in self.open():
            if it.staged and it.staged[0] == message.job and it.staged[1] <= message.step:
                self._end([it], CANCELLED, "invalid_state")
        self.last_steps[message.job] = -1 if message.final else message.step
        return Done()

    def _cancel_step(self, message: CancelStep, items: Sequence[bytes]) -> Reply:
        staged = (message.job, message.step)
        self._end([it for it in self.open() if it.staged == staged], CANCELLED, "invalid_state")
        return Done()

    # Operators.

    def _reset_reader(self, message: ResetReader, items: Sequence[bytes]) -> Reply:
        stream = self._stream_named(message.stream)
        partitions = [partition for partition, _ in message.positions]
        if len(set(partitions)) < len(partitions):
            raise Refusal("bad_request")
        for partition, transaction in message.positions:
            self._check_partition(stream.id, partition)
            if transaction > self.last_id:
                raise Refusal("bad_request")
        mine = ("reader", stream.id, message.reader)
        for agent in list(self.agents.values()):
            if (agent.kind, agent.stream, agent.name) == mine:
                if not message.force:
                    raise Refusal("invalid_state")
                del self.agents[agent.id]
        for partition, transaction in message.positions:
            key = (stream.id, message.reader, partition)
            if transaction:
                self.positions[key] = transaction
            else:
                self.positions.pop(key, None)
        return Done()

    def _end_transactions(self, message: EndTransactions, items: Sequence[bytes]) -> Reply:
        self._end([self._open(it) for it in message.transactions], CANCELLED, "invalid_state")
        return Done()

    # Shared.

    def _members(self, agents: list[int], transactions: list[int]) -> list[Transaction]:
        for agent in agents:
            self._agent(agent)
        mine = []
        for transaction in transactions:
            mine.append(self._open(transaction))
            if mine[-1].agent not in agents:
                raise Refusal("bad_request")
        return mine

    def _check_producer(self, agent_id: int, partition: int) -> Agent:
        agent = self._agent(agent_id)
        if agent.kind != "producer":
            raise Refusal("bad_request")
        self._check_partition(agent.stream, partition)
        return agent

    def _new(self, agent_id: int, partition: int, lease_ms: int) -> Transaction:
        agent = self._check_producer(agent_id, partition)
        self.last_id = max(self.last_id + 1, self.now_ms * IDS_PER_MS)
        transaction = Transaction(self.last_id, agent.stream, partition, agent.id, lease_ms)
        self.transactions[transaction.id] = transaction
        return transaction

    def _open(self, transaction_id: int) -> Transaction:
        transaction = self.transactions.get(transaction_id)
        if transaction is None:
            raise Refusal("invalid_state")
        if transaction.state is not OPENED:
            raise Refusal(*transaction.ended_codes)
        if transaction.expires_at_ms <= self.now_ms:
            raise Refusal("expired")
        return transaction

    def _end(self, transactions: Iterable[Transaction], state: TransactionState, code: str) -> None:
        for transaction in transactions:
            transaction.state = state
            transaction.ended_codes = frozenset({code})

    def _renew(self, transactions: Iterable[Transaction]) -> None:
        for it in transactions:
            dies_at_ms = it.id // IDS_PER_MS + self.streams[it.stream].ttl_ms
            it.expires_at_ms = min(self.now_ms + it.lease_ms, dies_at_ms)

    def _heard_of(self, session_id: int, acked: int) -> Session:
        session = self.sessions.get(session_id)
        if session is None:
            raise Refusal("invalid_state")
        session.expires_at_ms = self.now_ms + SESSION_TTL_MS
        session.acked = max(acked, session.acked)
        session.answers = {n: it for n, it in session.answers.items() if n > session.acked}
        return session

    def _agent(self, agent_id: int) -> Agent:
        if agent_id not in self.agents:
            raise Refusal("fenced")
        return self.agents[agent_id]

    def _find_stream(self, name: str) -> Stream | None:
        return next((it for it in self.streams.values() if it.name == name), None)

    def _stream_named(self, name: str) -> Stream:
        stream = self._find_stream(name)
        if stream is None:
            raise Refusal("not_found")
        return stream

    def _check_partition(self, stream_id: int, partition: int) -> None:
        if stream_id not in self.streams:
            raise Refusal("not_found")
        if partition >= self.streams[stream_id].partitions:
            raise Refusal("bad_request")

    def _number(self) -> int:
        self.last_number += 1
        return self.last_number


_RULES: dict[type, Callable[..., Reply]] = {
    CreateStream: Model._create_stream,
    AlterStream: Model._alter_stream,
    DeleteStream: Model._delete_stream,
    PurgeStream: Model._purge_stream,
    OpenAgent: Model._open_agent,
    CloseAgent: Model._close_agent,
    OpenTransaction: Model._open_transaction,
    SendItems: Model._send_items,
    Instant: Model._instant,
    Commit: Model._commit,
    CancelTransactions: Model._cancel,
    Stage: Model._stage,
    CommitStep: Model._commit_step,
    CancelStep: Model._cancel_step,
    ResetReader: Model._reset_reader,
    EndTransactions: Model._end_transactions,
}
