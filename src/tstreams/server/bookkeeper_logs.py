"""The logs of a cluster on Apache BookKeeper, as one process uses them."""

from __future__ import annotations

from ..cluster.coordination import Cluster
from ..ledger.bookkeeper_link import BookKeeperSettings
from ..ledger.bookkeeper_logs import BookKeeperLogs
from ..ledger.engine import Engine, EngineUnavailable
from .engines import EngineServer, check_bookkeeper, logs_name


class ClusterBookKeeperLogs:
    """Logs on BookKeeper: one client, in Java, for all of them."""

    def __init__(self, cluster: Cluster) -> None:
        found = check_bookkeeper(cluster.engine_settings)
        replicas = int(found["replicas"])
        self._needed = replicas // 2 + 1
        self._logs = BookKeeperLogs(
            BookKeeperSettings(
                str(found["zookeeper"]),
                str(found["ledgers"]),
                str(found["lists"]),
                replicas,
                replicas,
                self._needed,
            ),
            logs_name(cluster),
        )

    async def check(self) -> None:
        """Connect. As many bookies must take writes as a group is to be on."""
        taking = [it for it, takes in (await self._logs.bookies()).items() if takes]
        if len(taking) < self._needed:
            raise EngineUnavailable(
                f"{len(taking)} bookies take writes, and {self._needed} are needed: start more of them"
            )

    async def open(self, shard: int) -> Engine:
        """The log of a shard, which is made when it is written to first."""
        return await self._logs.open(shard)

    async def servers(self) -> list[EngineServer]:
        """The bookies that are there. One that is gone is not known by name."""
        try:
            found = await self._logs.bookies()
        except EngineUnavailable as error:
            return [EngineServer("bookkeeper", "", "", error.message)]
        servers = [
            EngineServer(address, "bookie", "", "" if takes else "takes no writes")
            for address, takes in sorted(found.items())
        ]
        missing = self._needed - sum(found.values())
        if missing > 0:
            servers.append(EngineServer("bookkeeper", "", "", f"{missing} more bookies are needed"))
        return servers

    async def close(self) -> None:
        """Disconnect."""
        await self._logs.close()
