"""The replicated log over an engine in memory that loses, delays and leaves undecided: what was confirmed stays, once."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.simulation.disk import SimulatedFile, SimulatedFolder
from tests.simulation.engine import Faults, MemoryEngine, Sequence
from tstreams.errors import Corrupt, Error, InvalidState
from tstreams.ledger.engine import Draft, EndMoved, EngineUnavailable, Entry
from tstreams.ledger.format import Head
from tstreams.ledger.port import (
    DiskFull,
    Group,
    LedgerDamaged,
    LogBehind,
    LogFailed,
    LogFenced,
    split_position,
)
from tstreams.ledger.replicated import ReplicatedLog

SMALL = 4096


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """Nobody waits between two attempts, and files on a simulated disk are small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tstreams.ledger.tail.PAUSE_S_MIN", 0)
        patch.setattr("tstreams.ledger.tail.PAUSE_S_MAX", 0)
        patch.setattr("tstreams.ledger.mirror.RESERVE_BYTES", SMALL)
        yield


def contents(log: ReplicatedLog) -> list[bytes]:
    return [bytes(record) for _, group in log.scan(0) for _, record in group]


def places(log: ReplicatedLog) -> list[tuple[int, bytes]]:
    return [(at, bytes(record)) for _, group in log.scan(0) for at, record in group]


class Node:
    """A node that writes when it can, and takes over when it cannot."""

    def __init__(self, name: str, sequence: Sequence, faults: Faults) -> None:
        self.name = name
        self.folder = SimulatedFolder()
        self.engine = MemoryEngine(sequence, faults)
        self.confirmed: list[tuple[int, bytes]] = []
        self.unknown: list[bytes] = []
        self.log: ReplicatedLog | None = None

    async def open(self) -> ReplicatedLog:
        while True:
            with contextlib.suppress(EngineUnavailable):
                self.log = await ReplicatedLog.open(self.engine, self.folder, ledger_bytes=SMALL)
                return self.log

    async def work(self, rng: random.Random, turns: int) -> None:
        log = await self.open()
        for n in range(turns):
            try:
                if rng.random() < 0.15:
                    await log.take_over(log.epoch + rng.randrange(1, 3), 0)
                if rng.random() < 0.1:
                    await log.close()
                    self.folder.lose_power(rng.randrange(1000))
                    log = await self.open()
                records = [
                    b"%s-%d-%d" % (self.name.encode(), n, k) + bytes(rng.randrange(600))
                    for k in range(rng.randrange(1, 4))
                ]
                under_way = log.append([[it] for it in records], 0)
                try:
                    positions = await under_way
                except LogFenced:
                    self.unknown += records
                    raise
                self.confirmed += zip(positions, records, strict=True)
            except (LogFenced, InvalidState, EngineUnavailable):
                await asyncio.sleep(0)


FAULTS = [
    Faults(),
    Faults(lost_answer=0.3),
    Faults(lost_request=0.3),
    Faults(late_request=0.3),
    Faults(undecided=0.2),
    Faults(stale=0.3),
    Faults(ended=0.3),
    Faults(0.1, 0.1, 0.1, 0.1, 0.2),
    Faults(0.1, 0.1, 0.1, 0.1, 0.2, 0.1),
]


@pytest.mark.parametrize("faults", FAULTS, ids=repr)
@pytest.mark.parametrize("seed", range(12))
def test_nothing_confirmed_is_lost_and_nothing_is_there_twice(faults: Faults, seed: int) -> None:
    async def run() -> None:
        rng = random.Random(seed)
        sequence = Sequence(random.Random(seed + 1000))
        nodes = [Node(name, sequence, faults) for name in "abc"]
        await asyncio.gather(*(node.work(random.Random(rng.random()), 25) for node in nodes))
        last = Node("last", sequence, Faults())
        found = places(await last.open())
        assert len({record for _, record in found}) == len(found), "something is there twice"
        confirmed = [it for node in nodes for it in node.confirmed]
        assert set(confirmed) <= set(found), "something confirmed is not where it was said to be"
        unknown = {it for node in nodes for it in node.unknown}
        assert {record for _, record in found} <= {record for _, record in confirmed} | unknown
        assert confirmed, "or else this test says nothing"
        epochs = [it.epoch for it in last.log.ledgers()] if last.log is not None else []
        assert epochs == sorted(epochs)
        for node in nodes:
            node.engine.faults = Faults()
            log = await node.open()
            assert places(log) == found
            images = {name: bytes(file.now) for name, file in node.folder.files.items()}
            for info in log.ledgers():
                name = f"{info.id:012x}.ledger"
                wanted = bytes(last.folder.files[name].now)[: info.size_bytes]
                assert images[name][: info.size_bytes] == wanted

    asyncio.run(run())


