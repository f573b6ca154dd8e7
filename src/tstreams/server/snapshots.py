"""Snapshots in the log: what lets a node begin that has nothing, or less than the log still holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ..core.records import SnapshotBegun, SnapshotEnded, SnapshotPiece, decode_record
from ..errors import Corrupt
from ..index.snapshot import Pieces, load
from ..ledger.port import Readable, position_of
from .shared import SharedShard
from .storage import LocalStorage

log = logging.getLogger("tstreams.server")


async def write_snapshot(shared: SharedShard) -> None:
    """Write the index, as it is now, to the log: in pieces, each in a turn, among what others write. If this ends in
    the middle, what was written is of no use, and no harm."""
    await shared.write_record(
        SnapshotBegun(0, 0)
    )  # so that it is of the ledger that is written to now
    index = shared.shard.index
    at, pieces = index.applied, Pieces(index.store)
    number = 0
    while piece := pieces.next():
        await shared.write_record(SnapshotPiece(0, 0, at, number), piece)
        number += 1
    await shared.write_record(SnapshotEnded(0, 0, at, number, pieces.keys, pieces.size_bytes))
    log.info(
        "wrote a snapshot",
        extra={"tstreams": {"shard": shared.number, "at": at, "bytes": pieces.size_bytes}},
    )


def needs_snapshot(log_: Readable, applied: int) -> bool:
    """Whether a node that has applied nothing finds a log from which something was deleted."""
    return not applied and any(
        ledger.id != number for number, ledger in enumerate(log_.ledgers(), 1)
    )


def find_snapshot(log_: Readable) -> SnapshotEnded | None:
    """The last whole snapshot in the log."""
    for ledger in reversed(log_.ledgers()):
        found = None
        for _, group in log_.scan(position_of(ledger.id, 0), position_of(ledger.id + 1, 0)):
            for _, data in group:
                record, _ = decode_record(data)
                if type(record) is SnapshotEnded:
                    found = record
        if found is not None:
            return found
    return None


def load_snapshot(log_: Readable, storage: LocalStorage) -> SnapshotEnded:
    """Make the index of the last whole snapshot, in the place of what is there, which is closed. `Corrupt` if there is
    none: ledgers are deleted only behind one."""
    found = find_snapshot(log_)
    if found is None:
        raise Corrupt("ledgers were deleted from the log, but there is no whole snapshot in it")
    store = storage.fresh_store()
    try:
        count = load(store, _pieces(log_, found))
        if count != found.keys:
            raise Corrupt(f"a snapshot should have {found.keys} keys, and has {count}")
    finally:
        store.close()
    storage.adopt()
    return found


def _pieces(log_: Readable, snapshot: SnapshotEnded) -> Iterator[memoryview]:
    number = 0
    for _, group in log_.scan(snapshot.at):
        for _, data in group:
            record, start = decode_record(data)
            if type(record) is SnapshotPiece and record.at == snapshot.at:
                if record.number != number:
                    raise Corrupt(f"piece {number} of a snapshot is missing in the log")
                yield data[start:]
                number += 1
        if number == snapshot.pieces:
            return
    raise Corrupt(f"a snapshot should have {snapshot.pieces} pieces, and has {number}")
