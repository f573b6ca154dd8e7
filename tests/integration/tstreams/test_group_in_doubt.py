"""A group whose server goes away at the wrong moment: whoever goes on with it loses and repeats nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tstreams import CheckpointGroup, Client, Consumer, InvalidState, Producer, Unavailable

from .conftest import eventually
from .faces import Face
from .servers import ServerProcess
from .test_restarts import ts

__all__ = ["ts"]


FED = [b"one" * 1_000_000, b"two", b"three"]


@dataclass
class Job:
    """Copies clicks to another stream, with a client that does not wait for long."""

    client: Client
    consumer: Consumer
    producer: Producer
    group: CheckpointGroup

    def copy(self) -> None:
        """What was read and is to be written belongs to the next checkpoint."""
        read = self.consumer.get(0, timeout=20)
        assert read is not None
        self.producer.open(0).send_many(list(read.items))

    def wait_until_sent(self) -> None:
        """The answer to this comes after what was sent before has arrived. (Large items are sent at once.)"""
        self.producer.open(1).cancel()


@pytest.fixture
def job(server: ServerProcess, ts: Client, face: Face) -> Iterator[Job]:
    ts.create_stream("out", partitions=2)
    producer = ts.producer("clicks")
    for item in FED:
        producer.instant([item], partition=0)
    with face.connect(server.address, timeout=1.0) as client:
        yield make(client)


def make(client: Client) -> Job:
    """A job under the only name there is."""
    consumer, producer = client.consumer("clicks", "job"), client.producer("out", "job")
    group = client.checkpoint_group()
    group.add(consumer)
    group.add(producer)
    return Job(client, consumer, producer, group)


def come_back(server: ServerProcess, job: Job) -> None:
    """The server is there again, and the job's client has noticed."""

    def is_connected() -> bool:
        try:
            return bool(job.client.streams())
        except Unavailable:
            return False

    server.start()
    eventually(is_connected)


def finish(job: Job) -> None:
    """Copy the rest."""
    while job.consumer.position(0) != last_id(job.client, "clicks"):
        with job.group:
            job.copy()


def last_id(client: Client, stream: str) -> int:
    with client.consumer(stream) as consumer:
        last = consumer.last(0)
        assert last is not None
        return last.id


def written(ts: Client) -> list[bytes]:
    with ts.consumer("out") as consumer:
        return [bytes(item) for txn in consumer.read(max_wait=2.0) for item in txn.items]


def test_what_could_not_be_cancelled_is_not_written_later(
    server: ServerProcess, ts: Client, job: Job
) -> None:
    def fail() -> None:
        with job.group:
            job.copy()
            job.wait_until_sent()
            server.kill()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    come_back(server, job)
    finish(job)
    assert written(ts) == FED


def test_a_cancel_that_failed_has_cancelled_all_the_same(
    server: ServerProcess, ts: Client, job: Job
) -> None:
    job.copy()
    job.wait_until_sent()
    server.kill()
    with pytest.raises(Unavailable):
        job.group.cancel()
    come_back(server, job)
    finish(job)
    assert written(ts) == FED


def test_what_could_not_be_sent_is_read_again(server: ServerProcess, ts: Client, job: Job) -> None:
    """The items do not arrive, and so nobody asked for a checkpoint: there is no doubt."""

    def fail() -> None:
        with job.group:
            job.copy()
            server.kill()

    with pytest.raises(Unavailable):
        fail()
    come_back(server, job)
    finish(job)
    assert written(ts) == FED


@pytest.mark.core
@pytest.mark.parametrize("took_effect", [True, False])
def test_a_group_in_doubt_does_not_go_on(
    server: ServerProcess, ts: Client, job: Job, took_effect: bool, shards: int
) -> None:
    def ask_in_vain() -> None:
        with job.group:
            job.copy()
            job.wait_until_sent()
            server.pause()

    with pytest.raises(Unavailable):
        ask_in_vain()
    if took_effect:
        server.go_on()
    else:
        server.kill()
        come_back(server, job)
    if (
        shards > 1
    ):  # it was not prepared everywhere, and so nobody has decided on it: there is no doubt
        finish(job)
        assert written(ts) == FED
        return
    for use in (job.group.checkpoint, job.group.cancel):
        with pytest.raises(InvalidState, match="nobody knows"):
            use()
    finish(make(ts))
    assert written(ts) == FED
