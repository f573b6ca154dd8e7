"""Nodes that follow a leader hold the same facts, and take over."""

from __future__ import annotations

from pathlib import Path

import pytest

import moebius
import tstreams
from tests.integration.replicas.sites import Site, in_memory
from tests.integration.tstreams.conftest import Clock, eventually
from tstreams import Offset
from tstreams.errors import NotLeader, Timeout, Unavailable
from tstreams.protocol import (
    Fetch,
    Fetched,
    GetStream,
    Measure,
    Measured,
    StreamInfo,
    Subscribe,
    Want,
    decode_reply,
    encode,
)


def connect(site: Site, name: str) -> tstreams.Client:
    return tstreams.connect(site.nodes[name].addresses[0])


def work(ts: tstreams.Client, count: int = 20) -> None:
    """A bit of everything that leaves a trace."""
    ts.create_stream("clicks", partitions=4, ttl="7d", description="what was clicked")
    ts.create_stream("gone", partitions=2)
    with ts.producer("clicks", name="p") as producer, ts.consumer("clicks", name="c") as consumer:
        for number in range(count):
            producer.instant([b"%d" % number], partition=number % 4)
        with producer.transaction(partition=0) as txn:
            txn.send_many([b"a", b"b"])
        producer.open(partition=1).cancel()
        group = ts.checkpoint_group()
        group.add(producer)
        group.add(consumer)
        consumer.get(partition=0, timeout=10)
        producer.open(partition=2).send(b"grouped")
        group.checkpoint()
        with ts.producer("gone", name="q") as other:
            other.instant([b"x"], partition=1)
        ts.delete_stream("gone")


def test_a_follower_holds_the_same_facts_to_the_byte(site: Site, clock: Clock) -> None:
    site.start("a")
    site.start("b")
    site.lead("a")
    with connect(site, "a") as ts:
        work(ts)
        site.start("c")  # it comes later, and reads what there is
        work_more(ts)
    (found,) = site.agreed_facts("a", "b", "c")
    assert {key[:1] for key, _ in found} >= {b"N", b"M", b"T", b"S", b"E", b"L", b"P"}


def work_more(ts: tstreams.Client) -> None:
    with ts.producer("clicks", name="p") as producer:
        producer.instant([b"more"], partition=3)


def test_what_dies_is_removed_everywhere(site: Site, clock: Clock) -> None:
    site.start("a")
    site.start("b")
    site.lead("a")
    with connect(site, "a") as ts:
        ts.create_stream("short", partitions=2, ttl="1s")
        with ts.producer("short", name="p") as producer:
            for number in range(10):
                producer.instant([b"x"], partition=number % 2)
        clock.advance(60)
        eventually(lambda: not any(key[:1] in b"TE" for key, _ in site.facts("b")))
        assert {key[:1] for key, _ in site.facts("a")} >= {b"M", b"L"}
    site.agreed_facts("a", "b")


def test_another_node_takes_over(site: Site) -> None:
    site.start("a")
    site.start("b")
    site.lead("a")
    with connect(site, "a") as ts:
        work(ts)
    site.run(site.nodes["a"].replicas[0].step_down())
    site.lead("b")
    with connect(site, "b") as ts:
        assert ts.stream("clicks").description == "what was clicked"
        with ts.consumer("clicks", name="d", start=Offset.oldest()) as reader:
            assert sum(1 for _ in reader.read(max_wait=0.2)) == 22
        work_more(ts)
    site.run(site.nodes["b"].replicas[0].step_down())
    site.lead("a")
    with connect(site, "a") as ts:
        work_more(ts)
    site.agreed_facts("a", "b")


def test_a_leader_that_was_shut_out_refuses_and_follows(site: Site) -> None:
    site.start("a")
    site.start("b")
    site.lead("a")
    with connect(site, "a") as ts:
        work(ts)
        with ts.producer("clicks", name="late") as producer:
            site.lead("b")
            with pytest.raises(Unavailable):
                producer.instant([b"refused"], partition=0)
            assert not site.nodes["a"].replicas[0].leading
    with connect(site, "b") as ts:
        work_more(ts)
        with ts.consumer("clicks", name="d", start=Offset.oldest()) as reader:
            found = [item for txn in reader.read(max_wait=0.2) for item in txn.items]
    assert b"refused" not in found
    assert b"more" in found
    site.agreed_facts("a", "b")


def test_a_node_that_does_not_lead_says_so(site: Site) -> None:
    site.start("a")
    site.start("b")
    site.lead("a")
    with connect(site, "a") as ts:
        ts.create_stream("clicks")
    with (
        pytest.raises(Timeout, match=r"nobody was found who answers .shard 0 is led elsewhere"),
        tstreams.connect(site.nodes["b"].addresses[0], timeout=2.0) as ts,
    ):
        ts.create_stream("other")  # it knows of no other node


def test_a_follower_answers_those_who_are_content_with_it(site: Site) -> None:
    site.start("a")
    site.start("b")
    site.lead("a")
    with connect(site, "a") as ts:
        work(ts)
    site.caught_up("a", "b")
    with moebius.connect(site.nodes["b"].addresses[0]) as wire:
        with pytest.raises(moebius.Error) as refused:
            wire.call("0:GetStream", encode(GetStream("clicks")))
        assert refused.value.code == NotLeader.code
        info = decode_reply(wire.call("0:any:GetStream", encode(GetStream("clicks"))))
        assert isinstance(info, StreamInfo)
        fetch = Fetch(info.id, [Want(0, 0)], 1 << 20, 0)
        fetched = decode_reply(wire.call_parts("0:any:Fetch", encode(fetch))[0])
        assert isinstance(fetched, Fetched)
        assert len(fetched.transactions) == 6
        with connect(site, "a") as ts, ts.producer("clicks", name="p") as producer:
            producer.instant([b"pushed"], partition=0)
            stream = wire.stream(
                "0:any:Subscribe",
                encode(Subscribe(info.id, [Want(0, 0)], 1 << 20)),
                window_bytes=1 << 20,
            )
            pushed = decode_reply(stream.next_parts()[0])
            assert isinstance(pushed, Fetched)
            assert pushed.transactions


def test_a_node_without_a_shard_has_figures_too(tmp_path: Path, clock: Clock) -> None:
    """As one that drains."""
    site = Site(tmp_path, in_memory(), clock)
    try:
        replica = site.start("a")
        site.run(replica.close())
        with moebius.connect(site.nodes["a"].addresses[0]) as client:
            measured = decode_reply(client.call("Measure", encode(Measure())))
        assert isinstance(measured, Measured)
        assert measured.counters["commits_total"] == 0
        assert {sum(it.counts) for it in measured.histograms} == {0}
    finally:
        site.close()
