"""BookKeeper: bookies that die and come back, writers that sleep, recoverers and lists that race, ledgers that end early."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.log.bookkeeper_writers import WriterProcess
from tests.integration.log.conftest import open_bookkeeper, settings_of
from tests.integration.log.sites import EngineSite, contents
from tests.integration.log.writing import WITHIN_S, Writer, again, fighting
from tstreams.cluster.engines.bookkeeper import Bookies
from tstreams.errors import BadRequest, Corrupt, InvalidState
from tstreams.ledger.bookkeeper import BookKeeperEngine
from tstreams.ledger.bookkeeper_link import BookKeeperLink, BookKeeperSettings
from tstreams.ledger.bookkeeper_logs import BookKeeperLogs
from tstreams.ledger.bookkeeper_parts import PART_BYTES, split_draft
from tstreams.ledger.comparing import read_until
from tstreams.ledger.engine import Draft, EndMoved, EngineUnavailable, EngineUnfit
from tstreams.ledger.files import RealFolder
from tstreams.ledger.format import Head
from tstreams.ledger.jvm import java_bytes
from tstreams.ledger.jvm_bridge import JavaFailed
from tstreams.ledger.port import DiskFull
from tstreams.ledger.replicated import ReplicatedLog

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.xdist_group("log"),
    pytest.mark.bookkeeper,
    pytest.mark.timeout(300),
]

SMALL = 16 * 1024


@pytest.fixture
async def replicated(bookies: Bookies, tmp_path: Path) -> AsyncIterator[EngineSite]:
    """A log on three bookies."""
    async for it in open_bookkeeper(tmp_path, bookies):
        yield it


@pytest.fixture
async def link(bookies: Bookies) -> AsyncIterator[BookKeeperLink]:
    """Another client."""
    link = await BookKeeperLink.connect(settings_of(bookies))
    yield link
    await link.close()


async def engine_of(site: EngineSite, node: str = "a") -> BookKeeperEngine:
    engine = await site.engine(node)
    assert isinstance(engine, BookKeeperEngine)
    return engine


def head(number: int, epoch: int = 1, mark: str = "") -> Draft:
    data = Head(number, epoch, 0, number - 1, 512 if number > 1 else 0).encode()
    return Draft(number, 0, mark or f"head-{number}-{epoch}", data)


# Bookies that die.


@pytest.mark.core
async def test_one_of_three_bookies_is_killed(replicated: EngineSite, bookies: Bookies) -> None:
    log = await replicated.open("a")
    await log.take_over(1, 0)
    writer = Writer(log)
    await writer.write(20)
    bookies.all[0].kill()
    await writer.write(50)
    confirmed = await writer.stop()
    await log.roll(0)
    await log.append([[b"in a ledger that was begun without it"]], 0)
    other = await replicated.open("b")
    await other.take_over(2, 0)
    await other.append([[b"by one that took over without it"]], 0)
    await asyncio.to_thread(bookies.start)
    await other.roll(0)
    await other.append([[b"with it"]], 0)
    assert contents(await replicated.open("c")) == [
        *confirmed,
        b"in a ledger that was begun without it",
        b"by one that took over without it",
        b"with it",
    ]


async def test_without_an_ack_quorum_it_waits_and_goes_on_when_there_is_one(
    replicated: EngineSite, bookies: Bookies
) -> None:
    log = await replicated.open("a")
    await log.take_over(1, 0)
    writer = Writer(log)
    await writer.write(20)
    first, second = bookies.all[1:]
    first.kill()
    second.kill()
    async with asyncio.timeout(WITHIN_S):  # what was sent before may still be confirmed
        before = -1
        while before != len(writer.confirmed):
            before = len(writer.confirmed)
            await asyncio.sleep(1.0)
    confirmed = list(writer.confirmed)
    assert contents(log)[: len(confirmed)] == confirmed
    await asyncio.to_thread(second.start)
    await writer.write(20)
    await asyncio.to_thread(first.start)
    await writer.write(20)
    confirmed = await writer.stop()
    follower = await again(lambda: replicated.open("b"))
    assert contents(follower) == contents(log) == confirmed


async def test_all_bookies_are_killed_and_started_again(
    replicated: EngineSite, bookies: Bookies
) -> None:
    log = await replicated.open("a")
    await log.take_over(1, 0)
    writer = Writer(log)
    await writer.write(30)
    for bookie in bookies.all:
        bookie.kill()
    await asyncio.to_thread(bookies.start)
    await writer.write(30)
    confirmed = await writer.stop()
    fresh = await again(lambda: replicated.open("b"))
    assert contents(fresh) == contents(log) == confirmed
    await fresh.take_over(2, 0)


async def test_a_bookie_that_stands_still_holds_nobody_up(
    replicated: EngineSite, bookies: Bookies
) -> None:
    log = await replicated.open("a")
    await log.take_over(1, 0)
    writer = Writer(log)
    await writer.write(20)
    bookies.all[2].pause()
    try:
        await writer.write(20)
    finally:
        bookies.all[2].go_on()
    confirmed = await writer.stop()
    assert contents(await replicated.open("b")) == confirmed


async def test_two_nodes_fight_over_the_log_while_bookies_die(
    replicated: EngineSite, bookies: Bookies
) -> None:
    async with fighting(replicated) as confirm:
        for bookie in bookies.all[:2]:
            await confirm(20)
            bookie.kill()
            await confirm(20)
            await asyncio.to_thread(bookie.start)


# Writers that are shut out.


@pytest.fixture
def process(tmp_path: Path, bookies: Bookies) -> Iterator[WriterProcess]:
    process = WriterProcess(tmp_path, bookies.hosts, f"process-{tmp_path.name}")
    yield process
    process.kill()


async def take_over(link: BookKeeperLink, path: Path, epoch: int) -> ReplicatedLog:
    engine = await BookKeeperEngine.open(link, f"process-{path.name}")
    log = await ReplicatedLog.open(engine, RealFolder(path / f"epoch-{epoch}"))
    await log.take_over(epoch, 0)
    return log


@pytest.mark.core
async def test_a_writer_that_slept_past_a_take_over_is_refused_by_bookkeeper(
    process: WriterProcess, link: BookKeeperLink, tmp_path: Path
) -> None:
    await asyncio.to_thread(process.read, 20)
    process.pause()
    log = await take_over(link, tmp_path, 2)
    await log.append([[b"after"]], 0)
    process.go_on()  # it believes that it is the writer
    ended = await asyncio.to_thread(process.read_to_end)
    assert ended.startswith("fenced: another writer")
    # One that stood still may take all bookies for dead first: then it finds the end of its ledger, and not the fence.
    said = process.said()
    assert "Ledger has been fenced off" in said or "takes no more entries" in said
    assert process.wait() == 0
    await log.append([[b"at the end"]], 0)
    found = contents(log)
    assert found[-2:] == [b"after", b"at the end"], "nothing of the old writer came in between"
    assert found[: len(process.confirmed)] == process.confirmed
    assert len(found) - 2 <= len(process.confirmed) + 1, "one was under way"
    await log.close()


async def test_several_that_recover_what_a_dead_writer_left_agree(
    process: WriterProcess, bookies: Bookies, tmp_path: Path
) -> None:
    await asyncio.to_thread(process.read, 20)
    process.kill()
    links = [await BookKeeperLink.connect(settings_of(bookies)) for _ in range(3)]
    engines = [await BookKeeperEngine.open(link, f"process-{tmp_path.name}") for link in links]
    lists = [await engine._list.read() for engine in engines]
    ends = await asyncio.gather(*map(BookKeeperEngine._recover, engines, lists))
    assert len(set(ends)) == 1
    logs = [
        await ReplicatedLog.open(engine, RealFolder(tmp_path / str(n)))
        for n, engine in enumerate(engines)
    ]
    results = await asyncio.gather(
        *(log.take_over(epoch, 0) for epoch, log in enumerate(logs, 2)), return_exceptions=True
    )
    for result in results:
        assert result is None or isinstance(result, InvalidState), result
    assert results[-1] is None, "its epoch was the highest"
    await logs[-1].append([[b"after"]], 0)
    for log in logs:
        await log.catch_up()
        assert contents(log)[: len(process.confirmed)] == process.confirmed
        assert contents(log)[-1] == b"after"
        assert len(contents(log)) <= len(process.confirmed) + 2
        await log.close()
    for link in links:
        await link.close()


@pytest.mark.core
async def test_a_ledger_that_a_stranger_has_recovered_is_followed_by_another(
    replicated: EngineSite, link: BookKeeperLink
) -> None:
    """As BookKeeper's own recovery of lost bookies does. Nobody wants to take over."""
    log = await replicated.open("a")
    await log.take_over(1, 0)
    await log.append([[b"before"]], 0)
    ledgers = await (await engine_of(replicated))._list.read()
    assert ledgers.last is not None
    await link.open(ledgers.last.bookkeeper_id, recover=True)
    await log.append([[b"after"]], 0)
    assert [(it.id, it.epoch) for it in log.ledgers()] == [(1, 1), (2, 1)]
    follower = await replicated.open("b")
    assert contents(follower) == contents(log) == [b"before", b"after"]


