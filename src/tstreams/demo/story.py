"""The story: what a payment is, what counts as fraud, and how long the day is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

PAYMENTS, ALERTS, TOTALS = "payments", "alerts", "totals"

PARTITIONS = 4
PRODUCERS = 2
"""Processes. Each writes to some of the partitions, into all of them at once, atomically."""

PAYMENT = pa.schema(
    [
        pa.field("payment", pa.int64(), nullable=False),
        pa.field("card", pa.int64(), nullable=False),
        pa.field("amount_cents", pa.int64(), nullable=False),
        pa.field("country", pa.string(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
COUNTRIES = ("AT", "BE", "CH", "DE", "ES", "FR", "IT", "NL", "PL", "PT")
CARDS = 20_000
"""Cards are numbered. The last digits of a card's number say in which partition its payments are."""

BATCH = 100
"""Payments of one transaction."""
CANCEL_EVERY = 25
"""One in so many ticks, a producer also fills a transaction that it cancels."""
CARELESS = 4
"""So many times a day, a terminal loses power in the middle of a transaction, which then expires."""
TRANSACTIONS_PER_TRIGGER = 400
"""How much a micro-batch reads, at most."""
MINUTE = timedelta(minutes=1)
"""What a tick is: each partition gets one transaction for each minute of the day."""
MORNING = datetime(2026, 3, 2, tzinfo=UTC)

WINDOW_MINUTES = 10
LEAD_TICKS = 10
"""How far a producer may be ahead of the slowest."""
DELAY_S_MAX = 180
"""How late a payment may be written, by the day's clock."""
WATERMARK_MINUTES = 30
"""How late Spark lets a payment come. More than the two above together: so that none is too late, and the
result depends on the input alone, and not on where micro-batches end."""

BURST_PAYMENTS = 8
TRAVEL_COUNTRIES = 3
SPREE_CENTS = 500_000
PATTERNS = {
    "burst": f"{BURST_PAYMENTS} payments or more",
    "travel": f"{TRAVEL_COUNTRIES} countries or more",
    "spree": f"{SPREE_CENTS // 100:,} EUR or more",
}
"""What is suspicious of one card, in one window."""


@dataclass(frozen=True, slots=True)
class Day:
    """How many payments there are, and how they are spread over ticks and partitions."""

    payments: int
    seed: int = 1

    @property
    def ticks(self) -> int:
        """How many minutes the day has."""
        return math.ceil(self.payments / (BATCH * PARTITIONS))

    def count(self, tick: int, partition: int) -> int:
        """How many payments a transaction holds: as many as all others, but for the last tick."""
        left = self.payments - tick * BATCH * PARTITIONS
        if left >= BATCH * PARTITIONS:
            return BATCH
        return left // PARTITIONS + (partition < left % PARTITIONS)

    @property
    def end(self) -> datetime:
        """When it is over."""
        return MORNING + self.ticks * MINUTE

    @property
    def closed(self) -> datetime:
        """When the watermark has come here, all windows of the day are closed."""
        return self.end + timedelta(minutes=WINDOW_MINUTES)

    @property
    def closing(self) -> datetime:
        """The time of the last mark, which closes all windows: the next day has begun."""
        return self.end + timedelta(days=1)
