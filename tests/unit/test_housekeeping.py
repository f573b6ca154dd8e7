"""What a shard does by itself, when the disk does not play along."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.simulation.disk import SimulatedFolder
from tstreams.ledger.files import RealFolder
from tstreams.ledger.local import LocalLog
from tstreams.ledger.port import LogFailed
from tstreams.ledger.shelf import OPEN_FILES_MAX
from tstreams.server.housekeeping import Housekeeping
from tstreams.server.local import LocalShard
from tstreams.server.storage import LocalStorage


def rolled_log(folder: SimulatedFolder, ledgers: int) -> LocalLog:
    log = LocalLog(folder)
    log.take_over(1, 0)
    for _ in range(ledgers):
        log.append([[bytes(1000)]], 0)
        log.roll(0)
    return log


def test_a_sync_that_fails_while_ledgers_go_is_not_overlooked() -> None:
    folder = SimulatedFolder()
    log = rolled_log(folder, 3)
    second = log.ledgers()[1].id
    folder.sync_error = OSError(errno.EIO, "the disk is broken")
    with pytest.raises(LogFailed, match="cutting ledger"):
        log.trim([second])
    with pytest.raises(LogFailed):
        log.append([[b"after that nothing is believed"]], 0)


def test_a_shard_stops_when_trimming_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = LocalShard(0, LocalStorage(tmp_path), schedule=lambda commit: None)
    shard, keeper = local.shard, Housekeeping(local)

    def fail(ledgers: list[int]) -> None:
        raise LogFailed("the sync of ledger 1 failed: the disk is broken")

    monkeypatch.setattr(local.log, "trim", fail)
    keeper._trim([1])
    assert shard.failed is not None
    assert "the disk is broken" in shard.failed
    local.close()


def test_rolled_ledgers_do_not_stay_open(tmp_path: Path) -> None:
    log = LocalLog(RealFolder(tmp_path))
    log.take_over(1, 0)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2 * OPEN_FILES_MAX):
        log.append([[b"x"]], 0)
        log.roll(0)
    assert len(log.ledgers()) > 2 * OPEN_FILES_MAX
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + OPEN_FILES_MAX + 2
    log.close()
