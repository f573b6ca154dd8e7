"""Several nodes of one cluster, with a real ZooKeeper that does its duty."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter

import pytest

from tests.integration.tstreams.aio.watchdog import Watchdog
from tstreams.cluster import Leader, Node, Outdated, SessionState
from tstreams.cluster.engines.zookeeper import ZooKeeperServer
from tstreams.cluster.zookeeper import ZooKeeperCoordination, ZooKeeperSettings
from tstreams.errors import BadRequest, Corrupt, Fenced, InvalidState, Timeout, TooLarge

from .conftest import eventually
from .contenders import Contender
from .opening import ZooKeeperOpener, states_of
from .witness import Witness

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("zookeeper")]

N1, N2 = Node(id="n1", addresses=("tcp://a:1",)), Node(id="n2", addresses=("tcp://b:1",))


async def test_nodes_see_one_another(nodes: ZooKeeperOpener) -> None:
    await nodes.create()
    one, two = await nodes.open(N1), await nodes.open(N2)
    assert two.view.nodes == {"n1": N1, "n2": N2}
    await eventually(lambda: one.view.nodes == {"n1": N1, "n2": N2})
    assert await one.lead(2) == 1
    await eventually(lambda: two.view.leaders == {2: Leader("n1", 1)})
    await one.close()
    await eventually(lambda: two.view.nodes == {"n2": N2} and two.view.leaders == {})


async def test_what_has_not_begun_when_a_node_closes_never_does(nodes: ZooKeeperOpener) -> None:
    """Python complains about work that nobody began and nobody gave up."""
    await nodes.create()
    one = await nodes.open(N1)
    begun = []

    async def work() -> None:
        begun.append(one)

    under_way = work()
    one._spawn(under_way)
    for task in list(one._tasks):
        task.cancel()
    await one.close()
    assert begun == []
    assert inspect.getcoroutinestate(under_way) == inspect.CORO_CLOSED


async def test_a_released_shard_is_free_at_once(nodes: ZooKeeperOpener, witness: Witness) -> None:
    await nodes.create()
    witness.begin()
    one, two = await nodes.open(N1), await nodes.open(N2)
    assert await one.lead(0) == 1
    assert await two.lead(0) is None
    await one.release(0)
    assert await two.lead(0) == 2  # sessions last half a minute here
    assert await one.lead(0) is None
    await eventually(lambda: one.view.leaders == {0: Leader("n2", 2)})


async def test_of_many_contenders_one_wins(nodes: ZooKeeperOpener, witness: Witness) -> None:
    await nodes.create(shards=3)
    witness.begin()
    many = [await nodes.open(Node(id=f"n{number}")) for number in range(5)]
    epochs: Counter[tuple[int, int]] = Counter()
    for turn in range(1, 6):
        for shard in range(3):
            led = await asyncio.gather(*(one.lead(shard) for one in many))
            won = [epoch for epoch in led if epoch is not None]
            assert won == [turn]
            epochs[shard, turn] += 1
            await many[led.index(turn)].release(shard)
    assert set(epochs.values()) == {1}


async def test_one_directs_and_another_follows(nodes: ZooKeeperOpener) -> None:
    await nodes.create(shards=1)
    one, two, three = [await nodes.open(Node(id=name)) for name in ("n1", "n2", "n3")]
    for node in (one, two):
        await node.stand()
    await eventually(lambda: one.directing)
    assert not two.directing
    await eventually(lambda: three.view.director == "n1")
    version = one.view.placement.version
    await one.place([["n1", "n2"]], version=version)
    await eventually(lambda: two.view.placement.version == version + 1)
    assert two.view.placement.shards == (("n1", "n2"),)
    with pytest.raises(InvalidState, match="n1 does"):
        await two.place([["n2"]], version=version + 1)
    await one.close()
    await eventually(lambda: two.directing)
    with pytest.raises(Outdated):
        await two.place([["n2"]], version=version)
    await two.place([["n2"]], version=version + 1)
    await eventually(lambda: three.view.placement.shards == (("n2",),))
    await two.withdraw()
    await three.stand()
    await eventually(lambda: three.directing)


async def test_one_that_only_watches(nodes: ZooKeeperOpener) -> None:
    await nodes.create()
    one = await nodes.open(N1)
    await one.lead(0)
    outside = await nodes.open(None)
    assert outside.view.nodes.keys() == {"n1"}
    assert outside.view.leaders == {0: Leader("n1", 1)}
    for refused in (outside.lead(1), outside.stand(), outside.update(load=1.0)):
        with pytest.raises(InvalidState, match="only watches"):
            await refused


async def test_a_node_that_was_killed_is_back_before_its_session_ends(
    nodes: ZooKeeperOpener, witness: Witness
) -> None:
    await nodes.create()
    witness.begin()
    with Contender(nodes.settings, "n1", timeout_s=30.0) as before:
        await eventually(lambda: before.epochs == [1])
    other = await nodes.open(N2)
    assert other.view.leaders == {0: Leader("n1", 1)}  # the entries of the dead are still there
    assert await other.lead(0) is None
    again = await nodes.open(N1)
    assert await again.lead(0) == 2
    await eventually(lambda: other.view.nodes["n1"] == N1)
    await eventually(lambda: other.view.leaders == {0: Leader("n1", 2)})


async def test_two_processes_that_are_the_same_node(nodes: ZooKeeperOpener) -> None:
    await nodes.create()
    first = await nodes.open(N1)
    states = states_of(first)
    assert await first.lead(0) == 1
    second = await nodes.open(N1)
    await eventually(lambda: first.session is SessionState.CLOSED)
    assert states == [SessionState.CLOSED]
    assert first.leads(0) is None
    assert not first.alive()
    with pytest.raises(Fenced, match="data folder"):
        await first.lead(0)
    epoch = await second.lead(0)
    assert epoch is not None
    assert epoch > 1
    assert second.session is SessionState.CONNECTED


async def test_an_entry_that_was_removed_by_hand_comes_back(nodes: ZooKeeperOpener) -> None:
    await nodes.create()
    one, two = await nodes.open(N1), await nodes.open(N2)
    assert await one.lead(0) == 1
    witness = Witness(nodes.settings.hosts, nodes.settings.cluster)
    base = f"/tstreams/{nodes.settings.cluster}"
    witness.client.delete(f"{base}/nodes/n1")
    witness.client.delete(f"{base}/shards/0/leader")
    witness.close()
    await eventually(lambda: one.leads(0) is None)
    assert await two.lead(0) == 2
    await eventually(lambda: two.view.nodes.keys() == {"n1", "n2"})


async def test_a_bad_entry_does_not_end_the_others(
    nodes: ZooKeeperOpener, caplog: pytest.LogCaptureFixture
) -> None:
    await nodes.create()
    one = await nodes.open(N1)
    hand = Witness(nodes.settings.hosts, nodes.settings.cluster)
    base = f"/tstreams/{nodes.settings.cluster}"
    for path in ("nodes/bad", "shards/3/leader"):
        await asyncio.to_thread(hand.client.create, f"{base}/{path}", b"{")
    await asyncio.to_thread(hand.client.set, f"{base}/placement", b"[]")
    two = await nodes.open(N2)
    assert two.view.nodes.keys() == {"n1", "n2"}
    assert two.view.leaders == {}
    assert "entry for a node cannot be read" in caplog.text
    assert await one.lead(0) == 1
    await eventually(lambda: two.view.leaders == {0: Leader("n1", 1)})
    with pytest.raises(Corrupt):
        await one.lead(3)
    await asyncio.to_thread(hand.close)


async def test_clusters_of_one_name_in_different_places(zookeeper: ZooKeeperServer) -> None:
    here = ZooKeeperOpener(f"{zookeeper.address}/some/where", "same")
    there = ZooKeeperOpener(f"{zookeeper.address}/else", "same")
    try:
        made = [await opener.create() for opener in (here, there)]
        one, two = await here.open(N1), await there.open(N2)
        assert [one.cluster, two.cluster] == made
        assert one.view.nodes.keys() == {"n1"}
        assert await one.lead(0) == 1
        assert await two.lead(0) == 1
    finally:
        await here.close()
        await there.close()


@pytest.mark.parametrize("hosts", ["", ",", "/only/a/path", "a:1,", "a:1//b"])
async def test_addresses_that_make_no_sense(hosts: str) -> None:
    with pytest.raises(BadRequest):
        ZooKeeperCoordination(ZooKeeperSettings(hosts=hosts))


async def test_there_is_no_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tstreams.cluster.zookeeper.COORDINATION_DEADLINE_S", 0.3)
    one = ZooKeeperCoordination(ZooKeeperSettings(hosts="127.0.0.1:1"), N1)
    with pytest.raises(Timeout, match="no connection"):
        await one.start()
    assert one.session is SessionState.CLOSED


async def test_a_node_that_says_too_much(nodes: ZooKeeperOpener) -> None:
    await nodes.create()
    one = await nodes.open(N1)
    with pytest.raises(TooLarge):
        await one.update(shard_loads=dict.fromkeys(range(100000), 1 / 3))
    await one.update(load=0.25)
    await eventually(lambda: one.view.nodes["n1"].load == 0.25)


async def test_many_shards_do_not_block_the_loop(nodes: ZooKeeperOpener) -> None:
    await nodes.create(shards=512)
    with Watchdog() as watchdog:
        one = await nodes.open(N1)
        assert await asyncio.gather(*(one.lead(shard) for shard in range(512))) == [1] * 512
        two = await nodes.open(N2)
        assert len(two.view.leaders) == 512
        await one.close()
        await eventually(lambda: two.view.leaders == {})
    assert watchdog.complaints == []
