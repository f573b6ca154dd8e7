"""A server with a clock of its own, over tcp and embedded, and clients of it, of both faces.

What is done with several shards must not be seen from outside. So some modules run over a server of three shards,
too; all of them do with `--shards 3`, and then each shard has a process of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import moebius
from tstreams import Client
from tstreams.config import Config
from tstreams.protocol import Measure, Measured, decode_reply, encode
from tstreams.server import Node
from tstreams.server.sharded_node import ShardedNode

from .faces import FACES, Face
from .shard_child import set_clock

Connect = Callable[..., Client]

BLOCKING_ONLY = pytest.mark.parametrize("face", ["sync"], indirect=True)
"""For what only the blocking face has: threads that may not wait, futures that cannot be cancelled."""

ONE_SHARD = pytest.mark.one_shard
"""For what is different with several shards: loops commit each shard on its own, and if a checkpoint that spans shards is
refused, what the others had prepared is dropped."""

_names = itertools.count()

SHARDS = 3
OVER_SHARDS = (
    "test_fencing",
    "test_group",
    "test_group_members",
    "test_jobs",
    "test_offsets",
    "test_process",
    "test_streams",
)
"""The modules that always run over several shards, too."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the servers that a test runs over."""
    if "node" not in metafunc.fixturenames or hasattr(metafunc.module, "node"):
        return
    if metafunc.config.getoption("shards") is not None:
        servers = ["processes"]
    elif metafunc.module.__name__.rpartition(".")[2] in OVER_SHARDS:
        servers = ["tcp", "inproc", "shards"]
    else:
        servers = ["tcp", "inproc"]
    if metafunc.definition.get_closest_marker("over_tcp"):
        servers = [it for it in servers if it != "inproc"]
    if metafunc.definition.get_closest_marker("one_shard"):
        servers = [it for it in servers if it not in ("shards", "processes")] or ["tcp"]
    metafunc.parametrize("node", servers, indirect=True)


@pytest.fixture
def shards(request: pytest.FixtureRequest) -> int:
    """How many shards a server has that is started as a process of its own."""
    return request.config.getoption("shards") or 1


class Clock:
    """The server's clock: the real one, until a test moves it."""

    def __init__(self, shared: Path | None = None) -> None:
        """`shared`: a file by which other processes know of it."""
        self.ahead_ms = 0
        self.shared = shared
        if shared is not None:
            set_clock(shared, 0)

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def advance(self, seconds: float) -> None:
        self.ahead_ms += int(seconds * 1000)
        if self.shared is not None:
            set_clock(self.shared, self.ahead_ms)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock")


@pytest.fixture(params=list(FACES))
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    """The client for threads, and the one for asyncio made to look like it."""
    with contextlib.closing(FACES[request.param]()) as face:
        yield face


@pytest.fixture
def node(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Node]:
    """A running server, reached as `connect` or as `embedded` reaches it; or one of several shards, in one process or in
    one for each."""
    if request.param == "processes":
        assert clock.shared is not None
        child = [sys.executable, "-m", "tests.integration.tstreams.shard_child", str(clock.shared)]
        config = Config(data=tmp_path / "data", shards=request.config.getoption("shards"))
        with ShardedNode(config, ["tcp://127.0.0.1:0"], command=child).in_thread() as node:
            yield node
        return
    address = f"inproc://test-{next(_names)}" if request.param == "inproc" else "tcp://127.0.0.1:0"
    shards = SHARDS if request.param == "shards" else 1
    node = Node(tmp_path / "data", listen=[address], clock=clock, shards=shards)
    with node.in_thread():
        yield node


@pytest.fixture
def connect(node: Node, face: Face) -> Iterator[Connect]:
    """Make clients of the server; they are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> Client:
            return stack.enter_context(face.connect(node.addresses[0], **options))

        yield make


@pytest.fixture
def ts(connect: Connect) -> Client:
    """A client."""
    return connect()


@pytest.fixture
def clicks(ts: Client) -> str:
    """A stream of four partitions."""
    return ts.create_stream("clicks", partitions=4).name


def measured(node: Node) -> Measured:
    """What a server has measured, all its processes together."""
    with moebius.connect(node.addresses[0]) as wire:
        found = decode_reply(wire.call("Measure", encode(Measure())))
    assert isinstance(found, Measured)
    return found


def eventually(condition: Callable[..., Any], timeout_s: float = 20.0) -> Any:
    """Wait until the condition is true; fail if it never is."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.01)
    pytest.fail(f"not true within {timeout_s} s: {condition}")
