"""The driver as the demo sees it: a process that is started, followed, killed in mid-batch, and started again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from .history import History, Life
from .processes import Child, Lines
from .story import BATCH, PARTITIONS, PAYMENTS, TRANSACTIONS_PER_TRIGGER, Day

KILL_S_MAX = 1.0
"""A kill comes up to so long after a micro-batch was seen to begin."""


@dataclass(slots=True)
class Driver:
    """One driver after the other, on one checkpoint.

    That a micro-batch is under way can be seen in the checkpoint: Spark writes a file into `offsets` before it,
    and one into `commits` after it.
    """

    url: str
    folder: Path
    day: Day
    history: History
    rng: random.Random
    position: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    """The last transaction of each partition in the last micro-batch that was done."""
    _child: Child | None = None
    _progress: IO[bytes] | None = None
    _lines: Lines | None = None
    _kill_at: float | None = None
    _batch_seen: int = -1

    @property
    def life(self) -> Life:
        """The present one, or the last."""
        return self.history.lives[-1]

    @property
    def has_ended(self) -> bool:
        """Whether it has done everything, and ended by itself."""
        return self._child is not None and self._child.status == 0

    def start(self) -> None:
        """Start a driver; it goes on where the last one was."""
        number = len(self.history.lives) + 1
        path = self.folder / f"progress-{number}"
        path.touch()
        command = ["tstreams.demo.driver", self.url, str(self.folder), str(path)]
        command.append(self.day.closed.isoformat())
        self._child = Child(f"driver-{number}", self.folder, command)
        self._close_progress()
        self._progress = path.open("rb")
        self._lines = Lines(self._progress)
        self.history.lives.append(Life(number, self.history.now()))
        self._kill_at = None

    def turn(self, produced: int, processed: int, kills: int) -> Iterator[str]:
        """Hear what it has done; kill it if its time has come. What happened, in words."""
        assert self._child is not None
        yield from self._hear()
        self._child.check()
        if self._is_due(produced, processed, kills):
            yield from self._kill_in_mid_batch()
        if self.has_ended:
            yield from self._hear()
            self.life.ended = self.history.now()

    def _is_due(self, produced: int, processed: int, kills: int) -> bool:
        """Kills are spread over the day, and each life does something, unless there is little left to do."""
        left = kills - len(self.history.kills)
        if left <= 0:
            return False
        all_ = self.day.payments
        one_batch = TRANSACTIONS_PER_TRIGGER * BATCH
        if produced == all_ and all_ - processed <= left * one_batch:
            return True
        return self.life.batches > 0 and processed / all_ >= 1 - left / (kills + 1)

    def _hear(self) -> Iterator[str]:
        assert self._lines is not None
        for line in self._lines.take():
            if "ready" in line:
                self.life.ready = line["ready"] - self.history.began
                yield f"driver {self.life.number}: the query runs"
                continue
            self.history.add_batch(line)
            if line["position"]:
                found = line["position"][PAYMENTS].items()
                self.position = {int(partition): last_id for partition, last_id in found}

    def _kill_in_mid_batch(self) -> Iterator[str]:
        """Wait for a micro-batch to begin, and a moment more; then kill, if it has not ended meanwhile."""
        assert self._child is not None
        under_way = self.batch_under_way()
        if under_way is None or self.life.ready is None:
            self._kill_at = None
            return
        if self._kill_at is None or under_way != self._batch_seen:
            self._batch_seen = under_way
            self._kill_at = self.history.now() + self.rng.uniform(0.0, KILL_S_MAX)
        if self.history.now() < self._kill_at:
            return
        self._child.kill()
        self.life.ended = self.history.now()
        self.life.killed_in = self.batch_under_way()
        if self.life.killed_in is None:
            yield f"driver {self.life.number}: killed, but between two micro-batches; once more"
        else:
            number = len(self.history.kills)
            yield f"kill {number}: SIGKILL in the middle of micro-batch {self.life.killed_in}"
        self.start()
        yield f"driver {self.life.number} starts, from the checkpoint"

    def batch_under_way(self) -> int | None:
        """The micro-batch that was begun and not yet done, as the checkpoint says."""
        begun = _last(self.folder / "checkpoint" / "offsets")
        return begun if begun > _last(self.folder / "checkpoint" / "commits") else None

    def log_tail(self) -> str:
        """The end of what it had to say."""
        return self._child.log_tail() if self._child is not None else ""

    def close(self) -> None:
        """End it, however it is."""
        if self._child is not None:
            self._child.kill()
        self._close_progress()

    def _close_progress(self) -> None:
        if self._progress is not None:
            self._progress.close()


def _last(folder: Path) -> int:
    """The greatest number that is the name of a file."""
    if not folder.is_dir():
        return -1
    return max((int(it.name) for it in folder.iterdir() if it.name.isdigit()), default=-1)
