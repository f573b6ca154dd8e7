"""Checkpoints that span shards: all of it or nothing, whoever asks, whoever is away."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.tstreams.conftest import Clock
from tstreams.errors import BadRequest, Error, Expired, Fenced, InvalidState
from tstreams.items import pack
from tstreams.protocol import (
    Brought,
    CancelTransactions,
    CloseAgent,
    Commit,
    DeleteStream,
    Done,
    EndTransactions,
    Fetch,
    FetchLast,
    GetPositions,
    Group,
    Instant,
    ListOpen,
    OpenTransaction,
    Prepare,
    ReadPosition,
    ResetReader,
    Settle,
    Survey,
    SurveyWant,
    Want,
)
from tstreams.server import Node
from tstreams.sharding import home_of, shard_of

from .conftest import Connect
from .raw import LEASE_MS, SHARDS, Agent, Raw

HOME = home_of("clicks", SHARDS)
FIRST = shard_of("clicks", 1, SHARDS)
SECOND = shard_of("clicks", 2, SHARDS)
"""Partition 0 is at home, which decides; 1 and 2 are in two other shards."""


def until(condition: Callable[[], object]) -> None:
    """Wait for something that is under way."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.fixture
def producer(client: Raw) -> Agent:
    client.create("clicks", 3)
    return client.agent("producer", "clicks", "p", 3)


def prepared(node: Node, shard: int) -> int:
    return len(node.shards[shard].core.state.groups.prepared)


def prepare(client: Raw, producer: Agent, *, lease_ms: int = LEASE_MS) -> Group:
    """A group with one new transaction in each of two participants."""
    group = client.group(HOME)
    for partition, shard in ((1, FIRST), (2, SECOND)):
        item = b"in %d" % partition
        agents = [producer.numbers[shard]]
        brought = [producer.brings(partition, item)]
        reply = client.prepare(shard, group, agents, brought=brought, lease_ms=lease_ms)
        assert reply == Done()
    return group


def decide(client: Raw, producer: Agent, group: Group) -> None:
    brought = [producer.brings(0, b"in 0")]
    assert (
        client.decide(group, [FIRST, SECOND], [producer.numbers[HOME]], brought=brought) == Done()
    )


def test_a_group_becomes_visible_in_all_shards(node: Node, client: Raw, producer: Agent) -> None:
    group = prepare(client, producer)
    assert (prepared(node, FIRST), prepared(node, SECOND)) == (1, 1)
    assert client.read(producer, 0) == []
    decide(client, producer, group)
    assert [client.read(producer, it) for it in range(3)] == [[b"in 0"], [b"in 1"], [b"in 2"]]
    until(lambda: not node.shards[HOME].core.state.groups.decided)
    assert (prepared(node, FIRST), prepared(node, SECOND)) == (0, 0)


@pytest.mark.parametrize("wait_ms", [0, 10_000])
def test_a_reader_of_what_is_prepared_waits_for_the_decision(
    client: Raw, connect: Connect, producer: Agent, wait_ms: int
) -> None:
    group = prepare(client, producer)
    reading = connect().asked_later(FIRST, Fetch(producer.number, [Want(1, 0)], 2**20, wait_ms))
    decide(client, producer, group)
    assert reading.result() == [b"in 1"]


def test_a_reader_hears_that_there_is_nothing_when_the_group_was_given_up(
    node: Node, client: Raw, connect: Connect, producer: Agent
) -> None:
    group = prepare(client, producer)
    reading = connect().asked_later(FIRST, Fetch(producer.number, [Want(1, 0)], 2**20))
    until(lambda: node.shards[FIRST].parking.statistics().requests)
    assert reading.waits
    assert client.give_up(FIRST, group) == Done()
    assert client.give_up(FIRST, group) == Done()  # once more, which changes nothing
    assert reading.result() == []


def test_what_lies_before_what_is_prepared_is_read_at_once(client: Raw, producer: Agent) -> None:
    client.change(FIRST, Instant, producer.numbers[FIRST], 1, batches=[pack([b"before"])])
    prepare(client, producer)
    assert client.read(producer, 1) == [b"before"]


