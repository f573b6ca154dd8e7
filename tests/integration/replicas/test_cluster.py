"""Three nodes, ZooKeeper, and shards that always have a leader."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import moebius
import tstreams
from tests.integration.replicas.sites import Site, in_memory
from tests.integration.replicas.traffic import Traffic
from tests.integration.tstreams.conftest import Clock, eventually
from tests.integration.tstreams_shards.raw import SHARDS, Raw
from tstreams import Offset
from tstreams.client.config import Read
from tstreams.cluster import single
from tstreams.cluster.coordination import new_cluster
from tstreams.cluster.engines.zookeeper import ZooKeeperServer, free_ports
from tstreams.cluster.zookeeper import ZooKeeperCoordination, ZooKeeperSettings, create_cluster
from tstreams.errors import NotLeader
from tstreams.ledger.engine import Engine
from tstreams.protocol import Describe, Done, GetStream, NodeInfo, ShardInfo, decode_reply, encode
from tstreams.server import load, membership
from tstreams.server.cluster_node import ClusterNode
from tstreams.sharding import home_of, shard_of

IN_FIRST = [it for it in (f"stream-{n}" for n in range(20)) if home_of(it, SHARDS) == 0]
"""Streams that live in shard 0."""

IN_SECOND = [it for it in (f"stream-{n}" for n in range(20)) if home_of(it, SHARDS) == 1]

_numbers = itertools.count()


class Cluster(Site):
    """Nodes that find out by themselves who leads."""

    def __init__(self, path: Path, zookeeper: ZooKeeperServer) -> None:
        super().__init__(path, in_memory(), shards=SHARDS)
        name = f"r{os.getpid()}-{next(_numbers)}"
        self._settings = ZooKeeperSettings(
            hosts=zookeeper.address, cluster=name, session_timeout_s=40.0
        )
        self.run(create_cluster(self._settings, new_cluster(name, shards=SHARDS, replicas=3)))

    def join(self, name: str) -> ClusterNode:
        node = ClusterNode(
            self.path / name,
            listen=["tcp://127.0.0.1:0"],
            shards=SHARDS,
            engine=self.connect,
            coordinate=lambda entry: ZooKeeperCoordination(self._settings, entry),
        )
        self.nodes[name] = node
        self.run(node.start())
        return node

    def map(self, name: str) -> list[ShardInfo]:
        """Where shards are, as a node tells it."""
        return self.call(lambda: self.nodes[name]._describe().map)

    def leader_of(self, number: int) -> str | None:
        """The node that leads a shard, if all nodes agree on that, and it does."""
        told = {
            info.leader.node if info.leader is not None else None
            for name in self.nodes
            for info in self.map(name)[number : number + 1]
        }
        for name, node in self.nodes.items():
            if told == {node.id} and node.replicas[number].leading:
                return name
        return None

    def all_follow(self) -> bool:
        return all(it.is_open for node in self.nodes.values() for it in node.replicas.values())

    def is_at_rest(self, number: int) -> bool:
        """Whether a shard is led by the node that should lead it in the end."""
        leader = self.nodes.get(self.leader_of(number) or "")
        if leader is None or leader.coordination is None:
            return False
        return leader.coordination.view.placement.shards[number][0] == leader.id

    def wait_for_leaders(self) -> None:
        eventually(self.all_follow, 60)
        for number in range(SHARDS):
            eventually(lambda number=number: self.is_at_rest(number), 60)

    def address_of(self, number: int) -> str:
        """Where whoever leads a shard can be reached."""
        leader = eventually(lambda: self.leader_of(number), 60)
        return self.nodes[leader].addresses[0]


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeperServer, clock: Clock) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, zookeeper)
    yield cluster
    cluster.close()


def test_a_shard_has_a_leader_whoever_goes(cluster: Cluster) -> None:
    for name in "abc":
        cluster.join(name)
    clicks, elsewhere = IN_FIRST[:2]
    cluster.wait_for_leaders()
    first = eventually(lambda: cluster.leader_of(0))
    with tstreams.connect(cluster.nodes[first].addresses[0]) as ts:
        ts.create_stream(clicks)
        with ts.producer(clicks, name="p") as producer:
            producer.instant([b"before"], partition=0)

    other = next(name for name in "abc" if name != first)
    with tstreams.connect(cluster.nodes[other].addresses[0]) as ts:
        ts.create_stream(elsewhere)  # any node will do
    with moebius.connect(cluster.nodes[other].addresses[0]) as wire:
        with pytest.raises(moebius.Error) as refused:
            wire.call("0:GetStream", encode(GetStream(clicks)))
        told = NotLeader.read(refused.value.message)
        assert told is not None
        assert told.addresses == tuple(cluster.nodes[first].addresses)

    cluster.stop(first)
    second = eventually(lambda: cluster.leader_of(0))
    with tstreams.connect(cluster.nodes[second].addresses[0]) as ts:
        with ts.producer(clicks, name="p") as producer:
            producer.instant([b"after"], partition=0)
        with ts.consumer(clicks, name="c", start=Offset.oldest()) as consumer:
            found = [txn.items[0] for txn in consumer.read(max_wait=0.2)]
    assert found == [b"before", b"after"]

    cluster.join(first)  # it comes back to what it had
    eventually(lambda: cluster.leader_of(0) == first)
    cluster.agreed_facts("a", "b", "c")
    followers = {it.node for it in cluster.map("a")[0].followers}
    assert followers == {cluster.nodes[name].id for name in "abc" if name != first}


def test_a_group_spans_nodes_that_find_each_other_by_coordination(cluster: Cluster) -> None:
    for name in "abc":
        cluster.join(name)
    cluster.wait_for_leaders()
    assert len({cluster.leader_of(number) for number in range(SHARDS)}) > 1
    home, first, second = (shard_of("clicks", it, SHARDS) for it in range(3))
    with Raw(cluster.address_of) as client:
        client.create("clicks", 3)
        producer = client.agent("producer", "clicks", "p", 3)
        for item, goes in ((b"x", None), (b"y", home), (b"z", first)):
            group = client.group(home)
            for partition, shard in ((1, first), (2, second)):
                agents = [producer.numbers[shard]]
                client.prepare(shard, group, agents, brought=[producer.brings(partition, item)])
            if goes is not None:  # who leads the decider, or a participant, leaves meanwhile
                gone = eventually(lambda goes=goes: cluster.leader_of(goes))
                cluster.stop(gone)
                eventually(lambda goes=goes: cluster.leader_of(goes), 60)
                cluster.join(gone)
            brought = [producer.brings(0, item)]
            decided = client.decide(
                group, [first, second], [producer.numbers[home]], brought=brought
            )
            assert decided == Done()
        for partition in range(3):
            eventually(lambda it=partition: client.read(producer, it) == [b"x", b"y", b"z"])
    cluster.wait_for_leaders()
    cluster.agreed_facts("a", "b", "c")


def test_a_node_tells_how_busy_it_is(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "NOTICEABLE", 0.002)
    monkeypatch.setattr(membership, "REPORT_EVERY_S", 0.1)
    folder = tmp_path / "cluster"
    single.create_cluster(folder, new_cluster("test", shards=2, replicas=1))
    node = ClusterNode(
        tmp_path / "data",
        ["tcp://127.0.0.1:0"],
        shards=2,
        engine=in_memory(),
        coordinate=lambda entry: single.SingleCoordination(folder, entry),
        clock=clock,
    )
    with node.in_thread():
        eventually(lambda: all(it.leading for it in node.replicas.values()))
        name = next(f"s{it}" for it in range(20) if home_of(f"s{it}", 2) == 1)
        with tstreams.connect(node.addresses[0]) as ts:
            ts.create_stream(name)
            with ts.producer(name, name="p") as producer:

                def told() -> bool:
                    for _ in range(50):
                        producer.instant([b"x"], partition=0)
                    assert node.coordination is not None
                    entry = node.coordination.view.nodes[node.id]
                    loads = entry.shard_loads
                    return entry.load > 0 and loads.get(1, 0.0) > loads.get(0, 0.0)

                eventually(told, 60)


def test_a_node_tells_at_once_what_it_has(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "LOOK_EVERY_S", 1000.0)
    monkeypatch.setattr(membership, "REPORT_EVERY_S", 1000.0)
    for name in "ab":
        cluster.join(name)
    connect, may_open = cluster.connect, cluster.call(asyncio.Event)

    async def connect_late(number: int) -> Engine:
        await may_open.wait()
        return await connect(number)

    cluster.connect = connect_late
    cluster.join("c")
    for number in range(SHARDS):
        eventually(lambda number=number: cluster.leader_of(number), 60)
    coordination = cluster.nodes["a"].coordination
    assert coordination is not None
    late = cluster.nodes["c"].id
    eventually(lambda: late in coordination.view.nodes)
    cluster.call(may_open.set)
    eventually(lambda: coordination.view.nodes[late].holds == tuple(range(SHARDS)))


@pytest.mark.parametrize("read", ["leader", "any"])
def test_clients_follow_shards_to_the_nodes_that_lead_them(cluster: Cluster, read: Read) -> None:
    for name in "abc":
        cluster.join(name)
    cluster.wait_for_leaders()
    with (
        tstreams.connect(cluster.nodes["a"].addresses[0], read=read) as ts,
        Traffic(ts, *IN_FIRST[:2]) as first,
        Traffic(ts, *IN_SECOND[:2]) as second,
    ):
        for traffic in (first, second):
            traffic.go_on(100)
        if read == "any":
            wire = eventually(lambda: ts._link.shards.follower(0))
            leader = cluster.nodes[eventually(lambda: cluster.leader_of(0)) or ""]
            assert wire is not ts._link.shards[0].wire
            assert leader.id == ts._link.shards[0].leader.node  # type: ignore[union-attr]
        for _ in range(2):
            gone = eventually(lambda: cluster.leader_of(0)) or ""
            cluster.stop(gone)
            for traffic in (first, second):
                traffic.go_on(100)
            cluster.join(gone)
            cluster.wait_for_leaders()
        for traffic in (first, second):
            traffic.finish()


def test_a_node_that_is_about_to_join_says_that_it_knows_of_no_leader(tmp_path: Path) -> None:
    """Clients that come to it first ask others then, and it again."""
    settings = ZooKeeperSettings(hosts=f"127.0.0.1:{free_ports(1)[0]}", cluster="nowhere")
    site = Site(tmp_path, in_memory(), shards=SHARDS)
    node = ClusterNode(
        tmp_path / "a",
        listen=["tcp://127.0.0.1:0"],
        shards=SHARDS,
        engine=site.connect,
        coordinate=lambda entry: ZooKeeperCoordination(settings, entry),
    )

    async def begin() -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(node.start())

    starting = site.run(begin())
    try:
        eventually(lambda: node.coordination is not None)
        with moebius.connect(node.addresses[0]) as client:
            told = decode_reply(client.call("Describe", encode(Describe())))
        assert isinstance(told, NodeInfo)
        assert [(it.number, it.leader) for it in told.map] == [(n, None) for n in range(SHARDS)]
        assert not node.ready
    finally:
        site.call(starting.cancel)
        eventually(starting.done)
        site.close()
