"""ZooKeeper servers on loopback, or on other hosts of this machine, from the jars that PySpark brings: one alone, or an
ensemble.

For development and tests. What is deployed for real is run by those who run ZooKeeper.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...errors import InvalidState, Unavailable
from ...java import find_java

TICK_MS = 500
"""ZooKeeper's unit of time: how often its servers talk to one another, and a quarter of how fast they miss one."""
SESSION_TIMEOUT_MS_MIN = 400
SESSION_TIMEOUT_MS_MAX = 60_000
STARTING_S = 60.0
_HOST = "127.0.0.1"
_ALONE = "org.apache.zookeeper.server.ZooKeeperServerMain"
_ENSEMBLE = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_NEEDED = ("zookeeper-[0-9]", "zookeeper-jute-", "slf4j-api-", "metrics-core-", "snappy-java-")
_FOR_ITS_LOG = ("log4j-api-", "log4j-core-", "log4j-slf4j2-impl-")
_JAVA_OPTIONS = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # it starts faster, and never works hard here
    "-Dzookeeper.preAllocSize=1024",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dorg.apache.logging.log4j.level=WARN",
)


def find_jars() -> list[Path]:
    """The jars of ZooKeeper and what it needs: of the folder ZOOKEEPER_HOME if it is set, else those of PySpark.
    `Unavailable` if there are none; it says what to install."""
    home = os.environ.get("ZOOKEEPER_HOME")
    if home:
        jars = sorted(
            path for folder in (home, f"{home}/lib") for path in Path(folder).glob("*.jar")
        )
        if not any(jar.name.startswith("zookeeper") for jar in jars):
            raise Unavailable(
                f"ZOOKEEPER_HOME is {home}, and there is no zookeeper*.jar in it or its lib"
            )
        return jars
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise Unavailable(
            "a ZooKeeper to start is taken from the package pyspark, which is not installed: install "
            "tstreams[spark], or set ZOOKEEPER_HOME to an unpacked Apache ZooKeeper"
        )
    folder = Path(spec.origin).parent / "jars"
    found = {name: sorted(folder.glob(f"{name}*.jar")) for name in (*_NEEDED, *_FOR_ITS_LOG)}
    missing = [name for name in _NEEDED if not found[name]]
    if missing:
        raise Unavailable(
            f"{folder} lacks {', '.join(f'{name}*.jar' for name in missing)}, which ZooKeeper needs: another "
            "version of pyspark may have them, or set ZOOKEEPER_HOME to an unpacked Apache ZooKeeper"
        )
    return [jar for jars in found.values() for jar in jars]


class Ports(msgspec.Struct, frozen=True):
    """Where a server of an ensemble listens: for clients, for its peers, and for elections."""

    client: int
    peers: int
    election: int
    host: str = _HOST


def free_ports(number: int) -> list[int]:
    """Ports of loopback that nobody has at this moment, all different."""
    sockets = [socket.create_server((_HOST, 0)) for _ in range(number)]
    try:
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


