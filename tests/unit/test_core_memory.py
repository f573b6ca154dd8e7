"""What a shard keeps in memory: leases in their order, and caches of an index that may lag behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.core_client import Client, NoFacts
from tstreams.core.facts import Agent, OpenTransactionState, Session, StreamState
from tstreams.core.records import Ended, StreamAltered, StreamDeleted
from tstreams.core.shard import Shard
from tstreams.errors import Expired, Fenced, NotFound
from tstreams.limits import SESSION_TTL_MS
from tstreams.model import IDS_PER_MS
from tstreams.protocol import (
    AlterStream,
    CancelTransactions,
    CloseAgent,
    Commit,
    CommitStep,
    CreateStream,
    DeleteStream,
    Instant,
    KeepAlive,
    ReadPosition,
    Stage,
)

LONG_MS = 10**9


@pytest.fixture
def client() -> Client:
    client = Client()
    client.ask(CreateStream, "clicks", 2, LONG_MS)
    return client


class Lagging(NoFacts):
    """An index that knows what there was some time ago, and counts how often it is asked."""

    def __init__(self) -> None:
        self.streams: list[StreamState] = []
        self.agents: list[Agent] = []
        self.open: list[OpenTransactionState] = []
        self.known: list[Session] = []
        self.steps: dict[str, int] = {}
        self.asked = 0

    def learn(self, client: Client) -> None:
        """From now on it knows what the shard has now."""
        state = client.shard.state
        self.streams = [replace(it) for it in state._streams.values() if it is not None]
        self.agents = [it for it in state._agents.values() if it is not None]
        state._streams.clear()
        state._names.clear()
        state._agents.clear()
        state._holders.clear()

    def stream_named(self, name: str) -> StreamState | None:
        self.asked += 1
        return next((replace(it) for it in self.streams if it.name == name), None)

    def stream(self, stream_id: int) -> StreamState | None:
        self.asked += 1
        return next((replace(it) for it in self.streams if it.id == stream_id), None)

    def agent(self, agent_id: int) -> Agent | None:
        self.asked += 1
        return next((it for it in self.agents if it.id == agent_id), None)

    def agent_named(self, kind: str, stream_id: int, name: str) -> int | None:
        self.asked += 1
        key = (kind, stream_id, name)
        return next((it.id for it in self.agents if (it.kind, it.stream, it.name) == key), None)

    def open_transactions(self) -> list[OpenTransactionState]:
        return self.open

    def last_step(self, job: str) -> int | None:
        return self.steps.get(job)

    def sessions(self) -> list[Session]:
        return self.known


def lagging() -> tuple[Client, Lagging]:
    facts = Lagging()
    client = Client(Shard(facts, last_id=0, last_number=0, now_ms=0))
    client.ask(CreateStream, "clicks", 2, LONG_MS)
    return client, facts


# Leases.


def test_a_lease_that_was_extended_runs_out_later(client: Client) -> None:
    opened = client.open(client.agent(), lease_ms=1_000)
    for _ in range(3):
        client.now_ms += 900
        client.tick()
        client.shard.keep_alive(client.now_ms, KeepAlive(client.session, 0))
    client.now_ms += 999
    client.tick()
    assert client.frontier() == opened
    client.now_ms += 1
    client.tick()
    assert client.frontier() is None


def test_leases_that_run_out_together_end_in_the_order_of_their_ids(client: Client) -> None:
    producer = client.agent()
    ids = [client.open(producer, lease_ms=1_000 - it) for it in range(9)]
    client.ask(CancelTransactions, [producer], ids[:7])
    assert list(set(ids[7:])) != ids[7:], "else it would say nothing"
    client.now_ms += 1_000
    client.tick()
    assert client.log[-1] == Ended(0, 0, ids[7:], True)
    assert client.shard.state._leases == []


def test_a_lease_never_outlives_the_ttl_of_the_stream(client: Client) -> None:
    client.create("short")  # a minute
    producer = client.agent("p", "short")
    opened = client.open(producer, lease_ms=600_000)
    assert client.shard.state.open[opened].expires_at_ms == client.now_ms + 60_000
    client.ask(AlterStream, "short", 30_000)
    assert client.shard.state.open[opened].expires_at_ms == client.now_ms + 30_000
    client.ask(AlterStream, "short", 40_000)
    assert client.shard.state.open[opened].expires_at_ms == client.now_ms + 30_000
    begun_ms = client.now_ms
    client.now_ms += 10_000
    client.shard.keep_alive(client.now_ms, KeepAlive(client.session, 0))
    assert client.shard.state.open[opened].expires_at_ms == begun_ms + 40_000


def test_another_ttl_touches_no_other_stream(client: Client) -> None:
    client.create("other")
    mine = client.open(client.agent(), 1, lease_ms=50_000)
    theirs = client.open(client.agent("p", "other"), 1, lease_ms=50_000)
    before_ms = client.shard.state.open[mine].expires_at_ms
    client.ask(AlterStream, "other", 2_000)
    assert client.shard.state.open[mine].expires_at_ms == before_ms
    assert client.shard.state.open[theirs].expires_at_ms == client.now_ms + 2_000


def test_a_sign_of_life_for_a_step_nobody_has_staged_for(client: Client) -> None:
    producer = client.agent()
    client.ask(Stage, producer, [], "job", 0, 1_000)
    assert client.shard.state.staged("job") == []


def test_what_is_staged_is_dropped_in_the_order_of_the_ids(client: Client) -> None:
    producer = client.agent()
    ids = [client.open(producer) for _ in range(9)]
    client.ask(CancelTransactions, [producer], ids[:7])
    client.ask(Stage, producer, ids[:6:-1], "job", 0, 1_000)
    assert [it.id for it in client.shard.state.staged("job")] == ids[7:]
    client.ask(CommitStep, "job", 0, [])
    assert client.log[-1].dropped == ids[7:]  # type: ignore[union-attr]


def test_what_an_agent_has_open_is_cancelled_in_the_order_of_the_ids(client: Client) -> None:
    producer = client.agent()
    for _ in range(7):
        client.ask(CancelTransactions, [producer], [client.open(producer)])
    ids = [client.open(producer) for _ in range(2)]
    assert list(client.shard.state._open_of_agent[producer]) != ids, "else it would say nothing"
    client.ask(CloseAgent, producer)
    assert client.log[-1].cancelled == ids  # type: ignore[union-attr]


# After a start.


def test_after_a_start_leases_and_sessions_begin_anew() -> None:
    """Nobody could keep them while the server was away."""
    facts = Lagging()
    facts.streams = [StreamState(1, "clicks", 2, LONG_MS, "", None)]
    number = 500 * IDS_PER_MS
    facts.open = [OpenTransactionState(number, 1, 1, 3, 1_000, expires_at_ms=1)]
    facts.known = [Session(2, last=4, acked=4, expires_at_ms=1, agents={3})]
    shard = Shard(facts, last_id=number, last_number=3, now_ms=70_000)
    assert shard.state.open[number].expires_at_ms == 71_000
    assert shard.state.frontier(1, 1) == number
    assert shard.state.open_of(3) == [number]
    assert shard.state.sessions[2].expires_at_ms == 70_000 + SESSION_TTL_MS
    assert shard.tick(70_999) == []
    shard.keep_alive(70_999, KeepAlive(2, 4))
    assert shard.tick(71_998) == []
    assert shard.tick(71_999) == [Ended(0, 0, [number], True)]


# What the index does not know yet.


def test_a_stream_that_was_altered_before_the_index_knew_it() -> None:
    client, facts = lagging()
    facts.learn(client)
    stream = facts.streams[0].id
    client.shard.apply(client.now_ms, StreamAltered(0, 0, stream, 5_000, "altered"))
    assert client.shard.state.stream_named("clicks").ttl_ms == 5_000
    assert client.shard.state.stream(stream).description == "altered"


def test_a_stream_that_was_deleted_before_the_index_knew_it() -> None:
    client, facts = lagging()
    facts.learn(client)
    stream = facts.streams[0].id
    client.shard.apply(client.now_ms, StreamDeleted(0, 0, stream, []))
    with pytest.raises(NotFound, match="the stream has been deleted"):
        client.shard.state.stream(stream)
    with pytest.raises(NotFound, match="no stream 'clicks'"):
        client.shard.state.stream_named("clicks")
    assert client.shard.state.find_stream("clicks") is None


def test_an_agent_that_was_fenced_before_the_index_knew_it() -> None:
    client, facts = lagging()
    old = client.agent("p")
    facts.learn(client)
    Client(client.shard).agent("p")
    with pytest.raises(Fenced):
        client.ask(Instant, old, 0, items=1)
    closed = client.agent("p2")
    facts.agents.append(Agent(closed, "producer", facts.streams[0].id, "p2", client.session, 0))
    client.ask(CloseAgent, closed)
    with pytest.raises(Fenced):
        client.ask(Instant, closed, 0, items=1)


def test_a_step_that_was_committed_before_the_index_knew_it() -> None:
    client, facts = lagging()
    facts.steps = {"job": 3}
    producer = client.agent()
    opened = client.open(producer)
    assert client.shard.state.last_step("job") == 3
    assert client.shard.state.last_step("another") == -1
    client.ask(Stage, producer, [opened], "job", 4, 1_000)
    client.ask(CommitStep, "job", 4, [opened])
    assert client.shard.state.last_step("job") == 4
    facts.steps = {"job": 5}
    client.shard.state.evict()
    assert client.shard.state.last_step("job") == 5


def test_what_was_looked_up_is_not_looked_up_again() -> None:
    client, facts = lagging()
    producer = client.agent("p")
    facts.learn(client)
    client.ask(Instant, producer, 0, items=1)
    facts.asked = 0
    for _ in range(3):
        client.ask(Instant, producer, 0, items=1)
        client.shard.state.stream_named("clicks")
        client.shard.state.position(1, "r", 0)
    assert facts.asked == 0


def test_what_nobody_has_is_not_kept() -> None:
    """Else whoever asks for numbers at random fills the memory."""
    client, _ = lagging()
    state = client.shard.state
    for number in (10**6, 10**7):
        assert state.agent(number) is None
        with pytest.raises(NotFound):
            state.stream(number)
        assert state.find_stream(str(number)) is None
    assert list(state._agents) == []
    assert list(state._names) == ["clicks"]
    assert len(state._streams) == 1


# What is dropped.


def test_caches_are_dropped_when_they_are_over_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tstreams.core.state.STREAMS_CACHED_MAX", 2)
    client, _ = lagging()
    client.create("second")
    reader = client.agent("r", kind="reader")
    busy = client.agent("p")
    opened = client.open(busy)
    moves = [ReadPosition(reader, partition, 5) for partition in (0, 1)]
    client.ask(Commit, [reader], [], moves)
    state = client.shard.state
    state.evict()  # two of each: all of them may stay
    caches = (state._streams, state._names, state._agents, state._holders, state._positions)
    assert [len(it) for it in caches] == [2] * 5
    client.create("third")
    client.agent("p3")
    state.move(1, "r", 7, 5)
    state.evict()
    assert list(state._agents) == [busy], "what has something open is needed soon"
    others = (state._streams, state._names, state._holders, state._positions)
    assert [len(it) for it in others] == [0] * 4
    assert list(state.open) == [opened]


def test_why_transactions_ended_is_kept_up_to_a_limit(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tstreams.core.state.ENDED_KEPT_MAX", 2)
    producer = client.agent()
    ids = [client.open(producer) for _ in range(3)]
    client.now_ms += 1_000
    client.tick()
    client.shard.state.evict()
    assert dict(client.shard.state.ended) == {ids[1]: Expired, ids[2]: Expired}


def test_nothing_is_left_of_what_has_ended(client: Client) -> None:
    """Neither of the transactions, nor of those who had them."""
    producer = client.agent()
    staged, kept = client.open(producer), client.open(producer)
    client.ask(Stage, producer, [staged], "job", 0, 1_000)
    state = client.shard.state
    assert (set(state._staged), set(state._open_of_agent)) == ({"job"}, {producer})
    client.ask(CommitStep, "job", 0, [staged])
    client.ask(CancelTransactions, [producer], [kept])
    assert (state._staged, state._open_of_agent, state.heads) == ({}, {}, {})
    client.ask(DeleteStream, "clicks")
    assert state.find_stream("clicks") is None
