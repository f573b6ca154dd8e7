"""The server that is killed: `tstreams serve` as a child process, on one port for its whole lives."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

READY_S_MAX = 60.0


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class KilledServer:
    """Starts, kills and starts again."""

    def __init__(self, data: Path, *flags: str, papers: Path | None = None) -> None:
        """`papers`: where its log goes, if not beside the data."""
        self.data = data
        self.url = f"tcp://127.0.0.1:{free_port()}"
        self.kills = 0
        self.shard_kills = 0
        """How many of them killed the process of one shard only."""
        self.command = [sys.executable, "-m", "tstreams", "serve"]
        self.flags = flags
        self._ready = (papers or data.parent) / "ready"
        self._log = ((papers or data.parent) / "server.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        """Start it; `wait` until it serves."""
        self._ready.unlink(missing_ok=True)
        command = [*self.command, "--data", str(self.data)]
        command += ["--listen", self.url, "--ready-file", str(self._ready)]
        command += ["--http", "off", *self.flags]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until it serves; `RuntimeError` if it ends instead."""
        assert self._process is not None
        until = time.monotonic() + READY_S_MAX
        while not self._ready.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server did not start: {self.log_tail()}")
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL. `RuntimeError` if it had ended by itself."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the server ended by itself: {self.log_tail()}")
        self._process.kill()
        self._process.wait()
        self.kills += 1

    def shard_pids(self) -> list[int]:
        """The processes of its shards, if they have any of their own."""
        return [int(it.name) for it in Path("/proc").glob("[0-9]*") if _parent_of(it) == self.pid]

    def kill_shard(self, rng: random.Random) -> bool:
        """SIGKILL for the process of one shard, which the server starts again; False if there is none."""
        pids = self.shard_pids()
        if not pids:
            return False
        with suppress(ProcessLookupError):
            os.kill(rng.choice(pids), signal.SIGKILL)
        self.kills += 1
        self.shard_kills += 1
        return True

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It hears nothing for a while; then it finds all that was sent meanwhile, also by who gave up."""
        pids = [self.pid, *self.shard_pids()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def close(self) -> None:
        """End it, however it is."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def log_tail(self) -> str:
        """The end of what it had to say."""
        self._log.flush()
        return Path(self._log.name).read_text(errors="replace")[-2000:]


def _parent_of(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


def kill_many(server: KilledServer, kills: int, rng: random.Random) -> None:
    """Kill and start again, at any moment: in full work, right after the start, and while it recovers. Where shards have
    processes, every second time it is one of those."""
    while server.kills < kills:
        time.sleep(rng.uniform(0.1, 1.2))
        if rng.random() < 0.5 and server.kill_shard(rng):
            continue
        server.kill()
        while server.kills < kills and rng.random() < 0.3:  # it hardly got up
            server.start(wait=False)
            time.sleep(rng.uniform(0.0, 0.8))
            server.kill()
        server.start()
