"""Nodes on one log, all on one loop in a thread: the test says who leads."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from tests.integration.engines import Servers
from tests.simulation.engine import MemoryEngine, Sequence
from tstreams.cluster.engines.bookkeeper import Bookies
from tstreams.config import Config
from tstreams.errors import Unavailable
from tstreams.index import Store
from tstreams.ledger.engine import Engine
from tstreams.ledger.local import LEDGER_BYTES
from tstreams.protocol import AnyReply
from tstreams.server.cluster_node import ClusterNode
from tstreams.server.kin import Caller, KinMessage
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


def where(servers: Servers, name: str) -> dict[str, Any]:
    """How to find a log on these servers: can be told to another process."""
    if isinstance(servers, Bookies):
        return {"zookeeper": servers.hosts, "name": name}
    return {
        "urls": servers.urls,
        "monitors": servers.monitors,
        "name": name,
        "replicas": len(servers.all),
    }


def connect_to(place: dict[str, Any]) -> Connect:
    """A log on servers."""
    return _on_bookkeeper(**place) if "zookeeper" in place else _on_jetstream(**place)


def _on_jetstream(urls: list[str], monitors: list[str], name: str, replicas: int) -> Connect:
    from tstreams.ledger.jetstream import JetStreamEngine
    from tstreams.ledger.nats_link import NatsLink

    async def connect(number: int) -> Engine:
        link = await NatsLink.connect(urls, monitors=monitors)
        engine = await JetStreamEngine.open(link, f"{name}-{number}", replicas=replicas)
        engine.close = link.close  # type: ignore[method-assign]
        return engine

    return connect


def _on_bookkeeper(zookeeper: str, name: str) -> Connect:
    from tstreams.ledger.bookkeeper import BookKeeperEngine
    from tstreams.ledger.bookkeeper_link import BookKeeperLink, BookKeeperSettings

    async def connect(number: int) -> Engine:
        link = await BookKeeperLink.connect(BookKeeperSettings(zookeeper))
        engine = await BookKeeperEngine.open(link, f"{name}-{number}")
        close_engine = engine.close

        async def close() -> None:
            await close_engine()
            await link.close()

        engine.close = close  # type: ignore[method-assign]
        return engine

    return connect


def on_servers(servers: Servers) -> Connect:
    """A log of its own on these servers."""
    return connect_to(where(servers, uuid.uuid4().hex[:12]))


class SiteKin:
    """The way from a shard to those that other nodes of this process lead, or believe to."""

    def __init__(self, nodes: Mapping[str, ClusterNode]) -> None:
        self._nodes = nodes
        self.asked: list[tuple[str, KinMessage]] = []

    async def ask(self, shard: int, message: KinMessage) -> AnyReply:
        """The answer of the first of them."""
        for name, node in self._nodes.items():
            replica = node.replicas.get(shard)
            if replica is not None and replica.leading:
                self.asked.append((name, message))
                caller = Caller()
                replica.shard.kinship.from_kin(caller, message)
                return await caller.wait()
        raise Unavailable(f"nobody leads shard {shard}")


class Site:
    """Nodes that share the logs that `connect` connects to."""

    def __init__(
        self, path: Path, connect: Connect, clock: Clock = system_clock, shards: int = 1
    ) -> None:
        self.path = path
        self.shards = shards
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
        """A node that follows all shards."""
        node = ClusterNode(
            Config(data=self.path / name, ledger_bytes=ledger_bytes),
            listen=[listen],
            shards=self.shards,
            engine=self.connect,
            clock=self.clock,
            storage=storage,
            snapshot_bytes_min=snapshot_bytes_min,
            kin=SiteKin(self.nodes),
        )

        async def start() -> None:
            await node.start()
            for replica in node.replicas.values():
                await replica.start()

        self.nodes[name] = node
        self.run(start())
        return node.replicas[0]

    def lead(self, name: str, epoch: int | None = None, shard: int = 0) -> None:
        replica = self.nodes[name].replicas[shard]

        async def lead() -> None:
            known = [it.replicas[shard].shared.log.epoch for it in self.nodes.values()]
            await replica.lead(max(known) + 1 if epoch is None else epoch)

        self.run(lead())

    def stop(self, name: str) -> None:
        self.run(self.nodes.pop(name).stop())

    def caught_up(self, *names: str) -> None:
        """Wait until these nodes have all that the log has."""

        async def wait() -> None:
            for number in range(self.shards):
                shards = [self.nodes[name].replicas[number].shard for name in names]
                while len({shard.index.applied for shard in shards}) > 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        self.run(wait())

    def agreed_facts(self, *names: str) -> list[list[tuple[bytes, bytes]]]:
        """Wait until these nodes have the same of each log, and see that they hold the same facts then; which, for each
        shard. All are looked at in one turn of the loop: a leader may write something at any other time."""

        async def look(number: int) -> list[list[tuple[bytes, bytes]]]:
            shards = [self.nodes[name].replicas[number].shard for name in names]
            while len({shard.index.applied for shard in shards}) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return [list(shard.index.store.scan(b"")) for shard in shards]

        agreed = []
        for number in range(self.shards):
            first, *others = self.run(look(number))
            for name, other in zip(names[1:], others, strict=True):
                assert other == first, f"{name} and {names[0]} differ in shard {number}"
            agreed.append(first)
        return agreed

    def facts(self, name: str, shard: int = 0) -> list[tuple[bytes, bytes]]:
        """All keys and values of a shard's index on a node, also if it runs."""
        if name in self.nodes:
            store = self.nodes[name].replicas[shard].shard.index.store
            return self.call(lambda: list(store.scan(b"")))
        store = Store(self.path / name / f"shard-{shard}" / "index", read_only=True)
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
