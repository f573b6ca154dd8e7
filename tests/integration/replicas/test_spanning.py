"""What spans shards that different nodes lead, while leaders change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import moebius
from tests.integration.replicas.sites import Site, SiteKin, in_memory
from tests.integration.tstreams.conftest import Clock, eventually
from tests.integration.tstreams_shards.raw import LEASE_MS, SHARDS, Agent, Raw
from tests.simulation.engine import MemoryEngine
from tstreams.errors import Error, InvalidState, NotFound, NotLeader
from tstreams.limits import DELETED_KEPT_MS
from tstreams.protocol import (
    AlterStream,
    AnyReply,
    DeleteStream,
    Done,
    Fetch,
    Fetched,
    Group,
    Settle,
    Subscribe,
    Want,
    decode_reply,
    encode,
)
from tstreams.server.kin import KinMessage
from tstreams.server.shard import Shard
from tstreams.sharding import home_of, shard_of

HOME = home_of("clicks", SHARDS)
FIRST, SECOND = shard_of("clicks", 1, SHARDS), shard_of("clicks", 2, SHARDS)
NAMES = "abc"


class Spread(Site):
    """Three nodes, each of which leads one of three shards."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, in_memory(), clock, SHARDS)
        self.leaders: dict[int, str] = {}
        for name in NAMES:
            self.start(name)
        for number, name in enumerate(NAMES):
            self.lead(name, shard=number)

    def lead(self, name: str, epoch: int | None = None, shard: int = 0) -> None:
        """Another leads a shard; whoever led it before is not told."""
        super().lead(name, epoch, shard)
        self.leaders[shard] = name

    def step_down(self, shard: int) -> None:
        self.run(self.nodes[self.leaders[shard]].replicas[shard].step_down())

    def move(self, shard: int) -> str:
        """Another leads a shard, and who did before knows it. Who that was."""
        before = self.leaders[shard]
        self.step_down(shard)
        self.lead(NAMES[(NAMES.index(before) + 1) % len(NAMES)], shard=shard)
        return before

    def address(self, shard: int) -> str:
        return self.nodes[self.leaders[shard]].addresses[0]

    def shard(self, number: int) -> Shard:
        """As its leader has it."""
        return self.nodes[self.leaders[number]].shards[number]

    def is_at_rest(self) -> bool:
        states = [self.shard(number).core.state for number in range(SHARDS)]
        return not any(it.groups.prepared or it.groups.decided or it.untold for it in states)

    def cut(self, shard: int, kin: SiteKin | None = None) -> None:
        """Whoever leads a shard cannot reach other nodes any more."""
        self.nodes[self.leaders[shard]]._kin.far = kin

    def agree(self) -> None:
        """All nodes hold the same facts of all shards, to the byte."""
        eventually(self.is_at_rest)
        for number, leader in self.leaders.items():
            for name in NAMES:  # who was shut out while it was idle does not know it
                if name != leader:
                    self.run(self.nodes[name].replicas[number].step_down())
        for facts in self.agreed_facts(*NAMES):
            assert not any(key[:1] in b"BVW" for key, _ in facts)


@pytest.fixture
def spread(tmp_path: Path, clock: Clock) -> Iterator[Spread]:
    spread = Spread(tmp_path, clock)
    yield spread
    spread.close()


@pytest.fixture
def client(spread: Spread) -> Iterator[Raw]:
    with Raw(spread.address) as client:
        yield client


@pytest.fixture
def producer(client: Raw) -> Agent:
    client.create("clicks", 3)
    return client.agent("producer", "clicks", "p", 3)


def prepare(
    client: Raw, producer: Agent, shards: list[int], group: Group, lease_ms: int = LEASE_MS
) -> None:
    for partition in (1, 2):
        shard = shard_of("clicks", partition, SHARDS)
        if shard in shards:
            brought = [producer.brings(partition, b"in %d" % partition)]
            agents = [producer.numbers[shard]]
            client.prepare(shard, group, agents, brought=brought, lease_ms=lease_ms)


def decide(client: Raw, producer: Agent, shards: list[int], group: Group) -> object:
    brought = [producer.brings(0, b"in 0")]
    return client.decide(group, shards, [producer.numbers[HOME]], brought=brought)


def seen(spread: Spread, client: Raw, producer: Agent) -> list[list[bytes]]:
    return [client.read(producer, partition, 5_000) for partition in range(3)]


EVERYWHERE = [[b"in 0"], [b"in 1"], [b"in 2"]]
NOWHERE: list[list[bytes]] = [[], [], []]


def test_a_group_spans_nodes(spread: Spread, client: Raw, producer: Agent) -> None:
    group = client.group(HOME)
    prepare(client, producer, [FIRST, SECOND], group)
    assert decide(client, producer, [FIRST, SECOND], group) == Done()
    assert seen(spread, client, producer) == EVERYWHERE
    spread.agree()


