"""Streams whose home is another shard: copies, what homes tell, and agents with ranks."""

from __future__ import annotations

import pytest

from tests.unit.core_shards import FIRST, HOME, SECOND, SHARDS, Cluster, Member
from tstreams.core.facts import Cancelled, Untold
from tstreams.core.records import CopyDropped, StreamAltered, StreamCopied, Told, ToTell
from tstreams.core.waits import CopyNeeded, InDoubt
from tstreams.errors import BadRequest, Fenced, NotFound
from tstreams.limits import CLOCKS_DIFFER_MS_MAX, DELETED_KEPT_MS
from tstreams.model import IDS_PER_MS
from tstreams.protocol import (
    AlterStream,
    Brought,
    CommitStep,
    CreateStream,
    DeleteStream,
    Group,
    Instant,
    OpenAgent,
    OpenTransaction,
    PurgeStream,
    ResetReader,
    StreamInfo,
    TellStream,
)
from tstreams.sharding import SHARD_BITS, giver_of, home_of


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def tell(cluster: Cluster, shard: int, number: int, info: StreamInfo | None) -> list[object]:
    member = cluster.members[shard]
    records, _ = member.shard.tell(member.now_ms, TellStream(number, info))
    return list(member.keep(records))


def asked_for(error: CopyNeeded) -> tuple[int, int, str, int]:
    return error.home, error.number, error.name, error.version


# Numbers and places.


def test_numbers_carry_the_shard() -> None:
    assert Member(0).session == 1
    assert Member(2).session == (2 << SHARD_BITS) + 1
    assert giver_of(Cluster().info.id) == HOME


def test_a_stream_is_made_at_its_home(cluster: Cluster) -> None:
    with pytest.raises(BadRequest, match=f"is at home in shard {HOME}, not in {FIRST}"):
        cluster.first.ask(CreateStream, "clicks", 3, 60_000)
    for kind in (AlterStream, DeleteStream):
        with pytest.raises(BadRequest, match="is at home in shard"):
            cluster.first.ask(kind, "clicks")


def test_a_shard_takes_its_own_partitions_only(cluster: Cluster) -> None:
    agents = cluster.agents()
    cluster.first.ask(Instant, agents[FIRST], 1, items=1)
    for kind, fields in ((Instant, ()), (OpenTransaction, (1000,))):
        with pytest.raises(BadRequest, match=f"partition 2 .* is not in shard {FIRST}"):
            cluster.first.ask(kind, agents[FIRST], 2, *fields, items=1)
    with pytest.raises(BadRequest, match="has the partitions 0 to 2, not 4"):
        cluster.first.ask(Instant, agents[FIRST], 4, items=1)


# Copies.


def test_what_is_not_known_has_to_be_asked_for(cluster: Cluster) -> None:
    for do in (
        lambda: cluster.first.shard.state.stream(cluster.info.id),
        lambda: cluster.first.ask(
            OpenAgent, "producer", "clicks", "p", cluster.info.id + 1, cluster.info.id, 1
        ),
    ):
        with pytest.raises(CopyNeeded) as caught:
            do()
        assert asked_for(caught.value) == (HOME, cluster.info.id, "", 0)
    with pytest.raises(CopyNeeded) as caught:
        cluster.first.ask(ResetReader, "clicks", "r", [])
    assert asked_for(caught.value) == (HOME, 0, "clicks", 0)


def test_numbers_that_no_shard_gives_out_are_not_asked_for(cluster: Cluster) -> None:
    for number in (FIRST << SHARD_BITS, SHARDS << SHARD_BITS, 1 << 62):
        with pytest.raises(NotFound) as caught:
            cluster.first.shard.state.stream(number)
        assert not isinstance(caught.value, CopyNeeded)


def test_a_copy_is_what_the_home_says(cluster: Cluster) -> None:
    info = cluster.info
    assert cluster.copy(FIRST) == [StreamCopied(0, 0, info.id, "clicks", 3, 60_000, "", None, 0, 1)]
    assert cluster.copy(FIRST) == []
    stream = cluster.first.shard.state.stream_named("clicks")
    assert (stream.id, stream.version, stream.local) == (info.id, 1, range(1, 3, 3))


