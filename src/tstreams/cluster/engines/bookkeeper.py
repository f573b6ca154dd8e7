"""Bookies of Apache BookKeeper, on loopback or on other hosts of this machine, each a process of its own, on a ZooKeeper
that is there or is started with them.

For development and tests. What is deployed for real is run by those who run BookKeeper.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from ...errors import InvalidState, Unavailable
from ...jars import bookkeeper_jars
from ...java import find_java
from .zookeeper import ZooKeeperServer, free_ports

STARTING_S = 90.0
SESSION_TIMEOUT_MS = 4000
"""How soon a bookie that was killed is missed. One that comes back waits for that too."""
LEDGERS = "/ledgers"
_HOST = "127.0.0.1"
_MAIN = "org.apache.bookkeeper.server.Main"
_LAYOUT = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
_LOG_BYTES_SHOWN = 2000
_JAVA_OPTIONS = (
    "-Xmx192m",
    "-XX:MaxDirectMemorySize=96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # it starts faster, and never works hard here
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",  # or the address of the loopback interface is ::1
    "-Dio.netty.allocator.numHeapArenas=1",
    "-Dio.netty.allocator.numDirectArenas=1",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "-Dlog4j2.level=WARN",
)
_SETTINGS = {
    "allowLoopback": "true",
    "zkTimeout": str(SESSION_TIMEOUT_MS),
    # What is acknowledged is on the disk; nobody waits for others to come along.
    "journalSyncData": "true",
    "journalWriteData": "true",
    "journalFlushWhenQueueEmpty": "true",
    "journalMaxGroupWaitMSec": "1",
    # Little of everything.
    "journalPreAllocSizeMB": "4",
    "journalMaxSizeMB": "64",
    "journalMaxBackups": "1",
    "logSizeLimit": str(64 << 20),
    "entryLogFilePreallocationEnabled": "false",
    "skipListSizeLimit": str(16 << 20),
    "readBufferSizeBytes": "65536",
    "pageLimit": "256",
    "openFileLimit": "200",
    "serverNumIOThreads": "2",
    "numAddWorkerThreads": "0",
    "numReadWorkerThreads": "2",
    "numJournalCallbackThreads": "0",
    "numLongPollWorkerThreads": "1",
    "numHighPriorityWorkerThreads": "1",
    "gcWaitTime": "10000",
    "minorCompactionInterval": "0",
    "majorCompactionInterval": "0",
    "httpServerEnabled": "false",
    "autoRecoveryDaemonEnabled": "false",
    "diskUsageWarnThreshold": "0.98",
    "diskUsageLwmThreshold": "0.98",
    "diskUsageThreshold": "0.99",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A host of this machine: its address, the interface that has it, and what a command begins with to run there."""

    host: str = _HOST
    interface: str = "lo"
    way: tuple[str, ...] = ()


