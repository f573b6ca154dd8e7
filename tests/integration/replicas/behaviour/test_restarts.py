"""What `tests.integration.tstreams.test_restarts` says of a single server holds over an engine's log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.replicas.processes import NodeProcess
from tests.integration.tstreams.test_restarts import *  # noqa: F403
from tstreams.cluster.engines.nats import NatsServers

pytestmark = pytest.mark.slow


@pytest.fixture(name="server")
def server_on_an_engine(tmp_path: Path, one_server: NatsServers) -> Iterator[NodeProcess]:
    server = NodeProcess(tmp_path / "data", one_server, led=True)
    server.start()
    yield server
    server.close()
