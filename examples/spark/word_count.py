"""Word count: from a stream of lines into a stream of counts, exactly once.

    tstreams stream create lines --partitions 2
    tstreams stream create counts
    tstreams pipeline run examples/spark/word_count.py

or as it is, `python examples/spark/word_count.py`: then it brings a server and lines of its own, and ends.
"""

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat_ws, explode, split

import tstreams
from tstreams import Client
from tstreams.server import Node
from tstreams.spark import Place, pipeline, session


@pipeline(
    source={"stream": "lines"},
    sink={"stream": "counts"},
    output_mode="complete",  # each micro-batch replaces all counts, in one moment
)
def word_count(lines: DataFrame) -> DataFrame:
    words = lines.select(explode(split(col("item").cast("string"), " +")).alias("word"))
    counts = words.groupBy("word").count()
    return counts.select(concat_ws(" ", "count", "word").alias("item"))


def found_in(ts: Client, stream: str) -> list[str]:
    """All that is in a stream."""
    partitions = range(ts.stream(stream).partitions)
    found = (txn.items for partition in partitions for txn in ts.scan(stream, partition))
    return sorted(bytes(item).decode() for items in found for item in items)


def run(spark: SparkSession, url: str, folder: Path) -> list[str]:
    """Write lines, count, write more, and count on from where the first run ended."""
    place = Place({"url": url}, checkpoints=str(folder), once=True)
    with tstreams.connect(url) as ts:
        ts.create_stream("lines", partitions=2)
        ts.create_stream("counts", partitions=2)
        with ts.producer("lines") as producer:
            producer.instant([b"the sea is calm to night", b"the tide is full"], partition=0)
            word_count.prepare(spark, place).start().awaitTermination()
            producer.instant([b"the moon lies fair"], partition=1)
            word_count.prepare(spark, place).start().awaitTermination()
        return found_in(ts, "counts")


def main() -> None:
    """Tell what happened."""
    spark = session(settings={"spark.log.level": "OFF"})
    with tempfile.TemporaryDirectory() as name:
        with Node(Path(name) / "data", ["tcp://127.0.0.1:0"]).in_thread() as node:
            counts = run(spark, node.addresses[0], Path(name) / "checkpoints")
        spark.stop()
    print(*counts, sep="\n")


if __name__ == "__main__":
    main()
