"""A server of several shards, and raw clients of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.tstreams.conftest import Clock
from tstreams.server import Node

from .raw import SHARDS, Raw

Connect = Callable[[], Raw]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node(tmp_path: Path, clock: Clock) -> Iterator[Node]:
    node = Node(tmp_path / "data", ["tcp://127.0.0.1:0"], clock=clock, shards=SHARDS)
    with node.in_thread():
        yield node


@pytest.fixture
def connect(node: Node) -> Iterator[Connect]:
    with contextlib.ExitStack() as stack:

        def connected() -> Raw:
            return stack.enter_context(contextlib.closing(Raw(node.addresses[0])))

        yield connected


@pytest.fixture
def client(connect: Connect) -> Raw:
    return connect()