def test_a_copy_is_renewed_for_an_agent_that_knows_of_a_newer_version(cluster: Cluster) -> None:
    cluster.copy(FIRST)
    info = cluster.home.ask(AlterStream, "clicks", 5_000)
    assert (info.version, info.ttl_ms) == (2, 5_000)
    opened = cluster.home.ask(OpenAgent, "producer", "clicks", "p")
    rank = (opened.agent, info.id, opened.stream.version)
    with pytest.raises(CopyNeeded) as caught:
        cluster.first.ask(OpenAgent, "producer", "clicks", "p", *rank)
    assert caught.value.version == 2
    cluster.copy(FIRST, info)
    cluster.first.sequence -= 1
    assert cluster.first.ask(OpenAgent, "producer", "clicks", "p", *rank).stream.version == 2
    assert cluster.copy(FIRST) == []  # what was under way for long changes nothing


def test_a_shorter_ttl_ends_what_is_open_in_a_copy(cluster: Cluster) -> None:
    agents = cluster.agents()
    opened = cluster.first.open(agents[FIRST], 1, 50_000)
    cluster.copy(FIRST, cluster.home.ask(AlterStream, "clicks", 2_000))
    cluster.first.now_ms += 2_001
    cluster.first.tick()
    assert opened not in cluster.first.shard.state.open


def test_what_is_written_after_a_purge_is_there(cluster: Cluster) -> None:
    """Also if this shard's clock is behind that of the home."""
    agents = cluster.agents()
    cluster.home.now_ms = 50_000
    cluster.home.ask(Instant, agents[HOME], 0, items=1)
    cluster.home.ask(PurgeStream, "clicks", 10**18)
    home = cluster.home.shard.state.stream_named("clicks")
    assert (home.version, home.purged_before) == (2, (50_000 + CLOCKS_DIFFER_MS_MAX) * IDS_PER_MS)
    assert cluster.home.ask(Instant, agents[HOME], 0, items=1).id == home.purged_before
    info = StreamInfo(home.id, "clicks", 3, 60_000, "", None, home.purged_before, 2)
    tell(cluster, FIRST, home.id, info)
    made = cluster.first.ask(Instant, agents[FIRST], 1, items=1).id
    assert made >= home.purged_before
    assert cluster.first.again().state.last_id == made


def test_a_purge_takes_what_other_shards_have_written_since_the_home_has(cluster: Cluster) -> None:
    """Also if their clocks are a little ahead."""
    agents = cluster.agents()
    cluster.home.ask(Instant, agents[HOME], 0, items=1)
    cluster.first.now_ms = cluster.home.now_ms + CLOCKS_DIFFER_MS_MAX - 1
    late = cluster.first.ask(Instant, agents[FIRST], 1, items=1).id
    cluster.home.ask(PurgeStream, "clicks", late + 1)
    home = cluster.home.shard.state.stream_named("clicks")
    assert home.purged_before == late + 1
    assert cluster.home.again().state.last_id >= late  # and nothing is given out below


def test_a_purge_looks_at_the_clock_where_two_shards_have_a_stream(cluster: Cluster) -> None:
    """One shard alone knows which ids it has given out."""
    home = cluster.home
    names = [it for it in map("s{}".format, range(99)) if home_of(it, SHARDS) == HOME]
    for name, partitions in zip(names, (1, 2), strict=False):
        home.create(name, partitions)
        home.ask(PurgeStream, name, 10**18)
    purged = [home.shard.state.stream_named(it).purged_before for it in names[:2]]
    assert purged == [1, (home.now_ms + CLOCKS_DIFFER_MS_MAX) * IDS_PER_MS]


def test_what_a_step_has_replaced_here_is_not_brought_back(cluster: Cluster) -> None:
    cluster.copy(FIRST)
    cluster.first.shard.state.stream_named("clicks").purged_before = 700
    cluster.copy(FIRST, cluster.home.ask(AlterStream, "clicks", 5_000))
    assert cluster.first.shard.state.stream_named("clicks").purged_before == 700


@pytest.mark.parametrize("shard", [HOME, FIRST])
def test_a_shard_takes_no_copy_of_what_it_has_no_part_in(cluster: Cluster, shard: int) -> None:
    small = StreamInfo(cluster.info.id, "clicks", 1, 60_000, "", None, 0, 1)
    with pytest.raises(BadRequest, match="has no copy of stream"):
        cluster.copy(shard, small)


# Telling.