async def test_a_ledger_says_who_made_it(replicated: EngineSite, link: BookKeeperLink) -> None:
    log = await replicated.open("a")
    await log.take_over(7, 0)
    engine = await engine_of(replicated)
    ledgers = await engine._list.read()
    assert ledgers.last is not None
    handle = await link.open(ledgers.last.bookkeeper_id)
    metadata = handle.getLedgerMetadata()
    about = {
        str(it.getKey()): bytes(memoryview(it.getValue())).decode()
        for it in metadata.getCustomMetadata().entrySet()
    }
    assert about == {"application": "tstreams", "log": engine.name, "ledger": "1", "epoch": "7"}
    sizes = (
        metadata.getEnsembleSize(),
        metadata.getWriteQuorumSize(),
        metadata.getAckQuorumSize(),
    )
    assert sizes == (3, 3, 2)


# The list.


@pytest.mark.core
async def test_of_those_who_change_the_list_at_once_one_does(replicated: EngineSite) -> None:
    engines = [await engine_of(replicated, node) for node in "abcd"]
    end = before = 0
    for turn in range(1, 6):
        results = await asyncio.gather(
            *(
                engine.append(head(turn, turn, f"{turn}-{n}"), end)
                for n, engine in enumerate(engines)
            ),
            return_exceptions=True,
        )
        places = [it for it in results if isinstance(it, int)]
        assert len(places) == 1
        assert all(isinstance(it, int | EndMoved) for it in results), results
        end = places[0]
        winner = results.index(end)
        (entry,) = await engines[0].read(before, 1)
        assert (entry.ledger_id, entry.mark, entry.place) == (turn, f"{turn}-{winner}", end)
        before = end
    assert await engines[1].ledgers() == [1, 2, 3, 4, 5]


