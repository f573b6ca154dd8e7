"""Clusters of three nodes, all on one loop: real nodes, ZooKeeper, and an engine that keeps the logs.

In this process they can be looked into, and have the clock of the test. As a process of their own they can be stopped,
killed and started again, all at once.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import uvloop

from tests.integration.engines import Servers
from tests.integration.replicas.sites import in_memory
from tstreams.cluster.coordination import Cluster, Setting, new_cluster
from tstreams.cluster.engines.bookkeeper import Bookies
from tstreams.cluster.zookeeper import ZooKeeperCoordination, ZooKeeperSettings, create_cluster
from tstreams.config import Config
from tstreams.server.cluster_node import ClusterNode
from tstreams.server.engines import engine_kind, logs_name, make_logs
from tstreams.server.shard import Clock, Shard, system_clock

SHARDS = 3
NODES = 3
ANYWHERE = "tcp://127.0.0.1:0"
SESSION_S = 20.0
"""Long: what happens when a session ends is tested elsewhere, and a machine that runs tests may stand still."""
SETTLED_S = 60.0
LEFT_BEHIND = (b"N", b"K", b"A", b"J")
"""Keys of the index that others could stumble over: names of streams, of copies, of agents and of jobs."""


@dataclass(frozen=True)
class Ground:
    """What clusters stand on. It can be told to another process."""

    engine: str
    settings: dict[str, Setting]
    zookeeper: str

    @staticmethod
    def of(servers: Servers | None, zookeeper: str) -> Ground:
        """Logs on these servers; without any, in the memory of one process."""
        if servers is None:
            return Ground("memory", {}, zookeeper)
        if isinstance(servers, Bookies):
            return Ground("bookkeeper", {"zookeeper": servers.hosts}, zookeeper)
        urls, monitors = ",".join(servers.urls), ",".join(servers.monitors)
        return Ground("jetstream", {"servers": urls, "monitors": monitors}, zookeeper)


async def make_cluster(ground: Ground, name: str, shards: int = SHARDS) -> Cluster:
    """As operators make it: known to ZooKeeper, and with logs."""
    if ground.engine == "memory":
        cluster = new_cluster(name, shards=shards, replicas=NODES, engine=ground.engine)
        await create_cluster(_settings(ground, cluster), cluster)
        return cluster
    kind = engine_kind(ground.engine)
    cluster = new_cluster(
        name,
        shards=shards,
        replicas=NODES,
        engine=ground.engine,
        engine_settings=kind.check(ground.settings),
    )
    await create_cluster(_settings(ground, cluster), cluster)
    logs = kind.logs(cluster)
    await make_logs(logs, shards, lambda made: None)
    await logs.close()
    return cluster


async def remove_logs(ground: Ground, cluster: Cluster) -> None:
    """Of JetStream only, whose servers are kept busy by each log. BookKeeper just has files of them."""
    if ground.engine == "jetstream":
        from tstreams.ledger.nats_link import NatsLink

        link = await NatsLink.connect(str(ground.settings["servers"]).split(","))
        for number in range(cluster.shards):
            await link.api(f"STREAM.DELETE.tstreams-{logs_name(cluster)}-{number}")
        await link.close()


def _settings(ground: Ground, cluster: Cluster) -> ZooKeeperSettings:
    return ZooKeeperSettings(
        hosts=ground.zookeeper, cluster=cluster.name, session_timeout_s=SESSION_S
    )


class ThreeNodes:
    """The nodes of a cluster."""

    def __init__(
        self,
        ground: Ground,
        cluster: Cluster,
        folder: Path,
        listen: Sequence[str] = (ANYWHERE,) * NODES,
        clock: Clock = system_clock,
    ) -> None:
        self.cluster = cluster
        settings, memory = _settings(ground, cluster), in_memory()

        def node(name: str, address: str) -> ClusterNode:
            logs = None if cluster.engine == "memory" else engine_kind(cluster.engine).logs(cluster)
            return ClusterNode(
                Config(data=folder / name),
                [address],
                shards=cluster.shards,
                engine=memory if logs is None else logs.open,
                coordinate=lambda entry: ZooKeeperCoordination(settings, entry),
                cluster=cluster,
                logs=logs,
                clock=clock,
            )

        self.nodes = [node(name, address) for name, address in zip("abc", listen, strict=True)]

    @property
    def addresses(self) -> list[str]:
        """Any of them will do for a client. The first is of the node that leads shard 0."""
        nodes = sorted(
            self.nodes, key=lambda node: 0 not in node.replicas or not node.replicas[0].leading
        )
        return [address for node in nodes for address in node.addresses]

    @property
    def shards(self) -> dict[int, Shard]:
        """The shards, as their leaders have them."""
        led = [it for node in self.nodes for it in node.replicas.values() if it.leading]
        return {it.number: it.shard for it in led}

    async def start(self) -> None:
        """Returns when all shards are on all nodes, and are led by those that should lead them."""
        await asyncio.gather(*(node.start() for node in self.nodes))
        async with asyncio.timeout(SETTLED_S):
            while not self.is_settled():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """All at once."""
        await asyncio.gather(*(node.stop() for node in self.nodes))

    def is_settled(self) -> bool:
        """Whether everybody has everything, and agrees on who leads."""
        return all(node.ready for node in self.nodes) and all(
            map(self._is_led, range(self.cluster.shards))
        )

    def _is_led(self, number: int) -> bool:
        told = set()
        for node in self.nodes:
            assert node.coordination is not None
            view = node.coordination.view
            leader, places = view.leaders.get(number), view.placement.shards[number]
            told.add((None if leader is None else leader.node, *places[:1], len(places)))
        leading = {node.id for node in self.nodes if node.replicas[number].leading}
        return told == {(it, it, NODES) for it in leading}

    def is_as_new(self) -> bool:
        """Whether nothing is left of those who used it but sessions, which nobody else has to do with."""
        return self.is_settled() and not any(map(_has_something, self.shards.values()))


def _has_something(shard: Shard) -> bool:
    state = shard.core.state
    groups = state.groups
    kept = (state.open, state.untold, groups.prepared, groups.decided)
    return any(kept) or any(any(shard.index.store.scan(it)) for it in LEFT_BEHIND)


async def serve(ground: Ground, cluster: Cluster, folder: Path, listen: Sequence[str]) -> None:
    """Until SIGTERM comes."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    nodes = ThreeNodes(ground, cluster, folder, listen)
    await nodes.start()
    print("ready", flush=True)
    await stopping.wait()
    await nodes.stop()


PROGRAM = f"from {__name__} import main; main()"


def arguments_of(
    ground: Ground, cluster: Cluster, folder: Path, listen: Sequence[str]
) -> list[str]:
    """What the program is to be told."""
    told = [json.dumps(asdict(ground)), msgspec.json.encode(cluster).decode(), str(folder)]
    return [*told, *listen]


def main() -> None:
    """Serve such a cluster from a process of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(
            serve(
                Ground(**json.loads(sys.argv[1])),
                msgspec.json.decode(sys.argv[2], type=Cluster),
                Path(sys.argv[3]),
                sys.argv[4:],
            )
        )