class ZooKeeperServer:
    """One server, alone or of an ensemble, in a folder of its own. It keeps its port and its data when it is started
    again. `ensemble` are the ports of all servers, itself included; `number` is its place in it, from 1 on. `port` is that
    of a server that is alone; else one is chosen. `way` is what its command begins with, if it lives on another host of this
    machine: a network namespace."""

    def __init__(
        self,
        folder: Path,
        ensemble: Sequence[Ports] = (),
        number: int = 1,
        *,
        tick_ms: int = TICK_MS,
        port: int | None = None,
        way: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.port = ensemble[number - 1].client if ensemble else port or free_ports(1)[0]
        self._host = ensemble[number - 1].host if ensemble else _HOST
        self._way = way
        self._ensemble = ensemble
        self._number = number
        self._tick_ms = tick_ms
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients connect to."""
        return f"{self._host}:{self.port}"

    @property
    def pid(self) -> int:
        """Its process. `InvalidState` if it does not run."""
        if self._process is None:
            raise InvalidState(f"the ZooKeeper in {self.folder} does not run")
        return self._process.pid

    @property
    def log(self) -> Path:
        """What it says: warnings and errors."""
        return self.folder / "server.log"

    def launch(self) -> None:
        """Start it, without waiting. `Unavailable` if there is no Java, or no ZooKeeper."""
        if self._process is not None:
            raise InvalidState(f"the ZooKeeper in {self.folder} runs already")
        java, jars = find_java("ZooKeeper"), find_jars()
        config = self._write_config()
        main = _ENSEMBLE if self._ensemble else _ALONE
        class_path = os.pathsep.join(str(jar) for jar in jars)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._way, java, *_JAVA_OPTIONS, "-cp", class_path, main, config],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for whoever started it, who ends it then
            )

    def wait(self, timeout_s: float = STARTING_S) -> None:
        """Wait until it serves. `Unavailable` if it ended instead, with what it said last, or does not in time; it
        is ended then."""
        deadline = time.monotonic() + timeout_s
        while self.mode() is None:
            assert self._process is not None
            code = self._process.poll()
            if code is not None:
                self._process = None
                raise Unavailable(f"ZooKeeper ended with {code}: {self._last_words()}")
            if time.monotonic() > deadline:
                self.kill()
                raise Unavailable(
                    f"ZooKeeper does not serve after {timeout_s:g} s: {self._last_words()}"
                )
            time.sleep(0.05)

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self.launch()
        self.wait()

    def mode(self) -> str | None:
        """What it is: `standalone`, `leader` or `follower`. None: it does not serve, or has no majority."""
        try:
            with socket.create_connection((self._host, self.port), timeout=2.0) as link:
                link.sendall(b"srvr")
                said = b""
                while chunk := link.recv(4096):
                    said += chunk
        except OSError:
            return None
        for line in said.decode(errors="replace").splitlines():
            name, _, value = line.partition(": ")
            if name == "Mode":
                return value.strip()
        return None

    def stop(self) -> None:
        """End it, and wait until it has ended. One that does not run is no error."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def remove_data(self) -> None:
        """Lose all that it knew. Only while it does not run."""
        if self._process is not None:
            raise InvalidState(f"the ZooKeeper in {self.folder} runs")
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        if how is not signal.SIGKILL:
            process.send_signal(signal.SIGCONT)  # one that is stopped would not hear it
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _write_config(self) -> Path:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        lines = [
            f"tickTime={self._tick_ms}",
            "initLimit=20",
            "syncLimit=4",
            f"dataDir={data}",
            f"clientPort={self.port}",
            f"clientPortAddress={self._host}",
            f"minSessionTimeout={SESSION_TIMEOUT_MS_MIN}",
            f"maxSessionTimeout={SESSION_TIMEOUT_MS_MAX}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
        ]
        for number, ports in enumerate(self._ensemble, 1):
            lines.append(f"server.{number}={ports.host}:{ports.peers}:{ports.election}")
        if self._ensemble:
            (data / "myid").write_text(f"{self._number}\n")
        config = self.folder / "zoo.cfg"
        config.write_text("\n".join(lines) + "\n")
        return config

    def _last_words(self) -> str:
        lines = (line.strip() for line in self.log.read_text(errors="replace").splitlines())
        said = [line for line in lines if line and not line.startswith("at ")]
        return "; ".join(said[-3:]) or "it said nothing"


class ZooKeeperEnsemble:
    """Several servers that elect a leader among them and go on while a majority is there."""

    def __init__(self, folder: Path, size: int = 3, *, tick_ms: int = TICK_MS) -> None:
        numbers = free_ports(3 * size)
        ports = [Ports(*it) for it in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)]
        self.servers = [
            ZooKeeperServer(folder / str(number), ports, number, tick_ms=tick_ms)
            for number in range(1, size + 1)
        ]

    @property
    def hosts(self) -> str:
        """Where clients connect to."""
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Start all of them, and wait until all serve. If one does not, none is left."""
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait()
        except BaseException:
            self.stop()
            raise

    def leader(self) -> ZooKeeperServer | None:
        """The one that leads; None if there is none at this moment."""
        return next((server for server in self.servers if server.mode() == "leader"), None)

    def stop(self) -> None:
        """End all of them."""
        for server in self.servers:
            server.stop()
