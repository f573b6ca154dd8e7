"""A node in a process of its own, on JetStream: it can be killed, paused, and told to lead."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import uuid
from pathlib import Path

from tests.integration.replicas.sites import on_jetstream
from tests.integration.tstreams.servers import ServerProcess
from tstreams.cluster.coordination import new_cluster
from tstreams.cluster.engines.nats import NatsServers
from tstreams.cluster.single import SingleCoordination, create_cluster
from tstreams.errors import AlreadyExists, Error
from tstreams.server.cluster_node import ClusterNode


class NodeProcess(ServerProcess):
    """Has one shard. If it is `led`, it is a cluster of one node; else it follows until it is told to lead."""

    def __init__(
        self, data: Path, servers: NatsServers, *, name: str | None = None, led: bool = False
    ) -> None:
        super().__init__(data)
        self._settings = {
            "data": str(data),
            "address": self.address,
            "urls": servers.urls,
            "monitors": servers.monitors,
            "name": name or uuid.uuid4().hex[:12],
            "replicas": len(servers.all),
            "led": led,
        }

    def start(self) -> None:
        command = [sys.executable, "-m", __name__, json.dumps(self._settings)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._read() == "ready"

    def lead(self, epoch: int) -> None:
        self.begin_leading(epoch)
        assert self._read() == f"leads {epoch}"

    def begin_leading(self, epoch: int) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{epoch}\n")
        self._process.stdin.flush()

    def _read(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _end(self, number: object) -> int:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return super()._end(number)  # type: ignore[arg-type]


def main(settings: dict[str, object]) -> None:
    data = Path(str(settings["data"]))
    if settings["led"]:
        with contextlib.suppress(AlreadyExists):
            create_cluster(data.parent / "cluster", new_cluster("test", shards=1, replicas=1))
    connect = on_jetstream(
        settings["urls"],  # type: ignore[arg-type]
        settings["monitors"],  # type: ignore[arg-type]
        str(settings["name"]),
        int(str(settings["replicas"])),
    )
    node = ClusterNode(
        data,
        listen=[str(settings["address"])],
        shards=1,
        engine=connect,
        coordinate=(lambda entry: SingleCoordination(data.parent / "cluster", entry))
        if settings["led"]
        else None,
    )
    tasks: list[asyncio.Task[None]] = []

    def ready() -> None:
        tasks.append(asyncio.get_running_loop().create_task(obey(node, bool(settings["led"]))))

    node.run(ready)


async def obey(node: ClusterNode, led: bool) -> None:
    replica = node.replicas[0]
    if led:
        while not replica.shard.leading:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        print("ready", flush=True)
        return
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


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
