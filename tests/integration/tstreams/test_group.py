"""Checkpoint groups: all of it, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tstreams import (
    CheckpointGroup,
    Client,
    Error,
    Expired,
    Fenced,
    InvalidState,
    Offset,
    TransactionState,
)
from tstreams.server import Node

from .collecting import Collector
from .conftest import Clock, Connect, eventually

OPENED, CHECKPOINTED = TransactionState.OPENED, TransactionState.CHECKPOINTED
CANCELLED, INVALID = TransactionState.CANCELLED, TransactionState.INVALID


def group_of(ts: Client, *agents: Any) -> CheckpointGroup:
    group = ts.checkpoint_group()
    for agent in agents:
        group.add(agent)
    return group


def visible(ts: Client, stream: str) -> list[bytes]:
    return [item for txn in ts.consumer(stream).read(max_wait=0) for item in txn.items]


def saved(ts: Client, stream: str, name: str, partition: int = 0) -> int | None:
    """Where a reader of this name would begin. It takes the name."""
    with ts.consumer(stream, name) as consumer:
        return consumer.position(partition)


@pytest.fixture
def out(ts: Client) -> str:
    return ts.create_stream("out", partitions=2).name


# All of it.


def test_results_and_position_in_one(ts: Client, clicks: str, out: str) -> None:
    source = ts.producer(clicks)
    ids = [source.instant([b"%d" % n], partition=0) for n in range(10)]
    consumer, producer = ts.consumer(clicks, "c1"), ts.producer(out, "p1")
    group = group_of(ts, consumer, producer)
    txns = [producer.open(n % 2) for n in range(6)]
    for txn in txns:
        read = consumer.get(0, timeout=10)
        assert read is not None
        txn.send_many(list(read.items))
    assert visible(ts, out) == []
    group.checkpoint()
    assert {txn.state for txn in txns} == {CHECKPOINTED}
    assert sorted(visible(ts, out)) == [b"%d" % n for n in range(6)]
    assert saved(ts, clicks, "c1") == ids[5]


def test_over_many_streams(node: Node, ts: Client) -> None:
    agents: list[Any] = []
    for number in range(10):
        ts.create_stream(f"in {number}")
        ts.create_stream(f"out {number}")
        ts.producer(f"in {number}").instant([b"%d" % number])
        agents += [ts.consumer(f"in {number}", "job"), ts.producer(f"out {number}", "job")]
    group = group_of(ts, *agents)
    for reader, writer in zip(agents[::2], agents[1::2], strict=True):
        writer.open(0).send_many(list(reader.get(0, timeout=10).items))
    calls = ts.statistics().connection.calls
    group.checkpoint()
    calls = ts.statistics().connection.calls - calls
    if node.shards and len(node.addresses) == 1:  # else this counts one connection of several
        assert calls == len(node.shards), "one request to each shard, which brings the batches"
    for number in range(10):
        assert visible(ts, f"out {number}") == [b"%d" % number]
        assert saved(ts, f"in {number}", "job") is not None


def test_batches_are_awaited_first(ts: Client, out: str) -> None:
    producers = [ts.producer(out, f"p{number}") for number in range(4)]
    group = group_of(ts, *producers)
    for producer in producers:
        producer.open(0).send_many([b"x" * 50_000] * 100)  # 5 MB each
    group.checkpoint()
    assert len(visible(ts, out)) == 400


def test_empty_groups_and_idle_members_are_fine(ts: Client, clicks: str, out: str) -> None:
    group = ts.checkpoint_group()
    group.checkpoint()
    group.cancel()
    group.add(ts.consumer(clicks))
    group.add(ts.producer(out))
    group.checkpoint()
    group.cancel()
    with group:
        pass


def test_an_empty_transaction_ends_cancelled(ts: Client, out: str) -> None:
    producer = ts.producer(out)
    group = group_of(ts, producer)
    empty, full = producer.open(0), producer.open(0)
    full.send(b"x")
    group.checkpoint()
    assert (empty.state, full.state) == (CANCELLED, CHECKPOINTED)


# Or nothing.


def five_agents(ts: Client) -> tuple[list[Any], dict[str, Any]]:
    """Two consumers, a subscriber and two producers, each on a stream of its own, with work to commit."""
    for name in ("in1", "in2", "in3", "out1", "out2"):
        ts.create_stream(name)
    ids = {name: ts.producer(name).instant([b"x"]) for name in ("in1", "in2", "in3")}
    got = Collector()
    agents: list[Any] = [
        ts.consumer("in1", "a1"),
        ts.consumer("in2", "a2"),
        ts.subscriber("in3", "a3", **got.callbacks).start(),
        ts.producer("out1", "a4"),
        ts.producer("out2", "a5"),
    ]
    for consumer in agents[:2]:
        assert consumer.get(0, timeout=10) is not None
    eventually(lambda: agents[2].position(0) == ids["in3"])
    agents[2].stop()
    for producer in agents[3:]:
        producer.open(0).send(b"result")
    return agents, ids


def writes(agent: Any) -> bool:
    """Whether it is a producer, of either face."""
    return hasattr(agent, "instant")


def close(agent: Any, connect: Connect) -> None:
    agent.close()


def take_over(agent: Any, connect: Connect) -> None:
    other = connect()
    make = other.producer if writes(agent) else other.consumer
    make(agent.stream, agent.name)


def delete_stream(agent: Any, connect: Connect) -> None:
    connect().delete_stream(agent.stream)


@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize(
    ("how", "kind"),
    [(close, InvalidState), (take_over, Fenced), (delete_stream, Error)],
    ids=["closed", "fenced", "deleted"],
)
def test_one_of_five_is_disconnected(
    ts: Client, connect: Connect, which: int, how: Callable[..., None], kind: type[Error]
) -> None:
    agents, _ = five_agents(ts)
    group = group_of(ts, *agents)
    victim = agents[which]
    how(victim, connect)
    with pytest.raises(kind) as caught:
        group.checkpoint()
    assert f"{victim.name!r} of stream {victim.stream!r}" in str(caught.value)
    for agent in agents:
        if agent is not victim and writes(agent):
            assert visible(ts, agent.stream) == []
    group.remove(victim)
    group.checkpoint()
    for agent in agents:
        if agent is victim:
            continue
        if writes(agent):
            assert visible(ts, agent.stream) == [b"result"]
        else:
            assert saved(ts, agent.stream, agent.name) is not None
    if how is not delete_stream and not writes(victim):
        assert saved(ts, victim.stream, victim.name) is None


def test_a_transaction_that_expired_stops_all(
    ts: Client, clock: Clock, clicks: str, out: str
) -> None:
    ts.producer(clicks).instant([b"x"], partition=0)
    consumer = ts.consumer(clicks, "c1")
    short = ts.producer(out, "short", transaction_ttl=30.0)
    long = ts.producer(out, "long", transaction_ttl=3600.0)
    group = group_of(ts, consumer, short, long)
    assert consumer.get(0, timeout=10) is not None
    expired, alive = short.open(0), long.open(1)
    expired.send(b"too late")
    alive.send(b"x")
    clock.advance(60)
    with pytest.raises(Expired, match="producer 'short' of stream 'out'"):
        group.checkpoint()
    assert (expired.state, alive.state) == (INVALID, OPENED)
    assert visible(ts, out) == []
    group.checkpoint()
    assert visible(ts, out) == [b"x"]


def test_a_transaction_that_expired_unnoticed_stops_all(
    ts: Client, clock: Clock, clicks: str, out: str
) -> None:
    ts.producer(clicks).instant([b"x"], partition=0)
    consumer, producer = ts.consumer(clicks, "c1"), ts.producer(out, "p1", transaction_ttl=30.0)
    group = group_of(ts, consumer, producer)
    assert consumer.get(0, timeout=10) is not None
    expired = producer.open(0)
    clock.advance(60)
    expired.send(b"x" * 300_000)  # it leaves at once, and nobody waits for its answer
    eventually(lambda: expired.state is INVALID)
    with pytest.raises(Expired, match="producer 'p1' of stream 'out'"):
        group.checkpoint()
    assert saved(ts, clicks, "c1") is None, "what was read counts only with what came of it"


def test_a_batch_that_could_not_be_sent_stops_all(
    ts: Client, connect: Connect, clicks: str, out: str
) -> None:
    producer, other = ts.producer(out, "p1"), ts.producer(out, "p2")
    group = group_of(ts, producer, other)
    fenced, healthy = producer.open(0), other.open(0)
    fenced.send(b"x" * 300_000)
    connect().producer(out, "p1")
    fenced.send(b"x" * 300_000)
    healthy.send(b"y")
    with pytest.raises(Fenced, match="'p1' of stream 'out'"):
        group.checkpoint()
    assert (fenced.state, healthy.state) == (CANCELLED, OPENED)
    assert visible(ts, out) == []


# Cancelling.


def test_a_cancel_drops_and_rewinds(ts: Client, clicks: str, out: str) -> None:
    source = ts.producer(clicks)
    ids = [source.instant([b"x"], partition=0) for _ in range(10)]
    consumer, producer = ts.consumer(clicks, "c1"), ts.producer(out, "p1")
    group = group_of(ts, consumer, producer)

    def read(count: int) -> list[int]:
        found = [consumer.get(0, timeout=10) for _ in range(count)]
        return [txn.id for txn in found if txn is not None]

    assert read(3) == ids[:3]
    group.checkpoint()
    txn = producer.open(0)
    txn.send(b"never")
    assert read(4) == ids[3:7]
    group.cancel()
    assert (txn.state, consumer.position(0)) == (CANCELLED, ids[2])
    assert read(7) == ids[3:]
    group.checkpoint()
    assert saved(ts, clicks, "c1") == ids[9]
    assert visible(ts, out) == []


def test_a_cancel_takes_a_subscriber_back(ts: Client, clicks: str, out: str) -> None:
    source, producer, got = ts.producer(clicks), ts.producer(out, "p1"), Collector()
    ids = [source.instant([b"x"], partition=n % 4) for n in range(40)]
    with ts.subscriber(clicks, "s1", engines=2, **got.callbacks) as subscriber:
        group = group_of(ts, subscriber, producer)
        got.wait_for(40)
        eventually(lambda: subscriber.statistics().returned == 40)
        group.checkpoint()
        ids += [source.instant([b"x"], partition=n % 4) for n in range(40)]
        got.wait_for(80)
        group.cancel()
        got.wait_for(120)
        group.clear()
    for partition in range(4):
        mine = ids[partition::4]
        assert got.of(partition) == mine + mine[10:]


def test_where_a_reader_began_is_saved_also_after_a_cancel(
    ts: Client, clicks: str, out: str
) -> None:
    source = ts.producer(clicks)
    source.instant([b"before"], partition=0)
    group = group_of(ts, ts.consumer(clicks, "c1", start=Offset.newest()))
    group.cancel()
    group.checkpoint()
    after = source.instant([b"after"], partition=0)
    consumer = ts.consumer(clicks, "c1", start=Offset.newest())
    assert [txn.id for txn in consumer.read(max_wait=0)] == [after]


def test_a_block_checkpoints_or_cancels(ts: Client, clicks: str, out: str) -> None:
    source = ts.producer(clicks)
    ids = [source.instant([b"%d" % n], partition=0) for n in range(4)]
    consumer, producer = ts.consumer(clicks, "c1"), ts.producer(out, "p1")
    group = group_of(ts, consumer, producer)

    def step(fail: bool) -> None:
        with group:
            read = consumer.get(0, timeout=10)
            assert read is not None
            producer.open(0).send_many(list(read.items))
            if fail:
                raise ZeroDivisionError

    step(False)
    with pytest.raises(ZeroDivisionError):
        step(True)
    step(False)
    assert visible(ts, out) == [b"0", b"1"]
    assert saved(ts, clicks, "c1") == ids[1]


def test_a_block_whose_checkpoint_is_refused_leaves_nothing_open(
    ts: Client, connect: Connect, clicks: str, out: str
) -> None:
    ids = [ts.producer(clicks).instant([b"x"], partition=0) for _ in range(2)]
    consumer, producer = ts.consumer(clicks, "c1"), ts.producer(out, "p1")
    doomed = ts.consumer(out, "doomed")
    group = group_of(ts, consumer, producer, doomed)
    txn = producer.open(0)

    def step() -> None:
        with group:
            assert consumer.get(0, timeout=10) is not None
            txn.send(b"x")
            connect().consumer(out, "doomed")

    with pytest.raises(Fenced, match="'doomed'"):
        step()
    assert txn.state is CANCELLED
    read = consumer.get(0, timeout=10)
    assert read is not None
    assert read.id == ids[0]


def test_a_cancel_does_all_it_can(ts: Client, connect: Connect, out: str) -> None:
    fenced, healthy = ts.producer(out, "p1"), ts.producer(out, "p2")
    group = group_of(ts, fenced, healthy)
    txns = [fenced.open(0), healthy.open(0)]
    connect().producer(out, "p1")
    with pytest.raises(Fenced, match="'p1'"):
        group.cancel()
    assert [txn.state for txn in txns] == [CANCELLED, CANCELLED]