# One at a time: what has no answer.


async def writer(
    sequence: Sequence, folder: SimulatedFolder | None = None, epoch: int = 1
) -> tuple[ReplicatedLog, MemoryEngine]:
    engine = MemoryEngine(sequence)
    log = await ReplicatedLog.open(engine, folder or SimulatedFolder(), ledger_bytes=SMALL)
    await log.take_over(epoch, 0)
    return log, engine


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - it depends on what others do next
            await asyncio.sleep(0)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_an_answer_that_is_lost_is_found_in_the_sequence() -> None:
    async def case() -> None:
        sequence = Sequence()
        log, engine = await writer(sequence)
        engine.faults.lost_answer = 1.0
        engine.attempts = 0
        under_way = log.append([[b"once"]], 0)
        await under_way
        assert engine.attempts == 2, "it was sent again, and refused"
        assert contents(log) == [b"once"]
        assert len(sequence.entries) == 2

    run(case())


def test_a_group_that_is_undecided_is_waited_for() -> None:
    async def case(happens: bool) -> None:
        sequence = Sequence()
        log, engine = await writer(sequence)
        engine.faults.undecided = 1.0
        sequence.rng = random.Random(5)
        sequence.time_passes = lambda: None  # type: ignore[method-assign]
        under_way = log.append([[b"undecided"]], 0)
        await until(lambda: engine.attempts >= 5)
        assert not under_way.done()
        assert contents(log) == []
        engine.faults.undecided = 0.0
        sequence.decide(happens)
        await under_way
        assert contents(log) == [b"undecided"]
        assert len(sequence.entries) == 2

    for happens in (False, True):
        run(case(happens))


def test_a_ledger_that_takes_no_more_is_followed_by_another() -> None:
    async def case() -> None:
        sequence = Sequence()
        log, _ = await writer(sequence)
        await log.append([[b"first"]], 0)
        sequence.ended.add(1)
        (position,) = await log.append([[b"second"]], 7)
        assert split_position(position)[0] == 2
        assert contents(log) == [b"first", b"second"]
        assert [(it.id, it.epoch, it.closed, it.created_ms) for it in log.ledgers()] == [
            (1, 1, True, 0),
            (2, 1, False, 7),
        ]
        await log.close()
        again = await ReplicatedLog.open(MemoryEngine(sequence), SimulatedFolder())
        assert contents(again) == [b"first", b"second"]

    run(case())


def test_a_late_request_does_nothing_when_it_arrives_after_its_repetition() -> None:
    async def case() -> None:
        sequence = Sequence()
        log, engine = await writer(sequence)
        engine.faults.late_request = 1.0
        under_way = log.append([[b"late"]], 0)
        await until(lambda: engine.attempts >= 2)
        engine.faults.late_request = 0.0
        await under_way
        await log.append([[b"next"]], 0)
        late, sequence.late = sequence.late, []
        for draft, expected in late:
            with pytest.raises(EndMoved):
                sequence.append(draft, expected)
        assert contents(log) == [b"late", b"next"]

    run(case())


def test_while_the_engine_does_not_answer_a_group_waits_and_closing_ends_it() -> None:
    async def case() -> None:
        log, engine = await writer(Sequence())
        engine.cut_off = True
        under_way = log.append([[b"waits"]], 0)
        await until(lambda: engine.attempts >= 10)
        assert not under_way.done()
        await log.close()
        with pytest.raises(LogFailed, match="is not known"):
            await under_way
        with pytest.raises(LogFailed, match="closed"):
            log.append([[b"x"]], 0)
        await log.close()

    run(case())


def test_an_engine_without_room_refuses_and_goes_on_when_there_is_some() -> None:
    async def case() -> None:
        sequence = Sequence()
        log, _ = await writer(sequence)
        sequence.room_bytes = 600
        with pytest.raises(DiskFull, match="no room"):
            await log.append([[bytes(1000)]], 0)
        await log.append([[b"small"]], 0)
        sequence.room_bytes = 10_000
        await log.append([[bytes(1000)]], 0)
        assert contents(log) == [b"small", bytes(1000)]

    run(case())


