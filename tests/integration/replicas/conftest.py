from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engines import servers_of
from tests.integration.replicas.sites import Site, in_memory, on_servers
from tests.integration.tstreams.conftest import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "jetstream-1", "bookkeeper"])
def site(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Site]:
    """Nodes that share a log."""
    found = servers_of(request.param, request)
    site = Site(tmp_path, in_memory() if found is None else on_servers(found), clock)
    yield site
    site.close()
