"""The tests of a single server's behaviour, over a shard whose log an engine keeps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.log.conftest import (
    bookies,
    one_server,
    servers,
    servers_of,
    three_bookies,
    three_servers,
)
from tests.integration.replicas.sites import in_memory, on_servers
from tests.integration.tstreams.conftest import (
    Clock,
    clicks,
    clock,
    connect,
    eventually,
    ts,
)
from tests.integration.tstreams.faces import FACES, Face
from tstreams.cluster.coordination import new_cluster
from tstreams.cluster.single import SingleCoordination, create_cluster
from tstreams.server.cluster_node import ClusterNode

__all__ = [
    "bookies",
    "clicks",
    "clock",
    "connect",
    "one_server",
    "servers",
    "three_bookies",
    "three_servers",
    "ts",
]


@pytest.fixture
def face() -> Iterator[Face]:
    """The client for threads: what clients do is tested elsewhere."""
    with contextlib.closing(FACES["sync"]()) as face:
        yield face


@pytest.fixture
def node(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[ClusterNode]:
    """A cluster of one node and one shard."""
    found = servers_of(request.param, request)
    folder = tmp_path / "cluster"
    create_cluster(folder, new_cluster("test", shards=1, replicas=1, engine="memory"))
    node = ClusterNode(
        tmp_path / "data",
        listen=["tcp://127.0.0.1:0"],
        shards=1,
        engine=in_memory() if found is None else on_servers(found),
        coordinate=lambda entry: SingleCoordination(folder, entry),
        clock=clock,
    )
    with node.in_thread():
        eventually(lambda: node.replicas[0].leading, 60)
        yield node
