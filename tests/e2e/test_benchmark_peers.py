"""Each peer of `durable` and `latency` that needs a server from elsewhere: it writes, is read, and is gone afterwards."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks import durable_plan, latency_plan
from benchmarks.durable_clients import WRITERS, make_items
from benchmarks.durable_kafka import KafkaWriter
from benchmarks.kafka import find_kafka
from benchmarks.kafka_brokers import kafka_brokers
from benchmarks.latency_clients import TALKERS
from benchmarks.rabbitmq import RabbitMQ, find_rabbitmq, rabbitmq_server
from benchmarks.rabbitmq_streams import Refused, StreamConnection
from benchmarks.servers import HOST

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("benchmark peers")]
ITEMS, WINDOW, TRANSACTIONS = 7, 4, 20
MESSAGES, RATE = 20, 200


@contextlib.contextmanager
def serving(
    plan: tuple[list[durable_plan.Subject], dict[str, str]]
    | tuple[list[latency_plan.Subject], dict[str, str]],
    name: str,
    folder: Path,
) -> Iterator[int]:
    """The port of that contestant's server; skipped with the reason where there is none."""
    subjects, missing = plan
    if name in missing:
        pytest.skip(f"{name}: {missing[name]}")
    (serve,) = [subject.serve for subject in subjects if subject.name == name]
    with serve(folder) as server:
        yield server.port
        server.check()


@pytest.mark.parametrize(
    "name",
    ["postgres", "kafka", "kafka-idempotent", "rabbitmq-streams", "rabbitmq-batch"],
)
def test_every_transaction_is_acknowledged(tmp_path: Path, name: str) -> None:
    with serving(durable_plan.make_subjects(), name, tmp_path) as port:
        writers = [WRITERS[name](port) for _ in range(2)]
        writers[0].create("stream", len(writers))
        for number, writer in enumerate(writers):
            writer.open("stream", number)
            done = writer.write(make_items(ITEMS, 100), WINDOW, 100.0, TRANSACTIONS)
            assert done == TRANSACTIONS
        for number, writer in enumerate(writers):
            writer.drop("stream", number)
            writer.close()


def test_three_brokers_keep_three_copies(tmp_path: Path) -> None:
    kafka = find_kafka()
    if isinstance(kafka, str):
        pytest.skip(kafka)
    with kafka_brokers(kafka, tmp_path) as brokers:
        writer = KafkaWriter(*brokers.ports, replicas=3)
        writer.create("stream", 1)
        writer.open("stream", 0)
        assert writer.write(make_items(ITEMS, 100), WINDOW, 100.0, TRANSACTIONS) == TRANSACTIONS
        (partition,) = writer.replicas_of("stream")
        assert (sorted(partition.replicas), sorted(partition.isrs)) == ([1, 2, 3], [1, 2, 3])
        writer.close()
        brokers.check()
        pids = brokers.pids
    assert not any(map(psutil.pid_exists, pids))


@pytest.mark.parametrize("name", ["postgres", "kafka", "rabbitmq-streams"])
def test_every_message_is_heard(tmp_path: Path, name: str) -> None:
    with serving(latency_plan.make_subjects(), name, tmp_path) as port:
        sender, receiver = TALKERS[name](port), TALKERS[name](port)
        for job in ("first", "second"):
            sender.create(job)
            receiver.listen(job, MESSAGES)
            assert sender.send(job, MESSAGES, RATE) > 0
            heard = receiver.heard()
            assert len(heard) == MESSAGES
            assert min(heard) > 0
        sender.close()
        receiver.close()


@pytest.fixture
def rabbitmq() -> RabbitMQ:
    found = find_rabbitmq()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def listened_on() -> set[str]:
    """The addresses at which processes that were started here accept connections."""
    return {
        it.laddr.ip
        for process in psutil.Process().children(recursive=True)
        for it in process.net_connections("inet")
        if it.status == psutil.CONN_LISTEN
    }


def test_rabbitmq_stores_what_it_confirms_and_is_gone_in_the_end(
    tmp_path: Path, rabbitmq: RabbitMQ
) -> None:
    items = make_items(ITEMS, 100)
    with rabbitmq_server(rabbitmq, tmp_path) as server:
        writer, reader = StreamConnection(server.port), StreamConnection(server.port)
        with pytest.raises(Refused, match="code 2"):
            writer.declare_publisher("there-is-none")
        writer.create("stream")
        writer.declare_publisher("stream")
        for _ in range(TRANSACTIONS):
            writer.publish(items)
        writer.wait_confirmed(TRANSACTIONS * ITEMS)
        assert writer.confirmed == TRANSACTIONS * ITEMS
        reader.subscribe("stream")
        found: list[bytes] = []
        while len(found) < TRANSACTIONS * ITEMS:
            reader.receive(found.append)
        assert found == items * TRANSACTIONS
        assert listened_on() <= {HOST, "::1"}, "it can be reached from this machine alone"
        reader.unsubscribe()
        for connection in (writer, reader):
            connection.close()
        pid, port = server.process.pid, server.port
    assert not Path(f"/proc/{pid}").exists()
    with socket.socket() as probe:
        assert probe.connect_ex((HOST, port)) != 0
    assert os.listdir(tmp_path / "data")
