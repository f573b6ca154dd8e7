"""Payments, made up: of a tick and a partition, always the same ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .story import BATCH, CARDS, COUNTRIES, DELAY_S_MAX, MORNING, PARTITIONS, PAYMENT, Day

FRAUD_EVERY = 5
"""About every so many transactions hold a fraud."""
ABROAD = 0.02
LATE = 0.03
MINUTE_US = 60_000_000
PHANTOM_CENTS = 1_000_000
"""What is never to be counted is large, so that it would show."""
CLOSING_ID = -1
"""The payment that is none: it only says that the day is over."""

_countries = pa.array(COUNTRIES)


def batch(day: Day, tick: int, partition: int) -> pa.RecordBatch:
    """What one transaction holds."""
    rng = np.random.default_rng((day.seed, tick, partition))
    count = day.count(tick, partition)
    ids = (tick * PARTITIONS + partition) * BATCH + np.arange(count)
    cards = rng.integers(0, CARDS // PARTITIONS, count) * PARTITIONS + partition
    homes = cards // PARTITIONS % len(COUNTRIES)
    away = rng.integers(0, len(COUNTRIES), count)
    countries = np.where(rng.random(count) < ABROAD, away, homes)
    cents = (100 * np.exp(rng.normal(3.0, 1.0, count))).astype(np.int64) + 100
    late_us = np.where(rng.random(count) < LATE, rng.integers(0, DELAY_S_MAX * 10**6, count), 0)
    times = tick * MINUTE_US + rng.integers(0, MINUTE_US, count) - late_us
    if rng.integers(0, FRAUD_EVERY) == 0 and count >= 10:
        _commit_fraud(rng, cards, countries, cents, times, tick)
    return _batch(ids, cards, cents, countries, times)


def _commit_fraud(
    rng: np.random.Generator,
    cards: np.ndarray,
    countries: np.ndarray,
    cents: np.ndarray,
    times: np.ndarray,
    tick: int,
) -> None:
    """Let the first payments be those of one card, which somebody has stolen."""
    kind = rng.integers(0, 3)
    count = (9, 4, 3)[kind]
    cards[:count] = cards[0]
    times[:count] = tick * MINUTE_US + np.sort(rng.integers(0, MINUTE_US, count))
    if kind == 0:
        cents[:count] = rng.integers(100, 1500, count)
    elif kind == 1:
        countries[:count] = rng.permutation(len(COUNTRIES))[:count]
    else:
        cents[:count] = rng.integers(180_000, 400_000, count)


def phantoms(tick: int, partition: int) -> pa.RecordBatch:
    """Payments that are not to be counted: their transaction is cancelled, or expires."""
    at = np.arange(BATCH)
    ids = -((tick * PARTITIONS + partition) * BATCH + at) - 2
    cards = np.full(BATCH, partition)
    times = tick * MINUTE_US + at
    return _batch(ids, cards, np.full(BATCH, PHANTOM_CENTS), at % len(COUNTRIES), times)


def closing_mark(day: Day, partition: int) -> pa.RecordBatch:
    """The last transaction of a partition."""
    elapsed_us = np.array([(day.closing - MORNING).total_seconds() * 10**6]).astype(np.int64)
    nothing = np.zeros(1, np.int64)
    return _batch(np.array([CLOSING_ID]), nothing + partition, nothing, nothing, elapsed_us)


def _batch(
    ids: np.ndarray, cards: np.ndarray, cents: np.ndarray, countries: np.ndarray, us: np.ndarray
) -> pa.RecordBatch:
    """`us`: microseconds since the morning."""
    begun_us = int(MORNING.timestamp()) * 10**6
    columns = [
        pa.array(ids, pa.int64()),
        pa.array(cards, pa.int64()),
        pa.array(cents, pa.int64()),
        _countries.take(pa.array(countries)),
        pa.array(us + begun_us, pa.int64()).cast(PAYMENT.field("time").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PAYMENT)
