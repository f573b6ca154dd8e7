"""The process of the driver: `python -m tests.crash.spark.driver URL FOLDER SIGN [--drain]`

Makes the file SIGN when it has done a micro-batch. With `--drain` it ends when it has done all that is there.
"""

from __future__ import annotations

import re
import time
from argparse import ArgumentParser
from pathlib import Path

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from tests.crash.spark.judge import RESULTS, SOURCE, STAGING_TTL_S
from tstreams.spark import session

FAILED = 3
"""The exit code of one whose query failed: a worker that cannot be replaced was killed, say, or the server was not
there, or could not serve, when it was started."""
UNAVAILABLE = re.compile(r"tstreams\.errors\.(Unavailable|Timeout)\b")


def main() -> int:
    """The command."""
    parser = ArgumentParser("python -m tests.crash.spark.driver", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("sign", type=Path)
    parser.add_argument("--drain", action="store_true")
    given = parser.parse_args()
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(given.folder / "tmp"),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = session("crash", "local[2,4]", settings)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        run(spark, given.url, given.folder, given.sign, given.drain)
    except PySparkException as error:
        print(error, flush=True)
        if not isinstance(error, StreamingQueryException) and not UNAVAILABLE.search(str(error)):
            raise
        return FAILED
    finally:
        spark.stop()
    return 0


def run(spark: SparkSession, url: str, folder: Path, sign: Path, drain: bool) -> None:
    """Start the query, and wait for its end."""
    rows = (
        spark.readStream.format("tstreams")
        .option("url", url)
        .option("stream", SOURCE)
        .option("maxTransactionsPerTrigger", "2000")
        .load()
        .selectExpr(
            "concat_ws('/', partition, transaction, index, upper(cast(item as string))) as item",
            "item as key",
        )
    )
    writer = (
        rows.writeStream.format("tstreams")
        .option("url", url)
        .option("stream", RESULTS)
        .option("stagingTtl", f"{STAGING_TTL_S}s")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = (writer.trigger(availableNow=True) if drain else writer).start()
    while query.isActive and query.lastProgress is None:
        time.sleep(0.05)
    sign.touch()
    query.awaitTermination()


if __name__ == "__main__":
    raise SystemExit(main())
