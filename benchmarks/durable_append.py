"""Batches through tstreams beside plain appends to a file, synced equally often.

How often tstreams syncs depends on how many batches are waiting when it does. So its groups are counted
in the ledgers afterwards (a group is what one fdatasync made durable), and the plain file gets as many
batches per fdatasync.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tstreams.ledger.format import (
    GROUP_OVERHEAD_BYTES,
    SECTOR_BYTES,
    Head,
    group_at,
    sectors_up,
)

from .durable_clients import make_items
from .durable_plan import APPENDED, Phase


def measure_append(
    data: Path, file: Path, write: Callable[[], Phase], seconds: float
) -> tuple[Phase, Phase]:
    """What tstreams did, and what a plain file does at the same cadence."""
    before = count_groups(data)
    ours = write()
    groups = max(1, count_groups(data) - before)
    return ours, append_plainly(file, ours.transactions / groups, seconds)


def count_groups(data: Path) -> int:
    """The groups in all ledgers of a server's folder."""
    return sum(map(_groups_of, data.rglob("*.ledger")))


def _groups_of(path: Path) -> int:
    with path.open("rb", buffering=0) as file:
        ledger_id = Head.decode(file.read(SECTOR_BYTES), path.name).ledger_id
        at, groups = SECTOR_BYTES, 0
        while True:
            head = os.pread(file.fileno(), GROUP_OVERHEAD_BYTES, at)
            found = group_at(ledger_id, at, head)
            if found is None:
                return groups
            groups += 1
            at = sectors_up(at + GROUP_OVERHEAD_BYTES + found[0])


def append_plainly(file: Path, batches_per_sync: float, seconds: float) -> Phase:
    """Append batches to a file for so long, with one fdatasync after that many (on average)."""
    batch = b"".join(make_items(APPENDED.items, APPENDED.item_bytes))
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    written, due = 0, 0.0
    try:
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            due += batches_per_sync
            while written < due:
                os.write(descriptor, batch)
                written += 1
            os.fdatasync(descriptor)
        took_s = time.perf_counter() - begun
    finally:
        os.close(descriptor)
        file.unlink()
    return Phase(written, written * APPENDED.items, took_s)