async def test_a_change_of_the_list_without_an_answer_happens_once(replicated: EngineSite) -> None:
    engine, other = await engine_of(replicated, "a"), await engine_of(replicated, "b")
    end = await engine.append(head(1), 0)
    ask = engine._link.zookeeper.ask
    lost = 0

    async def forget(what: object, *args: float) -> object:
        """The answer to one change gets lost."""
        nonlocal lost
        before = (await other._list.read()).version
        answer = await ask(what, *args)  # type: ignore[arg-type]
        if (await other._list.read()).version > before:
            lost += 1
            raise EngineUnavailable("the answer is lost")
        return answer

    engine._list._link = _Forgetful(engine._list._link, forget)  # type: ignore[assignment]
    with pytest.raises(EngineUnavailable, match="lost"):
        await engine.append(head(2), end)
    place = await engine.append(head(2), end)
    assert lost == 1
    assert await other.ledgers() == [1, 2]
    assert [it.place for it in await other.read(end)] == [place]
    group = Draft(2, 512, "group", b"g" * 512)
    assert await engine.append(group, place) > place, "it is still the writer"


class _Forgetful:
    def __init__(self, link: object, ask: object) -> None:
        self._link = link
        self.ask = ask

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)


@pytest.mark.core
async def test_ledgers_are_trimmed_while_they_are_read(
    replicated: EngineSite, link: BookKeeperLink
) -> None:
    log = await replicated.open("a", ledger_bytes=SMALL)
    await log.take_over(1, 0)
    for n in range(30):
        await log.append([[b"%d:" % n, bytes(3000)]], 0)
    listed = (await (await engine_of(replicated))._list.read()).ledgers
    reader = await engine_of(replicated, "b")
    found = await reader.read(0, 1)
    doomed = listed[:-2]
    await log.trim([it.number for it in doomed])
    rest = read_until(reader, found[-1].place, await reader.end())
    ids = [entry.ledger_id async for entry in rest]
    assert set(ids) >= {it.number for it in listed[-2:]}, "the rest is read without an error"
    assert await reader.ledgers() == [it.number for it in listed[-2:]]
    for ledger in doomed:
        with pytest.raises(JavaFailed, match="No such ledger"):
            await link.open(ledger.bookkeeper_id)
        assert await reader.find(ledger.number, 0) is None
    assert (await (await engine_of(replicated))._list.read()).dropped == ()


