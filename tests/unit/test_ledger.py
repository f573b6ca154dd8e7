"""The local log: what was acknowledged is there after any crash, and damage is never served."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.simulation.disk import PowerCut, SimulatedFolder
from tstreams.errors import Corrupt, InvalidState
from tstreams.ledger.files import RealFolder
from tstreams.ledger.format import VERSION, Head
from tstreams.ledger.local import LocalLog
from tstreams.ledger.port import DiskFull, LogFailed, position_of, split_position

SMALL = 16 * 1024
"""Ledgers of this size make the tests roll often."""


def contents(log: LocalLog, start: int = 0) -> list[bytes]:
    return [bytes(record) for _, record in entries(log, start)]


def entries(log: LocalLog, start: int = 0) -> list[tuple[int, memoryview]]:
    return [entry for _, group in log.scan(start) for entry in group]


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    log = LocalLog(RealFolder(tmp_path))
    log.take_over(1, 0)
    records = [[b"one"], [b"two ", b"halves"], [b""], [bytes(100_000)]]
    positions = log.append(records, 0)
    assert positions == sorted(positions)
    for position, record in zip(positions, records, strict=True):
        joined = b"".join(record)
        assert bytes(log.read_many([(position, len(joined))])[0]) == joined
    assert contents(log) == [b"".join(record) for record in records]
    assert [position for position, _ in entries(log)] == positions
    log.close()
    again = LocalLog(RealFolder(tmp_path))
    assert contents(again) == [b"".join(record) for record in records]
    again.close()


def test_nobody_writes_without_taking_over(tmp_path: Path) -> None:
    log = LocalLog(RealFolder(tmp_path))
    with pytest.raises(InvalidState, match="take the log over"):
        log.append([[b"x"]], 0)
    log.take_over(5, 0)
    for epoch in (4, 5):
        with pytest.raises(InvalidState, match="not above 5"):
            log.take_over(epoch, 0)
    log.take_over(6, 0)
    assert [ledger.epoch for ledger in log.ledgers()] == [5, 6]
    log.close()


def test_ledgers_roll_by_size_and_age_and_are_trimmed_whole(tmp_path: Path) -> None:
    log = LocalLog(RealFolder(tmp_path), ledger_bytes=SMALL)
    log.take_over(1, 0)
    for n in range(20):
        log.append([[b"%d" % n, bytes(4000)]], 0)
    by_size = len(log.ledgers())
    assert by_size > 3
    log.append([[b"late"]], 11 * 60 * 1000)
    assert len(log.ledgers()) == by_size + 1
    ids = [ledger.id for ledger in log.ledgers()]
    kept = [
        bytes(record) for position, record in entries(log) if split_position(position)[0] > ids[1]
    ]
    log.trim(ids[:2])
    log.trim(ids[:2])
    assert contents(log) == kept
    with pytest.raises(InvalidState, match="being written"):
        log.trim([ids[-1]])
    with pytest.raises(Corrupt, match="is not there"):
        log.read_many([(ids[0] << 40 | 528, 1)])[0]
    log.close()
    again = LocalLog(RealFolder(tmp_path), ledger_bytes=SMALL)
    assert contents(again) == kept
    again.close()


@pytest.mark.parametrize("prepared", [False, True])
def test_what_was_prepared_and_not_used_is_given_back(tmp_path: Path, prepared: bool) -> None:
    log = LocalLog(RealFolder(tmp_path), ledger_bytes=SMALL)
    if prepared:
        log.prepare()
    log.take_over(1, 0)
    log.append([[b"x"]], 0)
    log.close()
    (file,) = tmp_path.glob("*.ledger")
    assert file.stat().st_size == 1024


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_one_flipped_bit_is_found_and_never_served(data: st.DataObject) -> None:
    folder = SimulatedFolder()
    log = LocalLog(folder, ledger_bytes=4096)
    log.take_over(1, 0)
    written = [b"%d " % n * (n * 7) for n in range(1, 30)]
    positions = [log.append([[record]], 0)[0] for record in written]
    log.append([[b"the last one, so that no other is at the end"]], 0)
    sizes = {ledger.id: ledger.size_bytes for ledger in log.ledgers()}
    name = data.draw(st.sampled_from(sorted(folder.files)))
    image = folder.files[name].now
    last = max(sizes)
    end = sizes[int(name.split(".")[0], 16)] - (512 if int(name.split(".")[0], 16) == last else 0)
    bit = data.draw(st.integers(0, end * 8 - 1))
    image[bit // 8] ^= 1 << bit % 8
    for position, record in zip(positions, written, strict=True):
        try:
            assert bytes(log.read_many([(position, len(record))])[0]) == record
        except Corrupt as error:
            assert f"{split_position(position)[0]:x}" in error.message
    try:
        seen = contents(LocalLog(folder, ledger_bytes=4096))
    except Corrupt as error:
        assert "ledger" in error.message
    else:
        assert seen[: len(written)] == written, "only padding may be damaged unnoticed by a reader"


def test_a_group_that_was_cut_in_its_padding_was_never_complete() -> None:
    """Else the next ledger says that this one is longer than its file, and the server starts no more."""
    folder = SimulatedFolder()
    log = LocalLog(folder)
    log.take_over(1, 0)
    log.append([[b"safe"]], 0)
    file = folder.open(folder.names()[-1])
    synced = file.size()
    log.append([[b"cut"]], 0)
    file.truncate(synced + 256)
    file.sync()
    again = LocalLog(folder)
    again.take_over(2, 0)
    assert contents(again) == [b"safe"]
    folder.lose_power(1)
    assert contents(LocalLog(folder)) == [b"safe"]


def test_a_failed_sync_stops_the_log_for_good() -> None:
    folder = SimulatedFolder()
    log = LocalLog(folder)
    log.take_over(1, 0)
    log.append([[b"safe"]], 0)
    folder.sync_error = OSError(errno.EIO, "I/O error")
    with pytest.raises(LogFailed, match="check the disk"):
        log.append([[b"unknown"]], 0)
    folder.sync_error = None
    with pytest.raises(LogFailed, match="I/O error"):
        log.append([[b"refused"]], 0)
    folder.lose_power(1)
    assert contents(LocalLog(folder))[0] == b"safe"


def test_without_fsync_groups_are_synced_when_asked_and_when_a_ledger_ends() -> None:
    found = set()
    for seed in range(20):
        folder = SimulatedFolder()
        log = LocalLog(folder, fsync=False)
        log.take_over(1, 0)
        log.append([[b"before the end of a ledger"]], 0)
        log.roll(0)
        log.append([[b"asked for"]], 0)
        log.sync()
        log.append([[b"left to the system"]], 0)
        assert len(contents(log)) == 3
        folder.lose_power(seed)
        found.add(tuple(contents(LocalLog(folder))))
    safe = (b"before the end of a ledger", b"asked for")
    assert safe in found, "what is left to the system may be lost"
    assert {it[:2] for it in found} == {safe}


def test_a_full_disk_is_told_before_anything_is_written() -> None:
    folder = SimulatedFolder()
    log = LocalLog(folder, ledger_bytes=1024)
    log.take_over(1, 0)
    log.append([[b"a" * 600]], 0)
    folder.sync_error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskFull, match="no room"):
        log.append([[b"b"]], 0)
    folder.sync_error = None
    log.append([[b"c"]], 0)
    assert contents(log) == [b"a" * 600, b"c"]


# A log that is not what the index has taken from it.


def test_a_ledger_that_the_index_has_taken_is_gone(tmp_path: Path) -> None:
    log = LocalLog(RealFolder(tmp_path))
    log.take_over(1, 0)
    log.append([[b"x"]], 0)
    applied = log.end
    log.close()
    assert log.end == 0
    (file,) = tmp_path.glob("*.ledger")
    os.truncate(file, 512)
    with pytest.raises(Corrupt, match=r"ledger 1 ends at 512.* before 1024.*was cut"):
        LocalLog(RealFolder(tmp_path), applied=applied)
    file.unlink()
    with pytest.raises(Corrupt, match="ledger 1, up to which the index has taken the log"):
        LocalLog(RealFolder(tmp_path), applied=applied)


def test_a_closed_ledger_that_was_cut_is_told_when_the_log_is_opened(tmp_path: Path) -> None:
    log = LocalLog(RealFolder(tmp_path))
    log.take_over(1, 0)
    log.append([[bytes(2000)]], 0)
    log.roll(0)
    log.close()
    file = tmp_path / "000000000001.ledger"
    size = file.stat().st_size
    os.truncate(file, size - 512)
    with pytest.raises(Corrupt, match=f"ledger 1 has {size - 512} bytes of the {size} that"):
        LocalLog(RealFolder(tmp_path))


def test_a_ledger_of_another_version_is_refused(tmp_path: Path) -> None:
    head = bytearray(Head(1, 1, 0, 0, 0).encode())
    head[8:16] = struct.pack("<II", VERSION + 1, 0)
    head[12:16] = struct.pack("<I", crc32c(bytes(head[: Head.SIZE])))
    (tmp_path / "000000000001.ledger").write_bytes(head)
    with pytest.raises(Corrupt, match=f"has version {VERSION + 1}; this program reads {VERSION}"):
        LocalLog(RealFolder(tmp_path))


def test_a_record_of_another_size_is_not_served() -> None:
    log = LocalLog(SimulatedFolder())
    with pytest.raises(Corrupt, match="ledger 1 is not there"):
        log.read_many([(position_of(1, 528), 8)])
    log.take_over(1, 0)
    (position,) = log.append([[b"eight by"]], 0)
    for size in (7, 9):
        with pytest.raises(Corrupt, match="ledger 1"):
            log.read_many([(position, size)])
    with pytest.raises(Corrupt, match="ledger 9 is not there"):
        log.read_many([(position_of(9, 528), 8)])


class CrashingLog(RuleBasedStateMachine):
    """Append, roll, trim, lose power at any point, open again: acknowledged records stay, in order."""

    @initialize()
    def begin(self) -> None:
        self.folder = SimulatedFolder()
        self.epoch = 0
        self.acknowledged: list[bytes] = []
        self.unknown: list[bytes] = []
        self.trimmed = 0
        self.number = 0
        self.log: LocalLog | None = None
        self.reopen()

    def reopen(self) -> None:
        self.log = LocalLog(self.folder, ledger_bytes=4096)
        survived = contents(self.log)
        known = self.acknowledged[self.trimmed :]
        assert survived[: len(known)] == known
        extra = survived[len(known) :]
        assert extra == self.unknown[: len(extra)], "what was never written has appeared"
        self.acknowledged += extra
        self.unknown = []
        self.epoch += 1
        self.log.take_over(self.epoch, 0)

    @rule(sizes=st.lists(st.integers(0, 1500), min_size=1, max_size=4))
    def append(self, sizes: list[int]) -> None:
        assert self.log is not None
        records = []
        for size in sizes:
            self.number += 1
            records.append(b"%d:" % self.number * (1 + size // 4))
        self.log.append([[record] for record in records], 0)
        self.acknowledged += records

    @rule()
    def trim_the_oldest(self) -> None:
        assert self.log is not None
        ledgers = self.log.ledgers()
        if len(ledgers) > 1:
            inside = [p for p, _ in entries(self.log) if split_position(p)[0] == ledgers[0].id]
            self.log.trim([ledgers[0].id])
            self.trimmed += len(inside)

    @rule()
    def prepare(self) -> None:
        assert self.log is not None
        self.log.prepare()

    @rule(seed=st.integers(0, 2**32), steps=st.integers(0, 12), size=st.integers(0, 3000))
    def lose_power_while_appending(self, seed: int, steps: int, size: int) -> None:
        assert self.log is not None
        self.folder.steps_left = steps
        try:
            for _ in range(4):
                self.number += 1
                record = b"%d:" % self.number * (1 + size // 4)
                self.unknown = [record]
                self.log.append([[record]], 0)
                self.acknowledged.append(record)
                self.unknown = []
        except PowerCut:
            pass
        self.folder.lose_power(seed)
        steps_again = seed % 7
        self.folder.steps_left = steps_again  # and again, while it recovers
        try:
            self.reopen()
        except PowerCut:
            self.folder.lose_power(seed + 1)
            self.reopen()
        self.folder.steps_left = None

    @precondition(lambda self: self.log is not None)
    @invariant()
    def all_is_there(self) -> None:
        if getattr(self, "log", None) is not None:
            assert contents(self.log) == self.acknowledged[self.trimmed :]  # type: ignore[arg-type]


CrashingLog.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestCrashingLog = CrashingLog.TestCase
