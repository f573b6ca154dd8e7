"""What each request may do: checked against the state, turned into one record, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from ..errors import (
    AlreadyExists,
    BadRequest,
    Error,
    Expired,
    Fenced,
    InvalidState,
    NotFound,
    TooLarge,
)
from ..limits import (
    CLOCKS_DIFFER_MS_MAX,
    COMMIT_MEMBERS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    OPEN_TRANSACTIONS_MAX,
    SCHEMA_BYTES_MAX,
    TRANSACTION_BATCHES_MAX,
)
from ..model import (
    IDS_PER_MS,
    check_description,
    check_name,
    check_partitions,
    check_stream_ttl,
)
from ..protocol import (
    AgentOpened,
    AlterStream,
    CancelTransactions,
    Change,
    CloseAgent,
    Commit,
    CommitStep,
    CreateStream,
    DeleteStream,
    Done,
    Instant,
    OpenAgent,
    OpenTransaction,
    Prepare,
    PurgeStream,
    ReadPosition,
    Reply,
    SendItems,
    StreamInfo,
)
from ..sharding import giver_of, shards_of
from .facts import (
    PRODUCER,
    READER,
    Agent,
    CancelledByOperator,
    OpenTransactionState,
    StreamState,
)
from .records import (
    AgentBegun,
    AgentEnded,
    AnyRecord,
    Committed,
    Decided,
    Ended,
    Filled,
    InstantMade,
    ItemsSent,
    Opened,
    OpenedWith,
    StreamAltered,
    StreamCreated,
    StreamDeleted,
    StreamPurged,
    ToTell,
)
from .state import State
from .waits import CopyNeeded, InDoubt

Decision: TypeAlias = AnyRecord | tuple[AnyRecord, ...]
"""The record of a request; or several, which belong into one group of the log."""


class Rules:
    """Decides on requests: `by_type` has what to call for each kind of them, with the time and the number of
    items that came along. It gives the record, or raises the typed error; `InDoubt` or `CopyNeeded` (`waits.py`) if
    another shard has to be heard first.
    `bringing` has the same for those that may bring several batches. Nothing here changes the state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.bringing: dict[type, Callable[[int, Any, Sequence[int]], tuple[AnyRecord, ...]]] = {
            Commit: self.decide_commit
        }
        self.by_type: dict[type, Callable[[int, Any, int], Decision]] = {
            CreateStream: self._create_stream,
            AlterStream: self._alter_stream,
            DeleteStream: self._delete_stream,
            PurgeStream: self._purge_stream,
            OpenAgent: self._open_agent,
            CloseAgent: self._close_agent,
            OpenTransaction: self._open_transaction,
            SendItems: self._send_items,
            Instant: self._instant,
            Commit: self._commit,
            CancelTransactions: self._cancel,
        }

    def register(self, kind: type[Change], decide: Callable[[int, Any, int], Decision]) -> None:
        """Let requests of a kind be decided on elsewhere."""
        self.by_type[kind] = decide

    def decide_commit(
        self, now_ms: int, request: Commit, counts: Sequence[int]
    ) -> tuple[AnyRecord, ...]:
        """The records of a commit that brings batches along: one for each of them, and the commit itself.

        Until its own record nothing of it is visible. They must get into one group of the log.
        """
        agents = {agent_id: self.agent(agent_id) for agent_id in request.agents}
        brought, filled, new = self.brought(now_ms, request, agents, counts)
        committed = self.committed(now_ms, request, agents, filled, new)
        if request.others:
            return (*brought, committed, self.decided(request))
        if (
            len(brought) == 1
            and committed.positions
            and (committed.transactions, committed.empty) == (new, [])
        ):
            return (_in_one(committed, brought[0]),)
        return (*brought, committed)

    def brought(
        self,
        now_ms: int,
        request: Commit | Prepare,
        agents: dict[int, Agent],
        counts: Sequence[int],
        lease_ms: int = 0,
    ) -> tuple[list[AnyRecord], dict[int, bool], list[int]]:
        """The records of the batches that came along; which open transactions they were the last of, and whether each
        ends with a whole item; and the transactions that are new. Those stay open if they have a lease."""
        brought: list[AnyRecord] = []
        filled: dict[int, bool] = {}
        new: list[int] = []
        next_id = self._state.next_id(now_ms)
        for it, count in zip(request.brought, counts, strict=True):
            agent = agents.get(it.agent)
            if agent is None:
                raise BadRequest(
                    f"agent {it.agent} brought a batch, and is no member of the commit"
                )
            if it.transaction:
                if it.transaction not in request.transactions or it.transaction in filled:
                    raise BadRequest(
                        f"transaction {it.transaction}: a commit brings its last batch, and only one"
                    )
                brought.append(self._items_sent(now_ms, agent, it.transaction, count, (0, 0)))
                filled[it.transaction] = count > 0
                continue
            self._producer(it.agent, it.partition)
            if count == 0:
                raise BadRequest("a transaction that comes with a commit holds whole items")
            new.append(next_id + len(new))
            place = (new[-1], agent.stream, it.partition, agent.id)
            if lease_ms:
                brought.append(OpenedWith(0, 0, *place, lease_ms, count))
            else:
                brought.append(Filled(0, 0, *place, count))
        return brought, filled, new

    def reply_to(self, record: AnyRecord) -> Reply:
        """What the client is told once this record, just applied, is durable."""
        if isinstance(record, InstantMade):  # before `match`, which is slower: most are these
            return Done() if record.positions else Done(record.transaction)
        if isinstance(record, Opened):
            return Done(record.transaction)
        match record:
            case StreamCreated() | StreamAltered():
                return info_of(self._state.stream(record.stream))
            case AgentBegun():
                return AgentOpened(record.agent, info_of(self._state.stream(record.stream)))
            case _:
                return Done()

    # Streams.

    def _create_stream(self, now_ms: int, request: CreateStream, items: int) -> AnyRecord:
        name = check_name(request.name)
        check_partitions(request.partitions)
        check_stream_ttl(request.ttl_ms / 1000)
        check_description(request.description)
        _check_schema(request.schema)
        self._state.check_home(name)
        if self._state.find_stream(name) is not None:
            raise AlreadyExists(f"there is a stream {name!r} already")
        return StreamCreated(
            request.session,
            request.sequence,
            self._state.last_number + 1,
            name,
            request.partitions,
            request.ttl_ms,
            request.description,
            request.schema,
        )

    def _alter_stream(self, now_ms: int, request: AlterStream, items: int) -> Decision:
        stream = self._home_stream(request.name)
        ttl_ms, description = stream.ttl_ms, stream.description
        if request.ttl_ms is not None:
            ttl_ms = check_stream_ttl(request.ttl_ms / 1000)
        if request.description is not None:
            description = check_description(request.description)
        if request.schema is not None:
            _check_schema(request.schema)
            _check_replaced(stream, request.old_schema)
        died_before = max(0, now_ms - stream.ttl_ms) * IDS_PER_MS if ttl_ms > stream.ttl_ms else 0
        altered = StreamAltered(
            request.session,
            request.sequence,
            stream.id,
            ttl_ms,
            description,
            died_before,
            request.schema,
        )
        return self._told_to_others(altered, stream, stream.version + 1)

    def _delete_stream(self, now_ms: int, request: DeleteStream, items: int) -> Decision:
        stream = self._home_stream(request.name)
        if doubts := self._state.groups_of_stream(stream.id):
            raise InDoubt(doubts, InvalidState.code)
        cancelled = [it for _, head in self._state.heads_of(stream) for it in head]
        deleted = StreamDeleted(request.session, request.sequence, stream.id, cancelled)
        return self._told_to_others(deleted, stream, 0)

    def _purge_stream(self, now_ms: int, request: PurgeStream, items: int) -> Decision:
        stream = self._home_stream(request.name)
        # What is written after this is not purged, however late the time that was named: it gets later ids. Where other
        # shards have some of the stream, their ids may be ahead of those that were given out here, and so may their clocks.
        end_id = self._state.last_id + 1
        if len(shards_of(stream.name, stream.partitions, self._state.shards)) > 1:
            end_id = max(end_id, (now_ms + CLOCKS_DIFFER_MS_MAX) * IDS_PER_MS)
        before_id = min(request.before_id, end_id)
        purged = StreamPurged(request.session, request.sequence, stream.id, before_id)
        return self._told_to_others(purged, stream, stream.version + 1)

    def _told_to_others(self, record: AnyRecord, stream: StreamState, version: int) -> Decision:
        """A change, and before it that the other shards of the stream have to be told, if there are any."""
        others = shards_of(stream.name, stream.partitions, self._state.shards)[1:]
        if not others:
            return record
        return ToTell(record.session, 0, stream.id, version, others), record

    def _home_stream(self, name: str) -> StreamState:
        self._state.check_home(name)
        return self._state.stream_named(name)

    # Agents.

    def _open_agent(self, now_ms: int, request: OpenAgent, items: int) -> AnyRecord:
        if request.kind not in (PRODUCER, READER):
            raise BadRequest(f"an agent is a {PRODUCER} or a {READER}, not {request.kind!r:.40}")
        name = check_name(request.name, request.kind)
        stream = self._copied(request) if request.rank else self._home_stream(request.stream)
        fenced = self._state.holder(request.kind, stream.id, name)
        if fenced:
            self._check_takeover(fenced, request)
        return AgentBegun(
            request.session,
            request.sequence,
            self._state.last_number + 1,
            request.kind,
            stream.id,
            name,
            fenced,
            self._state.open_of(fenced) if fenced else [],
            request.rank,
        )

    def _copied(self, request: OpenAgent) -> StreamState:
        """The stream of an agent that was opened at its home before."""
        home = giver_of(request.number)
        if home == self._state.number or home != giver_of(request.rank):
            raise BadRequest(
                f"agent {request.rank} of stream {request.number} has no rank in shard {self._state.number}"
            )
        stream = self._state.stream(request.number)
        if stream.version < request.version:
            raise CopyNeeded(home, stream.id, version=request.version)
        if stream.name != request.stream:
            raise BadRequest(f"stream {stream.id} is {stream.name!r}, not {request.stream!r:.80}")
        return stream

    def _check_takeover(self, holder: int, request: OpenAgent) -> None:
        agent = self._state.agent(holder)
        assert agent is not None, "who holds a name is known"
        if request.rank and request.rank < agent.rank:
            raise fenced(request.rank)
        if doubts := self._state.groups.of_agents([holder]):
            raise InDoubt(doubts, Fenced.code)

    def _close_agent(self, now_ms: int, request: CloseAgent, items: int) -> AnyRecord:
        self.agent(request.agent)
        if doubts := self._state.groups.of_agents([request.agent]):
            raise InDoubt(doubts)
        open_ones = self._state.open_of(request.agent)
        return AgentEnded(request.session, request.sequence, request.agent, open_ones)

    # Transactions.

    def _open_transaction(self, now_ms: int, request: OpenTransaction, items: int) -> AnyRecord:
        agent = self._producer(request.agent, request.partition)
        if not LEASE_MS_MIN <= request.lease_ms <= LEASE_MS_MAX:
            text = f"a lease is {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, not {request.lease_ms}"
            raise BadRequest(text)
        if len(self._state.open) >= OPEN_TRANSACTIONS_MAX:
            raise TooLarge(f"{OPEN_TRANSACTIONS_MAX} transactions are open already")
        return Opened(
            request.session,
            request.sequence,
            self._state.next_id(now_ms),
            agent.stream,
            request.partition,
            agent.id,
            request.lease_ms,
        )

    def _send_items(self, now_ms: int, request: SendItems, items: int) -> AnyRecord:
        agent = self.agent(request.agent)
        number = (request.session, request.sequence)
        return self._items_sent(now_ms, agent, request.transaction, items, number)

    def _items_sent(
        self, now_ms: int, agent: Agent, transaction_id: int, items: int, number: tuple[int, int]
    ) -> AnyRecord:
        transaction = self.open_transaction(now_ms, transaction_id)
        if transaction.agent != agent.id:
            raise BadRequest(f"transaction {transaction_id} belongs to another producer")
        if transaction.batches >= TRANSACTION_BATCHES_MAX:
            raise TooLarge(
                f"transaction {transaction_id} has {TRANSACTION_BATCHES_MAX} batches already: "
                "send more items at a time"
            )
        return ItemsSent(*number, transaction.id, transaction.stream, transaction.partition, items)

    def _instant(self, now_ms: int, request: Instant, items: int) -> AnyRecord:
        agent = self._state.known_producer(request.agent, request.partition) or self._producer(
            request.agent, request.partition
        )
        if items == 0:
            raise BadRequest("an instant transaction holds at least one whole item")
        return InstantMade(
            request.session,
            request.sequence,
            self._state.next_id(now_ms),
            agent.stream,
            request.partition,
            items,
        )

    def _commit(self, now_ms: int, request: Commit, items: int) -> Decision:
        agents = {agent_id: self.agent(agent_id) for agent_id in request.agents}
        committed = self.committed(now_ms, request, agents, {}, [])
        return (committed, self.decided(request)) if request.others else committed

    def decided(self, request: Commit | CommitStep) -> Decided:
        """That a group which spans shards has happened. Refuses one that was decided before."""
        number, others, state = request.group, request.others, self._state
        if (
            not number
            or len(set(others)) < len(others)
            or not all(it < state.shards and it != state.number for it in others)
        ):
            raise BadRequest(f"group {number} has no such participants: {others!r:.80}")
        if (reason := self.refusal(request)) is not None:
            raise Error.from_wire(
                reason,
                f"checkpoint {number} was refused: a shard that is part of it could not wait any longer, or "
                "somebody took the name of one of its agents",
            )
        if (request.session, number) in state.groups.decided:
            raise InvalidState(f"checkpoint {number} of this session has happened already")
        return Decided(request.session, 0, number, others)

    def refusal(self, request: Commit | CommitStep) -> str | None:
        """The code of the reason why a group was refused before, if it was."""
        session = self._state.sessions[request.session]
        passed = Expired.code if request.group <= session.refused_to else None
        return session.refused.get(request.group, passed)

    def committed(
        self,
        now_ms: int,
        request: Commit | Prepare,
        agents: dict[int, Agent],
        filled: dict[int, bool],
        new: list[int],
    ) -> Committed:
        """A commit of what was sent before, of what it brings along (`filled`: and whether that ends with a
        whole item) and of the transactions that are `new` with it."""
        others = len(request.positions) + len(new)
        self.check_members(request.agents, request.transactions, others)
        full: list[int] = []
        empty: list[int] = []
        for transaction in self._mine(now_ms, agents, request.transactions):
            if not filled.get(transaction.id, not transaction.unfinished):
                raise BadRequest(
                    f"transaction {transaction.id} ends in the middle of an item: send its other pieces"
                )
            is_full = transaction.batches or transaction.id in filled
            (full if is_full else empty).append(transaction.id)
        for agent in agents.values():
            self._check_stream(agent)
        positions = []
        doubtful = self._state.groups.positions
        for position in request.positions:
            reader = agents.get(position.agent)
            if reader is None or reader.kind != READER:
                raise BadRequest("a position in a commit belongs to a reader that is a member")
            self.check_partition(reader.stream, position.partition)
            if doubtful:
                self._check_settled(reader, position.partition)
            self._check_after(reader, position)
            positions.append((reader.stream, reader.name, position.partition, position.transaction))
        return Committed(request.session, request.sequence, full + new, empty, positions)

    def _cancel(self, now_ms: int, request: CancelTransactions, items: int) -> AnyRecord:
        self.check_members(request.agents, request.transactions, 0)
        agents = {agent_id: self.agent(agent_id) for agent_id in request.agents}
        mine = [it.id for it in self._mine(now_ms, agents, request.transactions)]
        return Ended(request.session, request.sequence, mine, False)

    # Shared checks.

    def check_members(self, agents: list[int], transactions: list[int], positions: int) -> None:
        """Refuse what would make too large a record, or names something twice."""
        members = len(agents) + len(transactions) + positions
        if members > COMMIT_MEMBERS_MAX:
            raise TooLarge(f"{members} members of one commit are over {COMMIT_MEMBERS_MAX}")
        if len(set(transactions)) < len(transactions):
            raise BadRequest("a transaction stands twice in one request")

    def _mine(
        self, now_ms: int, agents: dict[int, Agent], transactions: Iterable[int]
    ) -> Iterable[OpenTransactionState]:
        for transaction_id in transactions:
            transaction = self.open_transaction(now_ms, transaction_id)
            if transaction.agent not in agents:
                raise BadRequest(
                    f"transaction {transaction_id} belongs to no member of the request"
                )
            yield transaction

    def agent(self, agent_id: int) -> Agent:
        """An agent that holds its name."""
        agent = self._state.agent(agent_id)
        if agent is None:
            raise fenced(agent_id)
        return agent

    def _check_stream(self, agent: Agent) -> None:
        try:
            self._state.stream(agent.stream)
        except NotFound:
            raise NotFound(f"agent {agent.id}: its stream has been deleted") from None

    def _check_settled(self, reader: Agent, partition: int) -> None:
        key = (reader.stream, reader.name, partition)
        if (group := self._state.groups.positions.get(key)) is not None:
            raise InDoubt([group])

    def _check_after(self, reader: Agent, position: ReadPosition) -> None:
        if position.after is None:
            return
        stands_at = self._state.position(reader.stream, reader.name, position.partition)
        if stands_at != position.after:
            raise InvalidState(
                f"agent {reader.id} stands at {stands_at} in partition {position.partition}, not at "
                f"{position.after}: a commit before this one did not take effect"
            )

    def _producer(self, agent_id: int, partition: int) -> Agent:
        agent = self.agent(agent_id)
        if agent.kind != PRODUCER:
            raise BadRequest(f"{agent.name!r} is a {agent.kind}, and does not write")
        self.check_partition(agent.stream, partition)
        return agent

    def check_partition(self, stream_id: int, partition: int) -> None:
        """Refuse a partition that a stream has not, or not here."""
        stream = self._state.stream(stream_id)
        if partition not in stream.local:
            raise no_partition(stream, partition, self._state.number)

    def open_transaction(self, now_ms: int, transaction_id: int) -> OpenTransactionState:
        """A transaction that is open, and whose time has not run out."""
        transaction = self._state.open.get(transaction_id)
        if transaction is not None and transaction.expires_at_ms > now_ms:
            return transaction
        reason: type[Error] = Expired
        if transaction is None:
            reason = self._state.ended.get(transaction_id, InvalidState)
        elif transaction.group is not None:
            raise InDoubt([transaction.group])
        if reason is Expired:
            raise Expired(
                f"transaction {transaction_id}: its lease ran out; what it held is dropped"
            )
        if reason is Fenced:
            raise Fenced(
                f"transaction {transaction_id} ended when its producer's name was taken over"
            )
        if reason is CancelledByOperator:
            raise InvalidState(
                f"transaction {transaction_id} is not open: an operator cancelled it"
            )
        raise InvalidState(
            f"transaction {transaction_id} is not open: it was checkpointed or cancelled"
        )


