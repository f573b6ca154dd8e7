"""The life of one pipeline: started, watched, started again after a failure, stopped between micro-batches."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ..errors import BadRequest, Error
from .failures import reason_of
from .loading import explain
from .pipelines import Pipeline, Place
from .progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

START_LIMIT_S = 60.0
"""How long the next pipeline waits for the first report of one that was started before it."""
BACKOFF_MAX_S = 60.0
"""The longest pause before a restart."""
STOP_POLL_S = 0.005
"""How often a query that is to be stopped is looked at. Between two micro-batches it has nothing under way
for some 50 ms."""
BETWEEN = ("Initializing", "Getting offsets", "Writing offsets", "Waiting")
"""How Spark's words for what a query does begin while none of its tasks runs."""


class State(enum.StrEnum):
    """WAITING -> STARTING -> RUNNING -> DONE | STOPPED | FAILED; a failure may lead back to WAITING."""

    WAITING = "waiting"
    """To be started: at first, or again after a pause."""
    STARTING = "starting"
    """Started; no micro-batch is done yet."""
    RUNNING = "running"
    STOPPING = "stopping"
    """It was asked to stop, and finishes a micro-batch."""
    STOPPED = "stopped"
    DONE = "done"
    """It has ended by itself: there was nothing more to do."""
    FAILED = "failed"
    """It has failed more often than allowed, or in a way that does not pass."""

    @property
    def is_final(self) -> bool:
        """Whether there is nothing more to come."""
        return self in (State.STOPPED, State.DONE, State.FAILED)


class Run:
    """A pipeline, its query, and what became of it."""

    def __init__(
        self,
        pipeline: Pipeline,
        restarts: int,
        backoff_s: float,
        start_limit_s: float = START_LIMIT_S,
    ) -> None:
        self.pipeline = pipeline
        self.state = State.WAITING
        self.due_at = 0.0
        """When it may be started, if it waits: on the monotonic clock."""
        self.pause_s = 0.0
        """How long the last pause before a restart was meant to be."""
        self.last: Progress | None = None
        self.idle = False
        """Whether it waits for data."""
        self.batches = 0
        self.rows = 0
        self.restarts = 0
        self.failures = 0
        self.error = ""
        """Why it failed last."""
        self.cut = False
        """Whether it had to be stopped in the middle of a micro-batch."""
        self._allowed = restarts
        self._backoff_s = backoff_s
        self._start_limit_s = start_limit_s
        self._row = 0
        """Failures in a row: a micro-batch that succeeds ends the row."""
        self._query: StreamingQuery | None = None
        self._started_at = 0.0
        self._seen = -1
        """The last micro-batch that was seen to be done."""
        self._reported = ""
        """When the last report began that was looked at."""

    @property
    def name(self) -> str:
        """The pipeline's."""
        return self.pipeline.name

    @property
    def retry_in_s(self) -> float:
        """How long it still pauses."""
        return max(0.0, self.due_at - time.monotonic()) if self.state is State.WAITING else 0.0

    def start(self, spark: SparkSession, place: Place) -> None:
        """Start the query. What fails here counts like a failure of the query."""
        self._started_at = time.monotonic()
        self._seen = -1
        self._reported = ""
        self._query = None
        if self.failures:
            self.restarts += 1
        try:
            self._query = self.pipeline.prepare(spark, place).start()
            self.state = State.STARTING
        except BadRequest as error:
            self._fail(error.message, passes=False)
        except (
            AttributeError,
            TypeError,
            ValueError,
        ) as error:  # some of Spark's errors are these too
            self._fail(explain(error, self.name), passes=False)
        except (PySparkException, Py4JError, Error, OSError) as error:
            self._fail(reason_of(error), passes=True)
        except Exception as error:  # the user's code is wrong: to run it again would not help
            self._fail(explain(error, self.name), passes=False)

    def poll(self) -> Iterator[Progress]:
        """See what is new: the micro-batches that were done, and the state."""
        query = self._query
        if query is None:
            return
        active = query.isActive
        for progress in self._fresh(query):
            self._row = 0
            self.last = progress
            self.batches += 1
            self.rows += progress.rows
            yield progress
        if active:
            self.idle = str(query.status["message"]).startswith("Waiting")
            started_s = time.monotonic() - self._started_at
            if self.state is State.STARTING and started_s > self._start_limit_s:
                self.state = State.RUNNING
            return
        self._query, self.idle = None, False
        failure = query.exception()
        if failure is not None:
            self._fail(reason_of(failure), passes=True)
        else:
            self.state = State.DONE

    def stop(self, limit_s: float) -> Iterator[Progress]:
        """Stop it as soon as no micro-batch is under way, or when the limit has passed.

        In the middle of a micro-batch its tasks may have staged transactions, which would hold up readers
        until they expire or the query is started again.
        """
        query = self._query
        if query is None:
            self.state = State.STOPPED if not self.state.is_final else self.state
            return
        until = time.monotonic() + limit_s
        while query.isActive and not str(query.status["message"]).startswith(BETWEEN):
            if time.monotonic() >= until:
                self.cut = True
                break
            time.sleep(STOP_POLL_S)
        was_active = query.isActive
        query.stop()
        yield from self.poll()
        if was_active or not self.state.is_final:
            self.state = State.STOPPED

    def _fresh(self, query: StreamingQuery) -> list[Progress]:
        """The micro-batches that were not seen before, in order.

        Spark also reports that there was nothing to do, with the number of the micro-batch that will come.
        """
        last = query.lastProgress
        if last is None or last["timestamp"] == self._reported:
            return []
        self._reported = last["timestamp"]
        if self.state is State.STARTING:
            self.state = State.RUNNING
        told = [last] if last["batchId"] == self._seen + 1 else query.recentProgress
        fresh = {
            it["batchId"]: it
            for it in told
            if it["batchId"] > self._seen and "addBatch" in it["durationMs"]
        }
        self._seen = max(fresh, default=self._seen)
        return [Progress.of(fresh[batch]) for batch in sorted(fresh)]

    def _fail(self, reason: str, passes: bool) -> None:
        self.error = reason
        self.failures += 1
        self._row += 1
        if not passes or self._row > self._allowed:
            self.state = State.FAILED
            return
        self.pause_s = min(self._backoff_s * 2 ** (self._row - 1), BACKOFF_MAX_S)
        self.due_at = time.monotonic() + self.pause_s
        self.state = State.WAITING