class Bookie:
    """One bookie, over several lives: it keeps its port and its data. Its log is `bookie.log` in its folder. `place` says
    where it lives, if that is not on loopback."""

    def __init__(
        self,
        folder: Path,
        port: int,
        zookeeper: str,
        place: Place | None = None,
        **settings: str,
    ) -> None:
        self.folder = folder
        self.port = port
        self._place = place or Place()
        self._zookeeper = zookeeper
        self.settings = settings
        """More of BookKeeper's settings, from its next life on."""
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_before = 0

    @property
    def id(self) -> str:
        """How BookKeeper calls it."""
        return f"{self._place.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Its process, if it runs."""
        return None if self._process is None else self._process.pid

    def launch(self) -> None:
        """Start it, without waiting. `Unavailable` if there is no Java, or BookKeeper is not installed."""
        if self._process is not None:
            raise InvalidState(f"the bookie in {self.folder} runs already")
        java, jars = find_java("BookKeeper"), bookkeeper_jars().find()
        self._owner_before = _owner(self._zookeeper, self.id)
        config = self._write_config()
        class_path = os.pathsep.join(str(jar) for jar in jars)
        command = [str(java), *_JAVA_OPTIONS, "-cp", class_path, _MAIN]
        with (self.folder / "bookie.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._place.way, *command, "--conf", str(config)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for whoever started it, who ends it then
            )

    def wait(self, timeout_s: float = STARTING_S) -> None:
        """Wait until it serves, and all can see that. `Unavailable` if it ended instead, or does not in time; it is ended
        then."""
        deadline = time.monotonic() + timeout_s
        while not self._serves():
            assert self._process is not None
            code = self._process.poll()
            if code is not None:
                self._process = None
                raise Unavailable(f"a bookie ended with {code}{self._last_words()}")
            if time.monotonic() > deadline:
                self.kill()
                raise Unavailable(
                    f"a bookie does not serve after {timeout_s:g} s{self._last_words()}"
                )
            time.sleep(0.1)

    def _serves(self) -> bool:
        try:
            socket.create_connection((self._place.host, self.port), timeout=2.0).close()
        except OSError:
            return False
        return _owner(self._zookeeper, self.id) not in (0, self._owner_before)

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self.launch()
        self.wait()

    def pause(self) -> None:
        """Let it stand still."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After a pause."""
        self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> None:
        if self._process is None:
            raise InvalidState(f"the bookie in {self.folder} does not run")
        self._process.send_signal(what)

    def stop(self) -> None:
        """End it, and wait until it has ended. One that does not run is no error."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)  # one that is stopped would not hear it
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _write_config(self) -> Path:
        settings = _SETTINGS | {
            "bookiePort": str(self.port),
            "listeningInterface": self._place.interface,
            "advertisedAddress": self._place.host,
            "metadataServiceUri": f"zk+hierarchical://{self._zookeeper.replace(',', ';')}{LEDGERS}",
            "journalDirectories": str(self.folder / "journal"),
            "ledgerDirectories": str(self.folder / "ledgers"),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "bookie.conf"
        lines = [f"{key}={value}\n" for key, value in (settings | self.settings).items()]
        config.write_text("".join(lines))
        return config

    def _last_words(self) -> str:
        data = (self.folder / "bookie.log").read_bytes()[-_LOG_BYTES_SHOWN:]
        text = data.decode(errors="replace").strip()
        return f"; the end of its log:\n{text}" if text else ""


class Bookies:
    """Several bookies, and a ZooKeeper of their own unless there is one. Use it in a `with`: they end with it."""

    def __init__(
        self, folder: Path, count: int = 3, *, zookeeper: str | None = None, **settings: str
    ) -> None:
        self.zookeeper = ZooKeeperServer(folder / "zookeeper") if zookeeper is None else None
        self.hosts = zookeeper or (self.zookeeper.address if self.zookeeper else "")
        self.all = [
            Bookie(folder / f"bookie-{n}", port, self.hosts, None, **settings)
            for n, port in enumerate(free_ports(count))
        ]

    def start(self) -> None:
        """Start all that do not run, and wait until they serve."""
        bookkeeper_jars().find()  # before anything is started
        if self.zookeeper is not None and self.zookeeper.mode() is None:
            self.zookeeper.kill()
            self.zookeeper.start()
        format_bookkeeper(self.hosts)
        launched = [bookie for bookie in self.all if bookie.pid is None]
        for bookie in launched:
            bookie.launch()
        for bookie in launched:
            bookie.wait()

    def kill(self) -> None:
        """End all at once."""
        for bookie in self.all:
            bookie.kill()
        if self.zookeeper is not None:
            self.zookeeper.kill()

    def stop(self) -> None:
        """End all well: at once, and then their ZooKeeper."""
        for bookie in self.all:
            bookie.stop()
        if self.zookeeper is not None:
            self.zookeeper.stop()

    def __enter__(self) -> Bookies:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def format_bookkeeper(zookeeper: str) -> None:
    """What BookKeeper's `initnewcluster` does, without a Java for it. One that is there stays as it is."""
    with _connected(zookeeper) as client:
        client.ensure_path(f"{LEDGERS}/available/readonly")
        for name, data in (("INSTANCEID", str(uuid.uuid4()).encode()), ("LAYOUT", _LAYOUT)):
            try:
                client.create(f"{LEDGERS}/{name}", data)
            except NodeExistsError:
                continue


def _owner(zookeeper: str, bookie: str) -> int:
    """The session in which a bookie says that it is there; 0 if it does not."""
    with _connected(zookeeper) as client:
        for folder in ("available", "available/readonly"):
            stat = client.exists(f"{LEDGERS}/{folder}/{bookie}")
            if stat is not None:
                return int(stat.ephemeralOwner)
    return 0


@contextlib.contextmanager
def _connected(zookeeper: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=zookeeper, timeout=10.0)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
