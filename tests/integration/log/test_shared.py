"""What a log that an engine keeps promises to several nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.log.sites import EngineSite, contents, entries, images
from tstreams.errors import Corrupt, InvalidState
from tstreams.ledger.files import RealFolder
from tstreams.ledger.local import LocalLog
from tstreams.ledger.port import (
    Group,
    LedgerDamaged,
    LogBehind,
    LogFenced,
    position_of,
    split_position,
)
from tstreams.ledger.replicated import ReplicatedLog
from tstreams.ledger.shelf import OPEN_FILES_MAX

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("log")]

SMALL = 16 * 1024


class Taken:
    """The groups that a follower was told of."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes]] = []
        self._came = asyncio.Event()

    def __call__(self, group: Group) -> None:
        self.records += [(position, bytes(record)) for position, record in group[1]]
        self._came.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.records) < count:
                self._came.clear()
                await self._came.wait()


@asynccontextmanager
async def following(log: ReplicatedLog) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.ensure_future(log.follow())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def write(log: ReplicatedLog, count: int, size: int = 3000) -> None:
    for n in range(count):
        await log.append([[b"%d:" % n, bytes(size)], [b"and"]], 0)


def plain(log: ReplicatedLog) -> list[tuple[int, bytes]]:
    return [(position, bytes(record)) for position, record in entries(log)]


@pytest.mark.core
async def test_a_follower_gets_groups_as_they_are_confirmed(shared: EngineSite) -> None:
    writer = await shared.open("a", ledger_bytes=SMALL)
    await writer.take_over(1, 0)
    await write(writer, 5)
    taken = Taken()
    follower = await shared.open("b", told=taken, ledger_bytes=SMALL)
    before = plain(follower)
    assert before == plain(writer)
    assert taken.records == [], "what was there when it was opened is scanned"
    async with following(follower):
        await write(writer, 10)
        await writer.append([[b"large", bytes(2_500_000)]], 0)
        await taken.until(21)
    assert before + taken.records == plain(writer) == plain(follower)
    assert follower.end == writer.end
    assert follower.ledgers() == writer.ledgers()
    assert images(shared.folder("a"), writer) == images(shared.folder("b"), follower)
    with pytest.raises(InvalidState, match="take the log over"):
        await follower.append([[b"x"]], 0)


@pytest.mark.core
async def test_an_earlier_writer_is_shut_out_for_ever(shared: EngineSite) -> None:
    old = await shared.open("a")
    await old.take_over(1, 0)
    await old.append([[b"old"]], 0)
    new = await shared.open("b")
    await new.take_over(2, 0)
    for _ in range(2):
        with pytest.raises(LogFenced, match="another writer"):
            await old.append([[b"refused"]], 0)
    with pytest.raises(LogFenced, match="another writer"):
        await old.roll(0)
    await new.append([[b"new"]], 0)
    assert contents(new) == [b"old", b"new"]
    await old.catch_up()
    assert plain(old) == plain(new)
    with pytest.raises(InvalidState, match="not above 2"):
        await old.take_over(2, 0)
    await old.take_over(3, 0)
    await old.append([[b"back"]], 0)
    with pytest.raises(LogFenced):
        await new.append([[b"refused"]], 0)
    await new.catch_up()
    assert contents(new) == contents(old) == [b"old", b"new", b"back"]


async def test_a_group_under_way_while_another_takes_over_is_there_or_not_for_all(
    shared: EngineSite,
) -> None:
    old, new = await shared.open("a"), await shared.open("b")
    epoch = 0
    confirmed = []
    for n in range(6):
        epoch += 1
        await old.take_over(epoch, 0)
        under_way = old.append([[b"%d" % n, bytes(n * 400_000)]], 0)
        for _ in range(n):
            await asyncio.sleep(0)
        epoch += 1
        await new.take_over(epoch, 0)
        with contextlib.suppress(LogFenced):
            await under_way
            confirmed.append(b"%d" % n)
        await old.catch_up()
        assert plain(old) == plain(new)
    found = [it.rstrip(b"\0") for it in contents(new)]
    assert found == sorted(set(found))
    assert set(confirmed) <= set(found)
    third = await shared.open("c")
    assert plain(third) == plain(new)


async def test_two_nodes_that_take_over_at_once_agree_who_is_the_later(shared: EngineSite) -> None:
    logs = {node: await shared.open(node) for node in "abc"}
    for turn in range(4):
        epochs = dict(zip(logs, range(3 * turn + 1, 3 * turn + 4), strict=True))
        results = await asyncio.gather(
            *(log.take_over(epochs[node], 0) for node, log in logs.items()), return_exceptions=True
        )
        for result in results:
            assert result is None or isinstance(result, InvalidState), result
        writers = []
        for node, log in logs.items():
            try:
                await log.append([[node.encode()]], 0)
                writers.append(node)
            except (LogFenced, InvalidState):
                pass
        for log in logs.values():
            await log.catch_up()
        assert len({tuple(plain(log)) for log in logs.values()}) == 1
        assert writers == ["c"], "its epoch was the highest, so nobody could shut it out"
        found = [it.epoch for it in logs["a"].ledgers()]
        assert found == sorted(set(found))


