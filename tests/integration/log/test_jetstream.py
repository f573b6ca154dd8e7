"""JetStream: servers that die and come back, servers that are not set up as they should be, streams that others touch."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.engines import need_nats
from tests.integration.log.sites import EngineSite, contents
from tests.integration.log.writing import WITHIN_S, Writer, again, fighting
from tstreams.cluster.engines.nats import NatsServers
from tstreams.ledger.engine import Draft, EndMoved, EngineUnavailable, EngineUnfit
from tstreams.ledger.files import RealFolder
from tstreams.ledger.port import DiskFull, LogFenced
from tstreams.ledger.replicated import ReplicatedLog

need_nats()

from tstreams.ledger.jetstream import JetStreamEngine  # noqa: E402
from tstreams.ledger.nats_link import NatsLink  # noqa: E402

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("log")]


async def leader_of(site: EngineSite, servers: NatsServers) -> int:
    """The number of the server that leads the stream."""
    engine = await site.engine("a")
    assert isinstance(engine, JetStreamEngine)
    info = await engine._info()
    return [it.settings.name for it in servers.all].index(info["cluster"]["leader"])


async def test_nodes_that_come_one_after_the_other_make_one_log(servers: NatsServers) -> None:
    """Of a stream that has no leader yet JetStream tells nothing: whoever asks then is told when there is one."""
    links = [await NatsLink.connect(servers.urls, monitors=servers.monitors) for _ in range(8)]

    async def open_one(number: int, name: str) -> JetStreamEngine:
        await asyncio.sleep(0.003 * number)
        return await JetStreamEngine.open(links[number], name)

    for _ in range(4):
        name = uuid.uuid4().hex[:12]
        engines = await asyncio.gather(*(open_one(number, name) for number in range(len(links))))
        assert {await engine.end() for engine in engines} == {0}
        await links[0].api(f"STREAM.DELETE.{engines[0].stream}")
    for link in links:
        await link.close()


@pytest.mark.parametrize("who", ["leader", "another"])
async def test_one_of_three_servers_is_killed(
    replicated: EngineSite, servers: NatsServers, who: str
) -> None:
    log = await replicated.open("a")
    await log.take_over(1, 0)
    writer = Writer(log)
    await writer.write(20)
    leader = await leader_of(replicated, servers)
    doomed = servers.all[leader if who == "leader" else (leader + 1) % 3]
    doomed.kill()
    await writer.write(50)
    doomed.start()
    await writer.write(20)
    confirmed = await writer.stop()
    assert contents(log) == confirmed
    follower = await again(lambda: replicated.open("b"))
    assert contents(follower) == confirmed
    await asyncio.to_thread(servers.start)


async def test_without_a_majority_it_waits_and_goes_on_when_there_is_one(
    replicated: EngineSite, servers: NatsServers
) -> None:
    log = await replicated.open("a")
    await log.take_over(1, 0)
    writer = Writer(log)
    await writer.write(20)
    first, second = servers.all[1:]
    first.kill()
    second.kill()
    # What was sent before may still be confirmed. Then nothing is, and readers go on.
    async with asyncio.timeout(WITHIN_S):
        before = -1
        while before != len(writer.confirmed):
            before = len(writer.confirmed)
            await asyncio.sleep(1.0)
    confirmed = list(writer.confirmed)
    assert contents(log)[: len(confirmed)] == confirmed
    second.start()
    await writer.write(20)
    first.start()
    await writer.write(20)
    confirmed = await writer.stop()
    follower = await again(lambda: replicated.open("b"))
    assert contents(follower) == contents(log) == confirmed
    await asyncio.to_thread(servers.start)


async def test_all_servers_are_killed_and_started_again(
    replicated: EngineSite, servers: NatsServers
) -> None:
    log = await replicated.open("a")
    await log.take_over(1, 0)
    writer = Writer(log)
    await writer.write(30)
    servers.kill()
    await asyncio.to_thread(servers.start)
    await writer.write(30)
    confirmed = await writer.stop()
    for file in replicated.folder("a").iterdir():
        file.unlink()
    fresh = await again(lambda: replicated.open("b"))
    assert contents(fresh) == contents(log) == confirmed
    await fresh.take_over(2, 0)
    with pytest.raises(LogFenced):
        await log.append([[b"refused"]], 0)


async def test_two_nodes_fight_over_the_log_while_servers_die(
    replicated: EngineSite, servers: NatsServers
) -> None:
    async with fighting(replicated) as confirm:
        for server in servers.all[:2]:
            await confirm(20)
            server.kill()
            await confirm(20)
            server.start()
            await asyncio.to_thread(server.wait)


# How servers and streams must be set up.


@asynccontextmanager
async def linked(servers: NatsServers, *monitors: str) -> AsyncIterator[NatsLink]:
    link = await NatsLink.connect(servers.urls, monitors=monitors or servers.monitors)
    try:
        yield link
    finally:
        await link.close()


async def test_servers_that_do_not_sync_are_refused(tmp_path: Path) -> None:
    with NatsServers(tmp_path, 1, sync=False) as servers:
        async with linked(servers) as link:
            with pytest.raises(EngineUnfit, match=r"nats-0 does not sync.*sync_interval: always"):
                await JetStreamEngine.open(link, "log", replicas=1)
            engine = await JetStreamEngine.open(link, "log", replicas=1, require_sync=False)
            assert await engine.end() == 0
        with pytest.raises(EngineUnfit, match="not the address of a monitor"):
            async with linked(servers, "nats://127.0.0.1:1") as link:
                await JetStreamEngine.open(link, "log", replicas=1)


async def test_servers_of_which_nothing_is_known_are_refused(one_server: NatsServers) -> None:
    async with linked(one_server, "http://127.0.0.1:1") as link:
        with pytest.raises(EngineUnfit, match="nothing is known of nats-0"):
            await JetStreamEngine.open(link, "unknown", replicas=1)
    link = await NatsLink.connect(one_server.urls)
    with pytest.raises(EngineUnfit, match="monitoring addresses"):
        await JetStreamEngine.open(link, "unknown", replicas=1)
    await link.close()


async def test_one_server_of_three_that_is_down_does_not_keep_others_from_starting(
    replicated: EngineSite, servers: NatsServers
) -> None:
    await replicated.open("a")
    doomed = servers.all[(await leader_of(replicated, servers) + 1) % 3]
    doomed.kill()
    await replicated.open("b")
    doomed.start()
    await asyncio.to_thread(doomed.wait)


@contextmanager
def monitor(varz: Mapping[str, object]) -> Iterator[str]:
    """What a server of another kind would tell of itself."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(varz).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


