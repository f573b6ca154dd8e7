"""A ZooKeeper for the tests of the cluster, one machine beside it, and somebody who writes down every epoch."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tstreams.cluster import Coordination, Node
from tstreams.cluster.engines.zookeeper import ZooKeeperServer

from .opening import Opener, SingleOpener, ZooKeeperOpener
from .witness import Witness

_numbers = itertools.count()


@pytest.fixture(params=[True], ids=["uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The loop that servers run on."""
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def nodes(zookeeper: ZooKeeperServer) -> AsyncIterator[ZooKeeperOpener]:
    """Nodes of a cluster of its own."""
    opener = ZooKeeperOpener(zookeeper.address, f"c{os.getpid()}-{next(_numbers)}")
    yield opener
    await opener.close()


@pytest.fixture(params=["single", "zookeeper"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    """A cluster that does not exist yet, of either kind."""
    opener: Opener
    if request.param == "single":
        opener = SingleOpener(tmp_path / "data")
    else:
        server: ZooKeeperServer = request.getfixturevalue("zookeeper")
        opener = ZooKeeperOpener(server.address, f"c{os.getpid()}-{next(_numbers)}")
    yield opener
    await opener.close()


@pytest.fixture
async def one(either: Opener) -> Coordination:
    """A node of a cluster with four shards, of either kind."""
    await either.create(shards=4)
    return await either.open(Node(id="n1", addresses=("tcp://127.0.0.1:7070",)))


@pytest.fixture
def witness(nodes: ZooKeeperOpener) -> Iterator[Witness]:
    """Sees every epoch and every leader of shard 0, without our own code; checks them at the end."""
    witness = Witness(nodes.settings.hosts, nodes.settings.cluster)
    yield witness
    witness.close()
    witness.check()


async def eventually(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Wait until the condition is true; fail if it never is."""
    deadline = anyio.current_time() + timeout_s
    while anyio.current_time() < deadline:
        if result := condition():
            return result
        await anyio.sleep(0.01)
    pytest.fail(f"not true within {timeout_s} s: {condition}")
