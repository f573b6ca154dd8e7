"""The clients: each is a name, and whoever holds it, or believes so. They are killed, stopped, and replaced."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.client import FENCED

TIMEOUTS_S = (1.0, 3.0, 30.0)
"""Some lives give the server little time, so that they often do not know what became of a request."""


@dataclass(slots=True)
class Post:
    """Starts a client, kills it, and puts a twin in its place.

    Invariant: `holder` was started last; all others that live are in `zombies`.
    """

    kind: str
    name: str
    url: str
    folder: Path
    rng: random.Random
    prefix: list[str] = field(default_factory=list)
    """What its command begins with: it may live in a namespace of its own."""
    patience_s: float = 0.0
    """How long the one that was started last waits for an answer."""
    lives: int = 0
    kills: int = 0
    fenced: int = 0
    """Processes that ended because they were told that their name is taken."""
    complaints: list[str] = field(default_factory=list)
    zombies: list[subprocess.Popen[bytes]] = field(default_factory=list)
    holder: subprocess.Popen[bytes] | None = None
    rivals: set[int] = field(default_factory=set)
    """The processes that have lived beside another one of their name."""

    def start(self) -> None:
        """Start a client, and let it hold the post."""
        self.holder = self.spawn()
        if living := [it.pid for it in self.zombies if it.poll() is None]:
            self.rivals.update(living, [self.pid])

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start a client."""
        self.lives += 1
        command = [*self.prefix, sys.executable, "-m", "tests.torture.client"]
        command += [self.kind, self.name, self.url, "--stop", str(stop_file(self.folder))]
        command += ["--history", str(self.folder / f"{self.name}-{self.lives}.jsonl")]
        command += ["--sign", str(self._sign), "--seed", f"{self.rng.random()}"]
        self.patience_s = self.rng.choice(TIMEOUTS_S)
        command += ["--timeout", f"{self.patience_s}"]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        """The number of its holder's process."""
        assert self.holder is not None
        return self.holder.pid

    def has_worked_since(self, wall_s: float) -> bool:
        """Whether it has done something after this time of day."""
        return self._sign.exists() and self._sign.stat().st_mtime > wall_s

    def kill(self) -> None:
        """SIGKILL, and start again."""
        assert self.holder is not None
        self.holder.kill()
        self.holder.wait()
        self.kills += 1
        self.start()

    def stop(self) -> int:
        """SIGSTOP, which it does not notice. The number of the process, for `resume`."""
        os.kill(self.pid, signal.SIGSTOP)
        return self.pid

    def resume(self, pid: int) -> None:
        """SIGCONT, if it is still there."""
        holders = [it for it in (*self.zombies, self.holder) if it is not None]
        if any(it.pid == pid and it.poll() is None for it in holders):
            os.kill(pid, signal.SIGCONT)

    def replace(self) -> int:
        """Stop the holder and let a twin take its place. Whom to let go on later."""
        assert self.holder is not None
        pid = self.stop()
        self.zombies.append(self.holder)
        self.start()
        return pid

    def tend(self) -> None:
        """Bury who has ended, and fill the post. Whoever ended as it should not is complained of."""
        assert self.holder is not None
        for zombie in [it for it in self.zombies if it.poll() is not None]:
            self.zombies.remove(zombie)
            self._check(zombie)
        if self.holder.poll() is not None:  # a zombie that woke up took the name back
            self._check(self.holder)
            self.start()

    def _check(self, process: subprocess.Popen[bytes]) -> None:
        # Each of two rivals may begin anew, whenever it is told nothing, and take the name from the other.
        if process.returncode == FENCED and process.pid in self.rivals:
            self.fenced += 1
            return
        why = "was fenced, and nobody has its name" if process.returncode == FENCED else "ended"
        self.complaints.append(f"{self.name} {why} ({process.returncode}): {self.log_tail()}")

    def finish(self, until: float) -> None:
        """It has been told to end: see that it does, by this time of the monotonic clock."""
        for process in (*self.zombies, self.holder):
            if process is None:
                continue
            try:
                status = process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.complaints.append(f"{self.name} does not end: {self.log_tail()}")
                continue
            if status != 0:
                self._check(process)

    def end(self) -> None:
        """End all of its processes."""
        for process in (*self.zombies, self.holder):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        self.zombies.clear()

    @property
    def _sign(self) -> Path:
        return self.folder / f"{self.name}.sign"

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def is_patient(self) -> bool:
        """Whether its holder waits so long that no planned restart may trouble it."""
        return self.patience_s == max(TIMEOUTS_S)

    def said(self) -> int:
        """How much it has had to say so far."""
        return self._log.stat().st_size

    def errors_since(self, said: int) -> str:
        """What it was refused or not told since then. That a lease has ended is another matter."""
        lines = self._log.read_bytes()[said:].decode(errors="replace").splitlines()
        return "; ".join(it for it in lines if " Unavailable: " in it or " Timeout: " in it)

    def log_tail(self) -> str:
        """The end of what they had to say."""
        return self._log.read_text(errors="replace")[-1500:]


def stop_file(folder: Path) -> Path:
    """When this is there, all clients end."""
    return folder / "stop"
