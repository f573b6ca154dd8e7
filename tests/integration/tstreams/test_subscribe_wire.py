"""The server's side of subscriptions, spoken to with plain messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import moebius
import tstreams
from tests.integration.tstreams.conftest import Clock, eventually
from tstreams.index import IndexFailed
from tstreams.limits import SESSION_TTL_MS
from tstreams.protocol import Fetched, GetStream, StreamInfo, Subscribe, Want, decode_reply, encode
from tstreams.server import Node
from tstreams.server.local import LocalShard
from tstreams.server.storage import LocalStorage

pytestmark = [pytest.mark.over_tcp, pytest.mark.one_shard]


@pytest.fixture
def ts(node: Node) -> Iterator[tstreams.Client]:
    with tstreams.connect(node.addresses[0]) as ts:
        yield ts


@pytest.fixture
def wire(node: Node) -> Iterator[moebius.Client]:
    with moebius.connect(node.addresses[0]) as client:
        yield client


def subscribe(
    wire: moebius.Client,
    name: str,
    partitions: int,
    *,
    window_bytes: int = 1 << 20,
    agent: int = 0,
    session: int = 0,
) -> moebius.Stream:
    info = decode_reply(wire.call("0:GetStream", encode(GetStream(name))))
    assert isinstance(info, StreamInfo)
    wants = [Want(it, 0) for it in range(partitions)]
    request = Subscribe(info.id, wants, 64 * 1024, agent, session)
    return wire.stream("0:Subscribe", encode(request), window_bytes=window_bytes)


def take(stream: moebius.Stream, count: int) -> list[tuple[int, int, int]]:
    """(partition, id, first batch) of so many transactions or chunks."""
    found: list[tuple[int, int, int]] = []
    while len(found) < count:
        parts = stream.next_parts()
        reply = decode_reply(parts[0])
        assert isinstance(reply, Fetched)
        assert sum(sum(it.sizes) for it in reply.transactions) == sum(map(len, parts[1:]))
        found += [(it.partition, it.id, it.first_batch) for it in reply.transactions]
    return found


def test_history_first_then_what_comes(ts: tstreams.Client, wire: moebius.Client) -> None:
    ts.create_stream("s", partitions=2)
    producer = ts.producer("s")
    ids = [producer.instant([b"x"], partition=0) for _ in range(300)]
    with subscribe(wire, "s", 2) as stream:
        assert [it[1] for it in take(stream, 300)] == ids
        later = [producer.instant([b"y"], partition=n % 2) for n in range(50)]
        assert sorted(it[1] for it in take(stream, 50)) == later


def test_an_open_transaction_holds_the_later_ones_back(
    ts: tstreams.Client, wire: moebius.Client
) -> None:
    ts.create_stream("s")
    producer = ts.producer("s")
    with subscribe(wire, "s", 1) as stream:
        first = producer.open()
        first.send(b"1")
        second = producer.instant([b"2"])
        other = ts.producer("s")
        cancelled = other.open()
        first.checkpoint()
        assert [it[1] for it in take(stream, 2)] == [first.id, second]
        third = producer.instant([b"3"])
        cancelled.cancel()
        assert [it[1] for it in take(stream, 1)] == [third]


def test_a_reader_that_takes_nothing_gets_no_more_than_its_credit(
    ts: tstreams.Client, wire: moebius.Client, node: Node
) -> None:
    ts.create_stream("s")
    producer = ts.producer("s")
    ids = [producer.instant([bytes(10_000)]) for _ in range(200)]
    with subscribe(wire, "s", 1, window_bytes=100_000) as stream:
        statistics = wire.statistics()
        assert statistics.items * 60_000 < 1_000_000
        assert [it[1] for it in take(stream, 200)] == ids


def test_of_a_large_transaction_the_beginning_comes(
    ts: tstreams.Client, wire: moebius.Client
) -> None:
    ts.create_stream("s")
    producer = ts.producer("s")
    with producer.transaction() as transaction:
        for _ in range(40):
            transaction.send_many([bytes(10_000)] * 10)
    behind = producer.instant([b"x"])
    with subscribe(wire, "s", 1) as stream:
        assert take(stream, 2) == [(0, transaction.id, 0), (0, behind, 0)]


def test_an_agent_that_lost_its_name_loses_its_subscription(
    ts: tstreams.Client, wire: moebius.Client
) -> None:
    ts.create_stream("s")
    reader = ts.consumer("s", "c1")._rules.agent
    with subscribe(wire, "s", 1, agent=reader.id) as stream:
        txn_id = ts.producer("s").instant([b"x"])
        assert take(stream, 1) == [(0, txn_id, 0)]
        ts.producer("s", "c1").close()
        ts.consumer("s", "c1")
        with pytest.raises(moebius.Error, match=f"agent {reader.id} does not hold") as caught:
            stream.next_parts()
    assert caught.value.code == "fenced"
    with (
        subscribe(wire, "s", 1, agent=reader.id) as stream,
        pytest.raises(moebius.Error, match="does not hold"),
    ):
        stream.next_parts()


def test_a_deleted_stream_ends_its_subscriptions(ts: tstreams.Client, wire: moebius.Client) -> None:
    ts.create_stream("s")
    with subscribe(wire, "s", 1) as stream:
        ts.producer("s").instant([b"x"])
        take(stream, 1)
        ts.delete_stream("s")
        with pytest.raises(moebius.Error, match="deleted"):
            stream.next_parts()


def test_partitions_are_checked(ts: tstreams.Client, wire: moebius.Client) -> None:
    ts.create_stream("s")
    with pytest.raises(moebius.Error, match="partitions 0 to 0"):
        take(subscribe(wire, "s", 2), 1)


def test_a_shard_that_stops_ends_also_the_subscription_of_a_slow_reader(tmp_path: Path) -> None:
    """One that has not taken its last answer yet is not waiting when the shard stops, and recovers."""
    with tstreams.embedded(tmp_path) as ts:
        ts.create_stream("s")
        ts.producer("s").instant([b"x"])

    async def read() -> None:
        local = LocalShard(0, LocalStorage(tmp_path / "shard-0"))
        shard = local.shard
        try:
            number = shard.core.state.stream_named("s").id
            request = Subscribe(number, [Want(0, 0)], 64 * 1024)
            answers = shard.subscriptions.serve(request, lambda _: False, shard.when_settled)
            assert await anext(answers)
            shard.fail(IndexFailed("there is no room for the index"))
            local.reopen()
            assert shard.failed is None
            with pytest.raises(moebius.Error, match="no room for the index"):
                await asyncio.wait_for(anext(answers), 10)
        finally:
            local.close()

    asyncio.run(read())


def test_a_subscription_that_begins_when_the_shard_has_stopped_ends(tmp_path: Path) -> None:
    """It was asked for before, and its turn came after: nobody would know of it after the recovery."""
    with tstreams.embedded(tmp_path) as ts:
        ts.create_stream("s")

    async def read() -> None:
        local = LocalShard(0, LocalStorage(tmp_path / "shard-0"))
        shard = local.shard
        try:
            number = shard.core.state.stream_named("s").id
            request = Subscribe(number, [Want(0, 0)], 64 * 1024)
            early, late = (
                shard.subscriptions.serve(request, lambda _: False, shard.when_settled)
                for _ in range(2)
            )
            shard.fail(IndexFailed("there is no room for the index"))
            with pytest.raises(moebius.Error, match="no room for the index"):
                await asyncio.wait_for(anext(early), 10)
            local.reopen()
            with pytest.raises(moebius.Error, match="no room for the index"):
                await asyncio.wait_for(anext(late), 10)
            again = shard.subscriptions.serve(request, lambda _: False, shard.when_settled)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(again), 0.1)
        finally:
            local.close()

    asyncio.run(read())


def test_a_session_that_has_ended_is_told_so_when_it_subscribes(
    tmp_path: Path, clock: Clock
) -> None:
    """It was away while its session ended: nobody has taken the name of its reader."""
    with (
        Node(tmp_path, ["tcp://127.0.0.1:0"], clock=clock).in_thread() as node,
        tstreams.connect(node.addresses[0]) as ts,
        moebius.connect(node.addresses[0]) as wire,
    ):
        ts.create_stream("s")
        reader = ts.consumer("s", "c1")._rules.agent
        assert node.shards[0].core.state.sessions
        clock.advance(SESSION_TTL_MS / 1000 + 11)
        eventually(lambda: not node.shards[0].core.state.sessions)
        with subscribe(wire, "s", 1, agent=reader.id, session=reader.seats[0].session.id) as stream:
            with pytest.raises(moebius.Error, match="the session has ended") as caught:
                stream.next_parts()
            assert caught.value.code == "invalid_state"


def test_what_does_not_fit_beside_another_partition_comes_next(
    ts: tstreams.Client, wire: moebius.Client
) -> None:
    """The second partition's transaction has no room in the first answer, and nothing new comes there."""
    ts.create_stream("wide", partitions=2)
    with ts.producer("wide") as producer:
        first = producer.instant([bytes(40_000)], partition=0)
        second = producer.instant([bytes(60_000)], partition=1)
    with subscribe(wire, "wide", 2) as stream:
        assert sorted(take(stream, 2)) == [(0, first, 0), (1, second, 0)]


