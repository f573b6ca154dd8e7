"""Streams as the source and as the sink of a declarative pipeline: lines -> words (a table) -> loud (a stream)."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
URL = os.environ.get("TSTREAMS_URL", "tcp://127.0.0.1:7070")

dp.create_sink("loud", format="tstreams", options={"url": URL, "stream": "loud"})


@dp.table
def words() -> DataFrame:
    lines = spark.readStream.format("tstreams").option("url", URL).option("stream", "lines").load()
    return lines.selectExpr("transaction", "explode(split(cast(item as string), ' ')) as word")


@dp.append_flow(target="loud")
def shout() -> DataFrame:
    return spark.readStream.table("words").selectExpr("upper(word) as item", "word as key")
