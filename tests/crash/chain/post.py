"""A post in the chain: a processor's name, and whoever holds it, or believes so."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.chain.processor import FENCED

TIMEOUTS_S = (0.4, 1.5, 30.0)
"""Some lives give the server little time, so that they often do not know what became of a checkpoint."""


@dataclass(slots=True)
class Zombie:
    """A process that was stopped, and replaced. It goes on at some time, and does not know."""

    process: subprocess.Popen[bytes]
    wakes_at: float
    awake: bool = False


@dataclass(slots=True)
class Post:
    """Starts a processor, kills it, and puts a twin in its place.

    Invariant: `holder` was started last; all others that live are in `zombies`.
    """

    name: str
    url: str
    folder: Path
    rng: random.Random
    plant: str = ""
    kills: int = 0
    twins: int = 0
    fenced: int = 0
    """Zombies that ended because they were told that their name is taken."""
    lives: int = 0
    zombies: list[Zombie] = field(default_factory=list)
    holder: subprocess.Popen[bytes] | None = None

    def start(self, max_wait_s: float | None = None) -> None:
        """Start a processor; with `max_wait_s` it ends when there was nothing to do for so long."""
        self.lives += 1
        command = [sys.executable, "-m", "tests.crash.chain.processor", self.name, self.url]
        command += ["--seed", f"{self.rng.random()}", "--sign", str(self._sign)]
        command += ["--plant", self.plant]
        if max_wait_s is None:
            command += ["--timeout", f"{self.rng.choice(TIMEOUTS_S)}"]
        else:
            command += ["--max-wait", f"{max_wait_s}"]
        with self._log.open("ab") as log:
            self.holder = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def is_at_work(self) -> bool:
        """Whether its holder has done something already."""
        return self._sign.exists()

    def kill(self) -> None:
        """SIGKILL, and start again."""
        assert self.holder is not None
        self.holder.kill()
        self.holder.wait()
        self.kills += 1
        self.start()

    def replace(self, asleep_s: float) -> None:
        """Stop the holder, let a twin take its place, and let the old one go on after a while."""
        assert self.holder is not None
        os.kill(self.holder.pid, signal.SIGSTOP)
        self.zombies.append(Zombie(self.holder, time.monotonic() + asleep_s))
        self.twins += 1
        self.start()

    def tend(self) -> None:
        """Wake whose time has come; bury who has ended. `RuntimeError` if one ended as it should not."""
        assert self.holder is not None
        for zombie in list(self.zombies):
            if not zombie.awake and time.monotonic() >= zombie.wakes_at:
                zombie.awake = True
                os.kill(zombie.process.pid, signal.SIGCONT)
            if zombie.process.poll() is not None:
                self._check(zombie.process)
                self.fenced += 1
                self.zombies.remove(zombie)
        if self.holder.poll() is not None:  # a zombie that woke up took the name back
            self._check(self.holder)
            self.start()

    def _check(self, process: subprocess.Popen[bytes]) -> None:
        if process.returncode != FENCED:
            raise RuntimeError(
                f"{self.name} ended by itself with {process.returncode}: {self.log_tail()}"
            )

    def finish(self, max_wait_s: float, timeout_s: float) -> None:
        """One last life, in which it ends when there is nothing more to do."""
        self.end()
        self.start(max_wait_s)
        assert self.holder is not None
        if (status := self.holder.wait(timeout_s)) != 0:
            raise RuntimeError(f"{self.name} ended with {status}: {self.log_tail()}")

    def end(self) -> None:
        """End all of its processes."""
        for process in (*(it.process for it in self.zombies), self.holder):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        self.zombies.clear()

    @property
    def _sign(self) -> Path:
        return self.folder / f"{self.name}-{self.lives}"

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def log_tail(self) -> str:
        """The end of what they had to say."""
        return self._log.read_text(errors="replace")[-2000:]
