from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.engines import Servers, servers_of
from tests.integration.log.sites import EngineSite, LocalSite, Site
from tests.simulation.engine import MemoryEngine, Sequence
from tstreams.cluster.engines.bookkeeper import Bookies
from tstreams.ledger.bookkeeper_link import BookKeeperSettings
from tstreams.ledger.engine import Engine

SHARED = ["memory", "jetstream-1", "jetstream-3", "bookkeeper"]
"""Logs that an engine keeps: in memory, on one server, on three, on three bookies."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
