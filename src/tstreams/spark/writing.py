"""The sink: what a task writes is staged, and what all tasks have staged becomes visible at once, once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ..client.blocking.client import Client
from ..client.blocking.job import Job
from ..client.rules.job import Staged
from ..errors import BadRequest, InvalidState
from . import connections
from .options import WriteOptions
from .outlet import Outlet
from .routing import split_by_partition, split_by_stream
from .tracing import belonging_to

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass
class TaskDone(WriterCommitMessage):
    """What a task tells the driver: the job and the step that it worked for, and what it has staged."""

    job: str
    step: int
    staged: list[Staged]
    rows: int


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Each becomes visible whole, and once, however often it is tried.

    A query has an id that lasts as long as its checkpoint location: it is the name of the job, and the
    micro-batch is its step. So a query that is restarted repeats a step that the server knows, and one with
    a fresh checkpoint location is another job.

    With `overwrite`, which is output mode complete, each micro-batch replaces what the stream held before.
    """

    def __init__(self, options: WriteOptions, overwrite: bool = False) -> None:
        if overwrite and options.stream is None:
            raise BadRequest('output mode complete needs .option("stream", ...): what it replaces')
        self._options = options
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """In a task: stage its rows."""
        task = TaskContext.get()
        assert task is not None
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise InvalidState("this task belongs to no micro-batch: Spark did not say to which")
        return _write(self._options, f"spark/{query}", int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: all tasks are done. May be called again for a micro-batch that was committed."""
        done = [it for it in messages if isinstance(it, TaskDone)]
        if done:
            job = _job(self._options, done[0].job)
            replace = [self._options.stream] if self._overwrite and self._options.stream else []
            job.commit(batchId, [staged for it in done for staged in it.staged], replace=replace)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver: some task failed. May come after a commit, which it must not undo."""
        for it in messages:
            if isinstance(it, TaskDone):
                _job(self._options, it.job).cancel(batchId)
                return


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once. All of it becomes visible in the same moment."""

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        if overwrite and options.stream is None:
            raise BadRequest('mode overwrite needs .option("stream", ...): what is to be replaced')
        self._options = options
        self._overwrite = overwrite
        self._job = f"spark/batch/{uuid.uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        """In a task: stage its rows."""
        return _write(self._options, self._job, 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: all tasks are done."""
        done = [it for it in messages if isinstance(it, TaskDone)]
        replace = [self._options.stream] if self._overwrite and self._options.stream else []
        staged = [staged for it in done for staged in it.staged]
        _job(self._options, self._job).commit(0, staged, replace=replace, final=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: some task failed."""
        _job(self._options, self._job).cancel(0)


def _job(options: WriteOptions, name: str) -> Job:
    return connections.client(options.client).job(name, staging_ttl=options.staging_ttl_s)


def _write(
    options: WriteOptions, name: str, step: int, batches: Iterable[pa.RecordBatch]
) -> TaskDone:
    ts = connections.client(options.client)
    job = ts.job(name, staging_ttl=options.staging_ttl_s)
    last = job.last_step()
    if last is not None and last >= step:  # a driver died after its commit, and repeats it
        return TaskDone(name, step, [], sum(batch.num_rows for batch in batches))
    task = Task(ts, options, job, step)
    try:
        with belonging_to(ts, options.traceparent):
            task.prepare()
            for batch in batches:
                task.add(batch)
            done = TaskDone(name, step, task.stage(), task.rows)
    except BaseException:
        task.close()
        raise
    task.leave()
    return done


class Task:
    """What one task writes: a producer for each stream, transactions of bounded size."""

    def __init__(self, ts: Client, options: WriteOptions, job: Job, step: int) -> None:
        self._ts = ts
        self._options = options
        self._job = job
        self._step = step
        self._outlets: dict[str, Outlet] = {}
        self._renewed_at = time.monotonic()
        task = TaskContext.get()
        self._number = task.partitionId() + step if task is not None else step
        self.rows = 0

    def prepare(self) -> None:
        """Be ready when the first rows come: Spark is still making them."""
        if self._options.stream is not None:
            self._outlet(self._options.stream)

    def add(self, batch: pa.RecordBatch) -> None:
        """Write rows where they belong."""
        if batch.num_rows == 0:
            return
        self.rows += batch.num_rows
        if self._options.stream is None and "stream" not in batch.schema.names:
            raise BadRequest('say where to: .option("stream", ...), or a column `stream`')
        for name, rows in split_by_stream(batch, self._options.stream):
            outlet = self._outlet(name)
            for partition, part in split_by_partition(rows, outlet.stream, outlet.default):
                outlet.send(partition, part)
        self._renew()

    def _outlet(self, name: str) -> Outlet:
        outlet = self._outlets.get(name)
        if outlet is None:
            outlet = Outlet(self._ts, name, self._options, self._number)
            self._outlets[name] = outlet
        return outlet

    def _renew(self) -> None:
        """What tasks of this step have staged must not expire while others are still at work."""
        now = time.monotonic()
        if self._outlets and now - self._renewed_at > self._options.staging_ttl_s / 3:
            for outlet in self._outlets.values():  # each knows the shards of its own stream
                self._job.renew(outlet.producer, self._step)
            self._renewed_at = now

    def stage(self) -> list[Staged]:
        """Hand everything over to the driver."""
        try:
            used = [it for it in self._outlets.values() if it.used]
            return [self._job.stage(it.producer, self._step) for it in used]
        except InvalidState:
            last = self._job.last_step()
            if last is None or last < self._step:
                raise
            return []  # committed meanwhile, by another attempt: this one is not needed

    def close(self) -> None:
        """Give the names back. What was not staged is cancelled."""
        for outlet in self._outlets.values():
            outlet.producer.close()

    def leave(self) -> None:
        """The same, after all was staged: nothing is open any more, and nobody has to wait for it."""
        for outlet in self._outlets.values():
            outlet.producer._leave()
