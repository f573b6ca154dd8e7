"""The rules of a shard, without I/O: every promise that needs no disk."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.core_client import Client, NoFacts
from tstreams.core.facts import Agent, StreamState
from tstreams.core.records import (
    AgentBegun,
    AnyRecord,
    Committed,
    Filled,
    InstantMade,
    ItemsSent,
    decode_record,
    encode_record,
)
from tstreams.core.shard import Shard
from tstreams.errors import (
    AlreadyExists,
    BadRequest,
    Error,
    Expired,
    Fenced,
    InvalidState,
    NotFound,
    TooLarge,
)
from tstreams.limits import (
    SCHEMA_BYTES_MAX,
    SESSION_TTL_MS,
)
from tstreams.model import IDS_PER_MS
from tstreams.protocol import (
    AlterStream,
    Brought,
    CancelTransactions,
    CloseAgent,
    Commit,
    CreateStream,
    DeleteStream,
    Instant,
    KeepAlive,
    OpenAgent,
    OpenTransaction,
    ReadPosition,
    SendItems,
)


@pytest.fixture
def client() -> Client:
    client = Client()
    client.create()
    return client


def test_ids_are_times_and_only_rise(client: Client) -> None:
    producer = client.agent()
    first = client.open(producer)
    assert first == client.now_ms * IDS_PER_MS
    client.now_ms = 500  # the clock steps back
    second = client.open(producer)
    assert second == first + 1
    client.now_ms = 2_000
    assert client.open(producer) == 2_000 * IDS_PER_MS


def test_an_instant_of_nothing_is_refused(client: Client) -> None:
    producer = client.agent()
    with pytest.raises(BadRequest, match="at least one whole item"):
        client.ask(Instant, producer, 0, items=0)
    assert client.shard.state.last_id == 0


def test_more_ids_than_a_millisecond_has(client: Client) -> None:
    producer = client.agent()
    client.shard.state.last_id = client.now_ms * IDS_PER_MS + IDS_PER_MS - 1
    ids = [client.ask(Instant, producer, 0, items=1).id for _ in range(3)]
    assert ids == [(client.now_ms + 1) * IDS_PER_MS + n for n in range(3)]


def test_the_first_open_transaction_holds_readers_back(client: Client) -> None:
    producer = client.agent()
    t1, t2, t3 = (client.open(producer) for _ in range(3))
    for transaction in (t1, t2, t3):
        client.send(producer, transaction)
    assert client.frontier() == t1
    client.ask(Commit, [producer], [t3])
    assert client.frontier() == t1
    client.ask(Commit, [producer], [t1])
    assert client.frontier() == t2
    client.ask(CancelTransactions, [producer], [t2])
    assert client.frontier() is None


def test_partitions_do_not_hold_each_other_back(client: Client) -> None:
    producer = client.agent()
    transaction = client.open(producer, partition=1)
    assert client.frontier(0) is None
    assert client.frontier(1) == transaction


def test_a_lease_that_runs_out_ends_the_transaction_by_itself(client: Client) -> None:
    producer = client.agent()
    transaction = client.open(producer, lease_ms=1000)
    client.send(producer, transaction)
    client.now_ms += 999
    client.tick()
    assert client.frontier() == transaction
    client.now_ms += 1
    with pytest.raises(Expired, match="lease"):
        client.ask(Commit, [producer], [transaction])
    client.tick()
    assert client.frontier() is None
    with pytest.raises(Expired, match="lease"):
        client.ask(Commit, [producer], [transaction])
    client.open(producer)


@pytest.mark.parametrize("keeps_alive", [False, True])
def test_a_clock_that_is_set_back_makes_no_lease_longer(client: Client, keeps_alive: bool) -> None:
    """Else a client that vanished would hold up readers until the clock is where it was."""
    producer = client.agent()
    client.now_ms += 4 * 3600 * 1000
    transaction = client.open(producer, lease_ms=1000)
    client.tick()
    client.now_ms -= 3 * 3600 * 1000
    client.tick()
    if keeps_alive:
        client.now_ms += 500
        client.shard.keep_alive(client.now_ms, KeepAlive(client.session, 0))
    client.now_ms += 999
    client.tick()
    assert client.frontier() == transaction
    client.now_ms += 1
    client.tick()
    assert client.frontier() is None


def test_leases_end_in_their_order_after_the_clock_was_set_back(client: Client) -> None:
    producer = client.agent()
    client.now_ms += 4 * 3600 * 1000
    transactions = [client.open(producer, lease_ms=lease_ms) for lease_ms in (9000, 5000, 1000)]
    client.tick()
    client.now_ms -= 3 * 3600 * 1000
    client.tick()
    for _ in range(3):
        client.now_ms += 1000 if len(transactions) == 3 else 4000
        client.tick()
        transactions.pop()
        assert list(client.shard.state.open) == transactions


def test_a_clock_that_is_set_back_makes_no_session_live_longer(client: Client) -> None:
    client.now_ms += 4 * 3600 * 1000
    client.agent()
    client.tick()
    client.now_ms -= 3 * 3600 * 1000
    client.tick()
    client.now_ms += SESSION_TTL_MS - 1
    client.tick()
    assert client.session in client.shard.state.sessions
    client.now_ms += 10_001
    client.tick()
    assert client.session not in client.shard.state.sessions


def test_a_keepalive_extends_what_its_session_has_open(client: Client) -> None:
    producer = client.agent()
    other = Client(client.shard)
    mine = client.open(producer)
    theirs = other.open(other.agent("p2"))
    client.now_ms += 900
    client.shard.keep_alive(client.now_ms, KeepAlive(client.session, 0))
    client.now_ms += 900
    client.tick()
    assert mine in client.shard.state.open
    assert theirs not in client.shard.state.open


def test_a_transaction_ends_once(client: Client) -> None:
    producer = client.agent()
    transaction = client.open(producer)
    client.send(producer, transaction)
    client.ask(Commit, [producer], [transaction])
    for kind in (Commit, CancelTransactions):
        with pytest.raises(InvalidState, match="not open"):
            client.ask(kind, [producer], [transaction])
    with pytest.raises(InvalidState):
        client.send(producer, transaction)


def test_an_empty_checkpoint_cancels(client: Client) -> None:
    producer = client.agent()
    full, empty = client.open(producer), client.open(producer)
    client.send(producer, full)
    client.ask(Commit, [producer], [full, empty])
    record = client.log[-1]
    assert (record.transactions, record.empty) == ([full], [empty])  # type: ignore[union-attr]


def test_a_commit_may_say_where_the_one_before_it_has_left_the_reader(client: Client) -> None:
    reader = client.agent("r", kind="reader")
    client.ask(Commit, [reader], [], [ReadPosition(reader, 0, 5, 0), ReadPosition(reader, 1, 7)])
    client.ask(Commit, [reader], [], [ReadPosition(reader, 0, 6, 5)])
    for after in (0, 5, 7):
        moves = [ReadPosition(reader, 1, 8, 7), ReadPosition(reader, 0, 9, after)]
        with pytest.raises(InvalidState, match="stands at 6 in partition 0"):
            client.ask(Commit, [reader], [], moves)
    again = Client(client.shard).agent("r", kind="reader")
    client.ask(Commit, [again], [], [ReadPosition(again, 0, 10, 6), ReadPosition(again, 1, 8, 7)])


def test_a_commit_brings_batches_along(client: Client) -> None:
    producer, other = client.agent(), client.agent("p2")
    open_one = client.open(producer)
    brought = [Brought(producer, 0, open_one), Brought(other, 1), Brought(producer, 1)]
    client.ask(Commit, [producer, other], [open_one], [], brought, brought=[2, 3, 4])
    sent, first, second, committed = client.log[-4:]
    assert isinstance(sent, ItemsSent)
    assert (sent.transaction, sent.count) == (open_one, 2)
    assert isinstance(first, Filled)
    assert isinstance(second, Filled)
    assert (first.partition, first.agent, first.count) == (1, other, 3)
    assert (second.partition, second.agent, second.count) == (1, producer, 4)
    assert isinstance(committed, Committed)
    assert committed.transactions == [open_one, first.transaction, second.transaction]
    assert open_one < first.transaction < second.transaction
    assert client.frontier(0) is client.frontier(1) is None
    assert not client.shard.state.open
    assert client.open(producer) > second.transaction


def test_a_commit_of_one_new_transaction_is_one_record(client: Client) -> None:
    producer, reader = client.agent(), client.agent("r", kind="reader")
    members, brought = [producer, reader], [Brought(producer, 1)]
    client.ask(Commit, members, [], [ReadPosition(reader, 0, 7)], brought, brought=[3])
    record = client.log[-1]
    assert isinstance(record, InstantMade)
    assert (record.partition, record.count) == (1, 3)
    assert [it[1:] for it in record.positions] == [("r", 0, 7)]
    client.ask(Commit, [reader], [], [ReadPosition(reader, 0, 8, 7)])  # it has moved
    # Whatever else is in it must not get lost: then it is a commit as any other.
    empty = client.open(producer)
    client.ask(Commit, members, [empty], [ReadPosition(reader, 0, 9)], brought, brought=[1])
    assert isinstance(client.log[-1], Committed)
    assert not client.shard.state.open


def test_a_commit_that_brings_nonsense_changes_nothing(client: Client) -> None:
    producer, reader = client.agent(), client.agent("r", kind="reader")
    mine, theirs = client.open(producer), client.open(client.agent("p2"))
    members, position = [producer, reader], ReadPosition(reader, 0, 5)
    for brought, counts, error in (
        ([Brought(producer, 0, theirs)], [1], BadRequest),  # it is not in the commit
        ([Brought(producer, 0, mine), Brought(producer, 0, mine)], [1, 1], BadRequest),
        ([Brought(reader, 0)], [1], BadRequest),
        ([Brought(producer, 2)], [1], BadRequest),
        ([Brought(producer, 0)], [0], BadRequest),
        ([Brought(producer, 0, mine)], [0], BadRequest),  # it ends in the middle of an item
        ([Brought(producer, 0), Brought(producer + 100, 0)], [1, 1], BadRequest),
    ):
        before = list(client.log)
        with pytest.raises(error):
            client.ask(Commit, members, [mine], [position], brought, brought=counts)
        assert client.log == before
        assert client.frontier() == mine
    client.ask(Commit, members, [mine], [position], [Brought(producer, 1)], brought=[1])


def test_a_commit_of_somebody_fenced_brings_nothing(client: Client) -> None:
    producer, reader = client.agent(), client.agent("r", kind="reader")
    Client(client.shard).agent("r", kind="reader")
    last_id = client.shard.state.last_id
    with pytest.raises(Fenced):
        client.ask(Commit, [producer, reader], [], [], [Brought(producer, 0)], brought=[1])
    assert client.shard.state.last_id == last_id


def test_a_commit_is_all_or_nothing(client: Client) -> None:
    producer, reader = client.agent(), client.agent("r", kind="reader")
    good, late = client.open(producer), client.open(producer, lease_ms=500)
    client.send(producer, good)
    client.send(producer, late)
    client.now_ms += 600
    with pytest.raises(Expired):
        client.ask(Commit, [producer, reader], [good, late], [ReadPosition(reader, 0, 7)])
    assert good in client.shard.state.open
    client.ask(Commit, [producer, reader], [good], [ReadPosition(reader, 0, 7)])
    record = client.log[-1]
    assert record.positions[0][1:] == ("r", 0, 7)  # type: ignore[union-attr]


def test_the_newer_agent_of_a_name_fences_the_older(client: Client) -> None:
    old = client.agent("p")
    transaction = client.open(old)
    client.send(old, transaction)
    new = Client(client.shard).agent("p")
    assert client.frontier() is None, "what the old one had open is gone"
    attempts: list[tuple[type, tuple[Any, ...]]] = [
        (OpenTransaction, (old, 0, 1000)),
        (Instant, (old, 0)),
        (SendItems, (old, transaction)),
        (Commit, ([old], [transaction])),
        (CancelTransactions, ([old], [transaction])),
        (CloseAgent, (old,)),
    ]
    for kind, fields in attempts:
        with pytest.raises(Fenced):
            client.ask(kind, *fields, items=1)
    assert client.open(new)


class EarlierFacts(NoFacts):
    """An index that has seen a stream and its producer begin, and not what came after."""

    def __init__(self) -> None:
        self.seen: tuple[StreamState, Agent] | None = None

    def stream_named(self, name: str) -> StreamState | None:
        return self.seen[0] if self.seen else None

    def agent(self, agent_id: int) -> Agent | None:
        return self.seen[1] if self.seen and self.seen[1].id == agent_id else None

    def agent_named(self, kind: str, stream_id: int, name: str) -> int | None:
        return self.seen[1].id if self.seen else None


def test_a_name_that_was_given_back_is_free_before_the_index_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tstreams.core.state.STREAMS_CACHED_MAX", 0)
    facts = EarlierFacts()
    client = Client(Shard(facts, last_id=0, last_number=0, now_ms=0))
    client.create()
    producer = client.agent("p")
    state = client.shard.state
    held = state.agent(producer)
    assert held is not None
    facts.seen = state.stream_named("clicks"), held
    state.evict()
    client.ask(CloseAgent, producer)
    state.lost.clear()
    client.agent("p")
    begun = client.log[-1]
    assert isinstance(begun, AgentBegun)
    assert begun.fenced == 0
    assert state.lost == set(), "nobody lost a name"


def test_a_record_that_fences_an_agent_which_is_gone(client: Client) -> None:
    """Logs of earlier versions have such records."""
    producer = client.agent("p")
    client.ask(CloseAgent, producer)
    newer = client.shard.state.last_number + 1
    stream = client.shard.state.stream_named("clicks").id
    record = AgentBegun(client.session, 9, newer, "producer", stream, "p", producer, [])
    client.shard.replay(client.now_ms, record)
    assert client.shard.state.holder("producer", stream, "p") == newer
    assert client.shard.state.sessions[client.session].agents == {newer}


def test_names_are_per_kind_and_stream(client: Client) -> None:
    client.create("other")
    agents = [
        client.agent("same"),
        client.agent("same", kind="reader"),
        client.agent("same", stream="other"),
    ]
    assert len(set(agents)) == 3
    client.open(agents[0])
    client.open(agents[2])


def test_a_repeated_request_takes_effect_once(client: Client) -> None:
    producer = client.agent()
    client.sequence += 1
    request = Instant(client.session, client.sequence, 0, producer, 0)
    records, reply = client.shard.handle(client.now_ms, request, 1)
    assert len(records) == 1
    for _ in range(3):
        assert client.shard.handle(client.now_ms + 5000, request, 1) == ((), reply)


def test_a_repeated_failure_fails_again(client: Client) -> None:
    """Also if it would succeed by now: the caller has been told that it failed."""
    client.sequence += 1
    request = OpenAgent(client.session, client.sequence, 0, "producer", "later", "p")
    with pytest.raises(NotFound):
        client.shard.handle(client.now_ms, request)
    client.create("later")
    with pytest.raises(NotFound):
        client.shard.handle(client.now_ms, request)


def test_replies_are_forgotten_when_they_were_acknowledged(client: Client) -> None:
    producer = client.agent()
    for _ in range(100):
        client.ask(Instant, producer, 0, items=1)
    session = client.shard.state.sessions[client.session]
    assert len(session.replies) > 100
    client.shard.keep_alive(client.now_ms, KeepAlive(client.session, 3))
    assert min(session.replies) == 4
    client.shard.keep_alive(client.now_ms, KeepAlive(client.session, client.sequence - 10))
    assert len(session.replies) == 10
    old = Instant(client.session, 5, 0, producer, 0)
    with pytest.raises(InvalidState, match="acknowledged"):
        client.shard.handle(client.now_ms, old, 1)


def test_an_acknowledgement_far_ahead_is_no_work(client: Client) -> None:
    producer = client.agent()
    client.ask(Instant, producer, 0, items=1)
    client.shard.keep_alive(client.now_ms, KeepAlive(client.session, 2**60))
    assert not client.shard.state.sessions[client.session].replies


def test_a_session_that_is_silent_ends(client: Client) -> None:
    client.now_ms += SESSION_TTL_MS
    client.tick()
    with pytest.raises(InvalidState, match="session has ended"):
        client.create("more")


def test_a_schema_takes_the_place_of_the_one_that_was_seen(client: Client) -> None:
    client.ask(CreateStream, "rows", 1, 5000, "", b"one")
    client.ask(AlterStream, "rows", None, None, b"two", b"one")
    with pytest.raises(InvalidState, match="'rows' was changed meanwhile"):
        client.ask(AlterStream, "rows", None, "lost", b"three", b"one")
    with pytest.raises(TooLarge, match="schema"):
        client.ask(AlterStream, "rows", None, None, bytes(SCHEMA_BYTES_MAX + 1), b"two")
    client.ask(AlterStream, "rows", None, "kept")
    stream = client.shard.state.stream_named("rows")
    assert (stream.schema, stream.description) == (b"two", "kept")


def test_streams(client: Client) -> None:
    with pytest.raises(AlreadyExists, match="clicks"):
        client.create()
    client.ask(AlterStream, "clicks", 5000, "what people click")
    stream = client.shard.state.stream_named("clicks")
    assert (stream.ttl_ms, stream.description) == (5000, "what people click")
    client.ask(AlterStream, "clicks")
    assert stream.ttl_ms == 5000
    with pytest.raises(InvalidState, match="'clicks' has no schema"):
        client.ask(AlterStream, "clicks", None, None, b"new", None)
    producer = client.agent()
    client.open(producer, partition=1)
    client.ask(DeleteStream, "clicks")
    assert client.shard.state.open == {}
    with pytest.raises(NotFound, match="clicks"):
        client.ask(DeleteStream, "clicks")
    with pytest.raises(NotFound):
        client.ask(Instant, producer, 0, items=1)
    again = client.create()
    assert again.id != stream.id, "a stream of the same name is another stream"


@pytest.mark.parametrize(
    ("kind", "fields", "error"),
    [
        (CreateStream, ("", 1, 60_000), BadRequest),
        (CreateStream, ("x" * 256, 1, 60_000), TooLarge),
        (CreateStream, ("x", 0, 60_000), BadRequest),
        (CreateStream, ("x", 65_537, 60_000), TooLarge),
        (CreateStream, ("x", 1, 999), BadRequest),
        (CreateStream, ("x", 1, 60_000, "d" * 5000), TooLarge),
        (OpenAgent, ("spy", "clicks", "a"), BadRequest),
        (OpenAgent, ("producer", "clicks", " "), BadRequest),
        (OpenAgent, ("producer", "missing", "a"), NotFound),
        (AlterStream, ("clicks", 1), BadRequest),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(
    client: Client, kind: type, fields: tuple[Any, ...], error: type[Error]
) -> None:
    before = len(client.log), client.shard.state.last_number
    with pytest.raises(error):
        client.ask(kind, *fields)
    assert (len(client.log), client.shard.state.last_number) == before


def test_more_nonsense(client: Client) -> None:
    producer, reader = client.agent(), client.agent("r", kind="reader")
    stranger = client.agent("p2")
    transaction = client.open(producer)
    attempts: list[tuple[type, tuple[Any, ...]]] = [
        (OpenTransaction, (producer, 2, 1000)),
        (OpenTransaction, (producer, 0, 499)),
        (OpenTransaction, (reader, 0, 1000)),
        (Instant, (producer, 2)),
        (SendItems, (stranger, transaction)),
        (Commit, ([stranger], [transaction])),
        (Commit, ([producer], [transaction, transaction])),
        (Commit, ([producer], [], [ReadPosition(reader, 0, 1)])),
        (Commit, ([producer], [], [ReadPosition(producer, 0, 1)])),
        (Commit, ([reader], [], [ReadPosition(reader, 2, 1)])),
    ]
    for kind, fields in attempts:
        with pytest.raises(BadRequest):
            client.ask(kind, *fields, items=1)
        assert transaction in client.shard.state.open


def test_what_belongs_to_a_deleted_stream_commits_nothing(client: Client) -> None:
    client.create("other")
    reader, producer = client.agent("r", kind="reader"), client.agent("p", "other")
    kept = client.open(producer)
    client.send(producer, kept)
    client.ask(DeleteStream, "clicks")
    with pytest.raises(NotFound, match=f"agent {reader}: its stream has been deleted"):
        client.ask(Commit, [producer, reader], [kept], [ReadPosition(reader, 0, 7)])
    assert kept in client.shard.state.open
    client.ask(Commit, [producer], [kept])


def test_whoever_asks_for_what_a_takeover_ended_is_told_so(client: Client) -> None:
    old, bystander = client.agent("p"), client.agent("p2")
    transaction = client.open(old)
    client.send(old, transaction)
    Client(client.shard).agent("p")
    with pytest.raises(Fenced, match=f"transaction {transaction} ended when its producer's name"):
        client.ask(Commit, [bystander], [transaction])


def test_a_shorter_ttl_ends_what_is_open_sooner(client: Client) -> None:
    producer = client.agent()
    dying, living = client.open(producer, 0, 60_000), client.open(producer, 1, 2_000)
    client.ask(AlterStream, "clicks", 5_000)
    client.now_ms += 1_900
    client.shard.keep_alive(client.now_ms, KeepAlive(client.session, 0))
    client.now_ms += 1_900
    client.tick()
    assert list(client.shard.state.open) == [dying, living]
    client.now_ms = dying // IDS_PER_MS + 5_000
    client.tick()
    assert dying not in client.shard.state.open, "its lease is a minute, but its data would be dead"


class ReplayedShard(RuleBasedStateMachine):
    """Whatever happens, a shard that replays the log arrives at the same state."""

    @initialize()
    def begin(self) -> None:
        self.log: list[AnyRecord] = []
        first = Client(log=self.log)
        self.clients = [first, Client(first.shard, self.log)]
        self.shard = first.shard
        self.now_ms = 10_000
        for name in ("a", "b"):
            first.create(name, 2)

    def ask(self, who: int, kind: type, *fields: Any, items: int = 0) -> Any:
        client = self.clients[who]
        client.now_ms = self.now_ms
        try:
            return client.ask(kind, *fields, items=items)
        except Error:
            return None

    def agents(self) -> list[int]:
        return [agent.id for agent in self.shard.state._agents.values() if agent is not None]

    who = st.integers(0, 1)
    pick = st.integers(0, 1000)

    @rule(who=who, stream=st.sampled_from("abc"), name=st.sampled_from("xy"))
    def open_agent(self, who: int, stream: str, name: str) -> None:
        self.ask(who, OpenAgent, "producer", stream, name)

    @rule(who=who, name=st.sampled_from("abc"))
    def create(self, who: int, name: str) -> None:
        self.ask(who, CreateStream, name, 2, 60_000)

    @rule(who=who, name=st.sampled_from("abc"))
    def delete(self, who: int, name: str) -> None:
        self.ask(who, DeleteStream, name)

    @rule(who=who, pick=pick, partition=st.integers(0, 2), lease=st.sampled_from([500, 5000]))
    def open_transaction(self, who: int, pick: int, partition: int, lease: int) -> None:
        if agents := self.agents():
            self.ask(who, OpenTransaction, agents[pick % len(agents)], partition, lease)

    @rule(who=who, pick=pick, end=st.sampled_from([None, Commit, CancelTransactions]))
    def send_or_end(self, who: int, pick: int, end: type | None) -> None:
        if transactions := list(self.shard.state.open.values()):
            it = transactions[pick % len(transactions)]
            if end is None:
                self.ask(who, SendItems, it.agent, it.id, items=2)
            else:
                self.ask(who, end, [it.agent], [it.id])

    @rule(who=who, pick=pick)
    def instant(self, who: int, pick: int) -> None:
        if agents := self.agents():
            self.ask(who, Instant, agents[pick % len(agents)], 0, items=1)

    @rule(who=who, pick=pick)
    def close_agent(self, who: int, pick: int) -> None:
        if agents := self.agents():
            self.ask(who, CloseAgent, agents[pick % len(agents)])

    @rule(step_ms=st.integers(-2000, 3000))
    def time_passes(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.log += self.shard.tick(self.now_ms)

    @invariant()
    def a_replay_leads_to_the_same_state(self) -> None:
        if not hasattr(self, "log"):
            return
        again = Shard(NoFacts(), last_id=0, last_number=0, now_ms=0)
        for record in self.log:
            data = b"".join(encode_record(record, b"items"))
            decoded, start = decode_record(memoryview(data))
            assert data[start:] == b"items"
            again.replay(0, decoded)
        mine, theirs = self.shard.state, again.state
        assert mine.last_id == theirs.last_id
        assert mine.last_number == theirs.last_number
        assert list(mine.open) == list(theirs.open)
        assert mine.heads == theirs.heads
        assert [it.items for it in mine.open.values()] == [it.items for it in theirs.open.values()]
        assert {k: v for k, v in mine._agents.items() if v} == {
            k: v for k, v in theirs._agents.items() if v
        }
        assert {k: v for k, v in mine._streams.items() if v} == {
            k: v for k, v in theirs._streams.items() if v
        }
        for head in mine.heads.values():
            assert list(head) == sorted(head)


ReplayedShard.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestReplayedShard = ReplayedShard.TestCase