async def test_old_servers_are_refused(one_server: NatsServers) -> None:
    old = {"server_name": "nats-0", "version": "2.9.10"}
    with monitor(old) as address:
        async with linked(one_server, address) as link:
            with pytest.raises(EngineUnfit, match=r"nats-0 has version 2\.9\.10; 2\.12 or newer"):
                await JetStreamEngine.open(link, "old", replicas=1)


async def test_a_stream_that_is_set_up_in_another_way_is_refused(one_server: NatsServers) -> None:
    async with linked(one_server) as link:
        config = {"name": "tstreams-other", "subjects": ["tstreams.other.*"], "max_age": 10**12}
        assert "error" not in await link.api("STREAM.CREATE.tstreams-other", config)
        with pytest.raises(EngineUnfit, match=r"tstreams-other.*discard is 'old', not 'new'"):
            await JetStreamEngine.open(link, "other", replicas=1)
        with pytest.raises(EngineUnfit, match="cannot be called"):
            await JetStreamEngine.open(link, "a.b", replicas=1)
        with pytest.raises(EngineUnavailable, match=r"JetStream: .*replicas"):
            await JetStreamEngine.open(link, "three", replicas=3)


async def test_no_server_answers() -> None:
    with pytest.raises(EngineUnavailable, match="no NATS server answers"):
        await NatsLink.connect(["nats://127.0.0.1:1"], within_s=0.5)


async def test_a_stream_that_others_touch_is_noticed(
    one_server: NatsServers, tmp_path: Path
) -> None:
    async with linked(one_server) as link:
        engine = await JetStreamEngine.open(link, "touched", replicas=1)
        log = await ReplicatedLog.open(engine, RealFolder(tmp_path))
        await log.take_over(1, 0)
        await log.append([[b"x"]], 0)
        await link.ask("tstreams.touched.1", b"hello")
        with pytest.raises(EngineUnfit, match=r"message 3 .* is not ours"):
            await log.append([[b"y"]], 0)
        await link.api("STREAM.PURGE.tstreams-touched")
        with pytest.raises(EngineUnfit, match="emptied"):
            await ReplicatedLog.open(engine, RealFolder(tmp_path / "b"))
        await log.close()


