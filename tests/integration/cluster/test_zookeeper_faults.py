"""Answers that get lost, sessions that end, servers that die, processes that stand still. Epochs only rise."""

from __future__ import annotations

import asyncio
from functools import partial

import anyio
import msgspec
import pytest

from tests.integration.tstreams.aio.watchdog import Watchdog
from tstreams.cluster import Leader, Node, Outdated, SessionState
from tstreams.cluster.coordination import new_cluster
from tstreams.cluster.engines.zookeeper import ZooKeeperServer
from tstreams.cluster.zookeeper import ZooKeeperCoordination, create_cluster
from tstreams.errors import Corrupt, Timeout, Unavailable

from .conftest import eventually
from .contenders import Contender
from .opening import ZooKeeperOpener, states_of
from .proxy import Proxy
from .witness import Witness

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("zookeeper")]

N1, N2 = Node(id="n1"), Node(id="n2")
SHORT_S = 2.0


def sees(one: ZooKeeperCoordination, leader: Leader) -> bool:
    return one.view.leaders.get(0) == leader


@pytest.mark.parametrize("reached", [True, False], ids=["answer lost", "request lost"])
async def test_leading_when_the_connection_is_cut(
    nodes: ZooKeeperOpener, zookeeper: ZooKeeperServer, witness: Witness, reached: bool
) -> None:
    await nodes.create()
    witness.begin()
    async with Proxy("127.0.0.1", zookeeper.port) as proxy:
        one = await nodes.open(N1, hosts=proxy.address)
        states = states_of(one)
        (proxy.lose_answer_to if reached else proxy.lose)(b'"epoch":1')
        assert await one.lead(0) == 1
        assert proxy.cuts == 1
        assert one.leads(0) == 1
        (proxy.lose_answer_to if reached else proxy.lose)(b'"epoch":2')
        await one.release(0)
        assert await one.lead(0) == 2
        assert proxy.cuts == 2
        await eventually(lambda: one.session is SessionState.CONNECTED)
        assert SessionState.SUSPENDED in states
        assert SessionState.LOST not in states
        await one.close()


async def test_a_shard_that_was_led_by_another_in_between(
    nodes: ZooKeeperOpener, zookeeper: ZooKeeperServer, witness: Witness
) -> None:
    await nodes.create()
    witness.begin()
    two = await nodes.open(N2)
    async with Proxy("127.0.0.1", zookeeper.port) as proxy:
        one = await nodes.open(N1, hosts=proxy.address)
        proxy.hold(b'"epoch":1')
        asked = asyncio.ensure_future(one.lead(0))
        await proxy.held.wait()  # it has seen that the shard is free, and that the epoch is 0
        assert await two.lead(0) == 1
        await two.release(0)
        proxy.let_go()
        assert await asked == 2
        await one.close()


async def test_a_director_that_was_too_slow(
    nodes: ZooKeeperOpener, zookeeper: ZooKeeperServer
) -> None:
    await nodes.create(shards=1)
    two = await nodes.open(N2)
    async with Proxy("127.0.0.1", zookeeper.port) as proxy:
        one = await nodes.open(N1, hosts=proxy.address)
        await one.stand()
        await eventually(lambda: one.directing)
        version = one.view.placement.version
        proxy.hold(b'"nodes":["late"]')
        asked = asyncio.ensure_future(one.place([["late"]], version=version))
        await proxy.held.wait()
        hand = Witness(nodes.settings.hosts, nodes.settings.cluster)
        base = f"/tstreams/{nodes.settings.cluster}"
        await asyncio.to_thread(hand.client.delete, f"{base}/director")
        await asyncio.to_thread(hand.close)
        await two.stand()
        await eventually(lambda: two.directing)
        assert await two.place([["n2"]], version=version) == version + 1
        proxy.let_go()
        with pytest.raises(Outdated):
            await asked
        await eventually(lambda: not one.directing)
        await eventually(lambda: one.view.placement.shards == (("n2",),))
        await one.close()


@pytest.mark.parametrize("reached", [True, False], ids=["answer lost", "request lost"])
async def test_placing_and_registering_when_the_connection_is_cut(
    nodes: ZooKeeperOpener, zookeeper: ZooKeeperServer, reached: bool
) -> None:
    await nodes.create(shards=1)
    async with Proxy("127.0.0.1", zookeeper.port) as proxy:
        cut = proxy.lose_answer_to if reached else proxy.lose
        cut(b'"addresses"')
        one = await nodes.open(N1, hosts=proxy.address)
        assert proxy.cuts == 1
        assert one.view.nodes == {"n1": N1}
        cut(b"/director")
        await one.stand()
        await eventually(lambda: one.directing)
        version = one.view.placement.version
        cut(b'"shards":[[0]]')
        assert await one.place([["n1"]], version=version) == version + 1
        assert proxy.cuts == 3
        await one.close()


