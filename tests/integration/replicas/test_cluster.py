"""Three nodes, ZooKeeper, and shards that always have a leader."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tstreams
from tests.integration.cluster.conftest import can_start_zookeeper, one_zookeeper, zookeeper
from tests.integration.replicas.sites import Site, in_memory
from tests.integration.tstreams.conftest import Clock, eventually
from tstreams import Offset
from tstreams.cluster.coordination import new_cluster
from tstreams.cluster.engines.zookeeper import ZooKeeperServer
from tstreams.cluster.zookeeper import ZooKeeperCoordination, ZooKeeperSettings, create_cluster
from tstreams.errors import NotLeader
from tstreams.protocol import ShardInfo
from tstreams.server.cluster_node import ClusterNode
from tstreams.sharding import home_of

__all__ = ["can_start_zookeeper", "one_zookeeper", "zookeeper"]

SHARDS = 2

IN_FIRST = [it for it in (f"stream-{n}" for n in range(20)) if home_of(it, SHARDS) == 0]
"""Streams that live in shard 0: clients do not follow shards to other nodes yet."""

_numbers = itertools.count()


class Cluster(Site):
    """Nodes that find out by themselves who leads."""

    def __init__(self, path: Path, zookeeper: ZooKeeperServer) -> None:
        super().__init__(path, in_memory())
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
            if told == {node.id} and node.replicas[number].shard.leading:
                return name
        return None

    def all_follow(self, number: int) -> bool:
        return all(node.replicas[number].is_open for node in self.nodes.values())


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeperServer, clock: Clock) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, zookeeper)
    yield cluster
    cluster.close()


def test_a_shard_has_a_leader_whoever_goes(cluster: Cluster) -> None:
    for name in "abc":
        cluster.join(name)
    clicks, elsewhere = IN_FIRST[:2]
    eventually(lambda: cluster.all_follow(0) and cluster.all_follow(1), 60)
    first = eventually(lambda: cluster.leader_of(0))
    eventually(lambda: cluster.leader_of(1))
    with tstreams.connect(cluster.nodes[first].addresses[0]) as ts:
        ts.create_stream(clicks)
        with ts.producer(clicks, name="p") as producer:
            producer.instant([b"before"], partition=0)

    other = next(name for name in "abc" if name != first)
    with tstreams.connect(cluster.nodes[other].addresses[0], timeout=5.0) as ts:
        with pytest.raises(NotLeader) as refused:
            ts.create_stream(elsewhere)
        assert refused.value.addresses == tuple(cluster.nodes[first].addresses)

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
    cluster.caught_up("a", "b", "c")
    assert cluster.facts("a") == cluster.facts("b") == cluster.facts("c")
    followers = {it.node for it in cluster.map("a")[0].followers}
    assert followers == {cluster.nodes[name].id for name in "abc" if name != first}
