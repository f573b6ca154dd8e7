"""The process of the Spark driver: `python -m tstreams.demo.driver URL FOLDER PROGRESS CLOSED`.

Writes a line of JSON into the file PROGRESS for each micro-batch, and ends when the watermark has come to
CLOSED, the time at which all windows are closed. It is killed in between, and started again.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql.streaming.query import StreamingQuery

from tstreams.demo import pipeline
from tstreams.spark import session

POLL_S = 0.05
SOCKET_FOLDER_CHARS_MAX = 55
"""The path of a unix socket has some 100 characters, and Spark's own names take more than 40 of them."""


def settings(folder: Path) -> dict[str, str]:
    """What a demo needs of Spark. Whatever a killed driver leaves behind is in the folder."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    has_room = len(str(temporary)) <= SOCKET_FOLDER_CHARS_MAX
    return {
        "spark.python.unix.domain.socket.enabled": "true" if has_room else "false",
        "spark.local.dir": str(temporary),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={temporary} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "10",
    }


def main() -> None:
    """Run the query to its end."""
    url, folder, progress, closed = sys.argv[1:]
    spark = session("tstreams demo", "local[2]", settings(Path(folder)))
    spark.sparkContext.setLogLevel("ERROR")
    query = pipeline.start(spark, url, Path(folder) / "checkpoint")
    with Path(progress).open("w") as file:
        follow(query, file, datetime.fromisoformat(closed))
    query.stop()
    spark.stop()


def follow(query: StreamingQuery, file: TextIO, closed: datetime) -> None:
    """Write down what the query does, until it has done all."""
    print(json.dumps({"ready": time.time()}), file=file, flush=True)
    known = None
    while query.isActive:
        progress: Any = query.lastProgress
        if progress is not None and (progress["batchId"], progress["timestamp"]) != known:
            known = progress["batchId"], progress["timestamp"]
            line = describe(progress)
            print(json.dumps(line), file=file, flush=True)
            watermark = line["watermark"]
            if watermark and datetime.fromisoformat(watermark) >= closed:
                return
        time.sleep(POLL_S)
    error = query.exception()
    if error is not None:
        raise error


def describe(progress: Any) -> dict[str, Any]:
    """A micro-batch, as the demo wants to know it."""
    state = progress["stateOperators"][0] if progress["stateOperators"] else {}
    end = progress["sources"][0]["endOffset"]
    return {
        "batch": progress["batchId"],
        "begun": progress["timestamp"],
        "rows": progress["numInputRows"],
        "duration_ms": progress["durationMs"].get("triggerExecution", 0),
        "watermark": progress["eventTime"].get("watermark"),
        "state_rows": state.get("numRowsTotal", 0),
        "late_rows": state.get("numRowsDroppedByWatermark", 0),
        "position": json.loads(end) if isinstance(end, str) else end,
    }


if __name__ == "__main__":
    main()
