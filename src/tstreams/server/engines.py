"""The engines that can keep the logs of a cluster, by name: one table, and what each needs to be told.

What is told is part of the cluster's identity (`Cluster.engine_settings`), so that all nodes use the same servers in the
same way. An engine is added by an entry in `ENGINES`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol
from urllib.parse import urlsplit

from ..cluster.coordination import Cluster, Setting
from ..cluster_settings import zookeeper_problems
from ..errors import BadRequest
from ..ledger.engine import Engine, EngineUnavailable

NATS_PORT = 4222
NATS_MONITOR_PORT = 8222
"""Where NATS servers tell of themselves, if nothing else is said."""
LOG_REPLICAS_MAX = 5
"""On how many servers JetStream keeps a stream at most."""


@dataclass(frozen=True, slots=True)
class EngineServer:
    """A server that the logs stand on, as it was found a moment ago. `problem` is empty if it is well."""

    address: str
    name: str
    version: str
    problem: str


class Logs(Protocol):
    """The logs of all shards of a cluster, as one process uses them."""

    async def check(self) -> None:
        """Connect, and see whether the servers can be used as they are. `EngineUnavailable`, `EngineUnfit`."""

    async def open(self, shard: int) -> Engine:
        """Connect to the log of a shard, which is made if it is not there. `EngineUnavailable` if nobody answers,
        `EngineUnfit` if the servers cannot be used as they are."""

    async def servers(self) -> list[EngineServer]:
        """How the servers are. Those that do not answer are among them, with the problem."""

    async def close(self) -> None:
        """Give everything back."""


@dataclass(frozen=True, slots=True)
class EngineKind:
    """What can keep logs."""

    check: Callable[[Mapping[str, Setting]], dict[str, Setting]]
    """The settings of a new cluster, complete; `BadRequest` if they make no sense."""
    logs: Callable[[Cluster], Logs]
    """The logs of a cluster. Connects to nothing yet."""
    package: str
    """The module it cannot do without."""
    install: str
    """What brings it."""


MAKING_MAX = 4
"""Logs that are made side by side: JetStream has an election for each."""


MAKING_S = 30.0
"""How long the engine may give no answer: servers of JetStream that have just started elect leaders for five to eight
seconds."""
MAKING_PAUSE_S = 0.2


async def make_logs(logs: Logs, shards: int, told: Callable[[int], None]) -> None:
    """Make the logs of all shards, if they are not there. `told` hears how many there are by now. What the engine
    refuses is raised, and if it does not answer for long; what was made stays, and making it again goes on."""
    turns, made = asyncio.Semaphore(MAKING_MAX), 0

    async def open_soon(shard: int) -> Engine:
        deadline = asyncio.get_running_loop().time() + MAKING_S
        while True:
            try:
                return await logs.open(shard)
            except EngineUnavailable:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(MAKING_PAUSE_S)

    async def make(shard: int) -> None:
        nonlocal made
        async with turns:
            engine = await open_soon(shard)
        await engine.close()
        made += 1
        told(made)

    try:
        async with asyncio.TaskGroup() as group:
            for shard in range(shards):
                group.create_task(make(shard))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def engine_kind(name: str) -> EngineKind:
    """An engine by its name. `BadRequest` if there is none, or what it needs is not installed."""
    kind = ENGINES.get(name)
    if kind is None:
        raise BadRequest(f"nothing called {name!r} keeps logs: there are {', '.join(ENGINES)}")
    if find_spec(kind.package) is None:
        raise BadRequest(
            f"logs on {name} need the package {kind.package}: pip install '{kind.install}'"
        )
    return kind


def logs_name(cluster: Cluster) -> str:
    """What the logs of a cluster are called in an engine, before the number of a shard. A cluster that is made anew under
    an old name has other logs."""
    return f"{cluster.name.replace('.', '_')}-{cluster.id[:8]}"


# NATS JetStream.


def check_jetstream(given: Mapping[str, Setting]) -> dict[str, Setting]:
    """`servers`: nats://host:port, with commas; `monitors`: where they tell of themselves; `replicas`: on how many a log
    is kept; `unsynced`: whether servers are tolerated that acknowledge what is not on their disks."""
    unknown = given.keys() - {"servers", "monitors", "replicas", "unsynced"}
    if unknown:
        raise BadRequest(f"JetStream has no setting {', '.join(sorted(unknown))}")
    servers = [_nats_url(it) for it in str(given.get("servers", "")).split(",") if it]
    if not servers:
        raise BadRequest("JetStream needs its servers: nats://a:4222,nats://b:4222,nats://c:4222")
    monitors = [it for it in str(given.get("monitors", "")).split(",") if it]
    if not monitors:
        monitors = [f"http://{urlsplit(it).hostname}:{NATS_MONITOR_PORT}" for it in servers]
    for monitor in monitors:
        if urlsplit(monitor).scheme not in ("http", "https") or not urlsplit(monitor).hostname:
            raise BadRequest(
                f"{monitor!r} is not where a NATS server tells of itself: http://a:8222"
            )
    replicas = int(given.get("replicas") or min(3, len(servers)))
    if not 1 <= replicas <= LOG_REPLICAS_MAX or replicas % 2 == 0:
        raise BadRequest(f"JetStream keeps a log on 1, 3 or 5 servers, not on {replicas}")
    return {
        "servers": ",".join(servers),
        "monitors": ",".join(monitors),
        "replicas": replicas,
        "unsynced": bool(given.get("unsynced", False)),
    }


def _nats_url(text: str) -> str:
    url = urlsplit(text if "://" in text else f"nats://{text}")
    try:
        port = url.port or NATS_PORT
    except ValueError:
        port = 0
    if url.scheme not in ("nats", "tls") or not url.hostname or not port or url.path.strip("/"):
        raise BadRequest(f"{text!r} is not the address of a NATS server: nats://host:4222")
    if url.username:
        raise BadRequest(
            f"{url.hostname}: a password would be kept in ZooKeeper, where all can read it: let the network keep "
            "strangers off the NATS servers"
        )
    return f"{url.scheme}://{url.hostname}:{port}"


def _jetstream_logs(cluster: Cluster) -> Logs:
    from .jetstream_logs import JetStreamLogs  # needs the package

    return JetStreamLogs(cluster)


# Apache BookKeeper.


def check_bookkeeper(given: Mapping[str, Setting]) -> dict[str, Setting]:
    """`zookeeper`: where BookKeeper is known; `ledgers`, `lists`: where in it; `replicas`: on how many bookies a log is kept."""
    from ..ledger.bookkeeper_link import BookKeeperSettings  # needs the package

    unknown = given.keys() - {"zookeeper", "ledgers", "lists", "replicas"}
    if unknown:
        raise BadRequest(f"BookKeeper has no setting {', '.join(sorted(unknown))}")
    zookeeper = str(given.get("zookeeper", ""))
    if problems := zookeeper_problems(zookeeper):
        raise BadRequest(f"the ZooKeeper of BookKeeper {problems[0]}")
    replicas = int(given.get("replicas") or 3)
    checked = BookKeeperSettings(
        zookeeper,
        str(given.get("ledgers") or BookKeeperSettings.ledgers),
        str(given.get("lists") or BookKeeperSettings.lists),
        replicas,
        replicas,
        replicas // 2 + 1,
    )
    return {
        "zookeeper": checked.zookeeper,
        "ledgers": checked.ledgers,
        "lists": checked.lists,
        "replicas": replicas,
    }


def _bookkeeper_logs(cluster: Cluster) -> Logs:
    from .bookkeeper_logs import ClusterBookKeeperLogs  # needs the package

    return ClusterBookKeeperLogs(cluster)


ENGINES: dict[str, EngineKind] = {
    "jetstream": EngineKind(check_jetstream, _jetstream_logs, "nats", "tstreams[cluster]"),
    "bookkeeper": EngineKind(check_bookkeeper, _bookkeeper_logs, "jpype", "tstreams[bookkeeper]"),
}
