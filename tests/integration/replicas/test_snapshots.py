"""Nodes that begin with nothing, or come back after what they missed was deleted, begin from a snapshot in the log."""

from __future__ import annotations

import shutil

import pytest

import tstreams
from tests.integration.replicas.sites import Site
from tests.integration.tstreams.conftest import Clock, eventually
from tstreams import Offset
from tstreams.limits import KIB
from tstreams.server import upkeep
from tstreams.server.snapshots import find_snapshot

SMALL = {"ledger_bytes": 64 * KIB, "snapshot_bytes_min": 64 * KIB}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait for what is done now and then."""
    monkeypatch.setattr(upkeep, "FLUSH_TO_TRIM_MS", 50)
    monkeypatch.setattr(upkeep, "RECLAIM_EVERY_MS", 100)
    monkeypatch.setattr(upkeep, "FORGET_EVERY_MS", 100)


def fill(ts: tstreams.Client, count: int = 60) -> None:
    with ts.producer("short", name="p") as producer:
        for number in range(count):
            producer.instant([bytes(10_000)], partition=number % 2)


def prepare(ts: tstreams.Client) -> None:
    ts.create_stream("kept", partitions=2, ttl="365d", description="lives on")
    ts.create_stream("short", partitions=2, ttl="1s")
    with ts.producer("kept", name="k") as producer, ts.consumer("kept", name="c") as consumer:
        for number in range(5):
            producer.instant([b"kept %d" % number], partition=0)
        for _ in range(3):
            consumer.get(partition=0, timeout=10)
        consumer.checkpoint()


def trimmed(site: Site, name: str) -> bool:
    """Whether everything but what lives, and what came last, is gone from a node's copy of the log."""
    shard = site.nodes[name].replicas[0].shard
    ledgers = site.call(lambda: [it.id for it in shard.log.ledgers()])
    return len(ledgers) < 8 and ledgers[0] > 1


def check_kept(site: Site, name: str) -> None:
    with tstreams.connect(site.nodes[name].addresses[0]) as ts:
        assert ts.stream("kept").description == "lives on"
        with ts.consumer("kept", name="c") as consumer:
            assert consumer.get(partition=0, timeout=10).items[0] == b"kept 3"  # type: ignore[union-attr]
        with ts.consumer("kept", name="d", start=Offset.oldest()) as consumer:
            found = [txn.items[0] for txn in consumer.read(max_wait=0.2)]
        assert found == [b"kept %d" % number for number in range(5)]


def test_a_fresh_node_begins_from_a_trimmed_log(site: Site, clock: Clock) -> None:
    site.start("a", **SMALL)  # type: ignore[arg-type]
    site.start("b", **SMALL)  # type: ignore[arg-type]
    site.lead("a")
    with tstreams.connect(site.nodes["a"].addresses[0]) as ts:
        prepare(ts)
        fill(ts)
        clock.advance(60)
        fill(ts, 2)
        eventually(lambda: trimmed(site, "a"))
        eventually(lambda: trimmed(site, "b"))
        fresh = site.start("c", **SMALL)  # type: ignore[arg-type]
        assert fresh.snapshots_loaded == 1
        fill(ts, 2)
    site.agreed_facts("a", "b", "c")
    site.run(site.nodes["a"].replicas[0].step_down())
    site.lead("c")
    check_kept(site, "c")


def test_a_node_that_was_away_for_long_begins_anew(site: Site, clock: Clock) -> None:
    site.start("a", **SMALL)  # type: ignore[arg-type]
    site.start("b", **SMALL)  # type: ignore[arg-type]
    site.lead("a")
    with tstreams.connect(site.nodes["a"].addresses[0]) as ts:
        prepare(ts)
        site.caught_up("a", "b")
        site.stop("b")
        fill(ts)
        clock.advance(60)
        fill(ts, 2)
        eventually(lambda: trimmed(site, "a"))
        back = site.start("b", **SMALL)  # type: ignore[arg-type]
        assert back.snapshots_loaded == 1
    site.agreed_facts("a", "b")
    site.run(site.nodes["a"].replicas[0].step_down())
    site.lead("b")
    check_kept(site, "b")


def test_a_snapshot_is_what_the_index_was(site: Site, clock: Clock) -> None:
    site.start("a", **SMALL)  # type: ignore[arg-type]
    site.lead("a")
    with tstreams.connect(site.nodes["a"].addresses[0]) as ts:
        prepare(ts)
        fill(ts)
        clock.advance(60)
        shard = site.nodes["a"].replicas[0].shard
        ended = eventually(lambda: site.call(lambda: find_snapshot(shard.log)))
    site.stop("a")
    shutil.rmtree(site.path / "a")  # with nothing but the log, all of it is there again
    replica = site.start("a", **SMALL)  # type: ignore[arg-type]
    assert replica.snapshots_loaded <= 1
    assert ended.keys > 10
    site.lead("a")
    check_kept(site, "a")
