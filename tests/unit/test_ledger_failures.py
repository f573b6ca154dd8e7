"""The local log on a disk that fails or is full: what was acknowledged stays, and room is given back."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.simulation.disk import SimulatedFile, SimulatedFolder
from tests.unit.test_ledger import contents
from tstreams.ledger.files import RealFolder
from tstreams.ledger.local import BUSY_MS, SPARE_BYTES_MIN, LocalLog
from tstreams.ledger.port import DiskFull, LogFailed, split_position
from tstreams.ledger.shelf import OPEN_FILES_MAX, Shelf


class FailingFolder(SimulatedFolder):
    """Calls of one kind fail. What `after` says takes effect all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, OSError] = {}
        self.after = False

    def open(self, name: str, *, create: bool = False) -> SimulatedFile:
        if create and name not in self.files:
            self.files[name] = FailingFile(self)
        return super().open(name, create=create)

    def rename(self, old: str, new: str) -> None:
        error = self.failing.get("rename")
        if error is None or self.after:
            super().rename(old, new)
        if error is not None:
            raise error

    def remove(self, names: Sequence[str]) -> None:
        if "remove" in self.failing:
            raise self.failing["remove"]
        super().remove(names)


class FailingFile(SimulatedFile):
    """A file of a `FailingFolder`."""

    disk: FailingFolder

    def write(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        if "write" in self.disk.failing:
            torn = b"".join(buffers)[:100]
            super().write([torn], offset)
            raise self.disk.failing["write"]
        return super().write(buffers, offset)

    def truncate(self, size: int) -> None:
        if "truncate" in self.disk.failing:
            raise self.disk.failing["truncate"]
        super().truncate(size)


NO_ROOM = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("cannot_cut", [False, True])
def test_a_group_that_does_not_fit_leaves_nothing(cannot_cut: bool) -> None:
    folder = FailingFolder()
    log = LocalLog(folder)
    log.take_over(1, 0)
    log.append([[b"before"]], 0)
    end = log.end
    folder.failing["write"] = NO_ROOM
    if cannot_cut:
        folder.failing["truncate"] = BROKEN
    with pytest.raises(DiskFull, match="no room in ledger 1"):
        log.append([[bytes(5000)]], 0)
    folder.failing.clear()
    assert log.end == end
    if not cannot_cut:
        assert folder.files["000000000001.ledger"].size() == split_position(end)[1]
    assert contents(LocalLog(folder)) == [b"before"]
    log.append([[b"after"]], 0)
    assert contents(log) == contents(LocalLog(folder)) == [b"before", b"after"]


def test_a_failed_write_stops_the_log_for_good() -> None:
    folder = FailingFolder()
    log = LocalLog(folder)
    log.take_over(1, 0)
    log.append([[b"safe"]], 0)
    folder.failing["write"] = BROKEN
    with pytest.raises(LogFailed, match="writing to ledger 1 failed"):
        log.append([[b"torn"]], 0)
    folder.failing.clear()
    for write in (lambda: log.append([[b"more"]], 0), lambda: log.roll(0)):
        with pytest.raises(LogFailed, match="writing to ledger 1 failed"):
            write()
    assert log.spare_bytes_wanted == 0
    log.close()
    assert contents(LocalLog(folder)) == [b"safe"]


@pytest.mark.parametrize("call", ["write", "rename"])
def test_a_ledger_that_cannot_be_begun_stops_the_log(call: str) -> None:
    folder = FailingFolder()
    log = LocalLog(folder)
    log.take_over(1, 0)
    log.append([[b"safe"]], 0)
    folder.failing[call] = BROKEN
    with pytest.raises(LogFailed, match="beginning ledger 2 failed"):
        log.roll(0)
    folder.failing.clear()
    with pytest.raises(LogFailed):
        log.append([[b"more"]], 0)
    assert contents(LocalLog(folder)) == [b"safe"]


def test_a_log_whose_first_ledger_cannot_be_begun() -> None:
    folder = FailingFolder()
    log = LocalLog(folder)
    assert log.end == 0
    folder.failing["write"] = BROKEN
    with pytest.raises(LogFailed, match="beginning ledger 1 failed"):
        log.take_over(1, 0)
    with pytest.raises(LogFailed):
        log.append([[b"x"]], 0)
    log.close()
    folder.failing.clear()
    again = LocalLog(folder)
    again.take_over(1, 0)
    again.append([[b"x"]], 0)
    assert contents(again) == [b"x"]


def test_no_room_for_a_ledger_and_then_there_is() -> None:
    folder = FailingFolder()
    log = LocalLog(folder)
    log.take_over(1, 0)
    log.append([[b"one"]], 0)
    folder.failing["rename"] = NO_ROOM
    with pytest.raises(DiskFull, match="no room for another ledger"):
        log.roll(0)
    log.append([[b"two"]], 0)
    folder.failing.clear()
    assert contents(LocalLog(folder)) == [b"one", b"two"]
    log.roll(0)
    log.append([[b"three"]], 0)
    assert contents(log) == contents(LocalLog(folder)) == [b"one", b"two", b"three"]


def test_a_ledger_that_was_begun_and_whose_name_was_not_synced_is_not_forgotten() -> None:
    """Its head says where the ledger before it ends: more written to that one would be cut off."""
    folder = FailingFolder()
    log = LocalLog(folder)
    log.take_over(1, 0)
    log.append([[b"one"]], 0)
    folder.failing["rename"], folder.after = NO_ROOM, True
    with pytest.raises(LogFailed, match="beginning ledger 2 failed"):
        log.roll(0)
    folder.failing.clear()
    with pytest.raises(LogFailed):
        log.append([[b"two"]], 0)
    log.close()
    again = LocalLog(folder)
    assert [it.id for it in again.ledgers()] == [1, 2]
    assert contents(again) == [b"one"]


@pytest.mark.parametrize("call", ["truncate", "remove"])
def test_ledgers_that_cannot_be_deleted_stop_the_log(call: str) -> None:
    folder = FailingFolder()
    log = LocalLog(folder)
    log.take_over(1, 0)
    for record in (b"a", b"b", b"c"):
        log.append([[record]], 0)
        log.roll(0)
    folder.failing[call] = BROKEN
    what = "cutting ledger 1" if call == "truncate" else "deleting ledgers"
    with pytest.raises(LogFailed, match=f"{what} failed"):
        log.trim([2])
    folder.failing.clear()
    with pytest.raises(LogFailed):
        log.append([[b"more"]], 0)
    assert contents(LocalLog(folder)) == [b"a", b"b", b"c"]


# Room that is prepared.


def test_a_spare_file_that_does_not_fit_is_given_up() -> None:
    folder = FailingFolder()
    log = LocalLog(folder)
    log.take_over(1, 0)
    folder.failing["write"] = NO_ROOM
    log.prepare()
    assert folder.files["spare"].size() == 0
    assert log.spare_bytes_wanted == SPARE_BYTES_MIN, "it is tried again"
    folder.failing["write"] = BROKEN
    with pytest.raises(OSError, match="Input/output"):
        log.prepare()
    folder.failing.clear()
    log.prepare()
    assert folder.files["spare"].size() == SPARE_BYTES_MIN
    assert log.spare_bytes_wanted == 0


def test_room_for_large_groups_is_set_aside_without_being_written(tmp_path: Path) -> None:
    log = LocalLog(RealFolder(tmp_path))
    log.take_over(1, 0)
    log.append([[bytes(100_000)]], 0)
    log.roll(0)
    log.prepare()
    assert (tmp_path / "spare").stat().st_size == 2 * SPARE_BYTES_MIN, (
        "a busy ledger: twice as much"
    )
    log.roll(0)
    log.append([[b"into it"]], 0)
    assert contents(log) == [bytes(100_000), b"into it"]
    log.close()


def test_an_idle_log_gives_room_back(tmp_path: Path) -> None:
    log = LocalLog(RealFolder(tmp_path), ledger_bytes=64 * SPARE_BYTES_MIN)
    log.relax(0)
    log.take_over(1, 0)
    for _ in range(3):  # each was full at once
        log.append([[b"x"]], 0)
        log.prepare()
        log.roll(0)
    log.prepare()
    log.append([[b"y"]], 0)
    files = tmp_path / "000000000004.ledger", tmp_path / "spare"
    assert min(it.stat().st_size for it in files) > SPARE_BYTES_MIN
    before = [it.stat().st_size for it in files]
    log.relax(BUSY_MS - 1)
    assert [it.stat().st_size for it in files] == before, "it may be busy again in a moment"
    log.relax(BUSY_MS)
    used = split_position(log.end)[1]
    assert [it.stat().st_size for it in files] == [used + SPARE_BYTES_MIN, SPARE_BYTES_MIN]
    log.relax(0, scarce=True)
    assert [it.stat().st_size for it in files] == [used + SPARE_BYTES_MIN, 0]
    log.append([[b"z"]], 0)
    assert contents(log) == [b"x"] * 3 + [b"y", b"z"]
    log.close()


# Files.


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writes stop short at this size, as they do on a disk that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("count", [1, 3000])
def test_a_write_that_stops_short_is_gone_on_with(tmp_path: Path, count: int) -> None:
    """One small buffer is written in one way, many that are large together in another."""
    buffers = [bytes([n % 251]) * 100 for n in range(count)]
    wanted = b"".join(buffers)
    file = RealFolder(tmp_path).open("file", create=True)
    with (
        files_of_at_most(10 + len(wanted) - 30),
        pytest.raises(OSError, match="File too large") as caught,
    ):
        file.write(buffers, 10)
    assert caught.value.errno == errno.EFBIG
    assert file.size() == 10 + len(wanted) - 30, "as much as there was room for"
    assert file.write(buffers, 10) == len(wanted)
    assert file.read(10, len(wanted) + 1) == wanted
    file.close()


@pytest.mark.parametrize(
    "sizes", [[5_000_000], [300_000, 1, 0, 262_144, 700_000], [100] * 5000, [262_144] * 3]
)
def test_large_writes_go_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    buffers = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    wanted = b"".join(buffers)
    calls: list[tuple[int, int]] = []
    real = os.pwritev

    def counted(descriptor: int, some: list[bytes], offset: int) -> int:
        written = real(descriptor, some, offset)
        calls.append((len(some), written))
        return written

    monkeypatch.setattr(os, "pwritev", counted)
    file = RealFolder(tmp_path).open("file", create=True)
    assert file.write(buffers, 10) == len(wanted)
    assert file.read(10, len(wanted) + 1) == wanted
    assert sum(written for _, written in calls) == len(wanted)
    assert all(0 < count <= 1000 and 0 < written <= 262_144 for count, written in calls)
    assert len(calls) <= len(wanted) // 262_144 + len(sizes) // 1000 + 1, "not more than it takes"
    file.close()


def test_reading_stops_at_the_end_of_a_file(tmp_path: Path) -> None:
    file = RealFolder(tmp_path).open("file", create=True)
    file.write([b"0123456789"], 0)
    assert file.read(4, 100) == b"456789"
    assert file.read(10, 100) == b""
    file.allocate(4096)
    assert file.size() == 4096
    assert file.read(0, 12) == b"0123456789\0\0"
    file.close()


def test_few_files_are_open_however_many_ledgers_there_are(tmp_path: Path) -> None:
    folder = RealFolder(tmp_path)
    shelf = Shelf(folder)
    names = [f"{n:03}" for n in range(OPEN_FILES_MAX + 10)]
    for name in names:
        folder.open(name, create=True).close()
    before = len(os.listdir("/proc/self/fd"))
    for name in names:
        shelf.file(names[0])
        shelf.file(name)
    assert len(os.listdir("/proc/self/fd")) == before + OPEN_FILES_MAX
    assert shelf.file(names[0]).size() == 0, "what is in use stays open"
    shelf.drop(names[0])
    shelf.drop(names[0])
    assert len(os.listdir("/proc/self/fd")) == before + OPEN_FILES_MAX - 1
    shelf.close()
    assert len(os.listdir("/proc/self/fd")) == before
