"""Nodes on one log, all on one loop in a thread: the test says who leads."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from tests.simulation.engine import MemoryEngine, Sequence
from tstreams.cluster.engines.nats import NatsServers
from tstreams.config import Config
from tstreams.index import Store
from tstreams.ledger.engine import Engine
from tstreams.ledger.local import LEDGER_BYTES
from tstreams.server.cluster_node import ClusterNode
from tstreams.server.replica import Replica
from tstreams.server.shard import Clock, system_clock
from tstreams.server.storage import LocalStorage

T = TypeVar("T")

Connect = Callable[[int], Awaitable[Engine]]


def in_memory(sequence: Sequence | None = None) -> Connect:
    """A log that only nodes of this process see."""
    sequences: dict[int, Sequence] = {} if sequence is None else {0: sequence}

    async def connect(number: int) -> Engine:
        return MemoryEngine(sequences.setdefault(number, Sequence()))

    return connect


def on_jetstream(urls: list[str], monitors: list[str], name: str, replicas: int) -> Connect:
    """A log on JetStream."""
    from tstreams.ledger.jetstream import JetStreamEngine
    from tstreams.ledger.nats_link import NatsLink

    async def connect(number: int) -> Engine:
        link = await NatsLink.connect(urls, monitors=monitors)
        engine = await JetStreamEngine.open(link, f"{name}-{number}", replicas=replicas)
        engine.close = link.close  # type: ignore[method-assign]
        return engine

    return connect


def on_servers(servers: NatsServers) -> Connect:
    """A log of its own on these servers."""
    name = uuid.uuid4().hex[:12]
    return on_jetstream(servers.urls, servers.monitors, name, len(servers.all))


class Site:
    """Nodes that share the logs that `connect` connects to."""

    def __init__(self, path: Path, connect: Connect, clock: Clock = system_clock) -> None:
        self.path = path
        self.connect = connect
        self.clock = clock
        self.nodes: dict[str, ClusterNode] = {}
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this on the loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def call(self, function: Callable[[], T]) -> T:
        """Call this on the loop."""

        async def work() -> T:
            return function()

        return self.run(work())

    def start(
        self,
        name: str,
        *,
        listen: str = "tcp://127.0.0.1:0",
        ledger_bytes: int = LEDGER_BYTES,
        snapshot_bytes_min: int = 1 << 40,
        storage: Callable[[Path, int], LocalStorage] = LocalStorage,
    ) -> Replica:
        """A node that follows shard 0."""
        node = ClusterNode(
            Config(data=self.path / name, ledger_bytes=ledger_bytes),
            listen=[listen],
            shards=1,
            engine=self.connect,
            clock=self.clock,
            storage=storage,
            snapshot_bytes_min=snapshot_bytes_min,
        )

        async def start() -> None:
            await node.start()
            await node.replicas[0].start()

        self.nodes[name] = node
        self.run(start())
        return node.replicas[0]

    def lead(self, name: str, epoch: int | None = None) -> None:
        replica = self.nodes[name].replicas[0]

        async def lead() -> None:
            await replica.lead(replica.shard.log.epoch + 1 if epoch is None else epoch)

        self.run(lead())

    def stop(self, name: str) -> None:
        self.run(self.nodes.pop(name).stop())

    def caught_up(self, *names: str) -> None:
        """Wait until these nodes have all that the log has."""

        async def wait() -> None:
            shards = [self.nodes[name].replicas[0].shard for name in names]
            while len({shard.index.applied for shard in shards}) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        self.run(wait())

    def facts(self, name: str) -> list[tuple[bytes, bytes]]:
        """All keys and values of a node's index, also if it runs."""
        if name in self.nodes:
            store = self.nodes[name].replicas[0].shard.index.store
            return self.call(lambda: list(store.scan(b"")))
        store = Store(self.path / name / "shard-0" / "index", read_only=True)
        try:
            return list(store.scan(b""))
        finally:
            store.close()

    def close(self) -> None:
        for name in list(self.nodes):
            self.stop(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
