"""The pipeline: payments in, alerts and totals out, as one streaming query.

Each payment is counted for its card and for its country, in windows of the day's clock. A window is written
when the watermark has passed its end, once: its alerts and totals become visible together.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from .story import (
    ALERTS,
    BURST_PAYMENTS,
    COUNTRIES,
    PAYMENTS,
    SPREE_CENTS,
    TOTALS,
    TRANSACTIONS_PER_TRIGGER,
    TRAVEL_COUNTRIES,
    WATERMARK_MINUTES,
    WINDOW_MINUTES,
)


def start(spark: SparkSession, url: str, checkpoint: Path) -> StreamingQuery:
    """Start the query, or go on where it was when it was killed."""
    payments = (
        spark.readStream.format("tstreams")
        .option("url", url)
        .option("stream", PAYMENTS)
        .option("maxTransactionsPerTrigger", TRANSACTIONS_PER_TRIGGER)
        .load()
    )
    return (
        results(windows(payments))
        .writeStream.format("tstreams")
        .option("url", url)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .start()
    )


def windows(payments: DataFrame) -> DataFrame:
    """What each card and each country did in each window."""
    places = fn.array(*map(fn.lit, COUNTRIES))
    place = fn.array_position(places, fn.col("country")).cast("int")
    bit = fn.call_function("shiftleft", fn.lit(1), place)
    card = fn.struct(fn.lit("card").alias("kind"), fn.col("card").cast("string").alias("name"))
    country = fn.struct(fn.lit("country").alias("kind"), fn.col("country").alias("name"))
    return (
        payments.withWatermark("time", f"{WATERMARK_MINUTES} minutes")
        .select("time", "amount_cents", bit.alias("bit"), fn.explode(fn.array(card, country)))
        .groupBy(fn.window("time", f"{WINDOW_MINUTES} minutes"), "col")
        .agg(
            fn.count("*").alias("payments"),
            fn.sum("amount_cents").alias("amount_cents"),
            fn.bit_count(fn.bit_or("bit")).alias("countries"),
        )
        .select("window", "col.*", "payments", "amount_cents", "countries")
    )


def results(found: DataFrame) -> DataFrame:
    """The rows of both streams: where each goes, and what it says."""
    of_card = fn.col("kind") == "card"
    verdicts = fn.array(
        _pattern("burst", fn.col("payments") >= BURST_PAYMENTS),
        _pattern("travel", fn.col("countries") >= TRAVEL_COUNTRIES),
        _pattern("spree", fn.col("amount_cents") >= SPREE_CENTS),
    )
    patterns = fn.when(of_card, fn.array_compact(verdicts)).otherwise(fn.array(fn.lit("total")))
    since = fn.date_format(fn.col("window.start"), "yyyy-MM-dd'T'HH:mm'Z'").alias("window")
    counted = ["payments", "amount_cents"]
    card = fn.col("name").cast("bigint").alias("card")
    alert = fn.struct("pattern", card, since, *counted, "countries")
    total = fn.struct(fn.col("name").alias("country"), since, *counted)
    return found.withColumn("pattern", fn.explode(patterns)).select(
        fn.when(of_card, ALERTS).otherwise(TOTALS).alias("stream"),
        fn.col("name").alias("key"),
        fn.when(of_card, fn.to_json(alert)).otherwise(fn.to_json(total)).alias("item"),
    )


def _pattern(name: str, condition: Column) -> Column:
    return fn.when(condition, fn.lit(name))
