"""Clients whose shards move from node to node: nothing is lost, repeated or out of order, and nobody sees an error."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.replicas.sites import Site
from tests.integration.replicas.traffic import Traffic
from tests.integration.tstreams.conftest import eventually
from tests.integration.tstreams.faces import FACES, Face
from tstreams import Offset
from tstreams.client.config import Read
from tstreams.errors import Timeout


@pytest.fixture(params=list(FACES))
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    with contextlib.closing(FACES[request.param]()) as face:
        yield face


def urls(site: Site) -> str:
    return ",".join(node.addresses[0] for node in site.nodes.values())


@pytest.mark.parametrize("read", ["leader", "any"])
def test_all_goes_on_while_leaders_change(site: Site, face: Face, read: Read) -> None:
    for name in "abc":
        site.start(name)
    site.lead("a")
    with face.connect(urls(site), read=read) as ts, Traffic(ts) as traffic:
        traffic.go_on()
        for old, new in ("ab", "bc", "ca", "ab"):
            site.run(site.nodes[old].replicas[0].step_down())  # as a planned move begins
            site.lead(new)
            traffic.go_on()
        site.lead("c")  # the one that leads does not know of it, until the log refuses it
        traffic.go_on()
        traffic.finish()


def move(site: Site, old: str, new: str) -> None:
    site.run(site.nodes[old].replicas[0].step_down())
    site.lead(new)


def test_a_job_is_staged_and_committed_through_changes_of_leaders(site: Site, face: Face) -> None:
    for name in "ab":
        site.start(name)
    site.lead("a")
    with face.connect(urls(site)) as ts:
        ts.create_stream("totals")
        job = ts.job("count")
        staged = []
        for task, leaders in enumerate(("ab", "ba", "ab")):
            # A task elsewhere connects with what it was sent: all addresses.
            config = pickle.loads(pickle.dumps(ts.config))
            with face.connect(config) as worker:
                producer = worker.producer("totals", name=f"task-{task}")
                txn = producer.open(partition=0)
                txn.send_many([b"%d" % task, b"x"])
                move(site, *leaders)
                staged.append(worker.job("count").stage(producer, 0))
        move(site, "b", "a")
        job.commit(0, staged)
        assert job.last_step() == 0
        move(site, "a", "b")
        job.commit(0, staged)  # done is done
        assert [list(txn.items) for txn in ts.scan("totals", 0)] == [
            [b"%d" % task, b"x"] for task in range(3)
        ]
        assert [it.name for it in ts.streams()] == ["totals"]
        move(site, "b", "a")
        assert ts.survey("totals")[0].last_id == staged[-1].transactions[0]


def test_a_reader_that_waits_gets_what_the_next_leader_has(site: Site, face: Face) -> None:
    for name in "ab":
        site.start(name)
    site.lead("a")
    with face.connect(urls(site)) as ts, face.connect(urls(site)) as other:
        ts.create_stream("clicks")
        with (
            ts.consumer("clicks", name="c", start=Offset.oldest()) as consumer,
            other.producer("clicks", name="p") as producer,
            ThreadPoolExecutor(1) as pool,
        ):
            waiting = pool.submit(consumer.get, 0, timeout=60.0)
            eventually(lambda: site.call(lambda: len(site.nodes["a"].shards[0].reads._waiters)))
            move(site, "a", "b")
            opened = producer.open(partition=0)
            opened.send(b"after")
            move(site, "b", "a")
            opened.checkpoint()
            found = waiting.result(60)
            assert found is not None
            assert list(found.items) == [b"after"]


def test_a_shard_that_nobody_leads_for_a_while_is_waited_for(site: Site, face: Face) -> None:
    for name in "ab":
        site.start(name)
    with face.connect(urls(site)) as ts, ThreadPoolExecutor(1) as pool:
        made = pool.submit(ts.create_stream, "clicks")
        eventually(lambda: ts.statistics().connections == 2)  # it asks around
        site.lead("b")
        assert made.result(60).name == "clicks"


def test_without_a_leader_the_deadline_ends_it(site: Site, face: Face) -> None:
    site.start("a")
    with (
        face.connect(urls(site), timeout=1.0) as ts,
        pytest.raises(Timeout, match="led elsewhere"),
    ):
        ts.create_stream("clicks")