async def test_creating_a_cluster_when_the_connection_is_cut(
    nodes: ZooKeeperOpener, zookeeper: ZooKeeperServer
) -> None:
    async with Proxy("127.0.0.1", zookeeper.port) as proxy:
        proxy.lose_answer_to(b'"engine"')
        cluster = new_cluster(nodes.settings.cluster, shards=2)
        through = nodes.make(N1, hosts=proxy.address)._settings
        await create_cluster(through, cluster)
        assert proxy.cuts == 1
    assert (await nodes.open(N1)).cluster == cluster


async def test_what_was_given_up_is_not_led(
    nodes: ZooKeeperOpener, zookeeper: ZooKeeperServer, witness: Witness
) -> None:
    await nodes.create()
    witness.begin()
    async with Proxy("127.0.0.1", zookeeper.port) as proxy:
        one = await nodes.open(N1, hosts=proxy.address)
        proxy.lose_answer_to(b'"epoch":1')
        asked = asyncio.ensure_future(one.lead(0))
        await eventually(lambda: proxy.cuts == 1)
        asked.cancel()  # it took effect, and nobody waits for it any more
        two = await nodes.open(N2)

        async def free() -> int:
            async for _ in two.watch():
                epoch = await two.lead(0)
                if epoch is not None:
                    return epoch
            raise AssertionError

        with anyio.fail_after(60):
            epoch = await two.lead(0) or await free()
        assert epoch == 2
        assert one.leads(0) is None
        await one.close()


async def test_zookeeper_falls_silent(
    nodes: ZooKeeperOpener, zookeeper: ZooKeeperServer, witness: Witness
) -> None:
    await nodes.create()
    witness.begin()
    other = await nodes.open(N2)
    async with Proxy("127.0.0.1", zookeeper.port) as proxy:
        one = await nodes.open(N1, SHORT_S, hosts=proxy.address)
        assert await one.lead(0) == 1
        at_loss: list[tuple[bool, int | None, str]] = []

        def changed(state: SessionState) -> None:
            if state is SessionState.LOST:
                # As far as the other sees it, this one still leads: it stopped in time.
                at_loss.append((one.alive(), one.leads(0), other.view.leaders[0].node))

        one.on_session(changed)
        proxy.fall_silent()
        await eventually(lambda: at_loss)
        assert at_loss == [(False, None, "n1")]
        with pytest.raises(Unavailable):
            await one.lead(0)
        await eventually(lambda: 0 not in other.view.leaders)
        assert await other.lead(0) == 2
        proxy.speak()
        await eventually(lambda: one.session is SessionState.CONNECTED)
        assert one.alive()
        assert one.view.nodes.keys() == {"n1", "n2"}
        assert one.view.leaders == {0: Leader("n2", 2)}
        await other.release(0)
        assert await one.lead(0) == 3
        await one.close()


