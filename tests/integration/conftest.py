"""The servers that clusters stand on. Each is started once in a test process, when the first test wants it.

They are here, and nowhere imported: a fixture that is imported by another conftest.py is another fixture, with
servers of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.engines import need_bookkeeper, need_nats, need_zookeeper
from tstreams.cluster.engines.bookkeeper import Bookies
from tstreams.cluster.engines.nats import NatsServers
from tstreams.cluster.engines.zookeeper import ZooKeeperServer


@pytest.fixture(scope="session")
def can_start_zookeeper() -> None:
    """Skips the test, with the reason, if no ZooKeeper can be started here."""
    need_zookeeper()


@pytest.fixture(scope="session")
def one_zookeeper(
    can_start_zookeeper: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperServer]:
    """The server that all tests share."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def zookeeper(one_zookeeper: ZooKeeperServer) -> ZooKeeperServer:
    """A server that runs. Tests may do to it what they like."""
    if one_zookeeper.mode() is None:
        one_zookeeper.kill()
        one_zookeeper.start()
    return one_zookeeper


@pytest.fixture(scope="session")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    """One server of NATS."""
    need_nats()
    with NatsServers(tmp_path_factory.mktemp("nats-1"), 1) as servers:
        yield servers
        servers.kill()  # nobody needs what they have


@pytest.fixture(scope="session")
def three_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServers]:
    """Three servers of NATS, which are a cluster."""
    need_nats()
    with NatsServers(tmp_path_factory.mktemp("nats-3"), 3) as servers:
        yield servers
        servers.kill()


@pytest.fixture
def servers(three_servers: NatsServers) -> NatsServers:
    """All of the three run, whatever the test before has done to them."""
    three_servers.start()
    return three_servers


@pytest.fixture(scope="session")
def three_bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bookies]:
    """Three bookies, and a ZooKeeper of their own."""
    need_bookkeeper()
    with Bookies(tmp_path_factory.mktemp("bookies")) as found:
        yield found
        found.kill()


@pytest.fixture
def bookies(three_bookies: Bookies) -> Bookies:
    """All of the three run, whatever the test before has done to them."""
    three_bookies.start()
    return three_bookies
