"""Cards that pay too often: a stateful query over event time, with a watermark, from typed rows to typed rows.

An alert is a card with three payments or more in one minute of the time at which they were *made*; they may
arrive late and in any order. A minute is judged once, when the watermark has passed it: half a minute after
its end, by the clock of the payments.

    tstreams pipeline run examples/spark/fraud.py

reads the stream `payments` and writes `alerts`; as it is, `python examples/spark/fraud.py`, it makes both.
"""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, window
from pyspark.sql.functions import sum as total

import tstreams
from tstreams.server import Node
from tstreams.spark import Place, pipeline, session

PAYMENTS = pa.schema(
    [("card", pa.string()), ("cents", pa.int64()), ("paid_at", pa.timestamp("us", "UTC"))]
)
ALERTS = pa.schema(
    [
        ("card", pa.string()),
        ("minute", pa.timestamp("us", "UTC")),
        ("payments", pa.int64()),
        ("cents", pa.int64()),
    ]
)
SUSPICIOUS = 3
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pipeline(source={"stream": "payments"}, sink={"stream": "alerts"})
def fraud(payments: DataFrame) -> DataFrame:
    per_minute = (
        payments.withWatermark("paid_at", "30 seconds")
        .groupBy("card", window("paid_at", "1 minute"))
        .agg(count("*").alias("payments"), total("cents").alias("cents"))
    )
    return per_minute.where(col("payments") >= SUSPICIOUS).select(
        "card", col("window.start").alias("minute"), "payments", "cents"
    )


def payment(card: str, cents: int, second: int) -> dict[str, object]:
    return {"card": card, "cents": cents, "paid_at": NOON + timedelta(seconds=second)}


def rows(*payments: dict[str, object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(payments), schema=PAYMENTS)


def run(spark: SparkSession, url: str, folder: Path) -> list[dict[str, object]]:
    """The alerts, after three runs with payments that come in between."""
    place = Place({"url": url}, checkpoints=str(folder), once=True)
    arrivals = [
        # Alice pays three times in the first minute, but one of these arrives later.
        rows(payment("alice", 100, 5), payment("bob", 700, 6), payment("alice", 200, 59)),
        # Late, but the watermark stands at 12:00:29 only. Dave's payment takes it to 12:09:30.
        rows(
            payment("alice", 300, 30),
            *(payment("carol", 50, 60 + n) for n in range(4)),
            payment("dave", 1, 600),
        ),
        # Too late: the first minute has been judged.
        rows(payment("bob", 700, 7), payment("bob", 700, 8)),
    ]
    with tstreams.connect(url) as ts:
        ts.create_stream("payments", schema=PAYMENTS)
        ts.create_stream("alerts", schema=ALERTS)
        with ts.producer("payments") as producer:
            for arrived in arrivals:
                producer.instant(arrived)
                fraud.prepare(spark, place).start().awaitTermination()
        found = [row for txn in ts.scan("alerts", 0) for row in txn.to_arrow().to_pylist()]
    return sorted(found, key=lambda it: str(it["card"]))


def main() -> None:
    """Tell what happened."""
    spark = session(settings={"spark.log.level": "OFF"})
    with tempfile.TemporaryDirectory() as name:
        with Node(Path(name) / "data", ["tcp://127.0.0.1:0"]).in_thread() as node:
            alerts = run(spark, node.addresses[0], Path(name) / "checkpoints")
        spark.stop()
    for alert in alerts:
        print(f"{alert['card']}: {alert['payments']} payments, {alert['cents']} cents in a minute")


if __name__ == "__main__":
    main()
