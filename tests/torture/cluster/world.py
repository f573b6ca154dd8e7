"""All that a campaign against a cluster has under it: hosts, ZooKeeper, the engine, nodes, and clients of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import tstreams
from tests.torture.cluster.facts import judge_facts
from tests.torture.cluster.leaders import judge_reigns, read_reigns, reigns_of
from tests.torture.cluster.network import Network
from tests.torture.cluster.node import TorturedNode
from tests.torture.cluster.servers import SHARDS, EngineOnHosts, Ensemble, make_cluster
from tests.torture.cluster.zombie import ZOMBIES, make_zombie_streams
from tests.torture.crew import Post
from tests.torture.scene import Scene, tell
from tests.torture.verdict import Verdict, conclude, judge, judge_log
from tests.torture.work import make_streams
from tstreams.cluster.coordination import Cluster
from tstreams.protocol import ShardInfo

CREW = (
    ("writer", "writer-1", "clients-1"),
    ("writer", "writer-2", "clients-2"),
    ("churner", "churner", "clients-1"),
    ("reader", "reader", "clients-1"),
    ("any-reader", "any-reader", "clients-2"),
    ("keeper", "keeper", "clients-2"),
    ("processor", "processor", "clients-1"),
    ("subscriber", "subscriber", "clients-2"),
    ("loop", "looper", "clients-1"),
)
"""The clients: what they do, their names, and their hosts. Streams have their partitions in different shards, so all
groups span shards."""
READY_S_MAX = 120.0
SETTLED_S_MAX = 120.0
"""How long it may take until all shards are led, and all nodes have what they should have, when nothing is wrong."""


@dataclass(slots=True)
class ClusterWorld:
    """A cluster, and everything around it."""

    scene: Scene
    network: Network
    ensemble: Ensemble
    engine: EngineOnHosts
    nodes: dict[str, TorturedNode]
    log: str
    cluster: Cluster | None = None
    down: set[str] = field(default_factory=set)
    """Servers that a fault has ended, and will start again."""
    zombies: Counter[str] = field(default_factory=Counter)
    """What leaders that stood still until others led answered to what was written to them before they went on."""
    comparisons: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.scene.hire = lambda kind, name: self.post(kind, name, "clients-1")

    # The beginning.

    def start(self) -> None:
        """All servers and nodes, with their streams, and all clients."""
        for name in self.ensemble.servers:
            self.ensemble.launch(name)
        self.ensemble.wait()
        for name in self.engine.names:
            self.engine.launch(name)
        self.engine.wait()
        self.cluster = make_cluster(self.ensemble, self.log, self.engine)
        tell("ZooKeeper and the engine serve")
        for node in self.nodes.values():
            node.server.start(wait=False)
        for node in self.nodes.values():
            node.server.wait_until_ready()
        tell("all nodes serve")
        self.scene.guards.append(self._tend)
        with tstreams.connect(self.url) as ts:
            make_streams(ts)
            make_zombie_streams(ts)
        self.scene.posts += [self.post(*it) for it in CREW]
        for post in self.scene.posts:
            post.start()

    def post(self, kind: str, name: str, host: str) -> Post:
        """A client that is not started yet. It knows all nodes, each client in another order."""
        rng = self.scene.rng(name)
        urls = [it.url for it in self.nodes.values()]
        rng.shuffle(urls)
        way = list(self.network.hosts[host].way)
        return Post(kind, name, ",".join(urls), self.scene.folder, rng, way)

    @property
    def url(self) -> str:
        """Of the whole cluster."""
        return ",".join(it.url for it in self.nodes.values())

    def wait_for_others(self) -> None:
        """Until every shard is led, and every node has what it should have."""
        self.wait_settled("at the beginning")

    # While it goes on.

    def _tend(self) -> None:
        """Whatever ended by itself is complained of, and started again."""
        for name, node in self.nodes.items():
            if name not in self.down and not node.server.is_alive:
                self.scene.complain(f"{name} ended by itself: {node.server.log_tail()}")
                node.server.start(wait=False)

    @contextmanager
    def taken_down(self, *names: str) -> Iterator[None]:
        """Servers that are not there meanwhile, because a fault wants it so."""
        self.down.update(names)
        try:
            yield
        finally:
            self.down.difference_update(names)

    def shards(self) -> list[ShardInfo]:
        """Who leads what, as some node says that is connected to the rest; none, if nobody says anything."""
        best: list[ShardInfo] = []
        for name, node in self.nodes.items():
            if name in self.down:
                continue
            found = node.describe()
            if found is not None and len(found.map) == SHARDS:
                best = max(best, found.map, key=lambda it: sum(one.epoch for one in it))
        return best

    def leader_of(self, shard: int) -> TorturedNode | None:
        """The node that leads a shard, as the others say."""
        for it in self.shards():
            if it.number == shard and it.leader is not None:
                return next(
                    (node for node in self.nodes.values() if node.id == it.leader.node), None
                )
        return None

    def is_settled(self) -> bool:
        """Whether all nodes are there and say the same: every shard is led, and each node has all of them."""
        found = [node.describe() for node in self.nodes.values()]
        maps = []
        for it in found:
            if it is None or len(it.map) != SHARDS or len(it.shards) != SHARDS:
                return False
            maps.append([(one.epoch, one.leader and one.leader.node) for one in it.map])
        return all(it == maps[0] and all(node for _, node in it) for it in maps) and all(
            node.server.is_ready for node in self.nodes.values()
        )

    def wait_settled(self, when: str) -> bool:
        """Wait for that; if it does not come, that is wrong."""
        if self.scene.rest_until(self.is_settled, SETTLED_S_MAX, every_s=0.5):
            return True
        said = {name: node.describe() for name, node in self.nodes.items()}
        tails = {name: node.server.log_tail() for name, node in self.nodes.items()}
        self.scene.complain(f"not settled in {SETTLED_S_MAX} s {when}: {said}; {tails}")
        return False

    # The end.

    def heal(self) -> None:
        """Nothing goes wrong any more: each fault has taken back what it did."""
        self.wait_settled("after all was healed")

    def finish(self, verdict: Verdict) -> None:
        """All clients have ended: read all that is there, judge, and end the nodes. Then they are compared."""
        tell("all is read, and judged")
        conclude(self.scene, self.url, ZOMBIES)
        judge(self.scene, self.url, verdict)
        for node in self.nodes.values():
            self.down.add(node.name)
            if (status := node.server.stop()) != 0:
                verdict.add(f"SIGTERM ended {node.name} with {status}: {node.server.log_tail()}")
        for node in self.nodes.values():
            judge_log(node.server.log_path, verdict)
        judge_reigns(read_reigns(self.nodes.values()), verdict)
        tell("what nodes hold is compared")
        began = time.monotonic()
        self.comparisons = judge_facts(self, verdict)
        tell(f"compared in {time.monotonic() - began:.1f} s")

    def report(self) -> dict[str, Any]:
        """What of it is not in every campaign."""
        return {
            "log": self.log,
            "zombies": dict(self.zombies),
            "reigns": reigns_of(self.nodes.values()),
            "compared": self.comparisons,
        }

    def close(self) -> None:
        """End whatever runs."""
        self.scene.close()
        for node in self.nodes.values():
            node.server.close()
        self.engine.close()
        self.ensemble.close()