async def test_two_nodes_with_the_same_epoch_are_not_both_writers(shared: EngineSite) -> None:
    """Coordination should not let that happen; nothing depends on it."""
    logs = [await shared.open(node) for node in "ab"]
    results = await asyncio.gather(*(log.take_over(1, 0) for log in logs), return_exceptions=True)
    assert {type(it) for it in results} == {InvalidState, type(None)}
    for log in logs:
        await log.catch_up()
    assert plain(logs[0]) == plain(logs[1])
    assert [it.epoch for it in logs[0].ledgers()] == [1]


async def test_one_group_at_a_time(shared: EngineSite) -> None:
    log = await shared.open()
    await log.take_over(1, 0)
    first = log.append([[b"first"]], 0)
    with pytest.raises(InvalidState, match="under way"):
        log.append([[b"second"]], 0)
    before = log.end
    assert contents(log) == [], "nothing is there before it is confirmed"
    (position,) = await first
    assert position > before
    heard: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
    log.append([[b"second"]], 0).add_done_callback(lambda it: heard.set_result(it.result()))
    (position,) = await heard
    assert bytes(log.read_many([(position, 6)])[0]) == b"second"


async def test_a_group_nobody_waits_for_any_more_is_appended_all_the_same(
    shared: EngineSite,
) -> None:
    log = await shared.open()
    await log.take_over(1, 0)
    under_way = log.append([[b"given up"]], 0)
    under_way.cancel()
    with pytest.raises(InvalidState, match="under way"):
        log.append([[b"next"]], 0)
    async with asyncio.timeout(30):
        while not contents(log):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
    await log.append([[b"next"]], 0)
    assert contents(log) == [b"given up", b"next"]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2 + 100])


def cut_to_nothing(file: Path) -> None:
    file.write_bytes(b"")


