"""What `tests.integration.tstreams.test_restarts` says of a single server holds over an engine's log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.log.conftest import servers_of
from tests.integration.replicas.processes import NodeProcess
from tests.integration.tstreams.test_restarts import *  # noqa: F403

pytestmark = pytest.mark.slow


@pytest.fixture(name="server", params=["jetstream-1", "bookkeeper"])
def server_on_an_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NodeProcess]:
    found = servers_of(request.param, request)
    assert found is not None
    server = NodeProcess(tmp_path / "data", found, led=True)
    server.start()
    yield server
    server.close()