async def test_the_server_is_killed_and_comes_back(
    nodes: ZooKeeperOpener,
    zookeeper: ZooKeeperServer,
    witness: Witness,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tstreams.cluster.zookeeper.COORDINATION_DEADLINE_S", 60.0)
    await nodes.create()
    witness.begin()
    one, two = await nodes.open(N1), await nodes.open(N2)
    states = states_of(one)
    assert await one.lead(0) == 1
    await one.stand()
    for turn in range(1, 4):
        zookeeper.kill()
        await eventually(lambda: one.session is SessionState.SUSPENDED)
        assert one.leads(0) == turn  # the session lasts, as far as anyone knows
        asked = asyncio.ensure_future(two.lead(1))
        await asyncio.to_thread(zookeeper.start)
        assert await asked == 1  # it waited, and its answer is the same each time
        await eventually(lambda: one.session is SessionState.CONNECTED)
        assert one.leads(0) == turn
        await one.release(0)
        assert await one.lead(0) == turn + 1
        leader = Leader("n1", turn + 1)
        await eventually(partial(sees, two, leader))
    assert SessionState.LOST not in states
    await eventually(lambda: one.directing)


async def test_the_server_is_away_for_longer_than_a_session(
    nodes: ZooKeeperOpener, zookeeper: ZooKeeperServer, witness: Witness
) -> None:
    made = await nodes.create()
    witness.begin()
    one = await nodes.open(N1, SHORT_S)
    changed = msgspec.structs.replace(made, replicas=5)
    await one.reconfigure(changed, version=one.view.cluster_version)
    await eventually(lambda: one.cluster == changed)
    states = states_of(one)
    assert await one.lead(0) == 1
    await one.stand()
    await eventually(lambda: one.directing)
    zookeeper.kill()
    with Watchdog() as watchdog:
        await eventually(lambda: one.session is SessionState.LOST)
        assert one.leads(0) is None
        assert not one.alive()
        assert not one.directing
        for shard in range(
            4
        ):  # far more than kazoo could queue without blocking, if they got that far
            for refused in [one.lead(shard) for _ in range(100)]:
                with pytest.raises(Unavailable):
                    await refused
    assert watchdog.complaints == []
    await asyncio.to_thread(zookeeper.start)
    await eventually(lambda: one.session is SessionState.CONNECTED)
    assert states[-2:] == [SessionState.LOST, SessionState.CONNECTED]
    epoch = await one.lead(0)
    assert epoch is not None
    assert epoch > 1
    await eventually(lambda: one.directing)  # it still stands for it
    assert one.cluster == changed


async def test_calls_that_wait_for_a_server_do_not_block_the_loop(
    nodes: ZooKeeperOpener, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes.create(shards=4)
    one = await nodes.open(N1)
    zookeeper.kill()
    await eventually(lambda: one.session is SessionState.SUSPENDED)
    monkeypatch.setattr("tstreams.cluster.zookeeper.COORDINATION_DEADLINE_S", 1.0)
    with Watchdog() as watchdog:
        answers = await asyncio.gather(
            *(one.update(load=float(number)) for number in range(1000)), return_exceptions=True
        )
    assert all(isinstance(answer, Timeout) for answer in answers)
    assert watchdog.complaints == []
    monkeypatch.undo()
    await asyncio.to_thread(zookeeper.start)
    await one.update(load=0.125)
    await eventually(lambda: one.view.nodes["n1"].load == 0.125)


async def stop_for_a_session(leader: Contender, other: Contender) -> None:
    last = leader.epochs[-1]
    already = len(leader.said)
    leader.stop()
    await eventually(lambda: other.epochs and other.epochs[-1] > last)
    leader.go_on()
    await eventually(lambda: "lost" in [line.get("state") for line in leader.said[already:]])
    for line in leader.said[already:]:
        if line.get("state") == "lost":
            assert not line["alive"]
            assert line["leads"] is None
            break
        if "woke" in line:  # it looked before it was told
            assert not line["alive"]
    await eventually(lambda: leader.states[-1] == "connected")


async def test_a_leader_stands_still_for_longer_than_its_session(
    nodes: ZooKeeperOpener, witness: Witness
) -> None:
    await nodes.create()
    witness.begin()
    with (
        Contender(nodes.settings, "n1", SHORT_S) as first,
        Contender(nodes.settings, "n2", SHORT_S) as second,
    ):
        contenders = [first, second]
        await eventually(lambda: [one for one in contenders if one.epochs])
        for _ in range(3):
            leader, other = sorted(contenders, key=lambda one: -(one.epochs or [0])[-1])
            await stop_for_a_session(leader, other)
        for one in contenders:
            assert one.epochs == sorted(set(one.epochs))
            for epoch in one.epochs:
                witness.led(epoch, "n1" if one is first else "n2")
        assert not set(first.epochs) & set(second.epochs)


async def test_leaders_are_killed_one_after_the_other(
    nodes: ZooKeeperOpener, witness: Witness
) -> None:
    await nodes.create()
    witness.begin()
    with Contender(nodes.settings, "n1", SHORT_S) as first:
        await eventually(lambda: first.epochs == [1])
        with Contender(nodes.settings, "n2", SHORT_S) as second:
            await eventually(lambda: "connected" in second.states)
            first.kill()
            await eventually(lambda: second.epochs == [2])
            with Contender(nodes.settings, "n3", SHORT_S) as third:
                await eventually(lambda: "connected" in third.states)
                second.kill()
                await eventually(lambda: third.epochs == [3])


async def test_zookeeper_has_lost_its_data(
    nodes: ZooKeeperOpener, zookeeper: ZooKeeperServer
) -> None:
    await nodes.create()
    one = await nodes.open(N1, SHORT_S)
    states = states_of(one)
    await one.lead(0)
    zookeeper.kill()
    zookeeper.remove_data()
    await asyncio.to_thread(zookeeper.start)
    await eventually(lambda: one.session is SessionState.CLOSED)
    assert SessionState.LOST in states
    assert one.leads(0) is None
    with pytest.raises(Corrupt, match="its data lost"):
        await one.lead(0)
    await one.close()
