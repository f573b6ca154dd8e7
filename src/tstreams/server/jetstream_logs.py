"""The logs of a cluster on NATS JetStream, as one process uses them."""

from __future__ import annotations

import asyncio

from ..cluster.coordination import Cluster
from ..ledger.engine import Engine, EngineUnfit
from ..ledger.jetstream import JetStreamEngine
from ..ledger.nats_link import NatsLink, server_facts
from .engines import EngineServer, check_jetstream, logs_name


class JetStreamLogs:
    """Logs on NATS JetStream: one connection for all of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        settings = check_jetstream(cluster.engine_settings)
        self._urls = str(settings["servers"]).split(",")
        self._monitors = str(settings["monitors"]).split(",")
        self._replicas = int(settings["replicas"])
        self._require_sync = not settings["unsynced"]
        self._connecting = asyncio.Lock()
        self._link: NatsLink | None = None

    async def check(self) -> None:
        """Connect. Unless servers that do not sync are tolerated, none may be known to be one, and most must tell."""
        await self._connected()
        if not self._require_sync:
            return
        found = await self.servers()
        unsynced = [it.name for it in found if it.name and it.problem]
        if unsynced:
            raise EngineUnfit(
                f"these NATS servers acknowledge what is not on their disks: {', '.join(unsynced)}. Set "
                "`sync_interval: always` in the block `jetstream` of their configuration, or say --allow-unsynced"
            )
        silent = [it.address for it in found if not it.name]
        if 2 * len(silent) >= len(found):
            raise EngineUnfit(
                f"NATS servers do not tell how they are set up at {', '.join(silent)}: set `http_port` in their "
                "configuration, name the right addresses with --nats-monitor, or say --allow-unsynced"
            )

    async def open(self, shard: int) -> Engine:
        """Connect to the log of a shard, which is made if it is not there."""
        return await JetStreamEngine.open(
            await self._connected(),
            f"{logs_name(self._cluster)}-{shard}",
            replicas=self._replicas,
            require_sync=self._require_sync,
        )

    async def _connected(self) -> NatsLink:
        async with self._connecting:
            if self._link is None:
                self._link = await NatsLink.connect(self._urls, monitors=self._monitors)
            return self._link

    async def servers(self) -> list[EngineServer]:
        """How the servers are, as they tell at their monitoring addresses."""
        return await asyncio.gather(*(asyncio.to_thread(self._look, it) for it in self._monitors))

    def _look(self, monitor: str) -> EngineServer:
        found = server_facts(monitor)
        if found is None:
            return EngineServer(monitor, "", "", "does not answer")
        name, version = str(found.get("server_name", "")), str(found.get("version", ""))
        synced = found.get("jetstream", {}).get("config", {}).get("sync_always")
        problem = "" if synced else "does not sync every write"
        return EngineServer(monitor, name, version, problem)

    async def close(self) -> None:
        """Disconnect."""
        if self._link is not None:
            await self._link.close()
            self._link = None
