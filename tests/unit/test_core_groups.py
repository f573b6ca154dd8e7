"""Groups that span shards: what a participant promises, and what a decider decides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.core_client import ended
from tests.unit.core_shards import FIRST, HOME, LEASE_MS, SECOND, SHARDS, Cluster, Member
from tstreams.core.facts import Cancelled
from tstreams.core.records import (
    Committed,
    Decided,
    Ended,
    OpenedWith,
    Prepared,
    Refused,
    SessionsEnded,
    Settled,
    StepPrepared,
)
from tstreams.core.shard import Shard
from tstreams.core.waits import InDoubt
from tstreams.errors import BadRequest, Expired, Fenced, InvalidState, TooLarge
from tstreams.limits import LEASE_MS_MAX, LEASE_MS_MIN, SESSION_TTL_MS
from tstreams.protocol import (
    Brought,
    CancelStep,
    CancelTransactions,
    CloseAgent,
    Commit,
    CommitStep,
    DeleteStream,
    EndTransactions,
    Group,
    KeepAlive,
    OpenAgent,
    Prepare,
    PrepareStep,
    ReadPosition,
    ResetReader,
    SendItems,
    Stage,
)
from tstreams.sharding import job_home

STEP_JOB = next(it for it in map("job {}".format, range(99)) if job_home(it, SHARDS) == HOME)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def in_doubt(do: Callable[[], object], groups: list[Group], reason: str = "") -> None:
    """Something has to wait for these."""
    with pytest.raises(InDoubt) as caught:
        do()
    assert (caught.value.groups, caught.value.reason) == (groups, reason)


# The participant.


def test_what_is_prepared_holds_readers_back_and_is_open(cluster: Cluster) -> None:
    agents = cluster.agents()
    first = cluster.first
    opened = first.open(agents[FIRST], 1)
    first.send(agents[FIRST], opened)
    group = cluster.group()
    cluster.prepare(FIRST, group, [agents[FIRST]], [opened])
    assert first.log[-1] == Prepared(
        first.session, first.sequence, group, LEASE_MS, [agents[FIRST]], [opened], [], []
    )
    assert first.frontier(1) == opened
    assert first.shard.state.open[opened].group == group


def test_what_is_brought_stays_open_until_the_decision(cluster: Cluster) -> None:
    agents = cluster.agents()
    group = cluster.group()
    cluster.prepare(FIRST, group, [agents[FIRST]], brought=[Brought(agents[FIRST], 1)])
    brought, prepared = cluster.first.log[-2:]
    assert isinstance(brought, OpenedWith)
    assert (brought.session, brought.sequence) == (0, 0), "the request is named by what comes last"
    assert isinstance(prepared, Prepared)
    assert prepared.transactions == [brought.transaction]
    assert cluster.first.frontier(1) == brought.transaction
    assert cluster.settle(FIRST, group, True) == [Settled(0, 0, group, True, cluster.first.now_ms)]
    assert cluster.first.frontier(1) is None
    assert ended(cluster.first) == {brought.transaction: InvalidState}
    assert cluster.settle(FIRST, group, True) == []


def test_what_does_not_happen_is_cancelled(cluster: Cluster) -> None:
    agents = cluster.agents()
    reader = cluster.agents("r", "reader")
    first = cluster.first
    opened = first.open(agents[FIRST], 1)
    group = cluster.group()
    position = ReadPosition(reader[FIRST], 1, 55)
    cluster.prepare(FIRST, group, [agents[FIRST], reader[FIRST]], [opened], [position])
    cluster.settle(FIRST, group, False)
    assert ended(first) == {opened: Cancelled}
    assert first.shard.state.position(cluster.info.id, "r", 1) == 0
    assert not first.shard.state.groups.positions


def shape(shard: Shard, transaction: int) -> tuple[int, int, bool, bool]:
    it = shard.state.open[transaction]
    return it.items, it.batches, it.unfinished, it.group is not None


def test_what_was_open_before_is_open_again_if_it_is_to_be_given_back(cluster: Cluster) -> None:
    agents = cluster.agents()
    first, agent = cluster.first, agents[FIRST]
    sent, filled, cut, empty = (first.open(agent, 1) for _ in range(4))
    first.send(agent, sent, 3)
    first.send(agent, filled, 2)
    first.send(agent, filled, 0)  # an item whose end is still to come
    before = {it: shape(first.shard, it) for it in (sent, filled, cut, empty)}
    assert before[filled] == (2, 2, True, False)
    group = cluster.group()
    brought = [Brought(agent, 1, filled), Brought(agent, 1, cut), Brought(agent, 1)]
    everything = [sent, filled, cut, empty]
    cluster.prepare(FIRST, group, [agent], everything, brought=brought, give_back=True)
    prepared = first.log[-1]
    assert isinstance(prepared, Prepared)
    assert (prepared.kept, prepared.cut) == (everything, [(filled, 1, True), (cut, 1, False)])
    (new,) = set(prepared.transactions) - set(everything)
    assert shape(first.shard, filled) == (3, 3, False, True)
    first.now_ms += 2 * LEASE_MS
    cluster.settle(FIRST, group, False)
    assert ended(first) == {new: Cancelled}
    for shard in (first.shard, first.again()):
        assert {it: shape(shard, it) for it in before} == before
        assert list(shard.state.open) == everything
    first.tick()  # their leases have begun anew
    assert list(first.shard.state.open) == everything
    first.send(agent, filled, 1)
    again = cluster.group()
    cluster.prepare(FIRST, again, [agent], [sent, filled], give_back=True)
    cluster.settle(FIRST, again, True)
    assert ended(first)[filled] is InvalidState
    first.now_ms += LEASE_MS
    first.tick()
    assert not first.shard.state.open
    assert ended(first)[cut] is Expired


def test_who_takes_a_name_over_ends_what_was_given_back(cluster: Cluster) -> None:
    agents = cluster.agents()
    first, agent = cluster.first, agents[FIRST]
    opened = first.open(agent, 1)
    group = cluster.group()
    cluster.prepare(FIRST, group, [agent], [opened], give_back=True)
    cluster.settle(FIRST, group, False)
    cluster.agents()
    assert ended(first)[opened] is Fenced


def test_positions_move_when_it_happens(cluster: Cluster) -> None:
    reader = cluster.agents("r", "reader")
    group = cluster.group()
    cluster.prepare(FIRST, group, [reader[FIRST]], positions=[ReadPosition(reader[FIRST], 1, 55)])
    cluster.settle(FIRST, group, True)
    assert cluster.first.shard.state.position(cluster.info.id, "r", 1) == 55


def test_who_gives_up_must_have_prepared(cluster: Cluster) -> None:
    agents = cluster.agents()
    group = cluster.group()
    cluster.prepare(FIRST, group, [agents[FIRST]])
    with pytest.raises(BadRequest, match="prepared by another session"):
        cluster.settle(FIRST, group, False, cluster.first.session + 1)
    assert cluster.settle(FIRST, group, False, cluster.first.session)


def test_what_its_owner_does_with_what_is_prepared_waits(cluster: Cluster) -> None:
    agents = cluster.agents()
    first, agent = cluster.first, agents[FIRST]
    opened = first.open(agent, 1)
    group = cluster.group()
    cluster.prepare(FIRST, group, [agent], [opened])
    before = first.shard.state.sessions[first.session].last
    for do in (
        lambda: first.send(agent, opened),
        lambda: first.ask(CancelTransactions, [agent], [opened]),
        lambda: first.ask(Commit, [agent], [opened]),
        lambda: first.ask(Stage, agent, [opened], "job", 0, 1000),
        lambda: first.ask(CloseAgent, agent),
        lambda: cluster.prepare(FIRST, cluster.group(), [agent], [opened]),
    ):
        in_doubt(do, [group])
    assert first.shard.state.sessions[first.session].last == before
    cluster.settle(FIRST, group, True)
    first.sequence = before
    with pytest.raises(InvalidState, match="is not open"):  # the same number, handed in again
        first.send(agent, opened)


def test_a_position_that_may_have_moved_is_not_moved(cluster: Cluster) -> None:
    reader = cluster.agents("r", "reader")
    first, agent = cluster.first, reader[FIRST]
    group = cluster.group()
    cluster.prepare(FIRST, group, [agent], positions=[ReadPosition(agent, 1, 5, 0)])
    for position in (ReadPosition(agent, 1, 6, 5), ReadPosition(agent, 1, 6)):
        in_doubt(lambda p=position: first.ask(Commit, [agent], [], [p]), [group])  # type: ignore[misc]
    in_doubt(
        lambda: first.ask(ResetReader, "clicks", "r", [(1, 0)], True), [group], "invalid_state"
    )
    in_doubt(lambda: first.ask(ResetReader, "clicks", "r", [], True), [group], "fenced")
    cluster.settle(FIRST, group, True)
    first.ask(Commit, [agent], [], [ReadPosition(agent, 1, 6, 5)])


def test_who_takes_a_name_over_waits(cluster: Cluster) -> None:
    """Also for a member that had nothing to commit."""
    agents = cluster.agents()
    group = cluster.group()
    cluster.prepare(FIRST, group, [agents[FIRST]])
    newer = cluster.home.ask(OpenAgent, "producer", "clicks", "p").agent
    rank = (newer, cluster.info.id, 1)
    other = cluster.first.another()
    in_doubt(lambda: other.ask(OpenAgent, "producer", "clicks", "p", *rank), [group], "fenced")


def test_operators_wait(cluster: Cluster) -> None:
    agents = cluster.agents()
    opened = cluster.first.open(agents[FIRST], 1)
    group = cluster.group()
    cluster.prepare(FIRST, group, [agents[FIRST]], [opened])
    operator = cluster.first.another()
    in_doubt(lambda: operator.ask(EndTransactions, [opened]), [group], "invalid_state")
    with pytest.raises(InvalidState, match="is not open"):
        operator.ask(EndTransactions, [opened + 1])


def test_a_stream_is_deleted_after_the_decision() -> None:
    """Here the home itself takes part, and another shard decides."""
    cluster = Cluster()
    agents = cluster.agents()
    group = Group(FIRST, cluster.first.session, 1)
    cluster.prepare(HOME, group, [agents[HOME]], brought=[Brought(agents[HOME], 0)])
    in_doubt(lambda: cluster.home.ask(DeleteStream, "clicks"), [group], "invalid_state")
    cluster.settle(HOME, group, False)
    cluster.home.ask(DeleteStream, "clicks")


# Time.


def test_leases_of_what_is_prepared_stand_still_and_the_decider_is_asked(
    cluster: Cluster,
) -> None:
    agents = cluster.agents()
    first = cluster.first
    opened = first.open(agents[FIRST], 1, 500)
    first.send(agents[FIRST], opened)
    group = cluster.group()
    cluster.prepare(FIRST, group, [agents[FIRST]], [opened])
    groups = first.shard.state.groups
    first.now_ms += LEASE_MS - 1
    first.tick()
    assert (opened in first.shard.state.open, groups.due) == (True, {})
    first.shard.keep_alive(first.now_ms, KeepAlive(first.session, 0))
    first.now_ms += 1
    first.tick()
    assert (opened in first.shard.state.open, groups.due) == (True, {group: "expired"})
    assert first.shard.tick(first.now_ms) == []


def test_a_clock_that_goes_back_does_not_put_the_question_off(cluster: Cluster) -> None:
    agents = cluster.agents()
    first = cluster.first
    first.now_ms = 100_000
    group = cluster.group()
    cluster.prepare(FIRST, group, [agents[FIRST]])
    first.tick()
    first.now_ms = 50_000
    first.tick()
    first.now_ms += LEASE_MS
    first.tick()
    assert first.shard.state.groups.due == {group: "expired"}


def test_after_the_clock_went_back_groups_are_asked_for_in_their_order(cluster: Cluster) -> None:
    first = cluster.first
    first.now_ms = 100_000
    late, soon = cluster.group(), cluster.group()
    first.ask(Prepare, late, 5 * LEASE_MS, [], [], [])
    first.ask(Prepare, soon, LEASE_MS, [], [], [])
    first.tick()
    first.now_ms = 50_000
    first.tick()
    for number, group in ((1, soon), (5, late)):
        first.now_ms = 50_000 + number * LEASE_MS
        first.tick()
        assert list(first.shard.state.groups.due) == [group]
        first.shard.state.groups.due.clear()
    first.now_ms = 100_000 + 5 * LEASE_MS
    first.tick()
    assert first.shard.state.groups.due == {}, "once is enough"


def test_a_session_ends_after_the_decision(cluster: Cluster) -> None:
    agents = cluster.agents()
    first = cluster.first
    group = cluster.group()
    cluster.prepare(FIRST, group, [agents[FIRST]], brought=[Brought(agents[FIRST], 1)])
    first.now_ms += SESSION_TTL_MS + 1
    first.tick()
    assert first.session in first.shard.state.sessions
    assert first.shard.state.groups.due == {group: "expired"}
    cluster.settle(FIRST, group, False)
    assert not first.shard.state.groups.due
    first.now_ms += 20_000
    first.tick()
    assert isinstance(first.log[-1], SessionsEnded)


def test_a_session_that_ends_before_its_groups_asks_for_the_decision(cluster: Cluster) -> None:
    agents = cluster.agents()
    first = cluster.first
    group = cluster.group()
    first.ask(Prepare, group, LEASE_MS_MAX, [agents[FIRST]], [], [])
    first.now_ms += SESSION_TTL_MS
    first.tick()
    assert first.session in first.shard.state.sessions
    assert first.shard.state.groups.due == {group: "expired"}


# The decider.


def test_the_decision_is_behind_the_commit(cluster: Cluster) -> None:
    agents = cluster.agents()
    group = cluster.group()
    cluster.decide(group, [FIRST, SECOND], [agents[HOME]])
    committed, decided = cluster.home.log[-2:]
    assert isinstance(committed, Committed)
    assert decided == Decided(cluster.home.session, 0, 1, [FIRST, SECOND])
    assert cluster.ask(group)
    with pytest.raises(InvalidState, match="has happened already"):
        cluster.decide(group, [FIRST], [agents[HOME]])


def test_a_commit_that_brings_something_decides_too(cluster: Cluster) -> None:
    agents = cluster.agents()
    group = cluster.group()
    brought = [Brought(agents[HOME], 0)]
    cluster.home.ask(Commit, [agents[HOME]], [], [], brought, [FIRST], group.number, brought=[1])
    assert [type(it).__name__ for it in cluster.home.log[-3:]] == [
        "Filled",
        "Committed",
        "Decided",
    ]


def test_a_decision_is_kept_until_all_know(cluster: Cluster) -> None:
    group = cluster.group()
    cluster.decide(group, [FIRST, SECOND])
    home, key = cluster.home, (group.session, group.number)
    for shard in (FIRST, FIRST, SECOND):
        assert key in home.shard.state.groups.decided
        home.keep(home.shard.told(home.now_ms, [(*key, shard)], []))
    assert key not in home.shard.state.groups.decided
    assert home.shard.told(home.now_ms, [(*key, SECOND)], [])  # late, and of no effect


def test_who_is_asked_and_has_not_decided_refuses(cluster: Cluster) -> None:
    group = cluster.group()
    assert not cluster.ask(group)
    assert cluster.home.log[-1] == Refused(cluster.home.session, 0, 1, "expired", [])
    records = len(cluster.home.log)
    assert not cluster.ask(group)
    assert len(cluster.home.log) == records
    with pytest.raises(Expired, match="checkpoint 1 was refused"):
        cluster.decide(group, [FIRST])
    fenced = cluster.group()
    cluster.ask(fenced, "fenced")
    with pytest.raises(Fenced, match="checkpoint 2 was refused"):
        cluster.decide(fenced, [FIRST])
    cluster.decide(cluster.group(), [FIRST])


def test_of_many_refusals_the_lowest_are_remembered_as_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tstreams.core.transitions.REFUSED_MAX", 2)
    for number in (5, 7, 9):
        cluster.ask(Group(HOME, cluster.home.session, number))
    session = cluster.home.shard.state.sessions[cluster.home.session]
    assert (session.refused, session.refused_to) == ({7: "expired", 9: "expired"}, 5)
    records = len(cluster.home.log)
    for number in (4, 5):
        with pytest.raises(Expired):
            cluster.decide(Group(HOME, cluster.home.session, number), [FIRST])
        assert not cluster.ask(Group(HOME, cluster.home.session, number))
    assert len(cluster.home.log) == records, "it was refused before"
    cluster.decide(Group(HOME, cluster.home.session, 6), [FIRST])


def test_a_session_that_is_gone_decides_nothing(cluster: Cluster) -> None:
    assert not cluster.ask(Group(HOME, cluster.home.session + 1, 1))


def test_only_the_decider_decides(cluster: Cluster) -> None:
    with pytest.raises(BadRequest, match="not decided on in shard"):
        cluster.ask(Group(FIRST, cluster.first.session, 1))


@pytest.mark.parametrize(
    "others", [[HOME], [FIRST, FIRST], [SHARDS], [FIRST, HOME], [FIRST, SHARDS]]
)
def test_a_decision_names_others(cluster: Cluster, others: list[int]) -> None:
    with pytest.raises(BadRequest, match="no such participants"):
        cluster.decide(cluster.group(), others)
    with pytest.raises(BadRequest, match="no such participants"):
        cluster.home.ask(Commit, [], [], [], [], [FIRST], 0)


@pytest.mark.parametrize("lease_ms", [LEASE_MS_MIN, LEASE_MS_MAX])
def test_a_group_has_a_lease_as_transactions_have(cluster: Cluster, lease_ms: int) -> None:
    group, beyond = cluster.group(), (LEASE_MS_MIN - 1, LEASE_MS_MAX + 1)
    for wrong_ms in beyond:
        with pytest.raises(BadRequest, match=f"not {wrong_ms}"):
            cluster.first.ask(Prepare, group, wrong_ms, [], [], [])
    cluster.first.ask(Prepare, group, lease_ms, [], [], [])
    assert cluster.first.shard.state.groups.prepared[group].lease_ms == lease_ms


def test_a_group_is_prepared_once(cluster: Cluster) -> None:
    group = cluster.group()
    cluster.prepare(FIRST, group, [])
    before = cluster.first.shard.state.groups.prepared[group]
    with pytest.raises(InvalidState, match="is prepared here already"):
        cluster.prepare(FIRST, group, [])
    assert cluster.first.shard.state.groups.prepared == {group: before}


def test_there_is_a_limit_to_what_is_in_doubt(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = cluster.agents()
    monkeypatch.setattr("tstreams.core.preparing.PREPARED_MAX", 1)
    cluster.prepare(FIRST, cluster.group(), [agents[FIRST]])
    with pytest.raises(TooLarge, match="wait for their decisions"):
        cluster.prepare(FIRST, cluster.group(), [agents[FIRST]])


def test_what_comes_with_a_group_is_open_and_counts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = cluster.agents()[FIRST]
    monkeypatch.setattr("tstreams.core.preparing.OPEN_TRANSACTIONS_MAX", 2)
    cluster.first.open(agent, 1)
    with pytest.raises(TooLarge, match="are open already"):
        cluster.prepare(FIRST, cluster.group(), [agent], brought=[Brought(agent, 1)] * 2)
    cluster.prepare(FIRST, cluster.group(), [agent], brought=[Brought(agent, 1)])


# Steps of jobs.


def staged(cluster: Cluster, agents: dict[int, int], step: int = 0) -> int:
    first = cluster.first
    opened = first.open(agents[FIRST], 1)
    first.send(agents[FIRST], opened)
    first.ask(Stage, agents[FIRST], [opened], STEP_JOB, step, 1000)
    return opened


def prepare_step(
    cluster: Cluster, group: Group, ids: list[int], step: int = 0, **other: object
) -> None:
    cluster.first.ask(PrepareStep, group, LEASE_MS, STEP_JOB, step, ids, *other.values())


def test_a_step_happens_as_a_whole(cluster: Cluster) -> None:
    agents = cluster.agents()
    first = cluster.first
    mine, left_over = staged(cluster, agents), staged(cluster, agents)
    group = cluster.group()
    prepare_step(cluster, group, [mine], replace=["clicks"])
    prepared = first.log[-1]
    assert isinstance(prepared, StepPrepared)
    assert (prepared.transactions, prepared.dropped) == ([mine], [left_over])
    assert prepared.replaced == [(cluster.info.id, mine)]
    assert first.shard.state.groups.replacing == {cluster.info.id: [group]}
    cluster.home.ask(CommitStep, STEP_JOB, 0, [], [], False, [FIRST], group.number)
    cluster.settle(FIRST, group, True)
    assert ended(first) == {mine: InvalidState, left_over: Cancelled}
    assert first.shard.state.last_step(STEP_JOB) == 0
    assert first.shard.state.stream_named("clicks").purged_before == mine
    assert not first.shard.state.groups.replacing
    with pytest.raises(InvalidState, match="is over"):
        staged(cluster, agents)


def test_the_last_step_of_a_job_is_forgotten_with_the_job(cluster: Cluster) -> None:
    mine = staged(cluster, cluster.agents())
    group, first = cluster.group(), cluster.first
    prepare_step(cluster, group, [mine], replace=[], final=True)
    assert first.log[-1] == StepPrepared(
        first.session, first.sequence, group, LEASE_MS, STEP_JOB, 0, [mine], [], [], [], True
    )
    cluster.settle(FIRST, group, True)
    assert first.shard.state.last_step(STEP_JOB) == -1


def test_a_step_does_not_wait_for_a_later_one(cluster: Cluster) -> None:
    agents = cluster.agents()
    later = cluster.group()
    prepare_step(cluster, later, [staged(cluster, agents, 1)], 1)
    mine, group = staged(cluster, agents), cluster.group()
    prepare_step(cluster, group, [mine])
    assert cluster.first.shard.state.open[mine].group == group
    in_doubt(lambda: prepare_step(cluster, cluster.group(), [], 1), [later, group], "invalid_state")


def test_a_step_that_does_not_happen_leaves_other_attempts_as_they_were(cluster: Cluster) -> None:
    agents = cluster.agents()
    first = cluster.first
    mine, left_over = staged(cluster, agents), staged(cluster, agents)
    group = cluster.group()
    prepare_step(cluster, group, [mine])
    in_doubt(lambda: first.ask(CancelStep, STEP_JOB, 0), [group], "invalid_state")
    in_doubt(lambda: prepare_step(cluster, cluster.group(), [left_over]), [group], "invalid_state")
    cluster.settle(FIRST, group, False)
    assert ended(first) == {mine: Cancelled}
    first.now_ms += 1001
    first.tick()
    assert first.log[-1] == Ended(0, 0, [left_over], True)


def test_a_step_that_is_over_is_done_again_and_nothing_is_prepared(cluster: Cluster) -> None:
    agents = cluster.agents()
    mine = staged(cluster, agents)
    group = cluster.group()
    prepare_step(cluster, group, [mine])
    cluster.home.ask(CommitStep, STEP_JOB, 0, [], [], False, [FIRST], group.number)
    cluster.settle(FIRST, group, True)
    again = cluster.group()
    prepare_step(cluster, again, [mine])
    assert not cluster.first.shard.state.groups.prepared
    cluster.home.ask(CommitStep, STEP_JOB, 0, [], [], False, [FIRST], again.number)
    home = cluster.home
    assert home.log[-2:] == [
        Ended(home.session, home.sequence, [], False),
        Refused(home.session, 0, again.number, "invalid_state", [FIRST]),
    ]
    decided = cluster.home.shard.state.groups.decided[again.session, again.number]
    assert (decided.committed, decided.others) == (False, {FIRST})
    assert not cluster.ask(again)
    once_more = cluster.group()
    cluster.ask(once_more)
    cluster.home.ask(CommitStep, STEP_JOB, 0, [], [], False, [FIRST], once_more.number)
    assert isinstance(cluster.home.log[-1], Ended)


def test_a_job_without_a_name_prepares_nothing(cluster: Cluster) -> None:
    with pytest.raises(BadRequest, match="job"):
        cluster.first.ask(PrepareStep, cluster.group(), LEASE_MS, " ", 0, [])


def test_a_step_is_committed_at_the_home_of_its_job(cluster: Cluster) -> None:
    with pytest.raises(BadRequest, match=f"are committed in shard {HOME}"):
        cluster.first.ask(CommitStep, STEP_JOB, 0, [])


# Restarts.


def test_all_of_it_outlives_a_restart(cluster: Cluster) -> None:
    agents = cluster.agents()
    reader = cluster.agents("r", "reader")
    mine, left_over = staged(cluster, agents), staged(cluster, agents)
    group, step = cluster.group(), cluster.group()
    position = ReadPosition(reader[FIRST], 1, 55)
    cluster.prepare(
        FIRST,
        group,
        [agents[FIRST], reader[FIRST]],
        positions=[position],
        brought=[Brought(agents[FIRST], 1)],
    )
    prepare_step(cluster, step, [mine])
    again = cluster.first.again().state
    now = cluster.first.shard.state
    assert again.groups.prepared == now.groups.prepared
    assert again.groups.positions == now.groups.positions
    assert again.open == now.open
    assert again.open[left_over].group == step
    cluster.decide(group, [FIRST])
    cluster.ask(step)
    home, before = cluster.home.again().state, cluster.home.shard.state
    assert home.groups.decided == before.groups.decided
    assert home.sessions[cluster.home.session].refused == {step.number: "expired"}
    assert home.sessions[cluster.home.session].last == before.sessions[cluster.home.session].last


def test_a_single_shard_has_no_groups() -> None:
    alone = Member(0, 1)
    alone.create()
    agent = alone.agent()
    with pytest.raises(BadRequest, match="cannot be decided on"):
        alone.ask(PrepareStep, Group(1, 1 << 48, 1), LEASE_MS, "job", 0, [])
    with pytest.raises(BadRequest, match="no such participants"):
        alone.ask(Commit, [agent], [], [], [], [1], 1)
    alone.ask(SendItems, agent, alone.open(agent), items=1)