def test_looking_waits_too(node: Node, client: Raw, connect: Connect, producer: Agent) -> None:
    group = prepare(client, producer)
    stream = producer.number
    last = connect().asked_later(FIRST, FetchLast(stream, 1, 2**20))
    survey = connect().asked_later(FIRST, Survey(stream, [SurveyWant(1, 0)]))
    positions = connect().asked_later(FIRST, GetPositions(stream, "r"))
    until(lambda: node.shards[FIRST].parking.statistics().requests == 3)
    decide(client, producer, group)
    (found,) = last.result().transactions
    (stretch,) = survey.result().stretches
    assert stretch.last_id == found.id
    assert positions.result().heads == []


def test_positions_move_with_the_group(client: Raw, connect: Connect, producer: Agent) -> None:
    reader = client.agent("reader", "clicks", "r", 3)
    group = client.group(HOME)
    for partition, shard in ((1, FIRST), (2, SECOND)):
        position = ReadPosition(reader.numbers[shard], partition, 700 + partition, 0)
        client.prepare(shard, group, [reader.numbers[shard]], positions=[position])
    asking = connect().asked_later(FIRST, GetPositions(reader.number, "r"))
    position = ReadPosition(reader.numbers[HOME], 0, 700, 0)
    client.decide(group, [FIRST, SECOND], [reader.numbers[HOME]], positions=[position])
    assert asking.result().saved == [(1, 701)]
    assert client.positions(reader, SECOND, "r").saved == [(2, 702)]
    assert client.positions(reader, HOME, "r").saved == [(0, 700)]


def test_a_client_that_dies_before_it_decides_leaves_nothing(
    node: Node, clock: Clock, client: Raw, connect: Connect, producer: Agent
) -> None:
    """Its lease ends, the participants ask, and the decider refuses: also if the decision comes then."""
    group = prepare(client, producer, lease_ms=1000)
    clock.advance(2)
    other = connect()
    assert [other.read(producer, it) for it in range(3)] == [[], [], []]
    until(lambda: not prepared(node, FIRST) and not prepared(node, SECOND))
    with pytest.raises(Expired, match="checkpoint 1 was refused"):
        decide(client, producer, group)
    assert [other.read(producer, it) for it in range(3)] == [[], [], []]


def test_who_takes_a_name_over_ends_what_it_had_prepared(
    node: Node, client: Raw, connect: Connect, producer: Agent
) -> None:
    """Its group is refused, everywhere, before the new agent is there."""
    group = prepare(client, producer)
    newer = connect().agent("producer", "clicks", "p", 3)
    assert (prepared(node, FIRST), prepared(node, SECOND)) == (0, 0)
    with pytest.raises(Fenced):
        decide(client, producer, group)
    assert [client.read(newer, it) for it in range(3)] == [[], [], []]


def test_a_participant_can_be_fenced_alone(client: Raw, connect: Connect, producer: Agent) -> None:
    """Its decider does not know that name: it hears from the participant why it must refuse."""
    other_home = home_of("x1", SHARDS)
    assert other_home == SECOND
    client.create("x1", 1)
    decider = client.agent("producer", "x1", "q", 1)
    group = client.group(other_home)
    client.prepare(FIRST, group, [producer.numbers[FIRST]], brought=[producer.brings(1, b"x")])
    connect().agent("producer", "clicks", "p", 3)
    with pytest.raises(Fenced, match="somebody took the name"):
        client.decide(
            group, [FIRST], [decider.numbers[other_home]], brought=[decider.brings(0, b"x")]
        )


def test_a_group_that_was_decided_is_not_undone_by_whoever_takes_a_name_over(
    client: Raw, connect: Connect, producer: Agent
) -> None:
    group = prepare(client, producer)
    decide(client, producer, group)
    newer = connect().agent("producer", "clicks", "p", 3)
    assert [client.read(newer, it) for it in range(3)] == [[b"in 0"], [b"in 1"], [b"in 2"]]


def test_an_operator_ends_what_is_prepared(client: Raw, connect: Connect, producer: Agent) -> None:
    group = prepare(client, producer)
    operator = connect()
    (it,) = operator.ask(FIRST, ListOpen(producer.number, 0, 10)).transactions
    with pytest.raises(InvalidState, match="checkpointed or cancelled"):
        operator.change(FIRST, EndTransactions, [it.id])  # its group was refused for it
    with pytest.raises(InvalidState, match="was refused"):
        decide(client, producer, group)