def test_the_home_knows_whom_it_has_to_tell(cluster: Cluster) -> None:
    home = cluster.home
    home.ask(AlterStream, "clicks", 5_000)
    told, altered = home.log[-2:]
    assert told == ToTell(home.session, 0, cluster.info.id, 2, [FIRST, SECOND])
    assert isinstance(altered, StreamAltered)
    state = home.shard.state
    assert state.untold == {cluster.info.id: Untold(2, {FIRST, SECOND})}
    known = (cluster.info.id, 2, FIRST)
    assert home.keep(home.shard.told(0, [], [known])) == [Told(0, 0, [], [known])]
    assert state.untold == {cluster.info.id: Untold(2, {SECOND})}
    home.ask(PurgeStream, "clicks", 5)
    home.keep(home.shard.told(0, [], [(cluster.info.id, 2, SECOND)]))  # of what is old by now
    assert state.untold == {cluster.info.id: Untold(3, {FIRST, SECOND})}
    assert home.again().state.untold == state.untold
    for shard in (FIRST, SECOND):
        home.keep(home.shard.told(0, [], [(cluster.info.id, 3, shard)]))
    assert state.untold == home.again().state.untold == {}


def test_a_stream_of_one_partition_has_nobody_to_tell(cluster: Cluster) -> None:
    one = next(it for it in map("s{}".format, range(99)) if cluster.home.shard.state.is_home_of(it))
    cluster.home.create(one, 1)
    cluster.home.ask(AlterStream, one, 5_000)
    assert cluster.home.shard.state.untold == {}


def test_a_shard_without_a_copy_that_is_told_has_one_then(cluster: Cluster) -> None:
    """Else an older answer, which is under way to it, would be taken for the newest."""
    info = cluster.home.ask(AlterStream, "clicks", 5_000)
    assert tell(cluster, FIRST, info.id, info)
    assert cluster.copy(FIRST) == []
    assert cluster.first.shard.state.stream_named("clicks").ttl_ms == 5_000


def test_a_deleted_stream_does_not_come_back(cluster: Cluster) -> None:
    agents = cluster.agents()
    opened = cluster.first.open(agents[FIRST], 1)
    cluster.home.ask(DeleteStream, "clicks")
    assert cluster.home.shard.state.untold == {cluster.info.id: Untold(0, {FIRST, SECOND})}
    first = cluster.first
    number = cluster.info.id
    assert tell(cluster, FIRST, number, None) == [CopyDropped(0, 0, number, [opened], first.now_ms)]
    assert first.shard.state.ended[opened] is Cancelled
    assert tell(cluster, FIRST, number, None) == []
    assert cluster.copy(FIRST) == []
    with pytest.raises(NotFound, match="deleted"):
        first.ask(Instant, agents[FIRST], 1, items=1)
    assert first.again().state.deleted == {number: first.now_ms}


def test_a_deleted_stream_takes_nothing_of_another_along(cluster: Cluster) -> None:
    opened = cluster.first.open(cluster.agents()[FIRST], 1)
    name = next(it for it in map("s{}".format, range(99)) if home_of(it, SHARDS) == HOME)
    other = cluster.home.create(name, 3)
    cluster.copy(FIRST, other)
    assert tell(cluster, FIRST, other.id, None) == [
        CopyDropped(0, 0, other.id, [], cluster.first.now_ms)
    ]
    assert opened in cluster.first.shard.state.open


def test_what_is_open_in_a_copy_ends_in_the_order_of_ids(cluster: Cluster) -> None:
    name = next(it for it in map("s{}".format, range(99)) if home_of(it, SHARDS) == HOME)
    info = cluster.home.create(name, 6)
    cluster.copy(FIRST, info)
    first, rank = cluster.first, cluster.home.agent("p", name)
    agent = first.ask(OpenAgent, "producer", name, "p", rank, info.id, 1).agent
    one, other = first.shard.state.stream(info.id).local
    opened = [first.open(agent, partition) for partition in (other, one, other)]
    assert tell(cluster, FIRST, info.id, None) == [CopyDropped(0, 0, info.id, opened, first.now_ms)]


def test_a_deletion_is_remembered_where_there_was_no_copy(cluster: Cluster) -> None:
    assert tell(cluster, FIRST, cluster.info.id, None)
    assert cluster.copy(FIRST) == []


