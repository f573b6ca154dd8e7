"""Failpoints: places in the server where it can be made to die, by name, and a disk that can be made to fail.

They are put around functions of the program when the server of a campaign starts; the program itself has none.
`append.before` is the moment before a group is appended to the log, `append.after` the moment after it.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from tests.torture.panel import Cell, Panel
from tstreams.core.shard import Shard as Core
from tstreams.index import Index, IndexFailed, Store
from tstreams.index.sweeper import Sweeper
from tstreams.items import Buffer
from tstreams.ledger.files import RealFile, RealFolder
from tstreams.ledger.local import LocalLog
from tstreams.server.contents import Contents
from tstreams.server.local import LocalShard
from tstreams.server.shard import Shard
from tstreams.server.turns import Turns

AT_WORK, SELDOM, AT_START, AT_STOP = "at work", "seldom", "at start", "at stop"
TORN = "file-write.torn"
"""Half of a write has reached the file."""


@dataclass(frozen=True, slots=True)
class Place:
    """A function of the program, and when it is called: within moments, within some seconds, or only then."""

    name: str
    owner: type
    function: str
    when: str = AT_WORK


PLACES = (
    Place("index-open", Store, "__init__", AT_START),
    Place("log-open", LocalLog, "_open_list", AT_START),
    Place("replay", LocalShard, "_replay", AT_START),
    Place("take-over", LocalLog, "take_over", AT_START),
    Place("commit", Turns, "commit"),
    Place("append", LocalLog, "append"),
    Place("file-write", RealFile, "write"),
    Place("file-sync", RealFile, "sync"),
    Place("file-truncate", RealFile, "truncate", SELDOM),
    Place("begin-ledger", LocalLog, "_begin_ledger", SELDOM),
    Place("rename", RealFolder, "rename", SELDOM),
    Place("index-apply", Index, "apply"),
    Place("index-write", Store, "write"),
    Place("wake", Contents, "wake"),
    Place("push", Contents, "_push", SELDOM),
    Place("expire", Core, "tick"),
    Place("sweep", Sweeper, "sweep", SELDOM),
    Place("compact", Shard, "move", SELDOM),
    Place("index-flush", Store, "flush", SELDOM),
    Place("trim", LocalLog, "trim", SELDOM),
    Place("remove", RealFolder, "remove", SELDOM),
    Place("forget-ledgers", Index, "forget_ledgers", SELDOM),
    Place("prepare", LocalLog, "prepare", SELDOM),
    Place("relax", LocalLog, "relax"),
    Place("close", LocalShard, "close", AT_STOP),
)
POINTS: dict[str, str] = {
    f"{place.name}.{side}": place.when for place in PLACES for side in ("before", "after")
} | {TORN: AT_WORK}
"""All failpoints, each with when it is reached."""
_NUMBERS = {name: number for number, name in enumerate(POINTS, 1)}


def number_of(name: str) -> int:
    """What a failpoint is called on the panel."""
    return _NUMBERS[name]


def install(panel: Panel) -> None:
    """Put them into this process, for as long as it lives."""
    for place in PLACES:
        _surround(panel, place)
    _let_disk_fail(panel)


def _die_if_armed(panel: Panel, number: int) -> None:
    if panel[Cell.ARMED] != number:
        return
    if panel[Cell.SKIPS] > 0:
        panel[Cell.SKIPS] -= 1
        return
    panel[Cell.HIT] = number
    os.kill(os.getpid(), signal.SIGKILL)


def _surround(panel: Panel, place: Place) -> None:
    original: Callable[..., Any] = getattr(place.owner, place.function)
    before, after = (_NUMBERS[f"{place.name}.{side}"] for side in ("before", "after"))

    @wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        _die_if_armed(panel, before)
        result = original(*arguments, **options)
        _die_if_armed(panel, after)
        return result

    setattr(place.owner, place.function, call)


def _let_disk_fail(panel: Panel) -> None:
    write, sync, flush = RealFile.write, RealFile.sync, Store.flush
    torn = _NUMBERS[TORN]

    def failing_write(file: RealFile, buffers: Sequence[Buffer], offset: int) -> int:
        _be_slow(panel)
        number = panel[Cell.WRITE_ERROR]
        if number or panel[Cell.ARMED] == torn:
            data = b"".join(buffers)
            write(file, [data[: len(data) // 2]], offset)
            if number:
                raise OSError(number, os.strerror(number))
            _die_if_armed(panel, torn)
        return write(file, buffers, offset)

    def failing_sync(file: RealFile) -> None:
        _be_slow(panel)
        if number := panel[Cell.SYNC_ERROR]:
            raise OSError(number, os.strerror(number))
        sync(file)

    def failing_flush(store: Store) -> None:
        if number := panel[Cell.FLUSH_ERROR]:
            raise IndexFailed(f"the index cannot be flushed: IO error: {os.strerror(number)}")
        flush(store)

    for owner, name, failing in (
        (RealFile, "write", failing_write),
        (RealFile, "sync", failing_sync),
        (Store, "flush", failing_flush),
    ):
        setattr(owner, name, failing)


def _be_slow(panel: Panel) -> None:
    if delay_us := panel[Cell.SLOW_US]:
        time.sleep(delay_us / 1e6)


NO_ROOM = errno.ENOSPC
BROKEN = errno.EIO
