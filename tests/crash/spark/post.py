"""The driver's post: whoever holds it is killed, wholly or in part, and replaced."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.crash.spark.driver import FAILED


@dataclass(slots=True)
class Post:
    """Starts a driver, kills it or one of its workers, and starts it again."""

    url: str
    folder: Path
    rng: random.Random
    lives: int = 0
    kills: int = 0
    in_mid_batch: int = 0
    """Kills that hit a micro-batch that was begun and not done, as the checkpoint says."""
    worker_kills: int = 0
    failures: int = 0
    """Lives that ended because the query failed: Spark cannot replace every worker."""
    holder: subprocess.Popen[bytes] | None = None
    is_hurt: bool = False
    """Whether the holder has lost a worker: it may end of that in many ways, at its start above all."""

    def start(self, *flags: str) -> None:
        """Start a driver, from the checkpoint."""
        self.lives += 1
        self.is_hurt = False
        command = [sys.executable, "-m", "tests.crash.spark.driver", self.url, str(self.folder)]
        with self._log.open("ab") as log:
            self.holder = subprocess.Popen(
                [*command, str(self._sign), *flags], stdout=log, stderr=log, start_new_session=True
            )

    @property
    def is_at_work(self) -> bool:
        """Whether it has done a micro-batch."""
        return self._sign.exists()

    def kill(self) -> None:
        """SIGKILL for the driver with its Java. Its workers find out by themselves."""
        self.end()
        self.kills += 1
        if _last(self.folder / "checkpoint/offsets") > _last(self.folder / "checkpoint/commits"):
            self.in_mid_batch += 1

    def kill_worker(self) -> bool:
        """SIGKILL for one of its Python workers. False if there is none at this moment."""
        assert self.holder is not None
        workers = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for it in psutil.Process(self.holder.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "python" in it.name():
                        workers.append(it)
        if not workers:
            return False
        try:
            self.rng.choice(workers).kill()
        except psutil.NoSuchProcess:
            return False
        self.worker_kills += 1
        self.is_hurt = True
        return True

    def tend(self) -> None:
        """Start it again if its query failed, or we have hurt it. `RuntimeError` if it ended as it should not."""
        assert self.holder is not None
        if (status := self.holder.poll()) is None:
            return
        if status != FAILED and not self.is_hurt:
            raise RuntimeError(f"the driver ended with {status}: {self.log_tail()}")
        self.end()
        self.failures += 1
        self.start()

    def drain(self, timeout_s: float) -> None:
        """One last life, in which it does all that is there."""
        self.end()
        self.start("--drain")
        assert self.holder is not None
        if (status := self.holder.wait(timeout_s)) != 0:
            raise RuntimeError(f"the last driver ended with {status}: {self.log_tail()}")

    def end(self) -> None:
        """End its process, and its Java, which may outlive it."""
        if self.holder is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.holder.pid, signal.SIGKILL)
            self.holder.wait()

    @property
    def micro_batches(self) -> int:
        """How many the query has done in all its lives."""
        return _last(self.folder / "checkpoint/commits") + 1

    @property
    def _sign(self) -> Path:
        return self.folder / f"driver-{self.lives}"

    @property
    def _log(self) -> Path:
        return self.folder / "driver.log"

    def log_tail(self) -> str:
        """The end of what they had to say."""
        return self._log.read_text(errors="replace")[-3000:]


def _last(folder: Path) -> int:
    """The greatest number that is the name of a file."""
    if not folder.is_dir():
        return -1
    return max((int(it.name) for it in folder.iterdir() if it.name.isdigit()), default=-1)
