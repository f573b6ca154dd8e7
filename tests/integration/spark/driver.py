"""A driver of a streaming query that dies, or whose workers die, at a point of one's choice.

python -m tests.integration.spark.driver URL SOURCE SINK FOLDER [POINT VICTIM]
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_tstreams import DefaultSource
from tstreams.spark import session
from tstreams.spark.options import WriteOptions
from tstreams.spark.writing import StreamWriter

POINTS = ("before write", "after stage", "before commit", "after commit")
BATCH = 1
"""The micro-batch in which it happens."""


class FatalWriter(StreamWriter):
    """Kills at a point, once: a mark in the folder says that it has happened."""

    def __init__(self, options: WriteOptions, point: str, victim: int, mark: str) -> None:
        super().__init__(options)
        self._point = point
        self._victim = victim
        self._mark = mark

    def _reach(self, point: str) -> None:
        if point != self._point:
            return
        try:
            os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self._victim:
            os.killpg(self._victim, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def write(self, iterator: Any) -> Any:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        due = task.getLocalProperty("streaming.sql.batchId") == str(BATCH)
        if due:
            self._reach("before write")
        done = super().write(iterator)
        if due:
            self._reach("after stage")
        return done

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if batchId == BATCH:
            self._reach("before commit")
        super().commit(messages, batchId)
        if batchId == BATCH:
            self._reach("after commit")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().abort(messages, batchId)
        os.close(os.open(self._mark + "-aborted", os.O_CREAT))


class Fatal(DefaultSource):
    """`format("fatal")`: tstreams, with an accident."""

    @classmethod
    def name(cls) -> str:
        return "fatal"

    def streamWriter(self, schema: Any, overwrite: bool) -> FatalWriter:  # noqa: N802
        options = dict(self.options)
        point, victim, mark = options.pop("point"), options.pop("victim"), options.pop("mark")
        return FatalWriter(WriteOptions.parse(options), point, int(victim), mark)


def main() -> None:
    url, source, sink, folder, point, victim = [*sys.argv[1:], "", ""][:6]
    spark = session("driver", "local[2,4]", {"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(Fatal)
    rows = (
        spark.readStream.format("tstreams")
        .option("url", url)
        .option("stream", source)
        .option("maxTransactionsPerTrigger", "20")
        .load()
        .selectExpr("concat(cast(item as string), ' of ', transaction) as item", "item as key")
    )
    query = (
        rows.writeStream.format("fatal")
        .option("url", url)
        .option("stream", sink)
        .option("point", point)
        .option("victim", str(os.getpgid(0)) if victim == "driver" else "0")
        .option("mark", str(Path(folder) / f"killed {point}"))
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
