"""All that a shard holds in memory. It can be rebuilt from the index and the log."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

from ..errors import BadRequest, Error, NotFound
from ..limits import (
    DELETED_FORGOTTEN_MAX,
    DELETED_KEPT_MAX,
    DELETED_KEPT_MS,
    ENDED_KEPT_MAX,
    SESSION_TTL_MS,
    STREAMS_CACHED_MAX,
)
from ..model import IDS_PER_MS
from ..protocol import Group
from ..sharding import SHARD_BITS, giver_of, home_of, partitions_in
from .facts import (
    PRODUCER,
    Agent,
    Facts,
    OpenTransactionState,
    PreparedGroup,
    Session,
    StreamState,
    Untold,
)
from .groups import Groups
from .waits import CopyNeeded

Owner = TypeVar("Owner", int, str)


class State:
    """All that a shard has in memory.

    Invariants: ids only rise: `last_id` is at least every id ever given out. A transaction is in `open`
    exactly as long as it is OPENED. `heads` holds, for each partition that has open transactions, their
    ids in order. What is cached of the index is what the index says, or newer; it is dropped only when
    the index has caught up.
    """

    def __init__(
        self,
        facts: Facts,
        last_id: int,
        last_number: int,
        now_ms: int,
        number: int,
        shards: int,
    ) -> None:
        self._facts = facts
        self.number = number
        """Which shard this is, of so many."""
        self.shards = shards
        self.last_id = last_id
        """The greatest transaction id given out."""
        self.last_number = max(last_number, number << SHARD_BITS)
        """The greatest number given to a stream, a session or an agent."""
        self.open: dict[int, OpenTransactionState] = {}
        # Ordered dictionaries, because their first entry is found at once, however many were removed
        # before it; a plain one would look at each empty place again.
        self.heads: dict[tuple[int, int], OrderedDict[int, None]] = {}
        self.sessions: dict[int, Session] = {}
        self.stirred: set[tuple[int, int]] = set()
        """Partitions in which something may have become visible. Whoever tells readers empties it."""
        self.lost: set[int] = set()
        """Agents that hold their names no more. Whoever tells their subscriptions empties it."""
        self.ended: OrderedDict[int, type[Error]] = OrderedDict()
        """Why recent transactions ended: what a late caller is told."""
        self._streams: dict[int, StreamState | None] = {}
        self._names: dict[str, int | None] = {}
        self._agents: dict[int, Agent | None] = {}
        self._holders: dict[tuple[str, int, str], int | None] = {}
        self._positions: dict[tuple[int, str, int], int] = {}
        self._open_of_agent: dict[int, set[int]] = {}
        self._staged: dict[str, set[int]] = {}
        self._last_steps: dict[str, int] = {}
        self._leases: list[tuple[int, int]] = []
        self.groups = Groups()
        self.groups.decided.update(facts.decided())
        self.heard = 0
        """Counts what was heard from other shards: something may go on that had to wait for it."""
        self.untold: dict[int, Untold] = dict(facts.untold())
        """Streams of this shard of which others have something to be told."""
        self.deleted: OrderedDict[int, int] = OrderedDict(facts.dropped_copies())
        """Streams of other shards that were deleted lately, and when: what was under way must not bring them back."""
        for transaction in facts.open_transactions():
            self.hold(transaction, now_ms)  # nobody could keep a lease while we were away
        for group in facts.prepared():
            self.prepare(group, now_ms)
        for session in facts.sessions():
            session.expires_at_ms = now_ms + SESSION_TTL_MS
            self.sessions[session.id] = session

    # Ids.

    def next_id(self, now_ms: int) -> int:
        """A transaction id: the time, but never less than the one before, whatever the clock does."""
        return max(self.last_id + 1, now_ms * IDS_PER_MS)

    # Streams and agents, from memory or from the index.

    def find_stream(self, name: str) -> StreamState | None:
        """A stream by its name."""
        if name in self._names:
            stream_id = self._names[name]
            return None if stream_id is None else self._streams[stream_id]
        stream = self._facts.stream_named(name)
        if stream is not None:
            self.remember_stream(stream)
        return stream

    def stream_named(self, name: str) -> StreamState:
        """A stream by its name; `NotFound` if there is none."""
        stream = self.find_stream(name)
        if stream is None:
            if not self.is_home_of(name):
                raise CopyNeeded(home_of(name, self.shards), 0, name)
            raise NotFound(f"there is no stream {name!r}")
        return stream

    def is_home_of(self, name: str) -> bool:
        """Whether streams of this name are defined here."""
        return self.shards == 1 or home_of(name, self.shards) == self.number

    def check_home(self, name: str) -> None:
        """Refuse a stream that is not defined here."""
        if not self.is_home_of(name):
            home = home_of(name, self.shards)
            raise BadRequest(
                f"stream {name!r:.80} is at home in shard {home}, not in {self.number}"
            )

    def stream(self, stream_id: int) -> StreamState:
        """A stream by its number; `NotFound` if it has been deleted."""
        stream = self._streams.get(stream_id)
        if stream is None and stream_id not in self._streams:
            stream = self._facts.stream(stream_id)
            if stream is not None:
                self.remember_stream(stream)
        if stream is None:
            home = giver_of(stream_id)
            if home != self.number and home < self.shards and stream_id not in self.deleted:
                raise CopyNeeded(home, stream_id)
            raise NotFound("the stream has been deleted")
        return stream

    def remember_stream(self, stream: StreamState) -> None:
        """A stream that was made, or looked up."""
        stream.local = partitions_in(stream.name, stream.partitions, self.number, self.shards)
        self._streams[stream.id] = stream
        self._names[stream.name] = stream.id

    def forget_stream(self, stream: StreamState) -> None:
        """A stream was deleted: the index may still know it until it has caught up."""
        self._streams[stream.id] = None
        self._names[stream.name] = None

    def drop_copy(self, stream_id: int, now_ms: int) -> None:
        """A stream of another shard was deleted."""
        stream = self._streams.get(stream_id) or self._facts.stream(stream_id)
        if stream is not None:
            self.forget_stream(stream)
        self.deleted[stream_id] = now_ms
        self.heard += 1

    def long_deleted(self, now_ms: int) -> list[int]:
        """Streams of other shards that need not be remembered: nothing that was under way is under way for so long. Up
        to so many that a record of them stays small."""
        spare = len(self.deleted) - DELETED_KEPT_MAX
        found: list[int] = []
        for stream_id, at_ms in self.deleted.items():
            if at_ms + DELETED_KEPT_MS > now_ms and len(found) >= spare:
                break
            found.append(stream_id)
            if len(found) == DELETED_FORGOTTEN_MAX:
                break
        return found

    def to_tell(self, stream_id: int, version: int, shards: list[int]) -> None:
        """Other shards have to be told how a stream is now, or (0) that it is gone."""
        self.untold[stream_id] = Untold(version, set(shards))

    def told(self, stream_id: int, version: int, shard: int) -> None:
        """Another shard knows of a change. What came after that it has still to be told."""
        untold = self.untold.get(stream_id)
        if untold is not None and untold.version == version:
            untold.shards.discard(shard)
            if not untold.shards:
                del self.untold[stream_id]

    def agent(self, agent_id: int) -> Agent | None:
        """An agent, if it holds its name."""
        if (agent := self._agents.get(agent_id)) is not None or agent_id in self._agents:
            return agent
        agent = self._facts.agent(agent_id)
        if agent is not None:  # numbers that nobody has must not fill the cache
            self._agents[agent_id] = agent
        return agent

    def known_producer(self, agent_id: int, partition: int) -> Agent | None:
        """An agent that may write to a partition, if memory has all that says so. None: look closer."""
        agent = self._agents.get(agent_id)
        if agent is None or agent.kind != PRODUCER:
            return None
        stream = self._streams.get(agent.stream)
        return agent if stream is not None and partition in stream.local else None

    def holder(self, kind: str, stream_id: int, name: str) -> int:
        """The agent that holds a name, or 0."""
        key = (kind, stream_id, name)
        if key not in self._holders:
            self._holders[key] = self._facts.agent_named(kind, stream_id, name)
        return self._holders[key] or 0

    def remember_agent(self, agent: Agent) -> None:
        """An agent took its name."""
        self._agents[agent.id] = agent
        session = self.sessions.get(agent.session)
        if session is not None:
            session.agents.add(agent.id)
        self._holders[agent.kind, agent.stream, agent.name] = agent.id

    def forget_agent(self, agent_id: int) -> None:
        """An agent lost or gave back its name."""
        agent = self.agent(agent_id)
        self._agents[agent_id] = None
        self.lost.add(agent_id)
        if agent is not None:
            session = self.sessions.get(agent.session)
            if session is not None:
                session.agents.discard(agent_id)
            # Also if it is not known who holds it: the index may still name this agent.
            self._holders[agent.kind, agent.stream, agent.name] = None

    def position(self, stream_id: int, reader: str, partition: int) -> int:
        """What a reader has checkpointed in a partition, or 0."""
        key = (stream_id, reader, partition)
        if key not in self._positions:
            self._positions[key] = self._facts.position(*key) or 0
        return self._positions[key]

    def move(self, stream_id: int, reader: str, partition: int, transaction: int) -> None:
        """A reader has checkpointed where it stands."""
        self._positions[stream_id, reader, partition] = transaction

    def evict(self) -> None:
        """The index has caught up: what it knows need not be kept here."""
        if len(self._streams) > STREAMS_CACHED_MAX:
            self._streams.clear()
            self._names.clear()
        if len(self._agents) > STREAMS_CACHED_MAX:
            self._agents = {
                agent_id: agent
                for agent_id, agent in self._agents.items()
                if agent_id in self._open_of_agent
            }
            self._holders.clear()
        self._last_steps.clear()
        if len(self._positions) > STREAMS_CACHED_MAX:
            self._positions.clear()
        while len(self.ended) > ENDED_KEPT_MAX:
            self.ended.popitem(last=False)

    # Open transactions.

    def frontier(self, stream_id: int, partition: int) -> int | None:
        """The first open transaction of a partition: readers stop before it. None: nothing is open."""
        head = self.heads.get((stream_id, partition))
        return next(iter(head)) if head else None

    def heads_of(self, stream: StreamState) -> list[tuple[int, OrderedDict[int, None]]]:
        """The partitions of a stream in which something is open, with what is open in them."""
        heads = self.heads
        if len(heads) < stream.partitions:  # look at the shorter of the two lists
            found = [(p, ids) for (s, p), ids in heads.items() if s == stream.id]
            return sorted(found, key=lambda pair: pair[0])
        keys = ((p, (stream.id, p)) for p in range(stream.partitions))
        return [(p, heads[key]) for p, key in keys if key in heads]

    def open_of(self, agent_id: int) -> list[int]:
        """What an agent has open."""
        return sorted(self._open_of_agent.get(agent_id, ()))

    def count_open_of(self, agent_id: int) -> int:
        """How much an agent has open."""
        return len(self._open_of_agent.get(agent_id, ()))

    def hold(self, transaction: OpenTransactionState, now_ms: int) -> None:
        """A transaction is open from now on."""
        self.place(transaction)
        self._extend(transaction, now_ms)
        heapq.heappush(self._leases, (transaction.expires_at_ms, transaction.id))

    def place(self, transaction: OpenTransactionState) -> None:
        """A transaction is open, without a lease: only until the next record."""
        assert transaction.id not in self.open
        self.open[transaction.id] = transaction
        key = (transaction.stream, transaction.partition)
        self.heads.setdefault(key, OrderedDict())[transaction.id] = None
        self._own(transaction)

    def _extend(self, transaction: OpenTransactionState, now_ms: int) -> None:
        """Its lease begins anew, but its data would not outlive the stream's ttl."""
        if transaction.group is not None:
            return
        dies_at_ms = transaction.id // IDS_PER_MS + self.stream(transaction.stream).ttl_ms
        transaction.expires_at_ms = min(now_ms + transaction.lease_ms, dies_at_ms)

    def release(self, transaction_id: int, reason: type[Error]) -> None:
        """A transaction is open no more."""
        transaction = self.open.pop(transaction_id)
        key = (transaction.stream, transaction.partition)
        head = self.heads[key]
        del head[transaction_id]
        if not head:
            del self.heads[key]
        self._disown(transaction)
        self.ended[transaction_id] = reason
        self.stirred.add(key)

    def _own(self, transaction: OpenTransactionState) -> None:
        if transaction.job:
            self._staged.setdefault(transaction.job, set()).add(transaction.id)
        else:
            self._open_of_agent.setdefault(transaction.agent, set()).add(transaction.id)

    def _disown(self, transaction: OpenTransactionState) -> None:
        if transaction.job:
            _discard(self._staged, transaction.job, transaction.id)
        else:
            _discard(self._open_of_agent, transaction.agent, transaction.id)

    def extend_leases(self, session: Session, now_ms: int) -> None:
        """A client is there: what its agents have open lives on."""
        for agent_id in session.agents & self._open_of_agent.keys():
            for transaction_id in self._open_of_agent[agent_id]:
                self._extend(self.open[transaction_id], now_ms)

    # Groups that span shards.

    def prepare(self, it: PreparedGroup, now_ms: int) -> None:
        """A group waits for its decision: nothing else ends what it holds."""
        self.groups.add(it, now_ms)
        for transaction_id in it.held:
            transaction = self.open[transaction_id]
            transaction.group = it.group
            transaction.expires_at_ms = 0

    def settle(self, group: Group) -> PreparedGroup:
        """A group waits no more. What it held has still to be released, or given back."""
        self.heard += 1
        return self.groups.remove(group)

    def give_back(self, transaction_id: int, now_ms: int) -> None:
        """A transaction is prepared no more, and open as before."""
        transaction = self.open[transaction_id]
        transaction.group = None
        self._extend(transaction, now_ms)
        heapq.heappush(self._leases, (transaction.expires_at_ms, transaction_id))

    def head_group(self, stream_id: int, partition: int, to_id: int) -> Group | None:
        """The group that readers of a partition have to wait for, if it is one that holds them back up to this id."""
        frontier = self.frontier(stream_id, partition)
        return None if frontier is None or frontier > to_id else self.open[frontier].group

    def groups_of(self, transactions: Iterable[int]) -> list[Group]:
        """The groups that have any of these open transactions."""
        if not self.groups.prepared:
            return []
        found = (self.open[it].group for it in transactions)
        return list(dict.fromkeys(it for it in found if it is not None))

    def groups_of_stream(self, stream_id: int) -> list[Group]:
        """The groups that have to do with a stream."""
        return self.groups.of_stream(stream_id, lambda it: self.open[it].stream == stream_id)

    # Jobs.

    def stage(self, transaction_id: int, job: str, step: int, lease_ms: int) -> None:
        """A transaction passes from its producer to a job. Its lease is still to be extended."""
        transaction = self.open[transaction_id]
        self._disown(transaction)
        transaction.agent, transaction.lease_ms = 0, lease_ms
        transaction.job, transaction.step = job, step
        self._own(transaction)

    def staged(self, job: str) -> list[OpenTransactionState]:
        """What a job has staged and not committed, in the order of the ids."""
        return [self.open[it] for it in sorted(self._staged.get(job, ()))]

    def extend_step(self, job: str, step: int, now_ms: int) -> None:
        """Somebody works for a step: what it has staged lives on."""
        for transaction_id in self._staged.get(job, ()):
            transaction = self.open[transaction_id]
            if transaction.step == step:
                before_ms = transaction.expires_at_ms
                self._extend(transaction, now_ms)
                if transaction.expires_at_ms < before_ms:  # a staged one may have a shorter lease
                    heapq.heappush(self._leases, (transaction.expires_at_ms, transaction_id))

    def last_step(self, job: str) -> int:
        """The step of a job that was committed last; -1 if none was."""
        known = self._last_steps.get(job)
        if known is None:
            known = self._facts.last_step(job)
        return -1 if known is None else known

    def step_committed(self, job: str, step: int, final: bool) -> None:
        """A step is done. The index may not know it until it has caught up."""
        self._last_steps[job] = -1 if final else step

    def ttl_changed(self, stream: StreamState) -> None:
        """A stream got another ttl: what is open in it may have to end sooner."""
        for _, head in self.heads_of(stream):
            for transaction_id in head:
                transaction = self.open[transaction_id]
                dies_at_ms = transaction.id // IDS_PER_MS + stream.ttl_ms
                if dies_at_ms < transaction.expires_at_ms:
                    transaction.expires_at_ms = dies_at_ms
                    heapq.heappush(self._leases, (dies_at_ms, transaction_id))

    def clock_went_back(self, now_ms: int) -> None:
        """What was to end at a time of the old clock ends no later than if its client had just been heard of."""
        self.groups.clock_went_back(now_ms)
        for transaction in self.open.values():
            latest_ms = now_ms + transaction.lease_ms
            transaction.expires_at_ms = min(transaction.expires_at_ms, latest_ms)
        self._leases = [(it.expires_at_ms, it.id) for it in self.open.values()]
        heapq.heapify(self._leases)
        for session in self.sessions.values():
            session.expires_at_ms = min(session.expires_at_ms, now_ms + SESSION_TTL_MS)

    def take_expired(self, now_ms: int) -> list[int]:
        """The open transactions whose lease has run out, in order of their ids."""
        expired = set()  # a transaction may stand in the heap more than once
        while self._leases and self._leases[0][0] <= now_ms:
            _, transaction_id = heapq.heappop(self._leases)
            transaction = self.open.get(transaction_id)
            if transaction is None or transaction.group is not None:
                continue
            if transaction.expires_at_ms > now_ms:
                heapq.heappush(self._leases, (transaction.expires_at_ms, transaction_id))
            else:
                expired.add(transaction_id)
        return sorted(expired)


def _discard(owned: dict[Owner, set[int]], owner: Owner, transaction_id: int) -> None:
    mine = owned[owner]
    mine.discard(transaction_id)
    if not mine:
        del owned[owner]
