"""The demo's audit agrees with the pipeline, and notices whatever is missing, doubled or wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tstreams
from tstreams import Client
from tstreams.demo import pipeline
from tstreams.demo.audit import Findings, audit
from tstreams.demo.payments import batch, closing_mark, phantoms
from tstreams.demo.story import ALERTS, PARTITIONS, PAYMENT, PAYMENTS, TOTALS, Day
from tstreams.server import Node

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
"""With the others that share a session: each would start a Java of its own."""

DAY = Day(8000)


@dataclass
class Books:
    """A server with the payments of a short day, and what the pipeline makes of them."""

    spark: SparkSession
    ts: Client
    url: str
    results: dict[str, list[bytes]]

    def audit(self, results: dict[str, list[bytes]], acknowledged: int = DAY.payments) -> Findings:
        """What the audit says if these are the results."""
        for stream, items in results.items():
            self.ts.create_stream(stream)
            with self.ts.producer(stream) as producer:
                producer.instant(items)
        try:
            return audit(self.spark, self.url, acknowledged)
        finally:
            for stream in results:
                self.ts.delete_stream(stream)


@pytest.fixture(scope="module")
def books(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Books]:
    folder: Path = tmp_path_factory.mktemp("books")
    with Node(folder, ["tcp://127.0.0.1:0"]).in_thread() as node:
        url = node.addresses[0]
        with tstreams.connect(url) as ts:
            ts.create_stream(PAYMENTS, PARTITIONS, schema=PAYMENT)
            with ts.producer(PAYMENTS) as producer:
                for partition in range(PARTITIONS):
                    for tick in range(DAY.ticks):
                        producer.instant(batch(DAY, tick, partition), partition)
                    producer.instant(closing_mark(DAY, partition), partition)
            payments = spark.read.format("tstreams").option("url", url)
            found = payments.option("stream", PAYMENTS).load().where("payment >= 0")
            results: dict[str, list[bytes]] = {ALERTS: [], TOTALS: []}
            for row in pipeline.results(pipeline.windows(found)).collect():
                results[row["stream"]].append(row["item"].encode())
            yield Books(spark, ts, url, results)


def test_the_audit_agrees_with_the_pipeline(books: Books) -> None:
    findings = books.audit(books.results)
    assert findings.are_good, findings
    assert findings.examples == []
    assert findings.payments == DAY.payments
    assert findings.alerts == len(books.results[ALERTS]) == sum(findings.patterns.values()) > 20
    assert findings.totals == len(books.results[TOTALS]) > 20
    assert findings.patterns.keys() == {"burst", "spree", "travel"}


def lose_an_alert(results: dict[str, list[bytes]]) -> None:
    """Any."""
    results[ALERTS].pop(3)


def repeat_a_total(results: dict[str, list[bytes]]) -> None:
    """As a micro-batch does that is written twice."""
    results[TOTALS].append(results[TOTALS][5])


def change_an_amount(results: dict[str, list[bytes]]) -> None:
    """By a cent."""
    total = json.loads(results[TOTALS][0])
    total["amount_cents"] += 1
    results[TOTALS][0] = json.dumps(total).encode()


def write_nonsense(results: dict[str, list[bytes]]) -> None:
    """Which is no alert at all."""
    results[ALERTS].append(b"nonsense")


@pytest.mark.parametrize(
    ("spoil", "counts"),
    [
        (lose_an_alert, (1, 0, 0)),
        (repeat_a_total, (0, 1, 0)),
        (change_an_amount, (1, 0, 1)),
        (write_nonsense, (0, 0, 1)),
    ],
)
def test_the_audit_notices(
    books: Books, spoil: Callable[[dict[str, list[bytes]]], None], counts: tuple[int, int, int]
) -> None:
    results = {stream: list(items) for stream, items in books.results.items()}
    spoil(results)
    findings = books.audit(results)
    assert (findings.missing, findings.duplicated, findings.strange) == counts
    assert not findings.are_good
    assert len(findings.examples) == sum(counts)


def test_the_audit_notices_payments_that_are_lost_doubled_or_should_not_be_there(
    books: Books,
) -> None:
    findings = books.audit(books.results, DAY.payments + 2)
    assert (findings.missing, findings.duplicated, findings.phantoms) == (2, 0, 0)
    with books.ts.producer(PAYMENTS) as producer:
        producer.instant(batch(DAY, 0, 0).slice(0, 3), 0)
        producer.instant(phantoms(0, 0).slice(0, 5), 0)
    findings = books.audit(books.results)
    assert findings.duplicated == 3
    assert findings.phantoms == 5
    assert findings.missing > 0  # the totals that these payments are in
    assert not findings.are_good
