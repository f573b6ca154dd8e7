"""Ways to make a cluster and to open its nodes: on one machine, and with ZooKeeper."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from tstreams.cluster import Cluster, Coordination, Node, SessionState
from tstreams.cluster import single as one_machine
from tstreams.cluster import zookeeper as many
from tstreams.cluster.coordination import new_cluster
from tstreams.cluster.zookeeper import ZooKeeperCoordination, ZooKeeperSettings


class Opener(Protocol):
    async def create(self, *, shards: int = 4, replicas: int = 3) -> Cluster: ...

    def make(self, node: Node) -> Coordination: ...

    async def open(self, node: Node) -> Coordination: ...

    async def close(self) -> None: ...


class SingleOpener:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: list[Coordination] = []

    async def create(self, *, shards: int = 4, replicas: int = 3) -> Cluster:
        cluster = new_cluster("here", shards=shards, replicas=replicas)
        one_machine.create_cluster(self._folder, cluster)
        return cluster

    def make(self, node: Node) -> Coordination:
        made = one_machine.SingleCoordination(self._folder, node)
        self._opened.append(made)
        return made

    async def open(self, node: Node) -> Coordination:
        made = self.make(node)
        await made.start()
        return made

    async def close(self) -> None:
        for one in self._opened:
            await one.close()


class ZooKeeperOpener:
    def __init__(self, hosts: str, name: str) -> None:
        # Long, so that a slow machine loses nothing by chance; tests that wait for its end ask for a short one.
        self.settings = ZooKeeperSettings(hosts=hosts, cluster=name, session_timeout_s=40.0)
        self._opened: list[ZooKeeperCoordination] = []

    async def create(self, *, shards: int = 4, replicas: int = 3) -> Cluster:
        cluster = new_cluster(self.settings.cluster, shards=shards, replicas=replicas)
        await many.create_cluster(self.settings, cluster)
        return cluster

    def make(
        self, node: Node | None, timeout_s: float | None = None, hosts: str | None = None
    ) -> ZooKeeperCoordination:
        settings = msgspec.structs.replace(
            self.settings,
            session_timeout_s=timeout_s or self.settings.session_timeout_s,
            hosts=hosts or self.settings.hosts,
        )
        made = ZooKeeperCoordination(settings, node)
        self._opened.append(made)
        return made

    async def open(
        self, node: Node | None, timeout_s: float | None = None, hosts: str | None = None
    ) -> ZooKeeperCoordination:
        made = self.make(node, timeout_s, hosts)
        await made.start()
        return made

    async def close(self) -> None:
        for one in self._opened:
            await one.close()


def states_of(coordination: Coordination) -> list[SessionState]:
    """All states that it goes through from now on."""
    states: list[SessionState] = []
    coordination.on_session(states.append)
    return states