async def test_what_one_that_died_was_about_to_delete_is_deleted_by_the_next(
    replicated: EngineSite, link: BookKeeperLink
) -> None:
    log = await replicated.open("a")
    await log.take_over(1, 0)
    await log.roll(0)
    engine = await engine_of(replicated)
    before = await engine._list.read()
    await engine._list.change(before, before.without([1]))  # and it dies
    other = await replicated.open("b")
    await other.take_over(2, 0)
    async with asyncio.timeout(WITHIN_S):
        while (await engine._list.read()).dropped:  # noqa: ASYNC110 - it is done in the background
            await asyncio.sleep(0.01)
    with pytest.raises(JavaFailed, match="No such ledger"):
        await link.open(before.ledgers[0].bookkeeper_id)
    with pytest.raises(InvalidState, match="is the last one"):
        await engine.delete([3])


async def test_a_list_that_is_not_ours_or_went_back_is_noticed(replicated: EngineSite) -> None:
    engine, other = await engine_of(replicated), await engine_of(replicated, "b")
    zookeeper, path = engine._link.zookeeper, engine._list.path
    end = await engine.append(head(1), 0)
    old, _ = await zookeeper.ask(lambda it: it.get_async(path))
    end = await engine.append(head(2), end)
    await zookeeper.ask(lambda it: it.set_async(path, old))
    with pytest.raises(EngineUnfit, match="restored from an old copy"):
        await other.append(head(3, 2), end)
    await zookeeper.ask(lambda it: it.set_async(path, b"hello"))
    with pytest.raises(Corrupt, match="no list of ledgers"):
        await other.ledgers()


# Entries.


async def test_large_entries_are_there_whole_and_found_by_their_offsets(
    replicated: EngineSite,
) -> None:
    engine, reader = await engine_of(replicated, "a"), await engine_of(replicated, "b")
    end = await engine.append(head(1), 0)
    sizes = [700, PART_BYTES - 512, 2 * PART_BYTES + 5, 9, PART_BYTES, 300]
    drafts, offset = [], 512
    for n, size in enumerate(sizes):
        drafts.append(Draft(1, offset, f"mark-{n}", bytes([n]) * size))
        offset += size
    ends = [end]
    for draft in drafts:
        ends.append(await engine.append(draft, ends[-1]))
    assert await reader.end() == ends[-1]
    for draft, before, place in zip(drafts, ends, ends[1:], strict=False):
        found = await reader.find(1, draft.offset)
        assert found is not None
        assert (found.before, found.place, found.mark) == (before, place, draft.mark)
        assert found.data == draft.data
    assert await reader.find(1, 100) is None
    last = await reader.last(1)
    assert last is not None
    assert last.mark == drafts[-1].mark
    read = [entry async for entry in read_until(reader, ends[0], ends[-1])]
    assert [(it.mark, it.data) for it in read] == [(it.mark, it.data) for it in drafts]


