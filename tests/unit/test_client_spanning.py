"""Commits over several shards, request by request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tstreams.client.rules.agent import Agent, Seat, open_agent
from tstreams.client.rules.cursor import Cursor
from tstreams.client.rules.draft import Draft
from tstreams.client.rules.group import Group
from tstreams.client.rules.link import Link
from tstreams.client.rules.producer import Producer
from tstreams.client.rules.reader import Reader
from tstreams.client.rules.session import Session
from tstreams.errors import Expired, Fenced, Timeout, Unavailable
from tstreams.model import TransactionState
from tstreams.protocol import (
    AgentOpened,
    Done,
    Fetched,
    FetchedTransaction,
    SessionOpened,
    StreamInfo,
)
from tstreams.sharding import shards_of

from .client_wires import Asked, Script, Waiting, link_to

SHARDS = 3
OPENED, CHECKPOINTED = TransactionState.OPENED, TransactionState.CHECKPOINTED
CANCELLED, INVALID = TransactionState.CANCELLED, TransactionState.INVALID


class Bench:
    """A producer and a reader of three partitions, each in a shard of its own."""

    def __init__(self) -> None:
        self.script = Script()
        self.link = link_to(self.script, SHARDS)
        self.sessions = [Session(self.link, self.link.shards[it], 10 + it) for it in range(SHARDS)]
        self.producer = Producer(self._agent("producer", "out", 100), None, 1000, "none")
        self.reader = Reader(
            self._agent("reader", "in", 200), [Cursor(it, 1, None) for it in range(3)]
        )
        self.group = Group(self.link)
        self.group.add(self.producer)
        self.group.add(self.reader)

    def _agent(self, kind: str, stream: str, number: int) -> Agent:
        info = StreamInfo(7, stream, 3, 1000, "", None)
        shards = shards_of(stream, 3, SHARDS)
        seats = [Seat(self.sessions[shard], number + shard) for shard in shards]
        return Agent(self.link, kind, "a", AgentOpened(number + shards[0], info), seats)

    def open(self, partition: int, transaction_id: int) -> Draft:
        """An open transaction with an item in it."""
        opening = Waiting(self.producer.open(partition, None, "enqueue"))
        self.script.take("OpenTransaction").answer(Done(transaction_id))
        opening.go_on()
        draft: Draft = opening.result
        draft.add(b"item")
        return draft

    def read(self, partition: int, transaction_id: int) -> None:
        """Let the reader go on."""
        reading = Waiting(self.reader.get(partition, 10))
        entry = FetchedTransaction(partition, transaction_id, 1, 1, 0, [3])
        self.script.take("Fetch").answer(Fetched([entry]), b"xyz")
        reading.go_on()
        assert reading.result.id == transaction_id

    def shard_of(self, draft: Draft) -> str:
        return str(draft.seat.shard)

    def take_all(self, name: str) -> list[Asked]:
        found = [it for it in self.script.asked if it.name == name]
        self.script.asked = [it for it in self.script.asked if it.name != name]
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


def fail(asked: Asked, error: type[Any], text: str = "") -> None:
    asked.fail(error.code, text)


# One shard.


def test_what_is_in_one_shard_is_one_request(bench: Bench) -> None:
    drafts = [bench.open(1, 5), bench.open(1, 6)]
    closing = Waiting(bench.producer.checkpoint())
    assert bench.script.names == ["Commit"]
    commit = bench.script.take("Commit")
    assert commit.shard == bench.shard_of(drafts[0])
    assert (commit.message.others, commit.message.group) == ([], 0)
    assert commit.message.agents == [drafts[0].seat.number]
    commit.answer(Done())
    closing.go_on()
    assert closing.ended
    assert {draft.state for draft in drafts} == {CHECKPOINTED}


def test_an_idle_member_is_asked_about_where_something_happens_anyway(bench: Bench) -> None:
    draft = bench.open(0, 5)
    Waiting(bench.group.checkpoint())
    commit = bench.script.take("Commit")
    assert bench.script.asked == []
    shard = draft.seat.shard
    assert sorted(commit.message.agents) == [100 + shard, 200 + shard]


# Several.


def test_the_others_prepare_and_then_one_decides(bench: Bench) -> None:
    drafts = [bench.open(0, 5), bench.open(1, 5), bench.open(1, 6), bench.open(2, 5)]
    closing = Waiting(bench.producer.checkpoint())
    assert bench.script.names == ["Prepare", "Prepare"], "side by side, and nothing else yet"
    prepares = bench.take_all("Prepare")
    groups = {it.message.group for it in prepares}
    assert len(groups) == 1
    group = groups.pop()
    assert str(group.shard) == bench.shard_of(drafts[1]), "where most happens"
    assert group.session == drafts[1].seat.session.id
    assert {it.shard for it in prepares} == {bench.shard_of(drafts[0]), bench.shard_of(drafts[3])}
    assert [len(it.brought) for it in prepares] == [1, 1]
    prepares[0].answer(Done())
    closing.go_on()
    assert bench.script.asked == []
    prepares[1].answer(Done())
    closing.go_on()
    commit = bench.script.take("Commit")
    assert commit.shard == str(group.shard)
    assert commit.message.group == group.number
    assert sorted(map(str, commit.message.others)) == sorted(it.shard for it in prepares)
    assert len(commit.brought) == 2
    assert {draft.state for draft in drafts} == {OPENED}
    commit.answer(Done())
    closing.go_on()
    assert closing.ended
    assert {draft.state for draft in drafts} == {CHECKPOINTED}
    assert bench.script.asked == [], "the decider tells the others"
    assert bench.link.window.requests == bench.link.window.bytes == 0


def test_each_group_has_a_number_of_its_own(bench: Bench) -> None:
    numbers = []
    for _ in range(2):
        bench.open(0, 5)
        bench.open(1, 5)
        closing = Waiting(bench.producer.checkpoint())
        prepare = bench.script.take("Prepare")
        numbers.append(prepare.message.group.number)
        prepare.answer(Done())
        closing.go_on()
        bench.script.take("Commit").answer(Done())
        closing.go_on()
    assert numbers == [1, 2]


def prepared(bench: Bench) -> tuple[Waiting, list[Draft], list[Asked]]:
    """A checkpoint in which one shard has prepared, one has not answered, and one will decide."""
    drafts = [bench.open(0, 5), bench.open(1, 5), bench.open(1, 6), bench.open(2, 5)]
    closing = Waiting(bench.producer.checkpoint())
    prepares = bench.take_all("Prepare")
    prepares.sort(key=lambda it: it.shard != bench.shard_of(drafts[0]))
    prepares[0].answer(Done())
    closing.go_on()
    return closing, drafts, prepares


def settled(bench: Bench) -> set[str]:
    """The shards that were told that nothing comes of it."""
    told = bench.take_all("Settle")
    assert not any(it.message.committed for it in told)
    return {it.shard for it in told}


def test_one_refuses(bench: Bench) -> None:
    closing, drafts, prepares = prepared(bench)
    fail(prepares[1], Expired, "transaction 5: its lease ran out")
    closing.go_on()
    assert isinstance(closing.error, Expired)
    assert str(closing.error).startswith("producer 'a' of stream 'out': transaction 5")
    assert [it.state for it in drafts] == [OPENED, OPENED, OPENED, INVALID]
    assert settled(bench) == {prepares[0].shard}
    assert bench.script.asked == [], "the decider has heard of nothing"
    assert bench.link.window.requests == bench.link.window.bytes == 0
    again = Waiting(bench.producer.checkpoint())
    prepare = bench.script.take("Prepare")
    assert prepare.message.give_back
    assert prepare.shard == prepares[0].shard
    assert prepare.message.transactions == prepares[0].message.transactions
    assert prepare.message.brought == prepares[0].message.brought, "what was cut off comes again"
    prepare.answer(Done())
    again.go_on()
    commit = bench.script.take("Commit")
    assert commit.message.transactions == [5, 6]
    commit.answer(Done())
    again.go_on()
    assert again.ended
    assert again.error is None


def test_one_does_not_answer(bench: Bench) -> None:
    closing, drafts, prepares = prepared(bench)
    fail(prepares[1], Timeout)
    closing.go_on()
    assert isinstance(closing.error, Timeout)
    assert [it.state for it in drafts] == [OPENED] * 4
    assert not any(it.sealed or it.in_doubt for it in drafts), "nothing was decided, or will be"
    assert settled(bench) == {it.shard for it in prepares}
    assert bench.script.asked == []


def test_an_interrupt_gives_up(bench: Bench) -> None:
    closing, drafts, prepares = prepared(bench)
    closing.interrupt()
    assert isinstance(closing.error, KeyboardInterrupt)
    assert [it.state for it in drafts] == [OPENED] * 4
    assert settled(bench) == {it.shard for it in prepares}


def test_what_is_prepared_after_we_gave_up_is_given_back_then(bench: Bench) -> None:
    """It waited in its shard behind something else, and what we told it found nothing there."""
    closing, _, prepares = prepared(bench)
    closing.interrupt()
    assert settled(bench) == {it.shard for it in prepares}
    prepares[1].answer(Done())
    assert settled(bench) == {prepares[1].shard}
    assert bench.script.asked == []


def test_what_is_refused_after_we_gave_up_needs_no_word(bench: Bench) -> None:
    closing, _, prepares = prepared(bench)
    closing.interrupt()
    assert settled(bench) == {it.shard for it in prepares}
    fail(prepares[1], Fenced)
    assert settled(bench) == set()


def decided(bench: Bench) -> tuple[Waiting, list[Draft], list[Asked], Asked]:
    """A checkpoint of which the decisive part was sent."""
    closing, drafts, prepares = prepared(bench)
    prepares[1].answer(Done())
    closing.go_on()
    return closing, drafts, prepares, bench.script.take("Commit")


def test_the_decider_refuses(bench: Bench) -> None:
    closing, drafts, prepares, commit = decided(bench)
    fail(commit, Expired, "transaction 6: its lease ran out")
    closing.go_on()
    assert isinstance(closing.error, Expired)
    assert [it.state for it in drafts] == [OPENED, OPENED, INVALID, OPENED]
    assert not any(it.sealed for it in drafts if it.state is OPENED)
    assert settled(bench) == {it.shard for it in prepares}


def test_the_decider_does_not_answer(bench: Bench) -> None:
    """Nobody knows, and nobody is told: the shards find out."""
    closing, drafts, _, commit = decided(bench)
    fail(commit, Timeout)
    closing.go_on()
    assert isinstance(closing.error, Timeout)
    assert bench.script.asked == []
    assert [it.state for it in drafts] == [OPENED] * 4
    assert all(it.in_doubt for it in drafts)


def test_an_interrupt_after_the_decision_was_sent_lets_the_answer_tell(bench: Bench) -> None:
    closing, drafts, _, commit = decided(bench)
    closing.interrupt()
    commit.answer(Done())
    assert {it.state for it in drafts} == {CHECKPOINTED}


def test_what_is_begun_behind_it_waits_until_the_decision_was_sent(bench: Bench) -> None:
    closing, _, prepares = prepared(bench)
    sink: Any = object()
    assert not bench.producer.try_instant(sink, 0, b"batch")
    prepares[1].answer(Done())
    closing.go_on()
    assert not bench.producer.turns.taken


# Groups.


def test_a_group_that_was_refused_is_as_before(bench: Bench) -> None:
    drafts = [bench.open(0, 5), bench.open(1, 5), bench.open(1, 6)]
    third = 3 - drafts[0].seat.shard - drafts[1].seat.shard
    bench.read(shards_of("in", 3, SHARDS).index(third), 3)
    closing = Waiting(bench.group.checkpoint())
    prepares = bench.take_all("Prepare")
    prepares.sort(key=lambda it: it.shard == str(third))
    assert len(prepares) == 2
    prepares[0].answer(Done())
    closing.go_on()
    fail(prepares[1], Fenced, f"agent {200 + third} does not hold its name any more")
    closing.go_on()
    assert isinstance(closing.error, Fenced)
    assert "reader 'a' of stream 'in'" in str(closing.error)
    assert [draft.state for draft in drafts] == [OPENED] * 3
    assert settled(bench) == {prepares[0].shard}
    assert bench.script.asked == []
    Waiting(bench.group.checkpoint())
    again = bench.take_all("Prepare")
    again.sort(key=lambda it: it.shard == str(third))
    for before, after in zip(prepares, again, strict=True):
        assert after.shard == before.shard
        assert after.message.transactions == before.message.transactions
        assert after.message.positions == before.message.positions


def test_a_group_in_doubt_stops_its_readers(bench: Bench) -> None:
    bench.read(1, 3)
    bench.open(0, 5)
    bench.open(1, 6)
    bench.open(2, 7)
    closing = Waiting(bench.group.checkpoint())
    for prepare in bench.take_all("Prepare"):
        prepare.answer(Done())
    closing.go_on()
    fail(bench.script.take("Commit"), Unavailable)
    closing.go_on()
    assert isinstance(closing.error, Unavailable)
    assert bench.reader.agent.in_doubt


def test_a_group_that_could_not_be_prepared_is_not_in_doubt(bench: Bench) -> None:
    bench.read(1, 3)
    bench.read(2, 3)
    closing = Waiting(bench.group.checkpoint())
    for prepare in bench.take_all("Prepare"):
        fail(prepare, Unavailable)
    closing.go_on()
    assert isinstance(closing.error, Unavailable)
    assert not bench.reader.agent.in_doubt
    again = Waiting(bench.group.checkpoint())
    for prepare in bench.take_all("Prepare"):
        prepare.answer(Done())
    again.go_on()
    bench.script.take("Commit").answer(Done())
    again.go_on()
    assert again.error is None
    assert bench.reader.marks() == []


# Agents.


def opening(script: Script, link: Link) -> Waiting:
    """A producer of three shards that is there at home."""
    making = Waiting(open_agent(link, "producer", "out", "p1", None))
    script.take("OpenSession").answer(SessionOpened(1, 1000))
    making.go_on()
    at_home = script.take("OpenAgent")
    assert (at_home.message.rank, at_home.shard) == (0, str(shards_of("out", 3, SHARDS)[0]))
    at_home.answer(AgentOpened(50, StreamInfo(7, "out", 3, 1000, "", None, 0, 4)))
    making.go_on()
    for number, asked in enumerate([it for it in script.asked if it.name == "OpenSession"]):
        script.asked.remove(asked)
        asked.answer(SessionOpened(2 + number, 1000))
        making.go_on()
    return making


def others(script: Script) -> list[Asked]:
    found = [it for it in script.asked if it.name == "OpenAgent"]
    for it in found:
        script.asked.remove(it)
        assert (it.message.rank, it.message.number, it.message.version) == (50, 7, 4)
    return found


def test_an_agent_is_there_when_all_shards_have_answered() -> None:
    script = Script()
    making = opening(script, link_to(script, SHARDS))
    asked = others(script)
    assert {it.shard for it in asked} == {str(it) for it in shards_of("out", 3, SHARDS)[1:]}
    for number, it in enumerate(asked):
        assert not making.ended
        it.answer(AgentOpened(60 + number, StreamInfo(7, "out", 3, 1000, "", None, 0, 4)))
        making.go_on()
    assert not making.ended, "somebody may have taken the name at home, and be gone again"
    check = script.take("Commit")
    assert (check.shard, check.message.agents) == (str(shards_of("out", 3, SHARDS)[0]), [50])
    check.answer(Done())
    making.go_on()
    agent: Agent = making.result
    assert [seat.number for seat in agent.seats] == [50, 60, 61]
    assert [str(agent.seat_of(it).shard) for it in range(6)] == [
        str(it) for it in shards_of("out", 3, SHARDS) * 2
    ]


def test_an_agent_that_lost_its_home_meanwhile_is_given_back_everywhere() -> None:
    script = Script()
    making = opening(script, link_to(script, SHARDS))
    for number, it in enumerate(others(script)):
        it.answer(AgentOpened(60 + number, StreamInfo(7, "out", 3, 1000, "", None, 0, 4)))
        making.go_on()
    fail(script.take("Commit"), Fenced, "agent 50 does not hold its name any more")
    making.go_on()
    assert isinstance(making.error, Fenced)
    assert str(making.error).startswith("producer 'p1' of stream 'out' does not hold")
    assert {it.message.agent for it in script.asked if it.name == "CloseAgent"} == {50, 60, 61}


@pytest.mark.parametrize(
    "end", [lambda it: fail(it, Fenced, "agent 50 does not hold its name any more"), None]
)
def test_an_agent_that_is_refused_in_a_shard_is_given_back_everywhere(
    end: Callable[[Asked], None] | None,
) -> None:
    script = Script()
    link = link_to(script, SHARDS)
    making = opening(script, link)
    asked = others(script)
    info = StreamInfo(7, "out", 3, 1000, "", None, 0, 4)
    asked[0].answer(AgentOpened(60, info))
    making.go_on()
    if end is None:
        making.interrupt()
        asked[1].answer(AgentOpened(61, info))
    else:
        end(asked[1])
        making.go_on()
        assert isinstance(making.error, Fenced)
        assert str(making.error).startswith("producer 'p1' of stream 'out' does not hold")
    closed = {it.message.agent for it in script.asked if it.name == "CloseAgent"}
    assert closed == ({50, 60} if end is not None else {50, 60, 61})
    assert link.titles == {}