def test_what_is_pushed_waits_for_what_was_opened_before(
    ts: tstreams.Client, wire: moebius.Client
) -> None:
    ts.create_stream("held", partitions=2)
    with (
        ts.producer("held", name="slow") as slow,
        ts.producer("held", name="quick") as quick,
        subscribe(wire, "held", 2) as stream,
    ):
        before = quick.instant([b"before"], partition=0)
        assert take(stream, 1) == [(0, before, 0)]
        open_txn = slow.open(0)
        open_txn.send(b"held")
        after = [quick.instant([b"after"], partition=0) for _ in range(3)]
        other = quick.instant([b"other"], partition=1)
        assert take(stream, 1) == [(1, other, 0)]
        open_txn.checkpoint()
        last = quick.instant([b"last"], partition=0)
        expected = [(0, it, 0) for it in (open_txn.id, *after, last)]
        assert take(stream, 5) == expected


def test_a_subscriber_without_room_misses_nothing_that_is_pushed(
    ts: tstreams.Client, wire: moebius.Client
) -> None:
    ts.create_stream("narrow", partitions=1)
    with (
        ts.producer("narrow") as producer,
        subscribe(wire, "narrow", 1, window_bytes=2000) as narrow,
        subscribe(wire, "narrow", 1) as wide,
    ):
        made = [producer.instant([bytes(500)], partition=0) for _ in range(50)]
        assert take(wide, 50) == [(0, it, 0) for it in made]
        assert take(narrow, 50) == [(0, it, 0) for it in made]
