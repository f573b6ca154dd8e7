"""Shards that are handed over: the leader stops when its heir has its place, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import moebius
import tstreams
from tests.integration.replicas.test_cluster import IN_FIRST, Cluster
from tests.integration.replicas.traffic import Traffic
from tests.integration.tstreams.conftest import Clock, eventually
from tstreams.cluster.coordination import Leader
from tstreams.cluster.engines.zookeeper import ZooKeeperServer
from tstreams.errors import Unavailable
from tstreams.protocol import HandOver, encode
from tstreams.server.cluster_node import ClusterNode
from tstreams.server.remote_kin import RemoteKin


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeperServer, clock: Clock) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, zookeeper)
    for name in "abc":
        cluster.join(name)
    cluster.wait_for_leaders()
    yield cluster
    cluster.close()


def move(cluster: Cluster, shard: int, heir: str) -> None:
    """As an operator has it moved."""

    async def intend() -> None:
        coordination = cluster.nodes[heir].coordination
        assert coordination is not None
        view = coordination.view
        wanted = view.intentions.lead({shard: cluster.nodes[heir].id})
        await coordination.intend(wanted, version=view.intentions_version)

    cluster.run(intend())


def heir_of(cluster: Cluster, shard: int = 0) -> str:
    leader = eventually(lambda: cluster.leader_of(shard), 60)
    return next(it for it in "abc" if it != leader)


class Witness:
    """Who leads a shard, each time that it changes, as a node sees it."""

    def __init__(self, cluster: Cluster, name: str, shard: int) -> None:
        self.seen: list[Leader | None] = []
        self._shard = shard
        self._cluster = cluster
        self._node = cluster.nodes[name]
        self._task = cluster.call(lambda: asyncio.get_running_loop().create_task(self._watch()))

    async def _watch(self) -> None:
        assert self._node.coordination is not None
        watch = self._node.coordination.watch()
        async for _ in watch:
            leader = self._node.coordination.view.leaders.get(self._shard)
            if not self.seen or self.seen[-1] != leader:
                self.seen.append(leader)

    def end(self) -> list[Leader | None]:
        self._cluster.call(self._task.cancel)
        return self.seen


def test_a_shard_that_moves_always_has_a_leader_and_nobody_is_shut_out(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    first = eventually(lambda: cluster.leader_of(0))
    with (
        tstreams.connect(cluster.nodes[first].addresses[0]) as ts,
        Traffic(ts, *IN_FIRST[:2]) as it,
    ):
        it.go_on(50)
        for _ in range(3):
            old = eventually(lambda: cluster.leader_of(0))
            epoch = cluster.map(old)[0].epoch
            heir = heir_of(cluster)
            third = next(it for it in "abc" if it not in (old, heir))
            witness = Witness(cluster, third, 0)
            move(cluster, 0, heir)
            eventually(lambda heir=heir: cluster.leader_of(0) == heir, 60)
            it.go_on(50)
            seen = [it for it in witness.end() if it is None or it.epoch > epoch]
            assert seen == [Leader(cluster.nodes[heir].id, epoch + 1)]
        it.finish()
    said = [it.getMessage() for it in caplog.records]
    assert not [it for it in said if "leads no more" in it]  # the log refused nobody


def test_a_leader_whose_heir_cannot_ask_gives_the_shard_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable(*_: object) -> object:
        raise Unavailable("there is a wall")

    monkeypatch.setattr(RemoteKin, "ask_node", unreachable)
    for node in cluster.nodes.values():
        node._seats[0]._handovers._ask = unreachable  # type: ignore[assignment]
    heir = heir_of(cluster)
    move(cluster, 0, heir)
    eventually(lambda: cluster.leader_of(0) == heir, 60)


def test_a_leader_that_was_told_to_stop_and_is_gone_is_not_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It agrees, and dies before it can say that it has stopped."""
    old, heir = eventually(lambda: cluster.leader_of(0)), heir_of(cluster)
    ask = cluster.nodes[heir]._seats[0]._handovers._ask
    assert ask is not None
    stopped = []

    async def ask_and_break(addresses: object, shard: int, message: HandOver) -> object:
        if not message.epoch:
            return await ask(addresses, shard, message)  # type: ignore[arg-type]
        stopped.append(message.epoch)
        raise Unavailable("the connection broke")

    cluster.nodes[heir]._seats[0]._handovers._ask = ask_and_break  # type: ignore[assignment]
    move(cluster, 0, heir)
    eventually(lambda: stopped, 60)
    assert not cluster.nodes[heir].replicas[0].leading
    cluster.stop(old)
    eventually(lambda: cluster.leader_of(0) == heir, 60)


def seat_says(node: ClusterNode, asked_by: str) -> bool:
    """Whether a node that leads lets another lead."""

    async def ask() -> bool:
        try:
            await node._seats[0].hand_over(asked_by, 0)
        except Unavailable:
            return False
        return True

    return asyncio.run_coroutine_threadsafe(ask(), node._seats[0]._loop).result(60)


def test_only_the_heir_gets_it(cluster: Cluster) -> None:
    leader = eventually(lambda: cluster.leader_of(0))
    node = cluster.nodes[leader]
    epoch = cluster.map(leader)[0].epoch
    assert not seat_says(node, cluster.nodes[heir_of(cluster)].id)
    assert not seat_says(node, "a stranger")
    assert cluster.leader_of(0) == leader
    assert cluster.map(leader)[0].epoch == epoch


def test_clients_cannot_make_a_leader_stop(cluster: Cluster) -> None:
    leader = eventually(lambda: cluster.leader_of(0))
    message = encode(HandOver(cluster.nodes[heir_of(cluster)].id, 99))
    with moebius.Client(cluster.nodes[leader].addresses[0]) as wire:
        for parts in (message, (message, bytes(32))):
            with pytest.raises(moebius.Error, match="for the shards of this cluster alone"):
                wire.call("0:kin:HandOver", parts)
    assert cluster.leader_of(0) == leader


def test_all_nodes_restart_in_turn_and_nobody_is_shut_out(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    addresses = ",".join(it.addresses[0] for it in cluster.nodes.values())
    with tstreams.connect(addresses) as ts, Traffic(ts, *IN_FIRST[:2]) as traffic:
        traffic.go_on(50)
        for name in "abc":
            cluster.run(cluster.nodes[name].leave())
            traffic.go_on(20)
            cluster.stop(name)
            cluster.join(name)
            traffic.go_on(50)
        cluster.wait_for_leaders()
        traffic.finish()
    assert not [it for it in caplog.records if "leads no more" in it.getMessage()]
