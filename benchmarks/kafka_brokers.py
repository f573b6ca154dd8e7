"""Three Kafka brokers that keep three copies of everything, each of them a controller too."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .interface import BenchmarkFailed
from .kafka import FLUSH, Kafka, broker_command, cluster_id, format_storage
from .servers import HOST, ServerProcess, connected, free_ports, running

COPIES = 3
DURABILITY = f"acks=all of {COPIES} replicas, at least 2 of them in sync, {FLUSH}"
_READY_WITHIN_S = 120.0

SETTINGS = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}
auto.create.topics.enable=false
default.replication.factor=3
min.insync.replicas=2
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=3
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
{flush}
"""


class Brokers:
    """Brokers that run, as one server."""

    def __init__(self, brokers: list[ServerProcess]) -> None:
        self._brokers = brokers
        self.ports = tuple(broker.port for broker in brokers)

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [broker.process.pid for broker in self._brokers]

    def check(self) -> None:
        """Raise if one has ended."""
        for broker in self._brokers:
            broker.check()


@contextlib.contextmanager
def kafka_brokers(kafka: Kafka, folder: Path) -> Iterator[Brokers]:
    """Three brokers in folders of their own, when all three take part."""
    ports = free_ports(2 * COPIES)
    settings = _write_settings(folder, ports)
    cluster = cluster_id()
    with ThreadPoolExecutor(COPIES) as pool:
        list(pool.map(lambda it: format_storage(kafka, it, cluster), settings))
    with contextlib.ExitStack() as stack:
        brokers = []
        for number, path in enumerate(settings):
            name, command = f"kafka {number + 1}", broker_command(kafka, path)
            broker = stack.enter_context(running(name, command, path.parent))
            broker.port = ports[2 * number]
            brokers.append(broker)
        for broker in brokers:
            connected(broker, within_s=_READY_WITHIN_S).close()
        _wait_for_all(ports[::2])
        yield Brokers(brokers)


def _write_settings(folder: Path, ports: list[int]) -> list[Path]:
    voters = ",".join(f"{at + 1}@{HOST}:{ports[2 * at + 1]}" for at in range(COPIES))
    written = []
    for at in range(COPIES):
        own = folder / f"broker-{at + 1}"
        own.mkdir()
        text = SETTINGS.format(
            number=at + 1,
            voters=voters,
            host=HOST,
            port=ports[2 * at],
            controller_port=ports[2 * at + 1],
            folder=own / "data",
            flush=FLUSH,
        )
        path = own / "server.properties"
        path.write_text(text)
        written.append(path)
    return written


def _wait_for_all(ports: list[int]) -> None:
    """A topic can have three replicas only when three brokers have registered."""
    import confluent_kafka.admin

    brokers = ",".join(f"{HOST}:{port}" for port in ports)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    until = time.monotonic() + _READY_WITHIN_S
    while len(admin.list_topics(timeout=_READY_WITHIN_S).brokers) < COPIES:
        if time.monotonic() > until:
            raise BenchmarkFailed("three Kafka brokers do not find one another")
        time.sleep(0.1)