def test_an_engine_without_room_does_not_say_what_became_of_an_earlier_attempt() -> None:
    async def case() -> None:
        sequence = Sequence()
        sequence.time_passes = lambda: None  # type: ignore[method-assign]
        log, engine = await writer(sequence)
        engine.faults.late_request = 1.0
        under_way = log.append([[b"late"]], 0)
        await until(lambda: bool(sequence.late))
        engine.faults.late_request = 0.0
        sequence.room_bytes = 0
        await until(lambda: engine.attempts > 5)
        assert not under_way.done(), "the first attempt may still arrive"
        sequence.room_bytes = 10_000
        sequence.append(*sequence.late[0])
        await under_way
        assert contents(log) == [b"late"]

    run(case())


# The disk of the mirror.


class FullFile(SimulatedFile):
    disk: FullFolder

    def allocate(self, size: int) -> None:
        if self.disk.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().allocate(size)


class FullFolder(SimulatedFolder):
    """Nothing more can be set aside while it is full."""

    full = False

    def open(self, name: str, *, create: bool = False) -> SimulatedFile:
        if create and name not in self.files:
            self.files[name] = FullFile(self)
        return super().open(name, create=create)


def test_a_group_that_does_not_fit_into_the_mirror_is_not_sent() -> None:
    async def case() -> None:
        sequence, folder = Sequence(), FullFolder()
        log, engine = await writer(sequence, folder)
        await log.append([[b"before"]], 0)
        folder.full = True
        sent = engine.attempts
        with pytest.raises(DiskFull, match="no room for the copy"):
            await log.append([[bytes(3 << 20)]], 0)
        with pytest.raises(DiskFull, match="no room for the copy"):
            await log.roll(0)
        assert engine.attempts == sent
        await log.append([[b"there was room for this"]], 0)
        folder.full = False
        await log.append([[bytes(3 << 20)]], 0)
        await log.roll(0)
        assert contents(log) == [b"before", b"there was room for this", bytes(3 << 20)]

    run(case())


def test_a_mirror_that_cannot_be_written_stops_the_log_until_it_is_opened_again() -> None:
    async def case() -> None:
        sequence, folder = Sequence(), SimulatedFolder()
        log, engine = await writer(sequence, folder)
        await log.append([[b"before"]], 0)
        folder.write_error = OSError(errno.EIO, "Input/output error")
        with pytest.raises(LogFailed, match="It is in the log"):
            await log.append([[b"confirmed, but not here"]], 0)
        with pytest.raises(LogFailed):
            log.append([[b"refused"]], 0)
        with pytest.raises(LogFailed):
            await log.catch_up()
        folder.write_error = None
        await log.close()
        again = await ReplicatedLog.open(engine, folder)
        assert contents(again) == [b"before", b"confirmed, but not here"]

    run(case())


def test_a_follower_without_room_goes_on_when_there_is_some() -> None:
    async def case() -> None:
        sequence, folder = Sequence(), FullFolder()
        follower = await ReplicatedLog.open(MemoryEngine(sequence), folder)
        log, _ = await writer(sequence)
        await log.append([[b"one"]], 0)
        folder.full = True
        with pytest.raises(DiskFull):
            await follower.catch_up()
        folder.full = False
        await follower.catch_up()
        assert places(follower) == places(log)

    run(case())


# Followers.


def test_a_follower_whose_index_fails_does_not_go_on_as_if_it_had_not() -> None:
    async def case() -> None:
        def told(group: Group) -> None:
            raise ValueError("the index has failed")

        sequence = Sequence()
        log, _ = await writer(sequence)
        follower = await ReplicatedLog.open(MemoryEngine(sequence), SimulatedFolder(), told=told)
        await log.append([[b"one"]], 0)
        with pytest.raises(ValueError, match="the index"):
            await follower.follow()
        with pytest.raises(LogFailed, match="was not taken"):
            await follower.catch_up()

    run(case())


