"""Leaders that die, or only seem to: in processes of their own, on the servers of an engine."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tstreams
from tests.integration.engines import servers_of
from tests.integration.replicas.processes import Pair
from tstreams import Offset
from tstreams.errors import Error


@pytest.fixture(params=["jetstream-3", "bookkeeper"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    found = servers_of(request.param, request)
    assert found is not None
    pair = Pair(tmp_path, found)
    for node in pair.nodes.values():
        node.start()
    yield pair
    for node in pair.nodes.values():
        node.close()


class Writer:
    """Writes numbers, one after the other, and notes which of them were acknowledged."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.acknowledged: list[bytes] = []
        self.some = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with (
            contextlib.suppress(Error),
            tstreams.connect(self._address, timeout=3.0) as ts,
            ts.producer("clicks", name=f"p-{self._address}") as producer,
        ):
            for number in range(1_000_000):
                item = b"%s %d" % (self._address.encode(), number)
                producer.instant([item], partition=0)
                self.acknowledged.append(item)
                if number == 50:
                    self.some.set()

    def wait(self) -> list[bytes]:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.acknowledged


def read_all(address: str) -> list[bytes]:
    with (
        tstreams.connect(address) as ts,
        ts.consumer("clicks", name="reader", start=Offset.oldest()) as consumer,
    ):
        return [item for txn in consumer.read(max_wait=0.3) for item in txn.items]


def test_nothing_that_was_acknowledged_is_lost_when_the_leader_is_killed(pair: Pair) -> None:
    a, b = pair.nodes["a"], pair.nodes["b"]
    a.lead(1)
    with tstreams.connect(a.address) as ts:
        ts.create_stream("clicks")
    writer = Writer(a.address)
    assert writer.some.wait(60)
    a.kill()
    b.lead(2)
    acknowledged = writer.wait()
    found = read_all(b.address)
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1  # one was under way
    a.start()  # what died comes back as a follower
    pair.check_agreement()


def test_a_leader_that_was_asleep_is_refused(pair: Pair) -> None:
    a, b = pair.nodes["a"], pair.nodes["b"]
    a.lead(1)
    with tstreams.connect(a.address) as ts:
        ts.create_stream("clicks")
    sleeper = Writer(a.address)
    assert sleeper.some.wait(60)
    a.pause()
    b.lead(2)
    with tstreams.connect(b.address) as ts, ts.producer("clicks", name="next") as producer:
        producer.instant([b"after"], partition=0)
        a.go_on()  # it believes that it leads
        acknowledged = sleeper.wait()  # and its client is refused
        producer.instant([b"at the end"], partition=0)
    found = read_all(b.address)
    assert found[: len(acknowledged)] == acknowledged
    assert found[-2:] == [b"after", b"at the end"], "nothing of the old leader came in between"
    with pytest.raises(Error), tstreams.connect(a.address, timeout=2.0) as ts:
        ts.create_stream("zombie")
    pair.check_agreement()
