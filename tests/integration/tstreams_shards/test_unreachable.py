"""Shards that cannot reach each other for a while: what waits, what is refused, and what is done in the end."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.integration.tstreams.conftest import Clock
from tstreams.errors import Error, Unavailable
from tstreams.protocol import (
    AlterStream,
    AnyReply,
    CloseAgent,
    Done,
    Fetch,
    OpenAgent,
    OpenTransaction,
    StreamInfo,
    Want,
)
from tstreams.server import Node
from tstreams.server.kin import Kin, KinMessage
from tstreams.sharding import home_of, shard_of

from .conftest import Connect
from .raw import SHARDS, Agent, Raw

HOME = home_of("clicks", SHARDS)
FIRST = shard_of("clicks", 1, SHARDS)


class Broken:
    """A way to the other shards that can be cut."""

    def __init__(self, kin: Kin) -> None:
        self._kin = kin
        self.cut = True
        self.asked: list[KinMessage] = []

    async def ask(self, shard: int, message: KinMessage) -> AnyReply:
        self.asked.append(message)
        if self.cut:
            raise Unavailable("the way is cut")
        return await self._kin.ask(shard, message)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def cut(node: Node, shard: int) -> Broken:
    """Nothing that this shard asks or tells arrives."""
    errands = node.shards[shard].errands
    assert errands is not None
    errands._kin = broken = Broken(errands._kin)
    return broken


@pytest.fixture
def producer(client: Raw) -> Agent:
    client.create("clicks", 3)
    return client.agent("producer", "clicks", "p", 3)


def prepare(client: Raw, producer: Agent, lease_ms: int = 30_000) -> None:
    group = client.group(HOME)
    brought = [producer.brings(1, b"x")]
    agents = [producer.numbers[FIRST]]
    client.prepare(FIRST, group, agents, brought=brought, lease_ms=lease_ms)


def test_a_decision_is_told_until_it_is_known(
    node: Node, client: Raw, connect: Connect, producer: Agent
) -> None:
    broken = cut(node, HOME)
    group = client.group(HOME)
    client.prepare(FIRST, group, [producer.numbers[FIRST]], brought=[producer.brings(1, b"x")])
    assert client.decide(group, [FIRST], []) == Done()
    reading = connect().asked_later(FIRST, Fetch(producer.number, [Want(1, 0)], 2**20))
    until(lambda: len(broken.asked) > 2)
    assert reading.waits
    broken.cut = False
    assert reading.result() == [b"x"]
    until(lambda: not node.shards[HOME].core.state.groups.decided)


def test_a_participant_asks_until_it_is_answered(
    node: Node, clock: Clock, client: Raw, producer: Agent
) -> None:
    broken = cut(node, FIRST)
    prepare(client, producer, lease_ms=1000)
    clock.advance(2)
    until(lambda: len(broken.asked) > 2)
    groups = node.shards[FIRST].core.state.groups
    errands = node.shards[FIRST].errands
    assert errands is not None
    assert (len(groups.prepared), errands.statistics().asking) == (1, 1)
    broken.cut = False
    until(lambda: not groups.prepared)
    until(lambda: not errands.statistics().asking)


def test_who_waits_too_long_is_refused_and_may_come_again(
    node: Node, client: Raw, connect: Connect, producer: Agent
) -> None:
    """Those behind it in its session are refused with it, so that numbers keep their order."""
    cut(node, FIRST)
    prepare(client, producer)
    agent = producer.numbers[FIRST]
    closing = client.numbered(FIRST, CloseAgent, agent)
    opening = client.numbered(FIRST, OpenTransaction, agent, 1, 1000)
    parking = node.shards[FIRST].parking
    behind = []
    first = client.asked_later(FIRST, closing, timeout=1)
    until(lambda: parking.statistics().requests == 1)
    behind.append(client.asked_later(FIRST, opening))
    until(lambda: parking.statistics().requests == 2)
    with pytest.raises(Error):  # from the server, or on a busy machine from its own clock
        first.result()
    with pytest.raises(Unavailable, match="has not answered in time"):
        behind[0].result()
    assert parking.statistics() == type(parking.statistics())(0, 0, 0)
    session = node.shards[FIRST].core.state.sessions[client.sessions[FIRST]]
    assert session.last < closing.sequence
    reading = connect().asked_later(FIRST, Fetch(producer.number, [Want(1, 0)], 2**20, 200))
    with pytest.raises(Unavailable, match="is not decided yet"):
        reading.result()


def test_a_change_of_a_stream_is_answered_before_all_know_if_it_takes_too_long(
    node: Node, client: Raw, producer: Agent
) -> None:
    broken = cut(node, HOME)
    reply = client.change(HOME, AlterStream, "clicks", 5_000, timeout=1)
    assert isinstance(reply, StreamInfo)
    copy = node.shards[FIRST].core.state.stream_named
    assert copy("clicks").version == 1
    broken.cut = False
    until(lambda: copy("clicks").version == 2)
    until(lambda: not node.shards[HOME].core.state.untold)


def test_an_agent_waits_for_the_copy_of_its_stream(
    node: Node, client: Raw, connect: Connect
) -> None:
    broken = cut(node, FIRST)
    info = client.create("clicks", 3)
    opened = client.change(HOME, OpenAgent, "producer", "clicks", "p")
    rank = (opened.agent, info.id, 1)
    opening = client.later(FIRST, OpenAgent, "producer", "clicks", "p", *rank)
    until(lambda: len(broken.asked) > 1)
    assert opening.waits
    broken.cut = False
    assert opening.result().stream.name == "clicks"
    errands = node.shards[FIRST].errands
    assert errands is not None
    until(lambda: not errands.statistics().copying)


def test_a_server_stops_although_somebody_waits(node: Node, client: Raw, producer: Agent) -> None:
    cut(node, FIRST)
    cut(node, HOME)
    prepare(client, producer)
    closing = client.later(FIRST, CloseAgent, producer.numbers[FIRST])
    altering = client.later(HOME, AlterStream, "clicks", 5_000)
    until(lambda: node.shards[FIRST].parking.statistics().requests == 1)
    until(lambda: node.shards[HOME].core.state.untold)
    node.request_stop()
    with pytest.raises(Unavailable):
        closing.result()
    assert isinstance(altering.result(), StreamInfo)
