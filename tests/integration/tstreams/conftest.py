"""A server with a clock of its own, over tcp and embedded, and clients of it, of both faces.

What is done with several shards must not be seen from outside. So some modules run over a server of three shards,
too; all of them do with `--shards 3`, and then each shard has a process of its own.

Nor may it be seen that a server is three. `--cluster jetstream` has all of them run over a cluster of three nodes, whose
logs are on three servers of NATS; `--cluster bookkeeper` on three bookies; `--cluster memory` in this process.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import moebius
from tests.integration.engines import servers_of
from tstreams import Client
from tstreams.cluster.engines.bookkeeper import Bookies
from tstreams.config import Config
from tstreams.protocol import Measure, Measured, decode_reply, encode
from tstreams.server import Node
from tstreams.server.sharded_node import ShardedNode

from . import three_nodes
from .clusters import Clusters
from .faces import FACES, Face
from .servers import ServerProcess, free_addresses, server_of
from .shard_child import set_clock
from .three_nodes import NODES, SHARDS, Ground, ThreeNodes

Connect = Callable[..., Client]

BLOCKING_ONLY = pytest.mark.parametrize("face", ["sync"], indirect=True)
"""For what only the blocking face has: threads that may not wait, futures that cannot be cancelled."""

ONE_SHARD = pytest.mark.one_shard
"""For what is different with several shards: loops commit each shard on its own, and if a checkpoint that spans shards is
refused, what the others had prepared is dropped."""

ONE_NODE = pytest.mark.one_node
"""For what counts the requests of a client on its one connection; over a cluster it has several. Nothing else is left out
of what runs over a cluster, but tests that start a server of their own."""

CLUSTER_TIMEOUT_S = 600
"""For a test over a cluster: each request is three syncs and more, and some make ten thousand, one after the other."""

_names = itertools.count()

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


OVER_CLUSTER = (
    "test_fencing",
    "test_group",
    "test_offsets",
    "test_process",
    "test_subscriber",
    "test_transactions",
)
"""The modules that always run over a cluster on JetStream, too; so do tests marked `core`."""

FOLDER = Path(__file__).parent
CLUSTERS = ("jetstream", "bookkeeper", "memory")
"""Where the logs of three nodes are."""
KEPT = ("jetstream", "bookkeeper")
"""Those that are still there when the process of the nodes has ended."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the servers that a test runs over."""
    cluster = metafunc.config.getoption("cluster")
    is_core = metafunc.definition.get_closest_marker("core") is not None
    in_processes = metafunc.config.getoption("shards") is not None
    if "server" in metafunc.fixturenames:
        servers = ["local", "jetstream"] if is_core and not in_processes else ["local"]
        metafunc.parametrize("server", servers if cluster is None else [cluster], indirect=True)
    if "node" not in metafunc.fixturenames or hasattr(metafunc.module, "node"):
        return
    module = metafunc.module.__name__.rpartition(".")[2]
    if cluster is not None and metafunc.definition.get_closest_marker("one_node") is None:
        servers = [cluster]
    elif module == "test_shards":
        servers = ["shards"]
    elif in_processes:
        servers = ["processes"]
    elif module in OVER_SHARDS:
        servers = ["tcp", "inproc", "shards"]
    else:
        servers = ["tcp", "inproc"]
    if cluster is None and not in_processes and (module in OVER_CLUSTER or is_core):
        servers.append("jetstream")
    if metafunc.definition.get_closest_marker("over_tcp"):
        servers = [it for it in servers if it != "inproc"]
    if metafunc.definition.get_closest_marker("one_shard"):
        servers = [it for it in servers if it not in ("shards", "processes")] or ["tcp"]
    metafunc.parametrize("node", servers, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Over a cluster, only what can be: tests that start a server of their own say nothing about it."""
    for item in items:
        if FOLDER in item.path.parents and _runs_over_a_cluster(item):
            item.add_marker(pytest.mark.timeout(CLUSTER_TIMEOUT_S))
    if config.getoption("cluster") is None:
        return
    left_out = {it for it in items if FOLDER in it.path.parents and not _runs_over_a_cluster(it)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [it for it in items if it not in left_out]


def _runs_over_a_cluster(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    chosen = {} if parameters is None else parameters.params
    return chosen.get("node") in CLUSTERS or chosen.get("server") in KEPT


@pytest.fixture
def shards(request: pytest.FixtureRequest) -> int:
    """How many shards a server has that is started as a process of its own."""
    if request.node.get_closest_marker("one_shard") is not None:
        return 1
    if _runs_over_a_cluster(request.node):
        return SHARDS
    return request.config.getoption("shards") or 1


@pytest.fixture(scope="session")
def started_clusters() -> Iterator[dict[tuple[str, int], Clusters]]:
    """Those that were made by now, by what keeps their logs, and how many shards they have."""
    found: dict[tuple[str, int], Clusters] = {}
    yield found
    for clusters in found.values():
        clusters.close()


def clusters_on(engine: str, request: pytest.FixtureRequest) -> Clusters:
    """Clusters whose logs this keeps. Its servers are started once in a test process. What is different over several
    shards has a cluster of one."""
    shards = 1 if request.node.get_closest_marker("one_shard") else SHARDS
    kind = "jetstream-3" if engine == "jetstream" else engine
    servers = servers_of(kind, request)
    made: dict[tuple[str, int], Clusters] = request.getfixturevalue("started_clusters")
    if (engine, shards) not in made:
        if isinstance(servers, Bookies):  # they have a ZooKeeper already
            hosts = servers.hosts
        else:
            hosts = request.getfixturevalue("zookeeper").address
        folder = request.getfixturevalue("tmp_path_factory").mktemp(f"on-{engine}")
        made[engine, shards] = Clusters(Ground.of(servers, hosts), folder, shards)
    return made[engine, shards]


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path, shards: int) -> Iterator[ServerProcess]:
    """A server in a process of its own; or a cluster: three nodes in one, which stop, die and come back together."""
    with contextlib.ExitStack() as stack:
        if request.param == "local":
            server = server_of(tmp_path / "data", shards)
        else:
            clusters = clusters_on(request.param, request)
            cluster, addresses = clusters.make(), free_addresses(NODES)
            stack.callback(clusters.remove, cluster)
            told = three_nodes.arguments_of(clusters.ground, cluster, tmp_path, addresses)
            server = ServerProcess(three_nodes.PROGRAM, told, ",".join(addresses))
        stack.callback(server.close)
        server.start()
        yield server


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
def node(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> Iterator[Node | ThreeNodes]:
    """A running server, reached as `connect` or as `embedded` reaches it; or one of several shards, in one process or in
    one for each; or a cluster."""
    if request.param == "processes":
        assert clock.shared is not None
        child = [sys.executable, "-m", "tests.integration.tstreams.shard_child", str(clock.shared)]
        config = Config(data=tmp_path / "data", shards=request.config.getoption("shards"))
        with ShardedNode(config, ["tcp://127.0.0.1:0"], command=child).in_thread() as node:
            yield node
        return
    if request.param in CLUSTERS:
        clusters = clusters_on(request.param, request)
        try:
            fresh = request.node.get_closest_marker("fresh") is not None
            yield clusters.take(clock, fresh=fresh)
        finally:
            clusters.give_back(reuse=clock.ahead_ms == 0)
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
    """What a server has measured, all its processes or nodes together."""
    found = [_measured_at(address) for address in node.addresses]
    if len(found) == 1:
        return found[0]
    counters, gauges = Counter[str](), Counter[str]()
    for it in found:
        counters.update(it.counters)
        gauges.update(it.gauges)
    return msgspec.structs.replace(found[0], counters=dict(counters), gauges=dict(gauges))


def _measured_at(address: str) -> Measured:
    with moebius.connect(address) as wire:
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
