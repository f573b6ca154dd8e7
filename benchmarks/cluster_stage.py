"""Everything that `cluster` measures, running at the same time on one machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from .cluster_lean import LeanWriter
from .cluster_plan import (
    IDEMPOTENT,
    JETSTREAM,
    KAFKA,
    ONE_SHARD,
    OURS,
    READ,
    SCALE,
    TWO_SHARDS,
    WRITE,
    Plan,
    Subject,
)
from .cluster_servers import COPIES, DURABILITY, Engines, engines, site, why_not
from .durable_clients import TstreamsWriter
from .durable_jetstream import JetStreamWriter
from .durable_kafka import KafkaIdempotentWriter, KafkaWriter
from .interface import BenchmarkFailed, Progress
from .kafka import Kafka, find_kafka
from .kafka_brokers import DURABILITY as KAFKA_DURABILITY
from .kafka_brokers import kafka_brokers
from .servers import family_of, tstreams_server

_SINGLE = "fdatasync once per group, before the replies; one copy"


class Stage:
    """The contestants, and how to see that all of their servers still run."""

    def __init__(self) -> None:
        self.subjects: list[Subject] = []
        self._checks: list[Callable[[], None]] = []

    def add(self, subject: Subject, check: Callable[[], None]) -> None:
        """One more."""
        self.subjects.append(subject)
        self._checks.append(check)

    def check(self) -> None:
        """Raise if something that should run has ended."""
        for check in self._checks:
            check()


def peers_missing() -> dict[str, str]:
    """Who cannot take part here, and why."""
    kafka = find_kafka()
    return dict.fromkeys((KAFKA, IDEMPOTENT), kafka) if isinstance(kafka, str) else {}


@contextlib.contextmanager
def stage(plan: Plan, folder: Path, missing: dict[str, str], progress: Progress) -> Iterator[Stage]:
    """Start all that is not missing. `BenchmarkFailed` if there can be no cluster here."""
    lacking = why_not()
    if lacking is not None:
        raise BenchmarkFailed(f"there can be no cluster here: {lacking}")
    made = Stage()
    with contextlib.ExitStack() as stack:
        progress("starting ZooKeeper, three NATS servers, and three nodes")
        base = stack.enter_context(engines(_own(folder, "engines")))
        _add_cluster(made, stack, plan, base, _own(folder, "nodes"))
        if JETSTREAM not in missing:
            connect = partial(JetStreamWriter, *base.nats_ports, replicas=COPIES)
            how = f"{COPIES} replicas, sync_interval always, on the NATS servers of the cluster"
            made.add(Subject(JETSTREAM, connect, how, lambda: base.nats_pids), base.check)
        kafka = find_kafka()
        if not isinstance(kafka, str) and not {KAFKA, IDEMPOTENT} <= missing.keys():
            progress("starting three Kafka brokers")
            _add_kafka(made, stack, kafka, _own(folder, "kafka"), missing)
        for name, shards in ((ONE_SHARD, 1), (TWO_SHARDS, 2)):
            if name not in missing:
                _add_single(made, stack, name, shards, _own(folder, f"shards-{shards}"))
        yield made


def _own(folder: Path, name: str) -> Path:
    own = folder / name
    own.mkdir()
    return own


def _add_cluster(
    made: Stage, stack: contextlib.ExitStack, plan: Plan, base: Engines, folder: Path
) -> None:
    cluster = stack.enter_context(site(base, folder, plan.shards))
    leader = cluster.leaders()[0]
    assert leader is not None, "it has come to rest"
    subject = Subject(
        OURS,
        partial(TstreamsWriter, leader.port),
        DURABILITY,
        lambda: cluster.node_pids,
        lambda: [*base.nats_pids, base.zookeeper.pid],
        (WRITE, READ),
    )
    made.add(subject, cluster.check)


def _add_kafka(
    made: Stage,
    stack: contextlib.ExitStack,
    kafka: Kafka,
    folder: Path,
    missing: dict[str, str],
) -> None:
    brokers = stack.enter_context(kafka_brokers(kafka, folder))
    transactions = f"{KAFKA_DURABILITY}; transactions, one under way for each client"
    alone = f"{KAFKA_DURABILITY}; no transactions, items by themselves"
    for name, writer, how in (
        (KAFKA, KafkaWriter, transactions),
        (IDEMPOTENT, KafkaIdempotentWriter, alone),
    ):
        if name not in missing:
            connect = partial(writer, *brokers.ports, replicas=COPIES)
            made.add(Subject(name, connect, how, lambda: brokers.pids), brokers.check)


def _add_single(
    made: Stage, stack: contextlib.ExitStack, name: str, shards: int, folder: Path
) -> None:
    server = stack.enter_context(tstreams_server(folder, shards=shards))
    subject = Subject(
        name,
        partial(LeanWriter, server.port),
        _SINGLE,
        lambda: family_of(server.process.pid),
        modes=(SCALE,),
    )
    made.add(subject, server.check)