def _in_one(committed: Committed, brought: AnyRecord) -> InstantMade:
    """A commit of nothing but one new transaction: what a loop does over and over. One record is enough."""
    assert isinstance(brought, Filled)
    return InstantMade(
        committed.session,
        committed.sequence,
        brought.transaction,
        brought.stream,
        brought.partition,
        brought.count,
        committed.positions,
    )


def fenced(agent_id: int) -> Fenced:
    """The refusal of an agent that holds no name. What the number stands for, only its client knows."""
    return Fenced(
        f"agent {agent_id} does not hold its name any more: a newer agent of that name has taken over, "
        "or it was closed; give each agent that is to run beside others a name of its own"
    )


def no_partition(stream: StreamState, partition: int, shard: int) -> BadRequest:
    """The refusal of a partition that a stream has not, or not in this shard."""
    if partition < stream.partitions:
        return BadRequest(
            f"partition {partition} of stream {stream.name!r} is not in shard {shard}"
        )
    return BadRequest(
        f"stream {stream.name!r} has the partitions 0 to {stream.partitions - 1}, not {partition}"
    )


def _check_schema(schema: bytes | None) -> None:
    if schema is not None and len(schema) > SCHEMA_BYTES_MAX:
        raise TooLarge(f"a schema of {len(schema)} bytes is over {SCHEMA_BYTES_MAX}")


def _check_replaced(stream: StreamState, old_schema: bytes | None) -> None:
    """What a schema holds is the clients' business; that two of them do not overwrite each other is ours."""
    if stream.schema is None:
        raise InvalidState(
            f"stream {stream.name!r} has no schema, and holds items: make another stream"
        )
    if stream.schema != old_schema:
        raise InvalidState(
            f"the schema of stream {stream.name!r} was changed meanwhile: look at it, and try again"
        )


def info_of(stream: StreamState) -> StreamInfo:
    """A stream, as clients see it."""
    return StreamInfo(
        stream.id,
        stream.name,
        stream.partitions,
        stream.ttl_ms,
        stream.description,
        stream.schema,
        stream.purged_before,
        stream.version,
    )