def test_an_operator_moves_a_reader_that_is_prepared_to_move(
    client: Raw, connect: Connect, producer: Agent
) -> None:
    reader = client.agent("reader", "clicks", "r", 3)
    group = client.group(HOME)
    position = ReadPosition(reader.numbers[FIRST], 1, 5, 0)
    client.prepare(FIRST, group, [reader.numbers[FIRST]], positions=[position])
    operator = connect()
    operator.change(FIRST, ResetReader, "clicks", "r", [(1, 0)], True)
    assert client.positions(reader, FIRST, "r").saved == []
    with pytest.raises(InvalidState, match="was refused"):
        client.decide(group, [FIRST], [])


def test_a_stream_is_deleted_when_its_groups_are_decided(
    node: Node, client: Raw, connect: Connect, producer: Agent
) -> None:
    group = prepare(client, producer)
    assert connect().change(HOME, DeleteStream, "clicks") == Done()
    assert (prepared(node, FIRST), prepared(node, SECOND)) == (0, 0)
    with pytest.raises(Error):
        decide(client, producer, group)


def test_requests_behind_one_that_waits_keep_their_order(
    node: Node, client: Raw, producer: Agent
) -> None:
    """They are of one session, and have numbers."""
    group = prepare(client, producer)
    agent = producer.numbers[FIRST]
    closing = client.later(FIRST, CloseAgent, agent)
    parking = node.shards[FIRST].parking
    until(lambda: parking.statistics().requests == 1)
    opening = client.later(FIRST, OpenTransaction, agent, 1, 1000)
    until(lambda: parking.statistics().requests == 2)
    decide(client, producer, group)
    assert closing.result() == Done()
    with pytest.raises(Fenced):
        opening.result()
    assert parking.statistics().requests == parking.statistics().bytes == 0


def test_what_is_prepared_cannot_be_changed_by_its_owner(
    node: Node, client: Raw, producer: Agent
) -> None:
    agent = producer.numbers[FIRST]
    opened = client.change(FIRST, OpenTransaction, agent, 1, 1000).id
    group = client.group(HOME)
    client.prepare(
        FIRST,
        group,
        [agent],
        transactions=[opened],
        brought=[(Brought(agent, 1, opened), b"last")],
    )
    cancelling = client.later(FIRST, CancelTransactions, [agent], [opened])
    until(lambda: node.shards[FIRST].parking.statistics().requests == 1)
    client.decide(group, [FIRST], [])
    with pytest.raises(InvalidState, match="checkpointed"):
        cancelling.result()
    assert client.read(producer, 1) == [b"last"]


def test_a_request_is_taken_once_also_if_it_is_sent_again(client: Raw, producer: Agent) -> None:
    group = client.group(HOME)
    brought = producer.brings(1, b"once")
    agent = producer.numbers[FIRST]
    prepare_it = client.numbered(FIRST, Prepare, group, LEASE_MS, [agent], [], [], [brought[0]])
    commit = client.numbered(HOME, Commit, [], [], [], [], [FIRST], group.number)
    for _ in range(2):
        assert client.ask(FIRST, prepare_it, pack([b"once"])) == Done()
    for _ in range(2):
        assert client.ask(HOME, commit) == Done()
    assert client.read(producer, 1) == [b"once"]
    assert client.ask(FIRST, prepare_it, pack([b"once"])) == Done()
    assert client.read(producer, 1) == [b"once"]


