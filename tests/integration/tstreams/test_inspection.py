"""What operators see of a real server, page by page, and what they do to readers and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

import tstreams
from tests.integration.tstreams.conftest import Clock
from tstreams import aio, measures
from tstreams.client.asynchronous.inspection import Inspection
from tstreams.client.blocking.inspection import Inspection as BlockingInspection
from tstreams.config import SETTINGS, Config
from tstreams.errors import BadRequest, Fenced, InvalidState, NotFound
from tstreams.model import ID_MAX, Stream, TransactionState
from tstreams.server import Node

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.over_tcp,
    pytest.mark.one_shard,
    pytest.mark.fresh,
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Place:
    """A server, a client of it, and what an operator sees."""

    node: Node
    ts: aio.Client
    sees: Inspection
    clock: Clock

    async def stream(self, name: str = "clicks", partitions: int = 3) -> Stream:
        return await self.ts.create_stream(name, partitions)


@pytest.fixture
async def place(node: Node, clock: Clock) -> AsyncIterator[Place]:
    async with aio.connect(node.addresses[0]) as ts:
        yield Place(node, ts, ts.inspection(), clock)


async def test_the_node_says_who_it_is(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        node = Node(tmp_path / "data", ["tcp://127.0.0.1:0", "inproc://here"])
        node.http = "http://127.0.0.1:7080"
        with node.in_thread():
            async with aio.connect(node.addresses[0]) as ts:
                found.append(await ts.inspection().node())
        assert found[-1].addresses == [it for it in [*found[-1].addresses] if it.startswith("tcp:")]
        assert len(found[-1].addresses) == 1
    assert found[0].id == found[1].id == (tmp_path / "data" / "node").read_text().strip()
    assert len(found[0].id) == 16
    assert [it.epochs for it in found] == [[1], [2]]
    assert found[0].started_ms <= found[1].started_ms
    assert found[0].http == "http://127.0.0.1:7080"
    with Node(tmp_path / "other", ["inproc://there"]).in_thread() as other:
        assert other.id != found[0].id


async def test_the_configuration_is_shown_without_the_token(tmp_path: Path) -> None:
    config = Config(data=tmp_path, listen=("tcp://127.0.0.1:0",), token="secret", clients_max=7)
    with Node(config).in_thread() as node:
        async with aio.connect(node.addresses[0], token="secret") as ts:
            settings = (await ts.inspection().config()).settings
    assert [it.name for it in settings] == list(SETTINGS)
    by_name = {it.name: (it.value, it.is_default) for it in settings}
    assert by_name["token"] == ("(hidden)", False)
    assert by_name["clients_max"] == ("7", False)
    assert by_name["ledger_bytes"] == ("64MiB", True)
    assert by_name["insecure"] == ("false", True)


def test_both_faces_have_the_same_methods() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(Inspection) == public(BlockingInspection)


def test_the_blocking_face_sees_and_does_the_same(tmp_path: Path) -> None:
    with tstreams.embedded(tmp_path) as ts:
        stream = ts.create_stream("clicks", partitions=2)
        sees = ts.inspection()
        assert sees.shards == [0]
        assert sees.shard_of("clicks") == 0
        assert (sees.node().addresses, sees.node().epochs) == ([], [1])
        producer = ts.producer("clicks", name="p1")
        first = producer.instant([b"x"], partition=0)
        consumer = ts.consumer("clicks", name="c1")
        assert consumer.get(0, timeout=20) is not None
        consumer.checkpoint()
        opened = producer.open(0)
        assert sees.measure().counters["commits_total"] == 1
        assert len(sees.config().settings) == len(SETTINGS)
        assert [it.name for it in sees.numbers(0).streams] == ["clicks"]
        assert [it.id for it in sees.open_transactions(0).transactions] == [opened.id]
        assert [it.name for it in sees.readers(0).readers] == ["c1"]
        assert sees.positions(0, stream.id, "c1").saved == [(0, first)]
        assert [it.name for it in sees.agents(0).agents] == ["p1", "c1"]
        assert len(sees.sessions(0).sessions) == 1
        assert sees.ledgers(0).ledgers
        assert sees.jobs(0).jobs == []
        assert [it.id for it in sees.browse(0, stream.id, 0).transactions] == [first]
        assert sees.transaction(0, stream.id, 0, opened.id).state == "opened"
        sees.end_transactions(0, [opened.id])
        assert sees.transaction(0, stream.id, 0, opened.id).state == "cancelled"
        sees.reset_reader("clicks", "c1", [(0, 0)], force=True)
        assert sees.readers(0).readers == []
        with pytest.raises(Fenced):
            consumer.checkpoint()


async def test_streams_by_their_numbers(place: Place) -> None:
    made = [(await place.stream(name)).id for name in ("c", "a", "b")]
    await place.ts.delete_stream("a")
    first = await place.sees.numbers(0, limit=1)
    assert ([(it.id, it.name) for it in first.streams], first.more) == ([(made[0], "c")], True)
    rest = await place.sees.numbers(0, after=made[0])
    assert ([(it.id, it.name) for it in rest.streams], rest.more) == ([(made[2], "b")], False)
    for limit in (0, 5001):
        with pytest.raises(BadRequest, match="1 to 5000 entries"):
            await place.sees.numbers(0, limit=limit)


async def test_open_transactions_and_who_holds_them(place: Place) -> None:
    clicks, views = await place.stream(), await place.stream("views")
    producer = await place.ts.producer("clicks", name="p1", transaction_ttl=20)
    other = await place.ts.producer("views", name="p2")
    first, second = await producer.open(0), await producer.open(1)
    third = await other.open(0)
    behind = await (await place.ts.producer("clicks", name="p3")).open(0)
    await second.send(b"x" * 300_000)  # more than is gathered, so it goes at once
    found = await place.sees.open_transactions(0)
    assert not found.more
    assert [it.id for it in found.transactions] == [first.id, second.id, third.id, behind.id]
    it = found.transactions[1]
    agents = {each.name: each for each in (await place.sees.agents(0)).agents}
    assert (it.stream, it.stream_name, it.partition) == (clicks.id, "clicks", 1)
    assert (it.agent, it.agent_name, it.session) == (agents["p1"].id, "p1", agents["p1"].session)
    assert (it.items, it.batches, it.lease_ms, it.job) == (1, 1, 20_000, "")
    assert 0 < it.last_seen_ms < it.expires_at_ms
    assert [each.first for each in found.transactions] == [True, True, True, False]
    assert (agents["p1"].open, agents["p1"].kind, agents["p3"].open) == (2, "producer", 1)
    of_views = await place.sees.open_transactions(0, stream=views.id)
    assert [each.id for each in of_views.transactions] == [third.id]
    seen, after, more = [], 0, True
    while more:
        page = await place.sees.open_transactions(0, stream=clicks.id, after=after, limit=1)
        seen += [each.id for each in page.transactions]
        after, more = page.next, page.more
    assert seen == [first.id, second.id, behind.id]


async def test_what_is_staged_belongs_to_its_job(place: Place) -> None:
    await place.stream()
    producer = await place.ts.producer("clicks", name="p1")
    job = place.ts.job("nightly")
    await producer.open(0)
    staged = await job.stage(producer, 0)
    (it,) = (await place.sees.open_transactions(0)).transactions
    assert (it.agent, it.agent_name, it.session, it.job, it.step) == (0, "", 0, "nightly", 0)
    await job.commit(0, [staged])
    (done,) = (await place.sees.jobs(0)).jobs
    assert (done.name, done.last_step) == ("nightly", 0)
    assert done.committed_ms > 0


async def test_a_page_may_be_short_and_the_list_is_whole(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tstreams.server.inspection.INSPECT_LOOKS_MAX", 2)
    clicks, views = await place.stream(), await place.stream("views")
    producer = await place.ts.producer("clicks", name="p1")
    opened = [(await producer.open(it % 3)).id for it in range(3)]
    last = await (await place.ts.producer("views", name="p2")).open(0)
    pages, after, more = [], 0, True
    while more:
        page = await place.sees.open_transactions(0, stream=views.id, after=after)
        pages.append([it.id for it in page.transactions])
        after, more = page.next, page.more
    assert pages == [[], [last.id]]
    assert len(opened) == 3
    names, agent = [], 0
    for _ in range(9):
        agents = await place.sees.agents(0, stream=clicks.id, after=agent)
        names += [it.name for it in agents.agents]
        agent = agents.next
        if not agents.more:
            break
    assert names == ["p1"]


async def test_readers_where_they_stand_and_whether_they_live(place: Place) -> None:
    clicks = await place.stream()
    producer = await place.ts.producer("clicks", name="p1")
    ids = [await producer.instant([b"x"], partition=it % 3) for it in range(6)]
    gone = await place.ts.consumer("clicks", name="gone")
    for partition in (0, 2):
        await gone.get(partition, timeout=20)
    await gone.checkpoint()
    await gone.close()
    alive = await place.ts.consumer("clicks", name="alive")
    found = (await place.sees.readers(0)).readers
    assert [(it.name, it.positions) for it in found] == [
        ("gone", [(0, ids[0]), (2, ids[2])]),
        ("alive", []),
    ]
    assert (found[0].agent, found[0].session, found[0].last_seen_ms) == (0, 0, 0)
    assert found[1].agent
    assert found[1].last_seen_ms
    await alive.get(1, timeout=20)
    await alive.checkpoint()
    seen, after, more = [], b"", True
    while more:
        page = await place.sees.readers(0, stream=clicks.id, after=after, limit=1)
        seen += [it.name for it in page.readers]
        after, more = page.next, page.more
    assert sorted(seen) == ["alive", "gone"]
    named = (await place.sees.readers_named(0, clicks.id, ["gone", "nobody", "alive"])).readers
    assert named == (await place.sees.readers(0)).readers
    with pytest.raises(BadRequest, match="not 0"):
        await place.sees.readers_named(0, clicks.id, [])
    await place.ts.delete_stream("clicks")
    assert (await place.sees.readers(0)).readers == []
    with pytest.raises(NotFound):
        await place.sees.readers_named(0, clicks.id, ["gone"])


async def test_sessions_and_ledgers(place: Place) -> None:
    await place.stream()
    async with aio.connect(place.node.addresses[0]) as another:
        producer = await another.producer("clicks")
        await producer.instant([b"x" * 1000])
        sessions = (await place.sees.sessions(0)).sessions
        assert len(sessions) == 2
        assert [it.agents for it in sessions] == [0, 1]
        assert sessions[1].requests == 2
        assert sessions[1].expires_at_ms - sessions[1].last_seen_ms == 15 * 60 * 1000
        page = await place.sees.sessions(0, limit=1)
        assert page.more
        rest = await place.sees.sessions(0, after=page.sessions[0].id)
        assert [it.id for it in rest.sessions] == [sessions[1].id]
    ledgers = (await place.sees.ledgers(0)).ledgers
    assert sum(it.live for it in ledgers) > 1000
    assert [it.closed for it in ledgers][-1] is False
    assert all(it.epoch == 1 and it.created_ms for it in ledgers)
    assert (await place.sees.ledgers(0, after=ledgers[-1].id)).ledgers == []


async def test_browsing_stops_where_readers_stop(place: Place) -> None:
    clicks = await place.stream()
    producer = await place.ts.producer("clicks", name="p1")
    ids = [await producer.instant([b"x"] * 3, partition=0) for _ in range(5)]
    opened = await producer.open(0)
    other = await place.ts.producer("clicks", name="p2")
    held = await other.instant([b"y"], partition=0)

    async def browse(**asked: Any) -> tuple[list[int], bool]:
        page = await place.sees.browse(0, clicks.id, 0, **asked)
        assert page.first_open == opened.id
        assert all((it.items, it.batches) == (3, 1) and it.bytes > 3 for it in page.transactions)
        return [it.id for it in page.transactions], page.more

    assert await browse() == (ids, False)
    assert await browse(limit=2) == (ids[:2], True)
    assert await browse(newest_first=True, limit=2) == ([ids[4], ids[3]], True)
    assert await browse(newest_first=True, to_id=ids[3] - 1) == (ids[2::-1], False)
    assert await browse(from_id=ids[1], to_id=ids[3]) == (ids[1:4], False)
    assert await browse(from_id=held) == ([], False)
    assert await browse(limit=5, to_id=ID_MAX) == (ids, False)
    status = await place.sees.transaction(0, clicks.id, 0, held)
    assert (status.state, status.visible, status.first_open) == ("checkpointed", False, opened.id)
    status = await place.sees.transaction(0, clicks.id, 0, opened.id)
    assert (status.state, status.visible, status.held_back) == ("opened", False, 1)
    assert status.open is not None
    assert (status.open.agent_name, status.open.first) == ("p1", True)
    status = await place.sees.transaction(0, clicks.id, 0, ids[0])
    assert (status.state, status.visible, status.items) == ("checkpointed", True, 3)
    assert (await place.sees.transaction(0, clicks.id, 1, ids[0])).state == "unknown"
    await opened.cancel()
    assert (await place.sees.transaction(0, clicks.id, 0, opened.id)).state == "cancelled"
    expiring = await producer.open(2)
    place.clock.advance(3600)
    with pytest.raises(InvalidState):
        await expiring.checkpoint()
    assert (await place.sees.transaction(0, clicks.id, 2, expiring.id)).state == "invalid"
    await place.ts.purge_stream("clicks", ids[2])
    assert (await place.sees.transaction(0, clicks.id, 0, ids[0])).state == "unknown"
    with pytest.raises(BadRequest, match="partitions 0 to 2, not 3"):
        await place.sees.browse(0, clicks.id, 3)
    with pytest.raises(NotFound):
        await place.sees.browse(0, 12345, 0)


async def test_a_reader_is_reset_and_goes_on_there(place: Place) -> None:
    await place.stream()
    producer = await place.ts.producer("clicks", name="p1")
    ids = [await producer.instant([b"%d" % it], partition=0) for it in range(5)]
    consumer = await place.ts.consumer("clicks", name="c1")
    for _ in ids:
        await consumer.get(0, timeout=20)
    await consumer.checkpoint()
    with pytest.raises(InvalidState, match="is held by agent"):
        await place.sees.reset_reader("clicks", "c1", [(0, ids[1])])
    await consumer.close()
    await place.sees.reset_reader("clicks", "c1", [(0, ids[1])])
    consumer = await place.ts.consumer("clicks", name="c1")
    assert consumer.position(0) == ids[1]
    received = await consumer.get(0, timeout=20)
    assert received is not None
    assert received.id == ids[2]
    await place.sees.reset_reader("clicks", "c1", [(0, 0)], force=True)
    with pytest.raises(Fenced):
        await consumer.checkpoint()
    consumer = await place.ts.consumer("clicks", name="c1")
    assert consumer.position(0) is None
    received = await consumer.get(0, timeout=20)
    assert received is not None
    assert received.id == ids[0]
    with pytest.raises(BadRequest, match="was opened yet"):
        await place.sees.reset_reader("clicks", "c2", [(0, ids[-1] + 10**12)])


async def test_a_stuck_transaction_is_cancelled_and_its_owner_is_told(place: Place) -> None:
    await place.stream()
    producer = await place.ts.producer("clicks", name="p1")
    stuck, kept = await producer.open(0), await producer.open(1)
    await stuck.send(b"x")
    other = await place.ts.producer("clicks", name="p2")
    behind = await other.instant([b"y"], partition=0)
    consumer = await place.ts.consumer("clicks", name="c1")
    assert await consumer.get(0, timeout=0.05) is None
    await place.sees.end_transactions(0, [stuck.id])
    received = await consumer.get(0, timeout=20)
    assert received is not None
    assert received.id == behind
    with pytest.raises(InvalidState, match="an operator cancelled it"):
        await stuck.checkpoint()
    assert stuck.state is TransactionState.CANCELLED
    with pytest.raises(InvalidState, match="an operator cancelled it"):
        await place.sees.end_transactions(0, [kept.id, stuck.id])
    await kept.send(b"z")
    await kept.checkpoint()
    again = await producer.open(0)
    await place.sees.end_transactions(0, [again.id])
    await again.send(b"w" * 300_000)  # it goes at once, and is refused
    with pytest.raises(InvalidState, match="an operator cancelled it"):
        await again.checkpoint()
    assert again.state is TransactionState.CANCELLED


async def test_what_operators_did_survives_a_restart(tmp_path: Path) -> None:
    node = Node(tmp_path, ["tcp://127.0.0.1:0"])
    with node.in_thread():
        async with aio.connect(node.addresses[0]) as ts:
            await ts.create_stream("clicks")
            first = await (await ts.producer("clicks", name="p1")).instant([b"x"])
            consumer = await ts.consumer("clicks", name="c1")
            await consumer.get(0, timeout=20)
            await consumer.checkpoint()
            opened = await (await ts.producer("clicks", name="p2")).open(0)
            await ts.inspection().end_transactions(0, [opened.id])
            await ts.inspection().reset_reader("clicks", "c1", [(0, 0)], force=True)
    with Node(tmp_path, ["tcp://127.0.0.1:0"]).in_thread() as node:
        async with aio.connect(node.addresses[0]) as ts:
            sees = ts.inspection()
            assert (await sees.open_transactions(0)).transactions == []
            assert (await sees.readers(0)).readers == []
            received = await (await ts.consumer("clicks", name="c1")).get(0, timeout=20)
            assert received is not None
            assert received.id == first


async def test_what_is_measured(place: Place) -> None:
    await place.stream()
    before = await place.sees.measure()
    producer = await place.ts.producer("clicks", name="p1")
    for _ in range(10):
        await producer.instant([b"x" * 100] * 5)
    opened = await producer.open(0)
    await opened.send(b"y")
    await opened.checkpoint()
    stays = await producer.open(1)
    consumer = await place.ts.consumer("clicks", name="c1")
    count = 0
    async for _ in consumer.read(max_wait=0.2):
        count += 1
    place.clock.advance(30)
    after = await place.sees.measure()
    assert set(after.counters) == set(measures.COUNTERS)
    assert set(after.gauges) == set(measures.GAUGES)
    assert {it.name for it in after.histograms} == set(measures.HISTOGRAMS)
    grown = {name: after.counters[name] - before.counters[name] for name in after.counters}
    assert all(value >= 0 for value in grown.values())
    assert (grown["commits_total"], grown["items_total"]) == (11, 51)
    assert (grown["transactions_read_total"], grown["items_read_total"]) == (count, 51)
    assert grown["opened_total"] == 2
    assert grown["bytes_read_total"] > 5000
    assert grown["append_bytes_total"] > 5000
    assert grown["requests_total"] >= 15
    assert grown["cache_hits_total"] == count
    assert after.gauges["open_transactions"] == 1
    assert 29 < after.gauges["oldest_open_age_seconds"] < 60
    assert after.gauges["connections"] == 1
    assert after.gauges["disk_free_bytes"] > 0
    assert after.gauges["rocksdb_keys"] > 10
    for it in after.histograms:
        assert len(it.counts) == len(it.bounds) + 1
        assert it.bounds == sorted(it.bounds)
    counted = {it.name: sum(it.counts) for it in after.histograms}
    sums = {it.name: it.sum for it in after.histograms}
    assert counted["group_records"] == after.counters["groups_total"]
    assert sums["group_records"] == after.counters["records_total"]
    assert counted["commit_seconds"] == after.counters["records_total"]
    assert sums["sync_seconds"] > 0
    assert sums["read_seconds"] > 0
    assert len(after.busiest) == 1
    busy = after.busiest[0]
    assert (busy.name, busy.transactions, busy.items) == ("clicks", 11, 51)
    assert (busy.transactions_read, busy.items_read) == (count, 51)
    await stays.cancel()
    await place.ts.delete_stream("clicks")
    assert (await place.sees.measure()).busiest == []


async def test_how_deep_the_queues_are(place: Place) -> None:
    await place.stream()
    consumer = await place.ts.consumer("clicks", name="c1")
    idle = (await place.sees.measure()).gauges
    waiting = asyncio.create_task(consumer.get(0, timeout=60))
    with anyio.fail_after(60):
        while not (busy := (await place.sees.measure()).gauges)["readers_waiting"]:
            pass
    assert busy["requests_in_flight"] > idle["requests_in_flight"]
    assert busy["send_buffer_bytes"] >= 0
    await (await place.ts.producer("clicks", name="p1")).instant([b"x"], partition=0)
    assert await waiting is not None
