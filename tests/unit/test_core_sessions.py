"""Sessions and agents of a shard: how they end, and which answers they get, also after a replay."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core_client import Client, NoFacts, ended, stream_id
from tstreams.core.records import (
    Committed,
    Ended,
    Filled,
    InstantMade,
    ItemsSent,
    Opened,
    SessionBegun,
    SessionsEnded,
)
from tstreams.core.shard import Shard
from tstreams.errors import BadRequest, Expired, Fenced
from tstreams.limits import LEASE_MS_MAX, SESSION_TTL_MS
from tstreams.protocol import (
    AlterStream,
    Brought,
    CancelStep,
    CancelTransactions,
    CloseAgent,
    Commit,
    CommitStep,
    CreateStream,
    DeleteStream,
    EndTransactions,
    Instant,
    KeepAlive,
    OpenAgent,
    OpenTransaction,
    PurgeStream,
    ReadPosition,
    ResetReader,
    SendItems,
    Stage,
)

LONG_MS = 10**9


@pytest.fixture
def client() -> Client:
    client = Client()
    client.ask(CreateStream, "clicks", 2, LONG_MS)
    return client


# How they end.


def test_what_a_silent_session_had_ends_with_it(client: Client) -> None:
    producer, reader = client.agent(), client.agent("r", kind="reader")
    left = [client.open(producer, partition, LEASE_MS_MAX) for partition in (1, 0)]
    client.now_ms += 1
    other = Client(client.shard)
    other.now_ms = client.now_ms + SESSION_TTL_MS - 1
    theirs = other.agent("p2")
    client.now_ms += SESSION_TTL_MS - 1
    state = client.shard.state
    state.lost.clear()
    client.tick()
    assert client.log[-1] == SessionsEnded(0, 0, [client.session], [producer, reader], left)
    assert list(state.sessions) == [other.session]
    assert state.lost == state.silent == {producer, reader}
    assert ended(client) == dict.fromkeys(left, Expired)
    assert client.frontier(0) is client.frontier(1) is None
    with pytest.raises(Fenced, match="does not hold its name"):
        other.ask(Commit, [producer], [])
    with pytest.raises(Expired):
        other.ask(Commit, [theirs], [left[0]])


def test_sessions_and_leases_that_end_together(client: Client) -> None:
    """Each ends once: leases first, then sessions with all of their agents, in order."""
    other = Client(client.shard)
    theirs, mine = other.agent("p2"), client.agent()
    expired, left = client.open(mine), client.open(mine, 0, LEASE_MS_MAX)
    client.now_ms += SESSION_TTL_MS
    client.tick()
    assert client.log[-2:] == [
        Ended(0, 0, [expired], True),
        SessionsEnded(0, 0, [client.session, other.session], [theirs, mine], [left]),
    ]
    assert client.shard.state.sessions == {}


@pytest.mark.parametrize("kind", ["producer", "reader"])
def test_a_bad_name_is_told_with_whose_it_is(client: Client, kind: str) -> None:
    with pytest.raises(BadRequest, match=kind):
        client.ask(OpenAgent, kind, "clicks", " ")


def test_what_comes_without_items_has_none(client: Client) -> None:
    request = Instant(client.session, 99, 0, client.agent(), 0)
    with pytest.raises(BadRequest, match="at least one whole item"):
        client.shard.handle(client.now_ms, request)


def test_a_reader_does_not_write(client: Client) -> None:
    with pytest.raises(BadRequest, match="'r' is a reader, and does not write"):
        client.ask(Instant, client.agent("r", kind="reader"), 0, items=1)


def test_silent_sessions_are_looked_for_every_ten_seconds(client: Client) -> None:
    begun_ms = client.now_ms
    client.now_ms += SESSION_TTL_MS - 1
    client.tick()
    assert client.session in client.shard.state.sessions
    client.now_ms += 9_999
    client.tick()
    assert client.session in client.shard.state.sessions
    client.now_ms = begun_ms + SESSION_TTL_MS - 1 + 10_000
    client.tick()
    assert client.session not in client.shard.state.sessions


def test_whoever_loses_a_name_is_told(client: Client) -> None:
    closed, fenced = client.agent(), client.agent("p2")
    state = client.shard.state
    assert state.lost == set()
    client.ask(CloseAgent, closed)
    assert state.lost == {closed}
    newer = Client(client.shard).agent("p2")
    assert state.lost == {closed, fenced}
    assert state.silent == set()  # they were closed, or have a rival
    assert state.sessions[client.session].agents == set()
    assert state.holder("producer", stream_id(client), "p2") == newer


# Requests and answers.


def test_answers_are_dropped_up_to_what_was_acknowledged(client: Client) -> None:
    """However far apart the numbers of requests are."""
    client.sequence = 999
    client.create("more")
    client.create("last")
    session = client.shard.state.sessions[client.session]
    assert list(session.replies) == [1, 1000, 1001]
    client.shard.keep_alive(client.now_ms, KeepAlive(client.session, 1000))
    assert list(session.replies) == [1001]


@pytest.mark.parametrize("acked", [0, 1, 2, 3])
def test_a_request_acknowledges_as_many_answers_as_it_says(client: Client, acked: int) -> None:
    """And its session lives on with it."""
    client.create("two")
    client.create("three")
    client.now_ms += 1000
    request = CreateStream(client.session, 4, acked, "four", 1, LONG_MS)
    client.shard.handle(client.now_ms, request)
    session = client.shard.state.sessions[client.session]
    assert session.acked == acked
    assert list(session.replies) == list(range(acked + 1, 5))
    assert session.expires_at_ms == client.now_ms + SESSION_TTL_MS
    for older in range(acked):  # one that was sent before it takes nothing back
        late = CreateStream(client.session, 5 + older, older, f"late {older}", 1, LONG_MS)
        client.shard.handle(client.now_ms, late)
        assert session.acked == acked


def test_a_replay_knows_the_answers_of_before(client: Client) -> None:
    client.agent("r", kind="reader")
    producer = client.agent()
    opened = client.open(producer)
    client.ask(Instant, producer, 0, items=2)
    client.ask(Commit, [producer], [opened])
    client.ask(AlterStream, "clicks", 5_000)
    again = Shard(NoFacts(), last_id=0, last_number=0, now_ms=0)
    for record in client.log:
        again.replay(client.now_ms, record)
    for sequence in (1, client.sequence):  # what has its answer keeps it
        again.replay(client.now_ms, Ended(client.session, sequence, [], False))
    mine = client.shard.state.sessions[client.session]
    theirs = again.state.sessions[client.session]
    assert (theirs.last, theirs.replies) == (mine.last, mine.replies)
    assert [type(it).__name__ for it in theirs.replies.values()] == [
        "StreamInfo",
        "AgentOpened",
        "AgentOpened",
        "Done",
        "Done",
        "Done",
        "StreamInfo",
    ]


def test_a_commit_in_one_record_is_answered_like_any_other(client: Client) -> None:
    producer, reader = client.agent(), client.agent("r", kind="reader")
    moves = [ReadPosition(reader, 0, 7)]
    reply = client.ask(Commit, [producer, reader], [], moves, [Brought(producer, 1)], brought=[3])
    assert client.log[-1] == InstantMade(
        client.session,
        client.sequence,
        client.shard.state.last_id,
        stream_id(client),
        1,
        3,
        [(stream_id(client), "r", 0, 7)],
    )
    assert reply.id == 0, "only an instant is told its id"


def test_a_commit_that_moves_nobody_is_never_an_instant(client: Client) -> None:
    producer = client.agent()
    reply = client.ask(Commit, [producer], [], [], [Brought(producer, 1)], brought=[3])
    assert [type(it) for it in client.log[-2:]] == [Filled, Committed]
    assert reply.id == 0


def test_the_record_of_a_request_names_it(client: Client) -> None:
    """Whatever it is: after a restart it must be known that it took effect."""
    producer = client.agent()
    opened, staged, cancelled = (client.open(producer) for _ in range(3))
    requests: list[tuple[type, tuple[Any, ...]]] = [
        (CreateStream, ("more", 1, 5_000)),
        (AlterStream, ("more", 6_000)),
        (PurgeStream, ("more", 5)),
        (DeleteStream, ("more",)),
        (OpenAgent, ("reader", "clicks", "r")),
        (CloseAgent, (producer + 2,)),  # the one before it; in between is the stream
        (OpenTransaction, (producer, 0, 1_000)),
        (SendItems, (producer, opened)),
        (Instant, (producer, 0)),
        (Commit, ([producer], [opened])),
        (CancelTransactions, ([producer], [cancelled])),
        (Stage, (producer, [staged], "job", 0, 1_000)),
        (CommitStep, ("job", 0, [staged])),
        (CommitStep, ("job", 0, [staged])),
        (CancelStep, ("job", 1)),
        (ResetReader, ("clicks", "r", [(0, 0)], True)),
        (EndTransactions, ([],)),
    ]
    for kind, fields in requests:
        client.ask(kind, *fields, items=1)
        record = client.log[-1]
        assert (record.session, record.sequence) == (client.session, client.sequence), kind
    assert client.log[-4] == Ended(client.session, client.sequence - 3, [], False), "it was done"


def test_numbers_are_given_out_one_by_one(client: Client) -> None:
    """To streams, agents and sessions alike."""
    number = client.shard.state.last_number
    assert client.create("more").id == number + 1
    assert client.agent() == number + 2
    newer = Client(client.shard)
    assert newer.session == number + 3
    assert newer.log == [SessionBegun(number + 3, 0)]
    begun = newer.shard.state.sessions[newer.session]
    assert (begun.last, begun.acked, begun.replies, begun.agents) == (0, 0, {}, set())
    assert begun.expires_at_ms == newer.now_ms + SESSION_TTL_MS


def test_the_records_of_requests_say_all_that_was_asked_for(client: Client) -> None:
    reader, producer, stream = client.agent("r", kind="reader"), client.agent(), stream_id(client)
    opened = client.ask(OpenTransaction, producer, 1, 1_000).id
    assert opened == client.shard.state.last_id
    client.send(producer, opened, 5)
    client.ask(Commit, [producer, reader], [opened], [ReadPosition(reader, 1, 9)])
    session, last = client.session, client.sequence
    assert client.log[-3:] == [
        Opened(session, last - 2, opened, stream, 1, producer, 1_000),
        ItemsSent(session, last - 1, opened, stream, 1, 5),
        Committed(session, last, [opened], [], [(stream, "r", 1, 9)]),
    ]
