"""Streams, agents and jobs that span shards; what is said of the shards; and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import moebius
from tests.integration.tstreams.conftest import Clock
from tstreams.errors import BadRequest, Fenced, InvalidState, NotFound
from tstreams.items import pack
from tstreams.protocol import (
    AlterStream,
    Change,
    CloseAgent,
    CommitStep,
    CreateStream,
    DeleteStream,
    Describe,
    Done,
    Fetch,
    GetJob,
    GetStream,
    GetTransaction,
    Group,
    Instant,
    ListJobs,
    ListNumbers,
    ListStreams,
    NodeInfo,
    OpenAgent,
    OpenTransaction,
    PrepareStep,
    PurgeStream,
    ReplicaInfo,
    SendItems,
    ShardInfo,
    Stage,
    StreamInfo,
    Subscribe,
    Want,
    decode_reply,
    encode,
)
from tstreams.server import Node
from tstreams.server.verify import verify
from tstreams.sharding import giver_of, home_of, job_home, shard_of

from .conftest import Connect
from .raw import HOUR_MS, LEASE_MS, SHARDS, Agent, Raw

HOME = home_of("clicks", SHARDS)
FIRST = shard_of("clicks", 1, SHARDS)
SECOND = shard_of("clicks", 2, SHARDS)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.fixture
def producer(client: Raw) -> Agent:
    client.create("clicks", 3)
    return client.agent("producer", "clicks", "p", 3)


def instant(client: Raw, producer: Agent, partition: int, item: bytes = b"x") -> int:
    shard = shard_of("clicks", partition, SHARDS)
    agent, batches = producer.numbers[shard], [pack([item])]
    reply = client.change(shard, Instant, agent, partition, batches=batches)
    assert isinstance(reply, Done)
    return reply.id


def copies(node: Node) -> dict[int, int]:
    """The versions of the stream in all shards that know it."""
    found = {}
    for number, shard in node.shards.items():
        stream = shard.core.state.find_stream("clicks")
        if stream is not None:
            found[number] = stream.version
    return found


# Streams.


def test_a_node_says_where_all_shards_are(node: Node) -> None:
    with moebius.connect(node.addresses[0]) as wire:
        info = decode_reply(wire.call("Describe", encode(Describe())))
    assert isinstance(info, NodeInfo)
    me = ReplicaInfo(node.id, node.addresses)
    assert (info.total, info.shards, info.epochs) == (SHARDS, [0, 1, 2], [1, 1, 1])
    assert info.map == [ShardInfo(it, 1, me) for it in range(SHARDS)]


def test_numbers_say_who_gave_them_out(client: Raw, producer: Agent) -> None:
    assert giver_of(producer.number) == HOME
    assert {giver_of(number) for number in producer.numbers.values()} == {0, 1, 2}
    assert all(giver_of(it) == shard for shard, it in producer.numbers.items())
    assert all(giver_of(it) == shard for shard, it in client.sessions.items())


def test_copies_are_made_when_an_agent_comes(node: Node, client: Raw) -> None:
    info = client.create("clicks", 3)
    assert info.version == 1
    assert copies(node) == {HOME: 1}
    client.agent("producer", "clicks", "p", 3)
    assert copies(node) == {0: 1, 1: 1, 2: 1}


def test_each_shard_has_its_own_partitions(client: Raw, producer: Agent) -> None:
    for partition in range(3):
        instant(client, producer, partition, b"%d" % partition)
    assert [client.read(producer, it) for it in range(3)] == [[b"0"], [b"1"], [b"2"]]
    with pytest.raises(BadRequest, match="partition 0 of stream 'clicks' is not in shard"):
        client.change(FIRST, Instant, producer.numbers[FIRST], 0, batches=[pack([b"x"])])
    for message in (
        Fetch(producer.number, [Want(0, 0)], 100),
        GetTransaction(producer.number, 0, 1),
    ):
        with pytest.raises(BadRequest, match="is not in shard"):
            client.ask(FIRST, message)
    with pytest.raises(BadRequest, match="has the partitions 0 to 2, not 3"):
        client.ask(FIRST, Fetch(producer.number, [Want(3, 0)], 100))


def test_a_change_is_told_before_it_is_answered(node: Node, client: Raw, producer: Agent) -> None:
    reply = client.change(HOME, AlterStream, "clicks", 5_000, "new")
    assert isinstance(reply, StreamInfo)
    assert reply.version == 2
    assert copies(node) == {0: 2, 1: 2, 2: 2}
    for shard in node.shards.values():
        stream = shard.core.state.stream_named("clicks")
        assert (stream.ttl_ms, stream.description) == (5_000, "new")
    until(lambda: not node.shards[HOME].core.state.untold)


def test_a_shard_that_has_no_copy_is_told_too(node: Node, client: Raw) -> None:
    """What it might have asked for a moment ago would be old else."""
    client.create("clicks", 3)
    client.change(HOME, AlterStream, "clicks", 5_000)
    assert copies(node) == {0: 2, 1: 2, 2: 2}


def test_a_purge_is_everywhere(client: Raw, clock: Clock, producer: Agent) -> None:
    last = max(instant(client, producer, partition) for partition in range(3))
    clock.advance(1)  # ids of different shards may be the same in a millisecond
    instant(client, producer, 0)
    assert client.change(HOME, PurgeStream, "clicks", last + 1) == Done()
    assert [len(client.read(producer, it)) for it in range(3)] == [1, 0, 0]
    instant(client, producer, 2)
    assert len(client.read(producer, 2)) == 1


def test_a_deleted_stream_is_gone_everywhere(node: Node, client: Raw, producer: Agent) -> None:
    instant(client, producer, 1)
    assert client.change(HOME, DeleteStream, "clicks") == Done()
    assert copies(node) == {}
    with pytest.raises(NotFound):
        client.read(producer, 1)
    with pytest.raises(NotFound):
        client.change(FIRST, OpenAgent, "producer", "clicks", "q", *producer.rank)
    with pytest.raises(NotFound, match="no stream 'clicks'"):
        client.change(HOME, OpenAgent, "producer", "clicks", "q")


def test_a_stream_that_was_made_anew_takes_the_place_of_the_old_one(
    node: Node, client: Raw, producer: Agent
) -> None:
    instant(client, producer, 1, b"old")
    client.change(HOME, DeleteStream, "clicks")
    client.create("clicks", 3)
    newer = client.agent("producer", "clicks", "p", 3)
    assert newer.number > producer.number
    assert client.read(newer, 1) == []
    instant(client, newer, 1, b"new")
    assert client.read(newer, 1) == [b"new"]


def test_listings_come_from_homes(client: Raw, producer: Agent) -> None:
    client.create("x1", 1)
    listed = [client.ask(it, ListStreams("", "", 10)).streams for it in range(SHARDS)]
    assert [[it.name for it in streams] for streams in listed] == [["clicks"], [], ["x1"]]
    numbered = [client.ask(it, ListNumbers(0, 10)).streams for it in range(SHARDS)]
    assert [[it.name for it in streams] for streams in numbered] == [["clicks"], [], ["x1"]]
    assert client.ask(HOME, GetStream("", producer.number)).name == "clicks"
    for shard, message in (
        (FIRST, GetStream("clicks")),
        (FIRST, GetStream("", producer.number)),
    ):
        with pytest.raises(BadRequest, match="at home"):
            client.ask(shard, message)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(CreateStream, (3, HOUR_MS)), (AlterStream, ()), (DeleteStream, ()), (PurgeStream, (1,))],
)
def test_streams_are_changed_at_home(
    client: Raw, producer: Agent, kind: type[Change], fields: tuple[int, ...]
) -> None:
    with pytest.raises(BadRequest, match=f"is at home in shard {HOME}, not in {FIRST}"):
        client.change(FIRST, kind, "clicks", *fields)


def test_a_reader_without_a_name_needs_no_agent(node: Node, client: Raw, connect: Connect) -> None:
    """The number of a stream says whom to ask for it."""
    info = client.create("clicks", 3)
    reader = Agent("clicks", info.id, 1, {HOME: 0}, HOME)
    assert client.read(reader, 1) == []
    assert copies(node)[FIRST] == 1
    with pytest.raises(NotFound):
        client.ask(SECOND, Fetch(info.id + 1000, [Want(2, 0)], 100))


def test_a_subscriber_without_a_name_needs_no_agent(node: Node, client: Raw) -> None:
    info = client.create("clicks", 3)
    with moebius.connect(node.addresses[0]) as wire:
        subscribe = Subscribe(info.id, [Want(1, 0)], 1000)
        with wire.stream(f"{FIRST}:Subscribe", encode(subscribe)) as stream:
            producer = client.agent("producer", "clicks", "p", 3)
            instant(client, producer, 1)
            assert next(iter(stream))
        unknown = Subscribe(info.id + 1000, [Want(1, 0)], 1000)
        with (
            pytest.raises(moebius.Error, match="deleted"),
            wire.stream(f"{FIRST}:Subscribe", encode(unknown)) as stream,
        ):
            next(iter(stream))


# Agents.


def test_the_newer_agent_holds_the_name_in_all_shards(
    client: Raw, connect: Connect, producer: Agent
) -> None:
    newer = connect().agent("producer", "clicks", "p", 3)
    for partition in range(3):
        with pytest.raises(Fenced):
            instant(client, producer, partition)
    shard = FIRST
    with pytest.raises(Fenced):  # it comes late, after the one that came after it
        client.change(shard, OpenAgent, "producer", "clicks", "p", *producer.rank)
    assert newer.rank > producer.rank


def test_an_agent_is_opened_at_home_first(client: Raw, producer: Agent) -> None:
    rank, number, version = producer.rank
    with pytest.raises(BadRequest, match="at home"):
        client.change(FIRST, OpenAgent, "producer", "clicks", "q")
    with pytest.raises(BadRequest, match="has no rank"):
        client.change(HOME, OpenAgent, "producer", "clicks", "q", rank, number, version)
    other = client.sessions[SECOND]
    with pytest.raises(BadRequest, match="has no rank"):
        client.change(FIRST, OpenAgent, "producer", "clicks", "q", other, number, version)
    with pytest.raises(BadRequest, match="is 'clicks', not 'other'"):
        client.change(FIRST, OpenAgent, "producer", "other", "q", rank, number, version)


def test_agents_and_copies_outlive_a_restart(
    node: Node, client: Raw, producer: Agent, tmp_path: Path
) -> None:
    instant(client, producer, 1, b"before")
    node.request_stop()
    until(lambda: not node.shards)
    again = Node(tmp_path / "data", ["tcp://127.0.0.1:0"], shards=SHARDS)
    with again.in_thread(), Raw(again.addresses[0]) as other:
        other.sessions, other._sequences = client.sessions, client._sequences
        instant(other, producer, 1, b"after")
        assert other.read(producer, 1) == [b"before", b"after"]
        other.change(FIRST, CloseAgent, producer.numbers[FIRST])
        rank, number, _ = producer.rank
        other.change(FIRST, OpenAgent, "producer", "clicks", "p", rank, number, 1)
    report = verify(tmp_path / "data")
    assert (report.problems, report.streams) == ([], 1)


# Jobs.


def staged(client: Raw, producer: Agent, partition: int, step: int) -> int:
    """A transaction that waits for a step of the job `fruit`."""
    shard = shard_of("clicks", partition, SHARDS)
    agent = producer.numbers[shard]
    number = client.change(shard, OpenTransaction, agent, partition, 60_000).id
    client.change(shard, SendItems, agent, number, batches=[pack([b"step %d" % step])])
    client.change(shard, Stage, agent, [number], "fruit", step, 60_000)
    assert isinstance(number, int)
    return number


JOB_HOME = job_home("fruit", SHARDS)
ELSEWHERE = [it for it in range(3) if shard_of("clicks", it, SHARDS) != JOB_HOME]
AT_HOME = next(it for it in range(3) if shard_of("clicks", it, SHARDS) == JOB_HOME)


def commit_step(client: Raw, step: int, ids: dict[int, int], replace: list[str]) -> Group:
    """Commit a step over all shards, as a coordinator does."""
    group = client.group(JOB_HOME)
    others = [shard_of("clicks", it, SHARDS) for it in ELSEWHERE]
    for partition, shard in zip(ELSEWHERE, others, strict=True):
        mine = [ids[partition]] if partition in ids else []
        reply = client.change(shard, PrepareStep, group, LEASE_MS, "fruit", step, mine, replace)
        assert reply == Done()
    mine = [ids[AT_HOME]] if AT_HOME in ids else []
    reply = client.change(
        JOB_HOME, CommitStep, "fruit", step, mine, replace, False, others, group.number
    )
    assert reply == Done()
    return group


def test_a_step_is_committed_in_all_shards_once(client: Raw, producer: Agent) -> None:
    ids = {partition: staged(client, producer, partition, 0) for partition in range(3)}
    commit_step(client, 0, ids, [])
    assert [client.read(producer, it) for it in range(3)] == [[b"step 0"]] * 3
    assert client.ask(JOB_HOME, GetJob("fruit")).last_step == 0
    late = client.numbered(FIRST, Stage, producer.numbers[FIRST], [], "fruit", 0, 60_000)
    with pytest.raises(InvalidState, match="step 0 of job 'fruit' is over"):
        client.ask(FIRST, late)
    jobs = [client.ask(it, ListJobs("", 10)).jobs for it in range(SHARDS)]
    assert [len(it) for it in jobs] == [int(it == JOB_HOME) for it in range(SHARDS)]


def test_a_step_that_replaces_does_so_in_all_shards(client: Raw, producer: Agent) -> None:
    commit_step(client, 0, {it: staged(client, producer, it, 0) for it in range(3)}, [])
    commit_step(client, 1, {AT_HOME: staged(client, producer, AT_HOME, 1)}, ["clicks"])
    left = [client.read(producer, it) for it in range(3)]
    assert left == [[b"step 1"] if it == AT_HOME else [] for it in range(3)]


def test_a_coordinator_that_comes_after_another_finds_the_step_done(
    node: Node, client: Raw, connect: Connect, producer: Agent
) -> None:
    """What its own attempt has staged, where the first one had nothing, is given up."""
    first, second = ELSEWHERE
    group = client.group(JOB_HOME)
    shard = shard_of("clicks", first, SHARDS)
    mine = staged(client, producer, first, 0)
    client.change(shard, PrepareStep, group, LEASE_MS, "fruit", 0, [mine])
    client.change(JOB_HOME, CommitStep, "fruit", 0, [], [], False, [shard], group.number)
    other = staged(client, producer, second, 0)
    commit_step(connect(), 0, {first: mine, second: other}, [])
    assert client.read(producer, first) == [b"step 0"]
    assert client.read(producer, second) == []
    until(lambda: not node.shards[shard_of("clicks", second, SHARDS)].core.state.groups.prepared)


def test_a_coordinator_that_comes_after_one_that_died_begins_anew(
    client: Raw, connect: Connect, producer: Agent
) -> None:
    """What the first had prepared is in doubt until the decider has refused it."""
    first, _ = ELSEWHERE
    shard = shard_of("clicks", first, SHARDS)
    lost = staged(client, producer, first, 0)
    group = client.group(JOB_HOME)
    client.change(shard, PrepareStep, group, LEASE_MS, "fruit", 0, [lost])
    newer = staged(client, producer, first, 0)
    commit_step(connect(), 0, {first: newer}, [])
    assert client.read(producer, first) == [b"step 0"]
    with pytest.raises(InvalidState, match="not open"):
        client.change(shard, Stage, producer.numbers[shard], [lost], "fruit", 1, 60_000)


def test_steps_are_committed_at_the_home_of_the_job(client: Raw, producer: Agent) -> None:
    other = (JOB_HOME + 1) % SHARDS
    with pytest.raises(BadRequest, match=f"committed in shard {JOB_HOME}"):
        client.change(other, CommitStep, "fruit", 0, [])


# The folder.


@pytest.mark.parametrize(("made", "asked"), [(1, 2), (2, 1), (3, 2)])
def test_data_is_served_with_the_shards_it_was_made_with(
    tmp_path: Path, made: int, asked: int
) -> None:
    with Node(tmp_path, ["tcp://127.0.0.1:0"], shards=made).in_thread():
        pass
    wrong = Node(tmp_path, ["tcp://127.0.0.1:0"], shards=asked)
    with (
        pytest.raises(InvalidState, match=f"was made for {made} shards, and cannot be served"),
        wrong.in_thread(),
    ):
        pass
    with Node(tmp_path, ["tcp://127.0.0.1:0"], shards=made).in_thread():
        pass
