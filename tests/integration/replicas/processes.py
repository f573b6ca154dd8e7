"""A node in a process of its own, on the servers of an engine: it can be killed, paused, and told to lead."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.integration.engines import Servers
from tests.integration.replicas.sites import Site, connect_to, where
from tests.integration.tstreams.servers import ServerProcess, free_addresses
from tstreams.errors import Error
from tstreams.server.cluster_node import ClusterNode


class NodeProcess(ServerProcess):
    """Has one shard. It follows until it is told to lead."""

    def __init__(self, data: Path, servers: Servers, name: str) -> None:
        (address,) = free_addresses(1)
        settings = {"data": str(data), "address": address, "log": where(servers, name)}
        super().__init__(f"from {__name__} import main; main()", [json.dumps(settings)], address)

    def lead(self, epoch: int) -> None:
        self.begin_leading(epoch)
        assert self._read() == f"leads {epoch}"

    def begin_leading(self, epoch: int) -> None:
        assert self._process is not None
        self._process.stdin.write(f"{epoch}\n")
        self._process.stdin.flush()

    def _read(self) -> str:
        assert self._process is not None
        return self._process.stdout.readline().strip()


class Pair:
    """Two nodes on one log."""

    def __init__(self, path: Path, servers: Servers) -> None:
        self.path = path
        self.servers = servers
        self.name = uuid.uuid4().hex[:12]
        self.nodes = {it: NodeProcess(path / it, servers, self.name) for it in "ab"}

    def check_agreement(self) -> None:
        """Stop both, have them read to the end, and compare all that they hold."""
        for node in self.nodes.values():
            node.close()
        site = Site(self.path, connect_to(where(self.servers, self.name)))
        try:
            for name in "ab":
                site.start(name)
            site.agreed_facts("a", "b")
        finally:
            site.close()


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    node = ClusterNode(
        Path(str(settings["data"])),
        listen=[str(settings["address"])],
        shards=1,
        engine=connect_to(settings["log"]),
    )
    tasks: list[asyncio.Task[None]] = []

    def ready() -> None:
        tasks.append(asyncio.get_running_loop().create_task(obey(node)))

    node.run(ready)


async def obey(node: ClusterNode) -> None:
    replica = node.replicas[0]
    await replica.start()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        epoch = int(line)
        try:
            await replica.lead(epoch)
        except Error as error:
            print(f"refused: {error}", flush=True)
        else:
            print(f"leads {epoch}", flush=True)
