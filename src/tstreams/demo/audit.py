"""The audit: what should be in the streams is computed anew from the payments, in a batch job, and compared.

`python -m tstreams.demo.audit URL FOLDER ACKNOWLEDGED FINDINGS` writes what it has found into a file, as JSON. It
shares no code with the pipeline: no windows, no watermarks, no state, only sums.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from tstreams.demo.driver import settings
from tstreams.demo.payments import CLOSING_ID
from tstreams.demo.story import (
    ALERTS,
    BURST_PAYMENTS,
    PAYMENTS,
    SPREE_CENTS,
    TOTALS,
    TRAVEL_COUNTRIES,
    WINDOW_MINUTES,
)
from tstreams.spark import session

EXAMPLES_MAX = 10

ALERT = "pattern string, card bigint, window string, payments bigint, amount_cents bigint, countries bigint"
TOTAL = "country string, window string, payments bigint, amount_cents bigint"

COUNTED = """
select payment, card, country, amount_cents, floor(unix_seconds(time) / :window_s) * :window_s as since
from payments where payment <> :closing
"""
FORMATTED = """date_format(timestamp_seconds(since), "yyyy-MM-dd'T'HH:mm'Z'") as window"""
EXPECTED_TOTALS = """
select country, since, count(*) as payments, sum(amount_cents) as amount_cents
from counted group by country, since
"""
EXPECTED_ALERTS = """
with places as (
    select card, since, country, count(*) as payments, sum(amount_cents) as amount_cents
    from counted group by card, since, country),
cards as (
    select card, since, sum(payments) as payments, sum(amount_cents) as amount_cents,
        count(*) as countries
    from places group by card, since)
select *, explode(array_compact(array(
    if(payments >= :burst, 'burst', null),
    if(countries >= :travel, 'travel', null),
    if(amount_cents >= :spree, 'spree', null)))) as pattern
from cards
"""
LIMITS = {"burst": BURST_PAYMENTS, "travel": TRAVEL_COUNTRIES, "spree": SPREE_CENTS}


@dataclass(slots=True)
class Findings:
    """What the audit has found. The first three must be 0, and so must `phantoms`."""

    missing: int = 0
    duplicated: int = 0
    strange: int = 0
    """Results that no input accounts for."""
    phantoms: int = 0
    """Payments of transactions that were cancelled or have expired, and are there all the same."""
    payments: int = 0
    alerts: int = 0
    totals: int = 0
    patterns: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    @property
    def are_good(self) -> bool:
        """Whether everything is there once, and nothing else."""
        return not (self.missing or self.duplicated or self.strange or self.phantoms)


def audit(spark: SparkSession, url: str, acknowledged: int) -> Findings:
    """Compare. `acknowledged`: how many payments the producers know to be there."""
    findings = Findings()
    _read(spark, url, PAYMENTS).createOrReplaceTempView("payments")
    counted = spark.sql(COUNTED, {"window_s": 60 * WINDOW_MINUTES, "closing": CLOSING_ID})
    counted.cache().createOrReplaceTempView("counted")
    _judge_payments(spark, acknowledged, findings)
    alerts, totals = _parsed(spark, url, ALERTS, ALERT), _parsed(spark, url, TOTALS, TOTAL)
    expected_alerts = spark.sql(EXPECTED_ALERTS, LIMITS).selectExpr("*", FORMATTED).drop("since")
    expected_totals = spark.sql(EXPECTED_TOTALS).selectExpr("*", FORMATTED).drop("since")
    findings.alerts = _compare(ALERTS, expected_alerts, alerts, findings)
    findings.totals = _compare(TOTALS, expected_totals, totals, findings)
    counts = alerts.groupBy("pattern").count().orderBy("pattern").collect()
    findings.patterns = {str(it["pattern"]): it["count"] for it in counts}
    spark.catalog.clearCache()
    return findings


def _read(spark: SparkSession, url: str, stream: str) -> DataFrame:
    return spark.read.format("tstreams").option("url", url).option("stream", stream).load()


def _parsed(spark: SparkSession, url: str, stream: str, columns: str) -> DataFrame:
    """The items of a stream as rows. What is no such item becomes a row of nulls."""
    item = fn.from_json(fn.col("item").cast("string"), columns)
    return _read(spark, url, stream).select(item.alias("it")).select("it.*").cache()


def _judge_payments(spark: SparkSession, acknowledged: int, findings: Findings) -> None:
    """The input itself: each payment that was acknowledged, once, and no other."""
    found = spark.sql(
        "select count(*) as rows, count(distinct payment) as payments, "
        "count_if(payment < 0) as phantoms from counted"
    ).first()
    assert found is not None
    findings.payments = found["rows"]
    findings.phantoms = found["phantoms"]
    _note(findings, "duplicated", PAYMENTS, found["rows"] - found["payments"])
    real = found["payments"] - found["phantoms"]
    _note(findings, "missing", PAYMENTS, max(0, acknowledged - real))
    _note(findings, "strange", PAYMENTS, max(0, real - acknowledged))


def _compare(stream: str, expected: DataFrame, found: DataFrame, findings: Findings) -> int:
    """Item by item. How many were found."""
    both = expected.withColumn("side", fn.lit(1)).unionByName(found.withColumn("side", fn.lit(-1)))
    wanted, there = fn.count_if(fn.col("side") == 1), fn.count_if(fn.col("side") == -1)
    pairs = both.groupBy(*found.columns).agg(wanted.alias("wanted"), there.alias("there")).cache()
    wrong = pairs.where("wanted <> there")
    for row in wrong.collect():
        wanted_, there_ = row["wanted"], row["there"]
        kind = "missing" if there_ < wanted_ else "duplicated" if wanted_ else "strange"
        about = {name: row[name] for name in found.columns}
        _note(findings, kind, f"{stream}: {about}", abs(wanted_ - there_))
    counted = pairs.agg(fn.sum("there")).first()
    assert counted is not None
    return int(counted[0] or 0)


def _note(findings: Findings, kind: str, what: str, count: int) -> None:
    if count:
        setattr(findings, kind, getattr(findings, kind) + count)
        if len(findings.examples) < EXAMPLES_MAX:
            findings.examples.append(f"{kind}: {what}" + (f" ({count} times)" if count > 1 else ""))


def main() -> None:
    """The job."""
    url, folder, acknowledged, findings = sys.argv[1:]
    spark = session("tstreams demo: audit", "local[2]", settings(Path(folder)))
    spark.sparkContext.setLogLevel("ERROR")
    found = audit(spark, url, int(acknowledged))
    Path(findings).write_text(json.dumps(asdict(found)))
    spark.stop()


if __name__ == "__main__":
    main()