def test_groups_that_make_no_sense_are_refused(client: Raw, producer: Agent) -> None:
    group = client.group(HOME)
    agents = [producer.numbers[FIRST]]
    for bad in (
        Group(FIRST, group.session, 1),
        Group(SHARDS, group.session, 1),
        Group(HOME, client.sessions[FIRST], 1),
        Group(HOME, group.session, 0),
    ):
        with pytest.raises(BadRequest, match="cannot be decided on"):
            client.prepare(FIRST, bad, agents)
    with pytest.raises(BadRequest, match="a lease is"):
        client.prepare(FIRST, group, agents, lease_ms=1)
    client.prepare(FIRST, group, agents)
    with pytest.raises(InvalidState, match="prepared here already"):
        client.prepare(FIRST, group, agents)
    for others in ([HOME], [FIRST, FIRST], [SHARDS]):
        with pytest.raises(BadRequest, match="no such participants"):
            client.decide(group, others, [])
    with pytest.raises(BadRequest, match="only give a checkpoint up"):
        client.ask(FIRST, Settle(client.sessions[FIRST], group, True))
    with pytest.raises(BadRequest, match="only give a checkpoint up"):
        client.ask(FIRST, Settle(0, group))
    with pytest.raises(BadRequest, match="by another session"):
        client.ask(FIRST, Settle(1, group))


# Restarts: the data as it lies on the disk after each step, as a crash would leave it.


@pytest.fixture
def crashed(node: Node, tmp_path: Path, clock: Clock) -> Callable[[str], Node]:
    def image(name: str) -> Node:
        """A server on what another one has made durable so far: its indexes first, so that the logs are not behind."""
        for shard in range(SHARDS):
            for part in ("index", "ledgers"):
                folder = Path(f"shard-{shard}") / part
                _copy(tmp_path / "data" / folder, tmp_path / name / folder)
        shutil.copy(tmp_path / "data" / "shards", tmp_path / name)
        return Node(tmp_path / name, ["tcp://127.0.0.1:0"], clock=clock, shards=SHARDS)

    return image


def _copy(source: Path, target: Path) -> None:
    """Copy a folder in which files may come and go."""
    while True:
        try:
            shutil.copytree(source, target)
            return
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(target, ignore_errors=True)


def visible(node: Node, producer: Agent) -> Iterator[list[bytes]]:
    client = Raw(node.addresses[0])
    try:
        for partition in range(3):
            yield client.read(producer, partition)
    finally:
        client.close()


@pytest.mark.parametrize("step", ["one prepared", "all prepared"])
def test_after_a_crash_before_the_decision_there_is_nothing(
    client: Raw, producer: Agent, clock: Clock, crashed: Callable[[str], Node], step: str
) -> None:
    group = client.group(HOME)
    for partition, shard in ((1, FIRST), (2, SECOND)):
        brought = [producer.brings(partition, b"x")]
        client.prepare(shard, group, [producer.numbers[shard]], brought=brought, lease_ms=1000)
        if step == "one prepared":
            break
    with crashed("after").in_thread() as node:
        assert prepared(node, FIRST) == 1
        clock.advance(2)
        assert list(visible(node, producer)) == [[], [], []]
        with Raw(node.addresses[0]) as again:
            again.sessions, again._sequences = client.sessions, client._sequences
            with pytest.raises(Expired):
                decide(again, producer, group)


def test_after_a_crash_behind_the_decision_all_of_it_is_there(
    node: Node, client: Raw, producer: Agent, crashed: Callable[[str], Node]
) -> None:
    """The image has the decision; whether participants have heard of it makes no difference."""
    group = prepare(client, producer)
    decide(client, producer, group)
    with crashed("after").in_thread() as after:
        assert list(visible(after, producer)) == [[b"in 0"], [b"in 1"], [b"in 2"]]
        until(lambda: not after.shards[HOME].core.state.groups.decided)
    until(lambda: not node.shards[HOME].core.state.groups.decided)
    with crashed("told").in_thread() as after:
        assert list(visible(after, producer)) == [[b"in 0"], [b"in 1"], [b"in 2"]]


def test_a_refusal_outlives_a_crash(
    node: Node, clock: Clock, client: Raw, producer: Agent, crashed: Callable[[str], Node]
) -> None:
    group = prepare(client, producer, lease_ms=1000)
    clock.advance(2)
    until(lambda: not prepared(node, FIRST) and not prepared(node, SECOND))
    with crashed("after").in_thread() as after, Raw(after.addresses[0]) as again:
        again.sessions, again._sequences = client.sessions, client._sequences
        with pytest.raises(Expired, match="was refused"):
            decide(again, producer, group)
