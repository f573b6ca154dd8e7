"""Server processes: start one, wait until it is ready, stop it whatever happens."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from tstreams.cluster.engines.nats import NatsSettings

from .interface import BenchmarkFailed
from .wire import redis_command

HOST = "127.0.0.1"
READY_WITHIN_S = 20.0
STOP_WITHIN_S = 5.0
_LOG_BYTES_MAX = 64 * 1024
ROOT = Path(__file__).resolve().parent.parent


class Server(Protocol):
    """A server that runs."""

    port: int

    def check(self) -> None:
        """Raise if it has ended."""

    def cpu_s(self) -> float:
        """Processor time it has used."""


class ServerProcess:
    """A server in a process of its own, and what it wrote to stderr."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        log: IO[bytes],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.port = 0
        self.url = ""
        """Of its front door, if it has one."""
        self._log = log
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )

    def check(self) -> None:
        """Raise if it has ended."""
        code = self.process.poll()
        if code is not None:
            raise BenchmarkFailed(
                f"server {self.name!r} ended with code {code}{self._last_words()}"
            )

    def cpu_s(self) -> float:
        """Processor time it has used, its threads and system calls included."""
        return cpu_s_of([self.process.pid])

    def read_line(self, within_s: float) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], within_s)
        line = self.process.stdout.readline().decode() if readable else ""
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1 if readable else 0)
            self.check()
            text = f"server {self.name!r} was not ready within {within_s:g} s"
            raise BenchmarkFailed(text + self._last_words())
        return line.strip()

    def log_text(self) -> str:
        """The beginning of what it has written to stderr so far."""
        return os.pread(self._log.fileno(), _LOG_BYTES_MAX, 0).decode(errors="replace")

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        self.process.terminate()
        try:
            self.process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return f"; the end of its log:\n{text[-2000:]}" if text else ""


def cpu_s_of(pids: Sequence[int]) -> float:
    """Processor time that these processes have used; of those that have ended, none."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            total += time.clock_gettime(_cpu_clock_of(pid))
    return total


def family_of(pid: int) -> list[int]:
    """A process and all that have sprung from it, whichever of its threads began them."""
    found = [pid]
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended
            children = (thread / "children").read_text().split()
            found += [it for child in children for it in family_of(int(child))]
    return found


def _cpu_clock_of(pid: int) -> int:
    """What `clock_getcpuclockid` gives. /proc has the same in steps of 10 ms, too coarse for short phases."""
    return (~pid << 3) | 2


@contextlib.contextmanager
def running(
    name: str,
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[ServerProcess]:
    """A process of this command in this folder. It is stopped when the block ends, however it ends."""
    with tempfile.TemporaryFile() as log:
        server = ServerProcess(name, command, folder, log, environment)
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def python_server(name: str) -> Iterator[ServerProcess]:
    """One of `benchmarks.subjects`, ready at its `port`."""
    command = [sys.executable, "-m", "benchmarks.subjects", name]
    with running(name, command, ROOT) as server:
        server.port = int(server.read_line(READY_WITHIN_S))
        yield server


@contextlib.contextmanager
def redis_server(binary: str, data: Mapping[bytes, bytes]) -> Iterator[ServerProcess]:
    """A redis-server that stores nothing on disk and holds `data`."""
    port = free_port()
    command = [binary, "--bind", HOST, "--port", str(port)]
    command += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
    with (
        tempfile.TemporaryDirectory() as folder,
        running("redis", command, Path(folder)) as server,
    ):
        server.port = port
        with connected(server) as connection:
            for key, value in data.items():
                connection.sendall(redis_command(b"SET", key, value))
                answer = connection.recv(100)
                if answer != b"+OK\r\n":
                    raise BenchmarkFailed(f"redis answered SET with {answer!r}")
        yield server


@contextlib.contextmanager
def redis_log_server(binary: str, folder: Path, fsync: bool = True) -> Iterator[ServerProcess]:
    """A redis-server that syncs its append-only file before it answers, or leaves that to the system,
    in `folder`."""
    port = free_port()
    command = [binary, "--bind", HOST, "--port", str(port), "--loglevel", "warning"]
    command += ["--save", "", "--appendonly", "yes"]
    command += ["--appendfsync", "always" if fsync else "no"]
    command += ["--auto-aof-rewrite-percentage", "0", "--daemonize", "no"]
    with running("redis", command, folder) as server:
        server.port = port
        connected(server).close()
        yield server


@contextlib.contextmanager
def nats_server(binary: str, folder: Path, fsync: bool = True) -> Iterator[ServerProcess]:
    """A nats-server with JetStream that syncs every write before it answers, or every two minutes, which is
    its default, in `folder`."""
    settings = NatsSettings("bench", folder, free_port(), sync=fsync)
    command = [binary, "--config", str(settings.write())]
    with running("nats", command, folder) as server:
        server.port = settings.port
        connected(server).close()
        yield server


@contextlib.contextmanager
def bare_log_server(folder: Path) -> Iterator[ServerProcess]:
    """`benchmarks.durable_bare`, appending to a file in `folder`."""
    command = [sys.executable, "-m", "benchmarks.durable_bare", str(folder / "bare.log")]
    with running("bare log", command, ROOT) as server:
        server.port = int(server.read_line(READY_WITHIN_S))
        yield server


@contextlib.contextmanager
def tstreams_server(
    folder: Path,
    ready_within_s: float = READY_WITHIN_S,
    fsync: bool = True,
    http: bool = False,
    shards: int = 1,
) -> Iterator[ServerProcess]:
    """`tstreams serve` with its data in `folder`; `http`: with its front door; with several `shards` each has a process."""
    command = [sys.executable, "-m", "tstreams", "serve", "--data", str(folder / "data")]
    command += ["--listen", f"tcp://{HOST}:0", "--fsync", "always" if fsync else "never"]
    command += ["--http", f"{HOST}:0" if http else "off", "--shards", str(shards)]
    with running("tstreams", command, folder) as server:
        line = ""
        while (found := re.search(r"tcp://[^\s:]+:(\d+)", line)) is None:
            line = server.read_line(ready_within_s)
        server.port = int(found[1])
        front_door = re.search(r"http://[^\s,]+", line)
        server.url = front_door[0] if front_door is not None else ""
        yield server


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many of them, all different."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def connected(server: ServerProcess, within_s: float = READY_WITHIN_S) -> socket.socket:
    """A connection to a server that does not tell when it is ready."""
    deadline = time.monotonic() + within_s
    while True:
        server.check()
        try:
            return socket.create_connection((HOST, server.port), timeout=5)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"server {server.name!r} accepts no connection") from None
            time.sleep(0.02)
