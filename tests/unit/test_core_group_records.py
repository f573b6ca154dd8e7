"""What records of groups and copies do to the state of a shard, in all of its parts, and what it begins with."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.unit.core_client import Client, NoFacts, ended
from tests.unit.core_shards import FIRST, HOME, LEASE_MS, SECOND, SHARDS, Cluster, Member
from tstreams.core.facts import (
    Cancelled,
    DecidedGroup,
    OpenTransactionState,
    StreamState,
    Untold,
)
from tstreams.core.records import SessionsNoted
from tstreams.core.shard import Shard
from tstreams.core.transitions import WHOLE_STREAM
from tstreams.core.waits import InDoubt
from tstreams.errors import BadRequest, Expired, InvalidState
from tstreams.model import IDS_PER_MS
from tstreams.protocol import (
    AskDecision,
    Brought,
    DeleteStream,
    Group,
    Instant,
    PrepareStep,
    ReadPosition,
    Stage,
    StreamInfo,
    TellStream,
)
from tstreams.sharding import home_of


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


# Groups.


def test_what_is_known_of_a_transaction_that_is_new_with_a_group(cluster: Cluster) -> None:
    agent = cluster.agents()[FIRST]
    group = cluster.group()
    first = cluster.first
    cluster.prepare(FIRST, group, [agent], brought=[Brought(agent, 1)])
    new = first.now_ms * IDS_PER_MS
    assert first.shard.state.open == {
        new: OpenTransactionState(
            new, cluster.info.id, 1, agent, LEASE_MS, items=1, batches=1, group=group
        )
    }
    assert first.shard.state.open_of(agent) == [new]
    assert first.shard.state.last_id == new


def test_a_transaction_that_is_empty_is_cancelled_when_its_group_happens(cluster: Cluster) -> None:
    agent = cluster.agents()[FIRST]
    group = cluster.group()
    full, empty = (cluster.first.open(agent, 1) for _ in range(2))
    cluster.first.send(agent, full)
    cluster.prepare(FIRST, group, [agent], [full, empty])
    heard = cluster.first.shard.state.heard
    cluster.settle(FIRST, group, True)
    assert cluster.first.shard.state.heard > heard, "what waits for it goes on"
    assert ended(cluster.first) == {full: InvalidState, empty: Cancelled}


def test_a_step_is_given_up_by_who_has_prepared_it(cluster: Cluster) -> None:
    agent = cluster.agents()[FIRST]
    group = cluster.group()
    first = cluster.first
    mine = first.open(agent, 1)
    first.ask(Stage, agent, [mine], "job", 0, LEASE_MS)
    first.ask(PrepareStep, group, LEASE_MS, "job", 0, [mine])
    with pytest.raises(BadRequest, match="prepared by another session"):
        cluster.settle(FIRST, group, False, first.another().session)
    assert cluster.settle(FIRST, group, False, first.session)
    assert ended(first) == {mine: Cancelled}


def test_another_attempt_at_a_step_that_did_not_happen_has_a_new_lease(cluster: Cluster) -> None:
    agent = cluster.agents()[FIRST]
    group = cluster.group()
    first = cluster.first
    mine, other = (first.open(agent, 1) for _ in range(2))
    first.ask(Stage, agent, [mine, other], "job", 0, LEASE_MS)
    first.ask(PrepareStep, group, LEASE_MS, "job", 0, [mine])
    assert first.shard.state.open[other].expires_at_ms == 0, "it never ends by itself"
    first.now_ms += 5 * LEASE_MS
    first.tick()
    assert first.shard.state.open.keys() == {mine, other}
    cluster.settle(FIRST, group, False)
    first.now_ms += LEASE_MS - 1
    first.tick()
    assert first.shard.state.open.keys() == {other}
    first.now_ms += 1
    first.tick()
    assert ended(first) == {mine: Cancelled, other: Expired}


def test_readers_wait_for_a_group_up_to_where_they_read(cluster: Cluster) -> None:
    agent = cluster.agents()[FIRST]
    group = cluster.group()
    cluster.prepare(FIRST, group, [agent], brought=[Brought(agent, 1)])
    state, stream = cluster.first.shard.state, cluster.info.id
    new = state.last_id
    assert [state.head_group(stream, 1, to_id) for to_id in (new - 1, new)] == [None, group]
    assert state.head_group(stream, 0, new) is None


def test_where_nothing_is_prepared_nothing_waits(cluster: Cluster) -> None:
    agent = cluster.agents()[FIRST]
    opened = cluster.first.open(agent, 1)
    assert cluster.first.shard.state.groups_of([opened]) == []
    assert cluster.first.shard.state.groups.of_agents([agent]) == []


def test_groups_are_found_by_their_agents_and_readers(cluster: Cluster) -> None:
    one, other = (cluster.agents(name, "reader")[FIRST] for name in ("one", "other"))
    group, groups = cluster.group(), cluster.first.shard.state.groups
    cluster.prepare(FIRST, group, [one], positions=[ReadPosition(one, 1, 5)])
    assert groups.of_agents([other]) == []
    assert groups.of_agents([other, one]) == [group]
    assert groups.of_reader(cluster.info.id, "one") == [group]
    assert groups.of_reader(cluster.info.id, "other") == []
    assert groups.of_reader(cluster.info.id + 1, "one") == []


@pytest.mark.parametrize("kind", ["position", "replaced", "brought"])
def test_a_stream_waits_for_every_group_that_has_to_do_with_it(cluster: Cluster, kind: str) -> None:
    """Here the home takes part in one, and another shard decides."""
    home = cluster.home
    agent, reader = cluster.agents()[HOME], cluster.agents("r", "reader")[HOME]
    group = Group(FIRST, cluster.first.session, 1)
    if kind == "position":
        cluster.prepare(HOME, group, [reader], positions=[ReadPosition(reader, 0, 5)])
    elif kind == "replaced":
        home.ask(PrepareStep, group, LEASE_MS, "job", 0, [], ["clicks"])
    else:
        cluster.prepare(HOME, group, [agent], brought=[Brought(agent, 0)])
    other = next(it for it in map("s{}".format, range(99)) if home_of(it, SHARDS) == HOME)
    home.create(other, 1)
    home.ask(DeleteStream, other)
    with pytest.raises(InDoubt) as caught:
        home.ask(DeleteStream, "clicks")
    assert (caught.value.groups, caught.value.reason) == ([group], "invalid_state")


# Copies.


def test_of_two_shards_one_is_the_home() -> None:
    members = [Member(number, 2) for number in range(2)]
    home = home_of("clicks", 2)
    members[home].create()
    with pytest.raises(BadRequest, match=f"is at home in shard {home}, not in {1 - home}"):
        members[1 - home].create()


def test_a_copy_is_whole_and_what_waits_for_it_goes_on(cluster: Cluster) -> None:
    state = cluster.first.shard.state
    heard = state.heard
    info = StreamInfo(cluster.info.id, "clicks", 3, 60_000, "words", b"schema", 700, 5)
    cluster.copy(FIRST, info)
    copied = state.stream_named("clicks")
    assert (copied.description, copied.schema) == ("words", b"schema")
    assert (copied.purged_before, copied.version) == (700, 5)
    assert state.last_id == 699, "what comes next is not purged"
    assert state.heard > heard


def test_readers_of_a_copy_that_is_dropped_are_told_whatever_they_read(cluster: Cluster) -> None:
    cluster.copy(FIRST)
    first = cluster.first
    first.shard.state.stirred.clear()
    heard = first.shard.state.heard
    first.keep(first.shard.tell(first.now_ms, TellStream(cluster.info.id, None))[0])
    assert first.shard.state.stirred == {(cluster.info.id, WHOLE_STREAM)}
    assert first.shard.state.heard > heard


# Sessions, as a leader has noted them.


def test_a_follower_knows_of_sessions_what_their_leader_has_noted() -> None:
    """Acknowledgements, and numbers that were refused, leave no other record."""
    client = Client()
    client.create()
    producer = client.agent()
    for _ in range(3):
        client.ask(Instant, producer, 0, items=1)
    follower = Shard(NoFacts(), last_id=0, last_number=0, now_ms=0)
    for record in client.log:
        follower.replay(client.now_ms, record)
    session = follower.state.sessions[client.session]
    assert list(session.replies) == [1, 2, 3, 4, 5]
    follower.replay(client.now_ms, SessionsNoted(0, 0, [(client.session, 8, 3)]))
    assert (session.last, session.acked) == (8, 3)
    assert list(session.replies) == [4, 5]
    with pytest.raises(InvalidState, match="request 8 was refused before"):
        follower.handle(client.now_ms, Instant(client.session, 8, 3, producer, 0), 1)


# What a shard begins with.


class Known(NoFacts):
    """An index that knows what was decided, what others have to be told, and which copies were dropped."""

    def decided(self) -> Iterable[tuple[tuple[int, int], DecidedGroup]]:
        return [((7, 3), DecidedGroup(True, {SECOND}))]

    def untold(self) -> Iterable[tuple[int, Untold]]:
        return [(9, Untold(2, {SECOND}))]

    def dropped_copies(self) -> Iterable[tuple[int, int]]:
        return [(5, 1_000), (4, 2_000)]


def test_a_shard_begins_with_what_the_index_knows_of_others() -> None:
    shard = Shard(Known(), last_id=0, last_number=0, now_ms=0, number=FIRST, shards=SHARDS)
    assert shard.state.untold == {9: Untold(2, {SECOND})}
    assert list(shard.state.deleted.items()) == [(5, 1_000), (4, 2_000)]
    records, decision = shard.decide(1_000, AskDecision(Group(FIRST, 7, 3), "expired"))
    assert (records, decision.committed) == ((), True)


class KnownCopy(NoFacts):
    """An index that knows a stream of another shard."""

    def __init__(self, copy: StreamState) -> None:
        self._copy = copy

    def stream_named(self, name: str) -> StreamState | None:
        return self._copy if name == self._copy.name else None

    def stream(self, stream_id: int) -> StreamState | None:
        return self._copy if stream_id == self._copy.id else None


def test_a_copy_is_gone_also_if_only_the_index_knew_it(cluster: Cluster) -> None:
    """And before that has caught up."""
    facts = KnownCopy(StreamState(cluster.info.id, "clicks", 3, 60_000, "", None))
    shard = Shard(facts, last_id=0, last_number=0, now_ms=0, number=FIRST, shards=SHARDS)
    shard.tell(1_000, TellStream(cluster.info.id, None))
    assert shard.state.find_stream("clicks") is None