def extend(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\xa5" * 5000)


def repeat_the_end(file: Path) -> None:
    """A group that is whole, but not one of this place."""
    file.write_bytes(file.read_bytes() + file.read_bytes()[-4096:])


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


def flip_in_the_head(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[20] ^= 4
    file.write_bytes(data)


def blank(file: Path) -> None:
    """As after a power failure: it is as long as it was, and some of it never reached the disk."""
    data = bytearray(file.read_bytes())
    data[1024:6000] = bytes(6000 - 1024)
    file.write_bytes(data)


DAMAGES = [
    cut,
    cut_to_nothing,
    extend,
    repeat_the_end,
    flip,
    flip_in_the_head,
    blank,
    Path.unlink,
]


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda it: it.__name__)
async def test_a_mirror_that_is_damaged_is_mended_when_it_is_opened(
    shared: EngineSite, damage: Callable[[Path], None], which: str
) -> None:
    log = await shared.open(ledger_bytes=SMALL)
    await log.take_over(1, 0)
    await write(log, 21)
    wanted, before = plain(log), images(shared.folder(), log)
    ledgers = log.ledgers()
    await log.close()
    number = {"first": 0, "middle": len(ledgers) // 2, "last": len(ledgers) - 1}[which]
    damage(shared.folder() / f"{ledgers[number].id:012x}.ledger")
    again = await shared.open(ledger_bytes=SMALL)
    assert plain(again) == wanted
    assert again.ledgers() == ledgers
    assert images(shared.folder(), again) == before
    await again.take_over(2, 0)
    await again.append([[b"and on"]], 0)
    assert contents(again)[-1] == b"and on"


async def test_a_mirror_that_is_gone_is_fetched_anew(shared: EngineSite) -> None:
    log = await shared.open(ledger_bytes=SMALL)
    await log.take_over(1, 0)
    await write(log, 22)
    await log.trim([2])
    wanted = plain(log)
    await log.close()
    for file in shared.folder().iterdir():
        file.unlink()
    again = await shared.open(ledger_bytes=SMALL)
    assert plain(again) == wanted
    assert [it.id for it in again.ledgers()][:2] == [1, 3]


async def test_a_mirror_of_another_log_is_not_believed(shared: EngineSite) -> None:
    other = LocalLog(RealFolder(shared.folder()))
    other.take_over(1, 12345)
    other.append([[b"of another log"]], 0)
    end = other.end
    other.close()
    writer = await shared.open("b")
    await writer.take_over(1, 0)
    await writer.append([[b"of this log, and longer than the other one" * 20]], 0)
    with pytest.raises(Corrupt, match="another cluster"):
        await shared.open(applied=end)
    log = await shared.open()
    assert plain(log) == plain(writer)


@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize("damage", [flip, blank, cut], ids=lambda it: it.__name__)
async def test_damage_that_a_reader_finds_is_not_served_and_mended(
    shared: EngineSite, damage: Callable[[Path], None], which: str
) -> None:
    log = await shared.open(ledger_bytes=SMALL)
    await log.take_over(1, 0)
    await write(log, 22)
    wanted, before = plain(log), images(shared.folder(), log)
    ledger = log.ledgers()[0 if which == "first" else -1]
    places = [(at, len(it)) for at, it in wanted if split_position(at)[0] == ledger.id]
    await log.close()
    log = await shared.open(ledger_bytes=SMALL)
    damage(shared.folder() / f"{ledger.id:012x}.ledger")
    with pytest.raises(LedgerDamaged, match=f"ledger {ledger.id:x} .*fetched again"):
        log.read_many(places)
    assert await log.mend(ledger.id)
    assert [bytes(it) for it in log.read_many(places)] == [
        it for at, it in wanted if split_position(at)[0] == ledger.id
    ]
    assert plain(log) == wanted
    damage(shared.folder() / f"{ledger.id:012x}.ledger")
    with pytest.raises(LedgerDamaged):
        plain(log)
    assert await log.mend(ledger.id)
    await log.take_over(2, 0)
    await log.append([[b"and on"]], 0)
    assert [record for _, record in plain(log)] == [record for _, record in wanted] + [b"and on"]
    assert {key: it for key, it in images(shared.folder(), log).items() if key in before} == before


async def test_a_file_that_is_deleted_is_fetched_anew_by_the_first_who_misses_it(
    shared: EngineSite,
) -> None:
    log = await shared.open()
    await log.take_over(1, 0)
    (position,) = await log.append([[b"in the first ledger"]], 0)
    for _ in range(OPEN_FILES_MAX + 1):  # so that its file is not open any more
        await log.roll(0)
    (shared.folder() / "000000000001.ledger").unlink()
    with pytest.raises(LedgerDamaged, match="ledger 1 "):
        log.read_many([(position, 19)])
    assert await log.mend(1)
    assert bytes(log.read_many([(position, 19)])[0]) == b"in the first ledger"


async def test_what_one_deletes_others_forget(shared: EngineSite) -> None:
    writer = await shared.open("a", ledger_bytes=SMALL)
    await writer.take_over(1, 0)
    await write(writer, 22)
    follower = await shared.open("b", ledger_bytes=SMALL)
    ids = [it.id for it in writer.ledgers()]
    doomed = [ids[0], ids[2]]
    await writer.trim(doomed)
    assert await follower.forget() == doomed
    assert await follower.forget() == []
    assert plain(follower) == plain(writer)
    assert follower.ledgers() == writer.ledgers()
    names = {it.name for it in shared.folder("b").iterdir() if it.suffix == ".ledger"}
    assert names == {f"{it:012x}.ledger" for it in ids if it not in doomed}


@pytest.mark.core
async def test_a_node_that_missed_deleted_ledgers_is_told_so(shared: EngineSite) -> None:
    """It must not go on as if nothing had been there: its index would miss something."""
    writer = await shared.open("a", ledger_bytes=SMALL)
    await writer.take_over(1, 0)
    await write(writer, 2)
    follower = await shared.open("b", ledger_bytes=SMALL)
    applied = follower.end
    await write(writer, 20)
    ids = [it.id for it in writer.ledgers()]
    await writer.trim([ids[2]])
    with pytest.raises(LogBehind, match="deleted"):
        await follower.catch_up()
    await follower.close()
    with pytest.raises(LogBehind, match=f"between ledgers {ids[1]:x} and {ids[3]:x}"):
        await shared.open("b", applied=applied)
    await writer.trim([ids[0]])
    with pytest.raises(LogBehind, match="ledger 1 was deleted"):
        await shared.open("b", applied=applied)
    beyond = await shared.open("b", applied=position_of(ids[3], 512))
    assert plain(beyond) == plain(writer), "an index that is further on misses nothing"
    with pytest.raises(LogBehind):
        beyond.check_from(applied)
    beyond.check_from(beyond.end)


async def test_an_index_that_is_ahead_of_the_log_is_refused(shared: EngineSite) -> None:
    log = await shared.open()
    await log.take_over(1, 0)
    await log.append([[b"x"]], 0)
    end = log.end
    await log.close()
    for applied in (end + 512, position_of(7, 512)):
        with pytest.raises(Corrupt, match="does not have that much"):
            await shared.open(applied=applied)
    again = await shared.open(applied=end)
    assert again.end == end


async def test_everything_is_started_again(shared: EngineSite) -> None:
    expected: list[bytes] = []
    for epoch in range(1, 4):
        logs = {node: await shared.open(node, ledger_bytes=SMALL) for node in "ab"}
        assert contents(logs["a"]) == contents(logs["b"]) == expected
        writer = logs["ab"[epoch % 2]]
        await writer.take_over(epoch, 0)
        for n in range(8):
            record = b"%d/%d" % (epoch, n) + bytes(2500)
            await writer.append([[record]], 0)
            expected.append(record)
        for log in logs.values():
            await log.close()