@pytest.mark.parametrize("moved", [[FIRST], [HOME], [HOME, FIRST, SECOND]])
def test_leaders_change_between_prepare_and_decide(
    spread: Spread, client: Raw, producer: Agent, moved: list[int]
) -> None:
    group = client.group(HOME)
    prepare(client, producer, [FIRST, SECOND], group)
    for shard in moved:
        spread.move(shard)
    assert decide(client, producer, [FIRST, SECOND], group) == Done()
    assert seen(spread, client, producer) == EVERYWHERE
    spread.agree()


@pytest.mark.parametrize("told", [True, False])
def test_the_next_leader_of_a_decider_tells(
    spread: Spread, client: Raw, producer: Agent, told: bool
) -> None:
    group = client.group(HOME)
    prepare(client, producer, [FIRST, SECOND], group)
    spread.cut(HOME)
    assert decide(client, producer, [FIRST, SECOND], group) == Done()
    if told:
        spread.move(HOME)
    else:
        spread.lead(next(it for it in NAMES if it != spread.leaders[HOME]), shard=HOME)
    assert seen(spread, client, producer) == EVERYWHERE
    spread.agree()


@pytest.mark.parametrize("moved", [[FIRST], [HOME], [HOME, FIRST]])
def test_what_nobody_decided_on_ends_whoever_leads(
    spread: Spread, client: Raw, producer: Agent, clock: Clock, moved: list[int]
) -> None:
    group = client.group(HOME)
    prepare(client, producer, [FIRST], group, lease_ms=1_000)
    for shard in moved:
        spread.move(shard)
    clock.advance(5)
    eventually(lambda: not spread.shard(FIRST).core.state.groups.prepared)
    with pytest.raises(Error, match="was refused"):
        decide(client, producer, [FIRST], group)
    assert seen(spread, client, producer) == NOWHERE
    spread.agree()


def test_a_decider_that_was_shut_out_does_not_refuse(
    spread: Spread, client: Raw, producer: Agent, clock: Clock
) -> None:
    """It does not know the session, and nobody has told it that it leads no more."""
    old = spread.leaders[HOME]
    new = next(it for it in NAMES if it != old and it != spread.leaders[FIRST])
    spread.lead(new, shard=HOME)
    with Raw(spread.address) as late:
        group = late.group(HOME)
        prepare(late, producer, [FIRST], group, lease_ms=1_000)
        assert spread.nodes[old].replicas[HOME].leading  # it believes so
        kin = SiteKin({old: spread.nodes[old], new: spread.nodes[new]})
        spread.nodes[new].replicas[HOME].shared.alive = lambda: False
        spread.cut(FIRST, kin)
        clock.advance(5)
        eventually(lambda: any(name == old for name, _ in kin.asked))
        eventually(lambda: not spread.nodes[old].replicas[HOME].leading)  # the log has told it
        assert list(spread.shard(FIRST).core.state.groups.prepared) == [group]
        spread.nodes[new].replicas[HOME].shared.alive = lambda: True
        assert late.decide(group, [FIRST], []) == Done()
        assert late.read(producer, 1, 5_000) == [b"in 1"]
    spread.agree()


def test_a_participant_that_was_shut_out_does_not_confirm(
    spread: Spread, client: Raw, producer: Agent
) -> None:
    """It has nothing to settle: the group was prepared when another led already."""
    old = spread.leaders[FIRST]
    new = next(it for it in NAMES if it != old and it != spread.leaders[HOME])
    spread.lead(new, shard=FIRST)
    group = client.group(HOME)
    prepare(client, producer, [FIRST], group)
    kin = SiteKin({old: spread.nodes[old], new: spread.nodes[new]})
    spread.cut(HOME, kin)
    assert decide(client, producer, [FIRST], group) == Done()
    assert client.read(producer, 1, 5_000) == [b"in 1"]
    assert [name for name, message in kin.asked if isinstance(message, Settle)][:1] == [old]
    spread.agree()


def test_a_change_of_a_stream_reaches_all_shards(
    spread: Spread, client: Raw, producer: Agent
) -> None:
    client.change(HOME, AlterStream, "clicks", 5_000)
    for shard in (FIRST, SECOND):
        assert spread.shard(shard).core.state.stream_named("clicks").ttl_ms == 5_000
    spread.cut(HOME)
    client.change(HOME, AlterStream, "clicks", 6_000, timeout=1)
    spread.move(HOME)  # whoever leads now knows what is to be told
    state = spread.shard(FIRST).core.state
    eventually(lambda: state.stream_named("clicks").ttl_ms == 6_000)
    spread.agree()


