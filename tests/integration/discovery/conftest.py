"""One server for all tests here that do not care what else is on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tstreams

from .doors import Door, door


@pytest.fixture(scope="session", params=[1, 3], ids=["1-shard", "3-shards"])
def shared_door(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Door]:
    """Once with everything in one shard, once with streams spread over three."""
    with door(tmp_path_factory.mktemp("door") / "data", "--shards", str(request.param)) as made:
        yield made


@pytest.fixture
def ts(shared_door: Door) -> Iterator[tstreams.Client]:
    with tstreams.connect(shared_door.tcp) as client:
        yield client