@pytest.mark.core
async def test_a_large_entry_whose_writer_died_on_the_way_is_not_there(
    replicated: EngineSite,
) -> None:
    engine, other = await engine_of(replicated, "a"), await engine_of(replicated, "b")
    end = await engine.append(head(1), 0)
    end = await engine.append(Draft(1, 512, "whole", b"w" * 512), end)
    writer = engine._writer
    assert writer is not None
    large = split_draft(Draft(1, 1024, "large", bytes(2 * PART_BYTES + 1)))
    for before, data in large[:2]:
        part = java_bytes(before + bytes(data))
        await engine._link.ask(lambda part=part: writer.handle.appendAsync(part))  # type: ignore[misc]
    assert await other.end() == end
    last = await other.last(1)
    assert last is not None
    assert last.mark == "whole"
    place = await other.append(head(2, 2), end)
    assert [(it.before >> 40, it.place, it.mark) for it in await other.read(end)] == [
        (2, place, "head-2-2")
    ]
    with pytest.raises(EngineUnavailable):
        await engine.append(Draft(1, 1024, "late", b"l" * 512), end)
    with pytest.raises(EndMoved):
        await engine.append(Draft(1, 1024, "late", b"l" * 512), end)


async def test_an_append_that_nobody_waits_for_is_not_made_twice(replicated: EngineSite) -> None:
    engine = await engine_of(replicated)
    end = await engine.append(head(1), 0)
    draft = Draft(1, 512, "once", bytes(3_000_000))
    task = asyncio.ensure_future(engine.append(draft, end))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    place = await engine.append(draft, end)
    assert place == end + 1
    with pytest.raises(EndMoved):
        await engine.append(Draft(1, 512, "another", b"x" * 512), end)
    assert [it.mark for it in await engine.read(end)] == ["once"]


async def test_the_logs_of_all_shards_share_a_client(bookies: Bookies, tmp_path: Path) -> None:
    logs = BookKeeperLogs(settings_of(bookies), tmp_path.name)
    engines = await asyncio.gather(*map(logs.open, range(3)))
    for engine in engines:
        await engine.append(head(1), 0)
    again = await logs.open(1)
    assert await again.ledgers() == [1]
    assert await logs.bookies() == {bookie.id: True for bookie in bookies.all}
    for engine in (*engines, again):
        await engine.close()
        with pytest.raises(EngineUnavailable, match="closed"):
            await engine.end()
    await logs.close()
    await logs.close()


# How it must be set up.


@pytest.mark.parametrize("sizes", [(3, 3, 4), (3, 4, 2), (3, 3, 0)])
async def test_quorums_that_make_no_sense_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(BadRequest, match="ack quorum <= write quorum <= ensemble"):
        BookKeeperSettings("zk:2181", "/ledgers", "/tstreams-logs", *sizes)


async def test_where_there_is_no_bookkeeper_it_says_so(bookies: Bookies) -> None:
    with pytest.raises(EngineUnfit, match="there is no BookKeeper at /elsewhere"):
        await BookKeeperLink.connect(BookKeeperSettings(bookies.hosts, ledgers="/elsewhere"))


async def test_a_log_needs_a_name_that_is_a_path_everywhere(link: BookKeeperLink) -> None:
    with pytest.raises(EngineUnfit, match="cannot be called"):
        await BookKeeperEngine.open(link, "a/b")


async def test_bookies_without_room_refuse(tmp_path: Path, bookies: Bookies) -> None:
    """A disk of which more than a millionth is used counts as full here."""
    alone = Bookies(tmp_path / "bookies", 1)
    with alone:
        settings = BookKeeperSettings(alone.hosts, ensemble=1, write_quorum=1, ack_quorum=1)
        link = await BookKeeperLink.connect(settings)
        engine = await BookKeeperEngine.open(link, "small")
        log = await ReplicatedLog.open(engine, RealFolder(tmp_path / "mirror"))
        await log.take_over(1, 0)
        await log.append([[b"there is room"]], 0)
        full = {"diskUsageThreshold": "0.000001", "diskUsageLwmThreshold": "0.000001"}
        full["diskUsageWarnThreshold"] = "0.000001"
        alone.all[0].stop()
        alone.all[0].settings.update(full)
        await asyncio.to_thread(alone.all[0].start)
        assert await link.bookies() == {alone.all[0].id: False}
        with pytest.raises(DiskFull, match="their disks are full"):
            await log.roll(0)
        assert contents(log) == [b"there is room"]
        await log.close()
        await engine.close()
        await link.close()