def test_a_follower_waits_for_an_engine_that_does_not_answer() -> None:
    async def case() -> None:
        came = asyncio.Event()
        sequence = Sequence()
        log, _ = await writer(sequence)
        engine = MemoryEngine(sequence)
        follower = await ReplicatedLog.open(
            engine, SimulatedFolder(), told=lambda group: came.set()
        )
        task = asyncio.ensure_future(follower.follow())
        engine.cut_off = True
        await log.append([[b"one"]], 0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not came.is_set()
        engine.cut_off = False
        await log.append([[b"two"]], 0)
        await until(lambda: places(follower) == places(log))
        assert came.is_set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(case())


def test_a_writer_that_reads_finds_out_that_it_was_shut_out() -> None:
    async def case() -> None:
        sequence = Sequence()
        log, _ = await writer(sequence)
        await writer(sequence, epoch=2)
        await log.catch_up()
        with pytest.raises(LogFenced):
            log.append([[b"x"]], 0)

    run(case())


def test_a_follower_of_a_log_that_was_trimmed_before_it_read_anything() -> None:
    async def case() -> None:
        sequence = Sequence()
        follower = await ReplicatedLog.open(MemoryEngine(sequence), SimulatedFolder())
        log, _ = await writer(sequence)
        await log.roll(0)
        await log.trim([1])
        with pytest.raises(LogBehind, match="after nothing comes ledger 2"):
            await follower.catch_up()

    run(case())


# An engine that is not right.


@pytest.mark.parametrize("what", ["hole", "damage", "cut"])
def test_a_sequence_with_a_hole_or_damage_is_not_taken(what: str) -> None:
    async def case() -> None:
        sequence = Sequence()
        log, _ = await writer(sequence)
        for n in range(5):
            await log.append([[b"%d" % n, bytes(100)]], 0)
        follower = await ReplicatedLog.open(MemoryEngine(sequence), SimulatedFolder())
        wanted = places(follower)
        await log.append([[b"broken"]], 0)
        await log.append([[b"after"]], 0)
        bad = sequence.entries[-2]
        if what == "hole":
            del sequence.entries[-2]
        else:
            data = bytearray(bad.data)
            data[25] ^= 1
            if what == "cut":
                data = data[:256]
            sequence.entries[-2] = Entry(
                bad.before, bad.place, bad.ledger_id, bad.offset, bad.mark, bytes(data)
            )
        with pytest.raises(Corrupt, match=r"missing in the sequence|is damaged"):
            await follower.catch_up()
        assert places(follower) == wanted
        with pytest.raises(Corrupt):
            await ReplicatedLog.open(MemoryEngine(sequence), SimulatedFolder())

    run(case())


def test_what_the_engine_has_lost_is_not_served_from_the_mirror() -> None:
    async def case() -> None:
        sequence, folder = Sequence(), SimulatedFolder()
        log, engine = await writer(sequence, folder)
        await log.append([[b"kept"]], 0)
        kept = log.end
        await log.append([[b"lost"]], 0)
        end = log.end
        await log.close()
        sequence.entries.pop()
        sequence.place = sequence.entries[-1].place
        with pytest.raises(Corrupt, match="lost what it had confirmed"):
            await ReplicatedLog.open(engine, folder, applied=end)
        again = await ReplicatedLog.open(engine, folder, applied=kept)
        assert contents(again) == [b"kept"]

    run(case())


def test_what_is_left_of_a_ledger_that_is_being_deleted_is_passed_over() -> None:
    async def case() -> None:
        sequence = Sequence()
        log, _ = await writer(sequence)
        for n in range(12):
            await log.append([[b"%d" % n, bytes(1000)]], 0)
        doomed = [it.id for it in log.ledgers()][:2]
        wanted = [it for it in places(log) if split_position(it[0])[0] not in doomed]
        sequence.entries = [
            it for it in sequence.entries if it.ledger_id not in doomed or it.offset > 1000
        ]
        again = await ReplicatedLog.open(MemoryEngine(sequence), SimulatedFolder())
        assert places(again) == wanted

    run(case())


def test_an_append_by_hand_is_seen_as_another_writer() -> None:
    async def case() -> None:
        sequence = Sequence()
        log, _ = await writer(sequence)
        sequence.append(Draft(1, 512, "somebody", b"else"), sequence.place)
        with pytest.raises(LogFenced, match="offset 512 is not ours"):
            await log.append([[b"x"]], 0)

    run(case())


class OneByOne(MemoryEngine):
    """Entries come one at a time; what is to happen before one of them does."""

    def __init__(self, sequence: Sequence, before: dict[int, Callable[[], object]]) -> None:
        super().__init__(sequence)
        self._before = before
        self._reads = 0

    async def read(self, after: int, bytes_max: int = 0) -> list[Entry]:
        self._reads += 1
        self._before.get(self._reads, lambda: None)()
        return await super().read(after, 1)


def without(sequence: Sequence, *ledger_ids: int) -> None:
    sequence.entries = [it for it in sequence.entries if it.ledger_id not in ledger_ids]


def test_a_ledger_that_is_deleted_while_it_is_read_is_not_half_there() -> None:
    async def case() -> None:
        sequence = Sequence()
        log, _ = await writer(sequence)
        for n in range(12):
            await log.append([[b"%d" % n, bytes(1000)]], 0)
        wanted = [it for it in places(log) if split_position(it[0])[0] != 2]
        second = next(n for n, it in enumerate(sequence.entries) if it.ledger_id == 2)
        engine = OneByOne(sequence, {second + 3: lambda: without(sequence, 2)})
        again = await ReplicatedLog.open(engine, SimulatedFolder())
        assert places(again) == wanted
        assert [it.id for it in again.ledgers()] == [1, *range(3, log.ledgers()[-1].id + 1)]

    run(case())


def test_a_follower_that_reads_a_ledger_while_it_is_deleted_is_told_so() -> None:
    async def case(head_too: bool) -> None:
        sequence = Sequence()
        follower = await ReplicatedLog.open(MemoryEngine(sequence), SimulatedFolder())
        log, _ = await writer(sequence)
        await log.append([[b"one"]], 0)
        await follower.catch_up()
        await log.append([[b"two"]], 0)
        await log.roll(0)
        await log.append([[b"three"]], 0)
        await log.roll(0)
        without(sequence, 1)
        if head_too:
            sequence.entries = [
                it for it in sequence.entries if (it.ledger_id, it.offset) != (2, 0)
            ]
        wanted = places(follower)
        with pytest.raises(LogBehind, match="deleted"):
            await follower.catch_up()
        assert places(follower) == wanted
        with pytest.raises(LogFailed):
            await follower.catch_up()

    run(case(False))
    run(case(True))


def test_an_engine_that_has_lost_the_end_of_a_closed_ledger_is_not_believed() -> None:
    async def case() -> None:
        sequence = Sequence()
        log, _ = await writer(sequence)
        await log.append([[b"kept"]], 0)
        await log.append([[b"lost"]], 0)
        await log.roll(0)
        del sequence.entries[2]
        with pytest.raises(Corrupt, match="closed with 1536: it has lost"):
            await ReplicatedLog.open(MemoryEngine(sequence), SimulatedFolder())

    run(case())


def test_a_follower_that_has_what_the_engine_lost_gives_it_up() -> None:
    async def case() -> None:
        sequence, folder = Sequence(), SimulatedFolder()
        log, _ = await writer(sequence)
        follower = await ReplicatedLog.open(MemoryEngine(sequence), folder)
        await log.append([[b"kept"]], 0)
        await log.append([[b"lost"]], 0)
        await follower.catch_up()
        lost = sequence.entries.pop()
        sequence.place = lost.before
        new, _ = await writer(sequence, epoch=2)
        await new.append([[b"instead of it"]], 0)
        with pytest.raises(LogBehind):
            await follower.catch_up()
        await follower.close()
        again = await ReplicatedLog.open(MemoryEngine(sequence), folder)
        assert contents(again) == contents(new) == [b"kept", b"instead of it"]

    run(case())


@pytest.mark.parametrize(("size", "error"), [(1024, LogBehind), (256, Corrupt)])
def test_a_ledger_must_begin_where_the_one_before_it_ends(size: int, error: type[Error]) -> None:
    async def case() -> None:
        sequence = Sequence()
        await writer(sequence)
        follower = await ReplicatedLog.open(MemoryEngine(sequence), SimulatedFolder())
        head = Head(2, 1, 0, 1, size)
        sequence.append(Draft(2, 0, "not by a log", head.encode()), sequence.place)
        with pytest.raises(error, match="ledger 1 has"):
            await follower.catch_up()

    run(case())


def test_what_nobody_has_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def case() -> None:
        sequence = Sequence()
        await writer(sequence)
        sequence.entries.clear()
        with pytest.raises(EngineUnavailable, match="does not give what lies between 0 and 1"):
            await ReplicatedLog.open(MemoryEngine(sequence), SimulatedFolder())

    monkeypatch.setattr("tstreams.ledger.comparing._STALE_S", 0)
    run(case())


def test_a_ledger_that_cannot_be_mended_stays_unserved(monkeypatch: pytest.MonkeyPatch) -> None:
    async def case() -> None:
        sequence, folder = Sequence(), SimulatedFolder()
        log, engine = await writer(sequence, folder)
        (position,) = await log.append([[b"in the first"]], 0)
        await log.roll(0)
        folder.files["000000000001.ledger"].now[530] ^= 1
        engine.cut_off = True
        with pytest.raises(LedgerDamaged):
            log.read_many([(position, 12)])
        assert not await log.mend(1)
        engine.cut_off = False
        folder.write_error = OSError(errno.EIO, "Input/output error")
        assert not await log.mend(1)
        folder.write_error = None
        entry = sequence.entries[1]
        del sequence.entries[1]
        assert not await log.mend(1), "the engine does not have it any more"
        sequence.entries.insert(1, entry)
        assert await log.mend(1)
        assert bytes(log.read_many([(position, 12)])[0]) == b"in the first"
        folder.files["000000000001.ledger"].now[530] ^= 1
        without(sequence, 1)
        assert not await log.mend(1)
        assert [it.id for it in log.ledgers()] == [2], "it was deleted by another"

    monkeypatch.setattr("tstreams.ledger.comparing._PAUSE_S", 0)
    run(case())


class SlowAnswers(MemoryEngine):
    """Who has appended hears of it only when the gate is open."""

    def __init__(self, sequence: Sequence) -> None:
        super().__init__(sequence)
        self.gate = asyncio.Event()

    async def append(self, entry: Draft, expected: int) -> int:
        place = await super().append(entry, expected)
        await self.gate.wait()
        return place


def test_a_ledger_is_mended_while_it_is_written_to() -> None:
    """What the engine has and the writer has not heard of yet is not there yet."""

    async def case() -> None:
        sequence, folder = Sequence(), SimulatedFolder()
        engine = SlowAnswers(sequence)
        engine.gate.set()
        log = await ReplicatedLog.open(engine, folder)
        await log.take_over(1, 0)
        await log.append([[b"one"]], 0)
        await log.append([[b"two"]], 0)
        end = log.end
        folder.files["000000000001.ledger"].now[530] ^= 1
        engine.gate.clear()
        under_way = log.append([[b"three"]], 0)
        await until(lambda: len(sequence.entries) == 4)
        assert await log.mend(1)
        assert (contents(log), log.end) == ([b"one", b"two"], end)
        engine.gate.set()
        await under_way
        await log.append([[b"four"]], 0)
        assert contents(log) == [b"one", b"two", b"three", b"four"]

    run(case())


def test_a_disk_that_fails_under_the_mirror_stops_the_log() -> None:
    async def case(what: str) -> None:
        folder = FailingFolder()
        log, _ = await writer(Sequence(), folder)
        folder.failing = what
        with pytest.raises(LogFailed):
            await (log.append([[bytes(3 << 20)]], 0) if what == "allocate" else log.roll(0))

    for what in ("allocate", "rename"):
        run(case(what))


class FailingFolder(SimulatedFolder):
    failing = ""

    def open(self, name: str, *, create: bool = False) -> SimulatedFile:
        if create and name not in self.files:
            self.files[name] = FailingFile(self)
        return super().open(name, create=create)

    def rename(self, old: str, new: str) -> None:
        if self.failing == "rename":
            raise OSError(errno.EIO, "Input/output error")
        super().rename(old, new)


class FailingFile(SimulatedFile):
    disk: FailingFolder

    def allocate(self, size: int) -> None:
        if self.disk.failing == "allocate":
            raise OSError(errno.EIO, "Input/output error")
        super().allocate(size)


class MirrorOfModel(RuleBasedStateMachine):
    """Two nodes over one sequence: they write, take over, trim, crash, lose parts of their files; the model is a list."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()

    @initialize()
    def begin(self) -> None:
        self.sequence = Sequence()
        self.model: list[tuple[int, bytes]] = []
        self.number = 0
        self.folders = [SimulatedFolder(), SimulatedFolder()]
        self.logs = [self.open(0), self.open(1)]
        self.epoch = 0
        self.writer = 0
        self.take_over(0)

    def teardown(self) -> None:
        self.runner.close()

    def open(self, node: int, applied: int = 0) -> ReplicatedLog:
        engine = MemoryEngine(self.sequence)
        return self.runner.run(
            ReplicatedLog.open(engine, self.folders[node], applied=applied, ledger_bytes=SMALL)
        )

    @rule(node=st.integers(0, 1))
    def take_over(self, node: int) -> None:
        self.epoch += 1
        self.revive(node)
        self.runner.run(self.logs[node].take_over(self.epoch, self.epoch))
        self.runner.run(self.logs[node].forget())
        self.writer = node

    def revive(self, node: int) -> None:
        """One that was away while ledgers were deleted has to begin anew."""
        try:
            self.runner.run(self.logs[node].catch_up())
        except (LogBehind, LogFailed):
            self.runner.run(self.logs[node].close())
            self.logs[node] = self.open(node)

    @rule(sizes=st.lists(st.integers(0, 1500), min_size=1, max_size=4))
    def append(self, sizes: list[int]) -> None:
        records = []
        for size in sizes:
            self.number += 1
            records.append(b"%d:" % self.number * (1 + size // 4))

        async def append() -> list[int]:
            return await self.logs[self.writer].append([[it] for it in records], 0)

        positions = self.runner.run(append())
        self.model += zip(positions, records, strict=True)

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        ids = [it.id for it in self.logs[self.writer].ledgers()][:-1]
        if ids:
            doomed = data.draw(st.sets(st.sampled_from(ids), min_size=1, max_size=2))
            self.runner.run(self.logs[self.writer].trim(doomed))
            self.model = [it for it in self.model if split_position(it[0])[0] not in doomed]

    @rule(node=st.integers(0, 1))
    def forget(self, node: int) -> None:
        self.runner.run(self.logs[node].forget())

    @rule(node=st.integers(0, 1), seed=st.integers(0, 2**32))
    def lose_power(self, node: int, seed: int) -> None:
        self.runner.run(self.logs[node].close())
        self.folders[node].lose_power(seed)
        self.reopen(node)

    @rule(node=st.integers(0, 1), data=st.data())
    def damage_while_it_is_down(self, node: int, data: st.DataObject) -> None:
        self.runner.run(self.logs[node].close())
        files = self.folders[node].files
        name = data.draw(st.sampled_from(sorted(files) or [""]))
        if not name:
            self.reopen(node)
            return
        image = files[name].now
        match data.draw(st.sampled_from(["flip", "cut", "extend", "delete", "blank"])):
            case "flip" if image:
                bit = data.draw(st.integers(0, len(image) * 8 - 1))
                image[bit // 8] ^= 1 << bit % 8
            case "cut":
                del image[data.draw(st.integers(0, len(image))) :]
            case "extend":
                image += data.draw(st.binary(min_size=1, max_size=600))
            case "delete":
                del files[name]
            case "blank" if image:
                first = data.draw(st.integers(0, len(image) // 512)) * 512
                image[first : first + 1024] = bytes(len(image[first : first + 1024]))
        self.reopen(node)

    def reopen(self, node: int) -> None:
        self.logs[node] = self.open(node)
        if node == self.writer:
            self.take_over(node)

    @rule(node=st.integers(0, 1), data=st.data())
    def damage_while_it_is_read(self, node: int, data: st.DataObject) -> None:
        log = self.logs[node]
        infos = [it for it in log.ledgers() if it.size_bytes > 512]
        if not infos:
            return
        info = data.draw(st.sampled_from(infos))
        image = self.folders[node].files[f"{info.id:012x}.ledger"].now
        bit = data.draw(st.integers(512 * 8, info.size_bytes * 8 - 1))
        image[bit // 8] ^= 1 << bit % 8

        async def read_all() -> None:
            for _ in range(3):
                try:
                    before = places(log)
                    break
                except LedgerDamaged:
                    if not await log.mend(info.id):  # another has deleted it
                        return
            own = [it for it in self.model if it[0] < log.end]
            kept = {ledger for ledger, _ in (split_position(at) for at, _ in own)}
            assert [it for it in before if split_position(it[0])[0] in kept] == own

        self.runner.run(read_all())

    @invariant()
    def the_writer_has_what_the_model_has(self) -> None:
        if hasattr(self, "model"):
            assert places(self.logs[self.writer]) == self.model

    @rule()
    def whoever_opens_the_log_anew_finds_the_same(self) -> None:
        engine = MemoryEngine(self.sequence)
        fresh = self.runner.run(ReplicatedLog.open(engine, SimulatedFolder()))
        assert places(fresh) == self.model


MirrorOfModel.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestMirrorOfModel = MirrorOfModel.TestCase
