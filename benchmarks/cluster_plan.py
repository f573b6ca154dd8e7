"""What `cluster` measures: who takes part, with which transactions, and which ratios come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .durable_clients import Writer
from .durable_plan import MANY_CLIENTS, Workload

ONE_ITEM = Workload(1, 100, MANY_CLIENTS)
TYPICAL = Workload(100, 100, MANY_CLIENTS)
LARGE = Workload(1000, 100, MANY_CLIENTS)
WORKLOADS = (ONE_ITEM, TYPICAL, LARGE)

WRITE, SCALE, READ = "write", "scale", "read"
OURS, JETSTREAM, KAFKA, IDEMPOTENT = "tstreams", "jetstream", "kafka", "kafka-idempotent"
ONE_SHARD, TWO_SHARDS = "tstreams, 1 shard", "tstreams, 2 shards"
LEADER, FOLLOWERS = "tstreams, leaders", "tstreams, followers"
SUBJECTS = (OURS, JETSTREAM, KAFKA, IDEMPOTENT, ONE_SHARD, TWO_SHARDS, LEADER, FOLLOWERS)
"""In the order of the tables."""

Key: TypeAlias = tuple[str, str, Workload]
"""Mode, subject, workload: what one figure is of."""


def _against(peer: str, workload: Workload) -> tuple[Key, Key]:
    return (WRITE, OURS, workload), (WRITE, peer, workload)


RATIOS: dict[str, tuple[Key, Key, float | None]] = {
    "items_vs_jetstream": (*_against(JETSTREAM, TYPICAL), 8.0),
    "items_vs_kafka": (*_against(KAFKA, TYPICAL), 3.0),
    "items_vs_kafka_idempotent": (*_against(IDEMPOTENT, TYPICAL), None),
    "one_item_vs_jetstream": (*_against(JETSTREAM, ONE_ITEM), None),
    "one_item_vs_kafka": (*_against(KAFKA, ONE_ITEM), None),
    "one_item_vs_kafka_idempotent": (*_against(IDEMPOTENT, ONE_ITEM), None),
    "large_vs_jetstream": (*_against(JETSTREAM, LARGE), None),
    "large_vs_kafka": (*_against(KAFKA, LARGE), None),
    "large_vs_kafka_idempotent": (*_against(IDEMPOTENT, LARGE), None),
    "two_shards_vs_one": ((SCALE, TWO_SHARDS, TYPICAL), (SCALE, ONE_SHARD, TYPICAL), 1.5),
    "followers_vs_leaders": ((READ, FOLLOWERS, TYPICAL), (READ, LEADER, TYPICAL), None),
}
"""Name: (ours, theirs, target or None where there is none)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    seconds: float
    """Of each timed phase."""
    read_transactions: int
    """That each client reads back."""
    rounds: int
    window: int
    shards: int
    """Of the cluster."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One timed phase of one round, and where the processor time went, in seconds."""

    transactions: int
    items: int
    seconds: float
    servers_cpu_s: float
    """Of nodes, or brokers, or, where nothing stands on them, NATS servers."""
    engine_cpu_s: float
    """Of what our nodes stand on: NATS and ZooKeeper."""
    clients_cpu_s: float
    idle: float
    """The share of the machine's processor time that nobody used."""

    @property
    def items_rate(self) -> float:
        """Items per second of all clients together."""
        return self.items / self.seconds


Measured: TypeAlias = dict[Key, list[Phase]]
"""By what it is of: the phases of all rounds."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A contestant that runs: how clients connect to it, and which processes are its servers."""

    name: str
    connect: Callable[[], Writer]
    durability: str
    servers: Callable[[], Sequence[int]]
    engines: Callable[[], Sequence[int]] = tuple
    modes: tuple[str, ...] = (WRITE,)