def test_deletions_are_forgotten_after_an_hour(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cluster.first
    for number in (7, 8, 9):
        tell(cluster, FIRST, (HOME << SHARD_BITS) + number, None)
    monkeypatch.setattr("tstreams.core.state.DELETED_KEPT_MAX", 2)
    first.tick()
    assert len(first.shard.state.deleted) == 2
    assert first.again().state.deleted == first.shard.state.deleted  # all nodes forget the same
    first.now_ms += DELETED_KEPT_MS
    monkeypatch.setattr("tstreams.core.state.DELETED_FORGOTTEN_MAX", 1)
    first.tick()
    assert len(first.shard.state.deleted) == 1  # some at a time
    first.now_ms += 60_000
    first.tick()
    assert not first.shard.state.deleted
    assert not first.again().state.deleted


@pytest.mark.parametrize("told", [False, True], ids=["asked for", "told"])
def test_a_stream_that_was_made_anew_takes_the_place_of_its_copy(
    cluster: Cluster, told: bool
) -> None:
    agents = cluster.agents()
    opened = cluster.first.open(agents[FIRST], 1)
    cluster.home.ask(DeleteStream, "clicks")
    newer = cluster.home.create("clicks", 3)
    dropped, copied = tell(cluster, FIRST, newer.id, newer) if told else cluster.copy(FIRST, newer)
    assert dropped == CopyDropped(0, 0, cluster.info.id, [opened], cluster.first.now_ms)
    assert isinstance(copied, StreamCopied)
    assert cluster.first.shard.state.stream_named("clicks").id == newer.id
    assert cluster.copy(FIRST) == []
    assert tell(cluster, FIRST, cluster.info.id, None) == []


def test_a_copy_goes_when_what_is_prepared_in_it_is_decided(cluster: Cluster) -> None:
    agents = cluster.agents()
    group = Group(SECOND, cluster.second.session, 1)
    cluster.prepare(FIRST, group, [agents[FIRST]], brought=[Brought(agents[FIRST], 1)])
    with pytest.raises(InDoubt) as caught:
        tell(cluster, FIRST, cluster.info.id, None)
    assert caught.value.groups == [group]
    cluster.settle(FIRST, group, False)
    assert tell(cluster, FIRST, cluster.info.id, None)


def test_a_home_is_not_told_of_its_own_streams(cluster: Cluster) -> None:
    with pytest.raises(BadRequest, match="is at home in this shard"):
        tell(cluster, HOME, cluster.info.id, None)


# Agents.


def test_the_higher_rank_holds_the_name_in_whatever_order_they_come(cluster: Cluster) -> None:
    cluster.copy(FIRST)
    older = cluster.home.ask(OpenAgent, "producer", "clicks", "p").agent
    newer = cluster.home.ask(OpenAgent, "producer", "clicks", "p").agent
    number = cluster.info.id
    holder = cluster.first.ask(OpenAgent, "producer", "clicks", "p", newer, number, 1).agent
    with pytest.raises(Fenced, match=f"agent {older} does not hold its name"):
        cluster.first.ask(OpenAgent, "producer", "clicks", "p", older, number, 1)
    assert cluster.first.shard.state.holder("producer", number, "p") == holder
    again = cluster.first.ask(OpenAgent, "producer", "clicks", "p", newer, number, 1).agent
    assert cluster.first.shard.state.holder("producer", number, "p") == again
    agent = cluster.first.again().state.agent(again)
    assert agent is not None
    assert agent.rank == newer
    mine = cluster.home.shard.state.agent(newer)
    assert mine is not None
    assert mine.rank == newer


def test_ranks_come_from_the_home(cluster: Cluster) -> None:
    cluster.copy(FIRST)
    number = cluster.info.id
    for rank in (cluster.first.session, cluster.second.session):
        with pytest.raises(BadRequest, match="has no rank"):
            cluster.first.ask(OpenAgent, "producer", "clicks", "p", rank, number, 1)
    with pytest.raises(BadRequest, match="has no rank"):
        cluster.home.ask(OpenAgent, "producer", "clicks", "p", number, number, 1)
    with pytest.raises(BadRequest, match="is at home"):
        cluster.first.ask(OpenAgent, "producer", "clicks", "p")
    with pytest.raises(BadRequest, match="is 'clicks', not 'other'"):
        cluster.first.ask(OpenAgent, "producer", "other", "p", number + 1, number, 1)


def test_a_request_that_waited_in_vain_is_refused_and_counted(cluster: Cluster) -> None:
    first = cluster.first
    request = ResetReader(first.session, 1, 0, "clicks", "r", [])
    with pytest.raises(CopyNeeded):
        first.shard.handle(first.now_ms, request)
    for text in ("there is none", "and the first reason stays"):
        first.shard.refuse(first.now_ms, request, NotFound(text))
    with pytest.raises(NotFound, match="there is none"):
        first.shard.handle(first.now_ms, request)


def test_a_step_names_streams_that_have_to_be_asked_for() -> None:
    alone = Member(0, 1)
    with pytest.raises(NotFound, match="no stream 'x'"):
        alone.ask(CommitStep, "job", 0, [], ["x"])
