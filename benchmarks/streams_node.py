"""A tstreams server that can be killed and started again, and what it costs the machine."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tstreams

from .servers import ServerProcess, tstreams_server

HOST = "127.0.0.1"
START_WITHIN_S = 300.0
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Restart:
    """How long it took from the start of the process to its first answer."""

    seconds: float
    replayed: int | None
    """Records of the log that the index had not flushed when it was killed, as the server's log says."""


class Node:
    """One server with its data in a folder, over several lives. Use it in a `with`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._life = contextlib.ExitStack()
        self._server: ServerProcess | None = None
        self.fds_max = 0
        self.rss_mib_max = 0.0
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Node:
        self._folder.mkdir()
        self.start()
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watcher.join()
        self._life.close()

    @property
    def url(self) -> str:
        """Where it listens in this life."""
        return f"tcp://{HOST}:{self._running().port}"

    def check(self) -> None:
        """Raise if it has ended."""
        self._running().check()

    def start(self) -> None:
        """Begin a life."""
        self._server = self._life.enter_context(tstreams_server(self._folder, START_WITHIN_S))

    def restart(self, ask: Callable[[tstreams.Client], object]) -> Restart:
        """Kill it as a crash would, start it again, and wait until it has answered something."""
        self._running().kill()
        self._look()
        self._server = None
        self._life.close()
        begun = time.perf_counter()
        self.start()
        with tstreams.connect(self.url) as client:
            ask(client)
            took_s = time.perf_counter() - begun
        found = re.search(r"replayed=(\d+)", self._running().log_text())
        return Restart(took_s, int(found[1]) if found else None)

    def _running(self) -> ServerProcess:
        assert self._server is not None, "the server is not running"
        return self._server

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        """Open files now, and the most memory since the process began (the kernel keeps that)."""
        server = self._server
        if server is None:
            return
        folder = Path(f"/proc/{server.process.pid}")
        try:
            self.fds_max = max(self.fds_max, len(list((folder / "fd").iterdir())))
            status = (folder / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return  # it has just ended
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                self.rss_mib_max = max(self.rss_mib_max, int(line.split()[1]) / 1024)
