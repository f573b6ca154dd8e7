"""Clients whose leaders are killed, or stand still: in processes of their own, on JetStream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import tstreams
from tests.integration.replicas.processes import Pair
from tests.integration.replicas.traffic import Traffic
from tests.integration.tstreams.conftest import eventually
from tests.integration.tstreams.faces import FACES, Face
from tstreams.cluster.engines.nats import NatsServers


@pytest.fixture(params=list(FACES))
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    with contextlib.closing(FACES[request.param]()) as face:
        yield face


@pytest.fixture
def pair(tmp_path: Path, one_server: NatsServers) -> Iterator[Pair]:
    pair = Pair(tmp_path, one_server)
    for node in pair.nodes.values():
        node.start()
    yield pair
    for node in pair.nodes.values():
        node.close()


def test_all_goes_on_when_leaders_are_killed(pair: Pair, face: Face) -> None:
    a, b = pair.nodes["a"], pair.nodes["b"]
    a.lead(1)
    with face.connect([a.address, b.address]) as ts, Traffic(ts) as traffic:
        traffic.go_on()
        for epoch, (old, new) in enumerate([(a, b), (b, a), (a, b)], 2):
            old.kill()
            new.lead(epoch)
            traffic.go_on()
            old.start()
        traffic.finish()
    pair.check_agreement()


def test_a_leader_that_stands_still_is_left_while_there_is_a_connection_to_it(pair: Pair) -> None:
    a, b = pair.nodes["a"], pair.nodes["b"]
    a.lead(1)
    with tstreams.connect(f"{a.address},{b.address}") as ts:
        ts.create_stream("clicks")
        producer = ts.producer("clicks", name="p")
        producer.instant([b"before"], partition=0)
        a.pause()
        under_way = [producer.instant([b"%d" % it], partition=0, wait=False) for it in range(3)]
        b.lead(2)
        ids = [it.result(60) for it in under_way]
        assert ids == sorted(ids)
        routing = ts._link.shards.routing
        assert routing is not None
        left = routing.stations.seed
        assert (left.connected, left.silent) == (True, True)
        a.go_on()
        eventually(lambda: not left.silent)
        assert [it.items[0] for it in ts.scan("clicks", 0)] == [b"before", b"0", b"1", b"2"]
        producer.close()


@pytest.mark.slow
def test_all_goes_on_when_a_leader_stands_still_and_comes_back(pair: Pair, face: Face) -> None:
    a, b = pair.nodes["a"], pair.nodes["b"]
    a.lead(1)
    with face.connect(f"{a.address},{b.address}") as ts, Traffic(ts) as traffic:
        traffic.go_on()
        a.pause()
        b.lead(2)
        traffic.go_on()  # it says nothing, so another is asked who leads
        a.go_on()  # it believes that it leads, and says so
        traffic.go_on()
        a.pause()
        a.go_on()
        traffic.go_on()
        traffic.finish()
    pair.check_agreement()