class Late(SiteKin):
    """Brings the answer of a shard when another answer is being written down already."""

    def __init__(self, spread: Spread, late: int) -> None:
        super().__init__(spread.nodes)
        self._late = late
        self._writing, self._came = asyncio.Event(), asyncio.Event()
        kinship = spread.shard(HOME).kinship
        self._told, kinship.told = kinship.told, self._write  # type: ignore[method-assign]

    async def ask(self, shard: int, message: KinMessage) -> AnyReply:
        answer = await super().ask(shard, message)
        if shard == self._late:
            await self._writing.wait()
            self._came.set()
        return answer

    async def _write(
        self, groups: list[tuple[int, int, int]], streams: list[tuple[int, int, int]]
    ) -> AnyReply:
        self._writing.set()
        await self._came.wait()
        await asyncio.sleep(0.05)
        return await self._told(groups, streams)


def test_who_knows_of_a_change_late_is_waited_for_no_longer_than_that(
    spread: Spread, client: Raw, producer: Agent
) -> None:
    spread.cut(HOME, spread.call(lambda: Late(spread, SECOND)))
    client.change(HOME, AlterStream, "clicks", 5_000)
    assert not spread.shard(HOME).core.state.untold, "the answer came because all know it"
    spread.agree()


def test_deleted_streams_are_forgotten_everywhere_at_once(
    spread: Spread, client: Raw, producer: Agent, clock: Clock
) -> None:
    client.change(HOME, DeleteStream, "clicks")
    assert any(key[:1] == b"Y" for key, _ in spread.facts("a", FIRST))
    clock.advance(2 * DELETED_KEPT_MS / 1000)
    for shard in (FIRST, SECOND):
        eventually(lambda shard=shard: not spread.shard(shard).core.state.deleted)
    spread.agree()
    assert not any(key[:1] == b"Y" for key, _ in spread.facts("a", FIRST))


def test_a_reader_whose_time_is_over_waits_for_what_is_under_way_to_the_log(
    spread: Spread, client: Raw, producer: Agent
) -> None:
    """The core knows that a group has happened before anyone can read it. To say that there is nothing would be wrong:
    its writer has its answer."""
    group = client.group(HOME)
    prepare(client, producer, [FIRST], group)
    spread.cut(HOME)
    assert decide(client, producer, [FIRST], group) == Done()
    participant = spread.nodes[spread.leaders[FIRST]].replicas[FIRST]
    engine, reads = participant._engine, participant.shard.contents.reads
    assert isinstance(engine, MemoryEngine)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(client.read, producer, 1, 1_000)
        eventually(lambda: reads.waiting == 1)
        engine.cut_off = True
        spread.cut(HOME, SiteKin(spread.nodes))
        eventually(lambda: not participant.shard.core.state.groups.prepared)
        eventually(lambda: reads.waiting == 0)
        engine.cut_off = False
        assert found.result(60) == [b"in 1"]
    spread.agree()


def test_a_copy_is_made_for_subscribers_and_kept_by_followers(spread: Spread, client: Raw) -> None:
    info = client.create("clicks", 3)
    leader, other = spread.leaders[FIRST], next(it for it in NAMES if it != spread.leaders[FIRST])
    want = encode(Subscribe(info.id, [Want(1, 0)], 1 << 20))
    with moebius.connect(spread.nodes[other].addresses[0]) as far:
        refused = far.stream(f"{FIRST}:any:Subscribe", want, window_bytes=1 << 20)
        with pytest.raises(moebius.Error) as error:
            refused.next_parts()
        assert isinstance(Error.from_wire(error.value.code, error.value.message), NotLeader)
        with moebius.connect(spread.nodes[leader].addresses[0]) as near:
            subscribed = near.stream(f"{FIRST}:Subscribe", want, window_bytes=1 << 20)
            producer = client.agent("producer", "clicks", "p", 3)
            group = client.group(HOME)
            prepare(client, producer, [FIRST], group)
            spread.caught_up(*NAMES)
            fetch = encode(Fetch(info.id, [Want(1, 0)], 1 << 20, 0))
            with pytest.raises(moebius.Error):  # it is in doubt here too
                far.call_parts(f"{FIRST}:any:Fetch", fetch, timeout=0.3)
            decide(client, producer, [FIRST], group)
            pushed = decode_reply(subscribed.next_parts()[0])
            assert isinstance(pushed, Fetched)
            assert len(pushed.transactions) == 1
        spread.agree()
        found = decode_reply(far.call_parts(f"{FIRST}:any:Fetch", fetch, timeout=20)[0])
        assert isinstance(found, Fetched)
        assert [it.id for it in found.transactions] == [it.id for it in pushed.transactions]


def test_what_is_not_there_is_refused_over_nodes_too(spread: Spread, client: Raw) -> None:
    with pytest.raises((NotFound, InvalidState)):
        client.agent("producer", "nothing", "p", 3)
    unknown = (HOME << 48) + 999
    with pytest.raises(NotFound):
        client.ask(FIRST, Fetch(unknown, [Want(1, 0)], 1 << 20, 0))
    spread.agree()