async def test_a_server_without_room_refuses(tmp_path: Path) -> None:
    with NatsServers(tmp_path / "nats", 1, storage_bytes=4 << 20) as servers:
        async with linked(servers) as link:
            engine = await JetStreamEngine.open(link, "full", replicas=1)
            log = await ReplicatedLog.open(engine, RealFolder(tmp_path / "mirror"))
            await log.take_over(1, 0)
            written: list[bytes] = []

            async def write(count: int) -> None:
                for n in range(count):
                    await log.append([[b"%d" % n, bytes(900_000)]], 0)
                    written.append(b"%d" % n + bytes(900_000))

            with pytest.raises(DiskFull, match="JetStream"):
                await write(10)
            assert 2 <= len(written) < 10
            assert contents(log) == written
            await log.close()


# The port itself, by hand.


async def test_large_entries_are_there_whole_and_found_by_their_offsets(
    one_server: NatsServers,
) -> None:
    async with linked(one_server) as link:
        engine = await JetStreamEngine.open(link, "parts", replicas=1)
        sizes = [512, 100, 2_500_000, 7, 1_048_576, 1_200_000, 1]
        place, offset, drafts = 0, 0, []
        for n, size in enumerate(sizes):
            draft = Draft(1, offset, f"mark-{n}", bytes([n]) * size)
            with pytest.raises(EndMoved):
                await engine.append(draft, place + 1)
            place = await engine.append(draft, place)
            with pytest.raises(EndMoved):
                await engine.append(draft, place - 1)
            drafts.append(draft)
            offset += size
        assert await engine.end() == place
        after, found = 0, []
        while entries := await engine.read(after, 1_000_000):
            assert [it.before for it in entries] == [after, *(it.place for it in entries[:-1])]
            found += entries
            after = entries[-1].place
        assert after == place
        assert [(it.ledger_id, it.offset, it.mark, it.data) for it in found] == [
            (it.ledger_id, it.offset, it.mark, it.data) for it in drafts
        ]
        for entry in found:
            assert await engine.find(1, entry.offset) == entry
            assert await engine.find(1, entry.offset + 1) is None or entry.offset + 1 in {
                it.offset for it in found
            }
        assert await engine.last(1) == found[-1]
        assert await engine.find(2, 0) is None
        assert await engine.last(2) is None
        assert await engine.ledgers() == [1]
        await engine.append(Draft(2, 0, "next", b"x"), place)
        await engine.delete([1, 7])
        await engine.delete([1])
        assert await engine.ledgers() == [2]
        assert [it.mark for it in await engine.read(0)] == ["next"]


async def test_what_is_left_of_a_large_entry_is_passed_over(one_server: NatsServers) -> None:
    """A server that dies while it purges a ledger may keep some of it."""
    async with linked(one_server) as link:
        engine = await JetStreamEngine.open(link, "left", replicas=1)
        place = await engine.append(Draft(1, 0, "large", bytes(2_500_000)), 0)
        assert place == 3
        place = await engine.append(Draft(2, 0, "next", b"x"), place)
        answer = await link.api("STREAM.PURGE.tstreams-left", {"seq": 2})
        assert answer["purged"] == 1
        assert [it.mark for it in await engine.read(0)] == ["next"]
        assert await engine.find(1, 0) is None
        assert await engine.last(1) is None
        assert await engine.ledgers() == [1, 2]


async def test_of_those_who_append_at_one_place_one_does(one_server: NatsServers) -> None:
    """The others know that they did not."""
    async with linked(one_server) as link:
        engine = await JetStreamEngine.open(link, "race", replicas=1)
        results = await asyncio.gather(
            *(engine.append(Draft(1, 0, f"m{n}", bytes((n + 1) * 200_000)), 0) for n in range(10)),
            return_exceptions=True,
        )
        won = [n for n, it in enumerate(results) if isinstance(it, int)]
        assert len(won) == 1
        assert all(isinstance(it, EndMoved | int) for it in results)
        assert [it.mark for it in await engine.read(0)] == [f"m{won[0]}"]


async def test_a_follower_that_asks_a_server_too_early_asks_again(
    replicated: EngineSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told by the leader of the stream, and asks any server: of many times, some are too early."""
    monkeypatch.setattr("tstreams.ledger.replicated.LOOK_EVERY_S", 1e6)
    came: asyncio.Queue[int] = asyncio.Queue()
    follower = await replicated.open("b", told=lambda group: came.put_nowait(len(group[1])))
    following = asyncio.ensure_future(follower.follow())
    writer = await replicated.open("a")
    await writer.take_over(1, 0)
    async with asyncio.timeout(WITHIN_S):
        for number in range(300):
            await writer.append([[b"%d" % number]], 0)
            await came.get()
    following.cancel()
    await asyncio.wait([following])
    assert contents(follower) == contents(writer)
