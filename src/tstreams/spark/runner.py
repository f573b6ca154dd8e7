"""Runs pipelines side by side in one session."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from .pipelines import Pipeline, Place
from .progress import Progress
from .running import START_LIMIT_S, Run, State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.1
"""How often the queries are looked at: a micro-batch takes longer."""


class Watcher(Protocol):
    """Is told what happens to pipelines."""

    def changed(self, run: Run) -> None:
        """A pipeline has come to another state, or has failed once more."""

    def progressed(self, run: Run, progress: Progress) -> None:
        """A micro-batch is done."""

    def looked(self, runs: Sequence[Run]) -> None:
        """All have been looked at: some ten times a second."""


class Runner:
    """Starts pipelines, watches them, starts them again after failures, and stops them.

    One query starts at a time: the next when the one before has done its first micro-batch or has found that there
    is nothing to do, has ended, or has had `start_limit_s` for it. Queries over Python data sources that start in the same moment can disturb each
    other in Spark 4.3 ("Task not serializable"). Where the place says `once`, each runs to its end before the next
    starts, in their order.

    `restarts` is how often in a row a pipeline may fail before it is given up; the pauses before restarts begin
    with `backoff_s`, and double. If one is given up the others are stopped, unless `keep_going` is set.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipelines: Sequence[Pipeline],
        watcher: Watcher,
        *,
        place: Place | None = None,
        restarts: int = 3,
        backoff_s: float = 1.0,
        stop_timeout_s: float = 60.0,
        keep_going: bool = False,
        start_limit_s: float = START_LIMIT_S,
    ) -> None:
        self._spark = spark
        self._watcher = watcher
        self._place = place or Place()
        self._stop_timeout_s = stop_timeout_s
        self._keep_going = keep_going
        self._asked = False
        self.runs = [Run(it, restarts, backoff_s, start_limit_s) for it in pipelines]
        self._shown = {run.name: (run.state, 0) for run in self.runs}

    def stop(self) -> None:
        """Ask it to stop. May be called from a signal handler and from other threads; does not wait."""
        self._asked = True

    def run(self) -> bool:
        """Run until all have ended, or until it is asked to stop. Whether none has failed for good.

        If the watcher raises, the pipelines are stopped before the error goes on.
        """
        try:
            self._watch()
            self._stop_all()
        except Exception:
            for run in self.runs:
                deque(run.stop(self._stop_timeout_s), maxlen=0)
            raise
        return not self._has_failed

    def _watch(self) -> None:
        while not self._asked and not all(run.state.is_final for run in self.runs):
            self._start_next()
            for run in self.runs:
                for progress in run.poll():
                    self._tell(run)
                    self._watcher.progressed(run, progress)
                self._tell(run)
            self._watcher.looked(self.runs)
            if self._has_failed and not self._keep_going:
                break
            time.sleep(POLL_S)

    @property
    def _has_failed(self) -> bool:
        return any(run.state is State.FAILED for run in self.runs)

    def _start_next(self) -> None:
        if any(run.state is State.STARTING for run in self.runs):
            return
        waiting = [run for run in self.runs if not run.state.is_final]
        if self._place.once:
            waiting = waiting[:1]  # the next in a chain takes all that this one writes
        now = time.monotonic()
        due = [run for run in waiting if run.state is State.WAITING and run.due_at <= now]
        if due:
            run = min(due, key=lambda it: it.due_at)
            run.start(self._spark, self._place)
            self._tell(run)

    def _stop_all(self) -> None:
        """One after the other: each gets the whole limit."""
        for run in self.runs:
            if run.state in (State.STARTING, State.RUNNING):
                run.state = State.STOPPING
                self._tell(run)
            for progress in run.stop(self._stop_timeout_s):
                self._watcher.progressed(run, progress)
            self._tell(run)
        self._watcher.looked(self.runs)

    def _tell(self, run: Run) -> None:
        found = run.state, run.failures
        if self._shown[run.name] != found:
            self._shown[run.name] = found
            self._watcher.changed(run)
