"""Taking what another node has written: groups of a log, in their order, to the same index to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..core.facts import Session
from ..core.records import LedgersDropped, SessionsNoted, Swept, decode_record
from ..ledger.format import GROUP_OVERHEAD_BYTES, SECTOR_BYTES
from ..ledger.port import Group, LogFailed, split_position
from . import contents
from .contents import Contents, Entry


def replay(
    held: Contents, groups: Iterable[Group], now_ms: int, dropped: Callable[[], None]
) -> int:
    """Apply groups, many at a time. How many records it were. `dropped` is called if ledgers were deleted."""
    core = held.core
    entries: list[Entry] = []
    sessions: dict[int, Session] = {}
    count, until = 0, 0
    for end, group in groups:
        decoded = [(decode_record(data)[0], at, len(data)) for at, data in group]
        alone = type(decoded[0][0]) is Swept  # it reads the database
        if entries and (alone or len(entries) >= contents.REPLAY_RECORDS):
            held.apply(entries, until, sessions)
            entries, sessions = [], {}
        for record, _, _ in decoded:
            core.replay(now_ms, record)
            if type(record) is SessionsNoted:
                for number, _, _ in record.sessions:
                    sessions[number] = core.state.sessions[number]
            elif type(record) is LedgersDropped:
                dropped()
        count += len(decoded)
        until = end
        entries += decoded
        if alone:
            held.apply(entries, until, sessions)
            entries, sessions = [], {}
    if entries:
        held.apply(entries, until, sessions)
    return count


def check_follows(held: Contents, group: Group) -> None:
    """Refuse a group if one before it is missing here."""
    ledger_id, offset = split_position(group[1][0][0] - GROUP_OVERHEAD_BYTES)
    applied_id, applied_offset = split_position(held.index.applied)
    if ledger_id == applied_id:
        follows = offset == applied_offset
    else:  # all ledgers from there up to this one end where the index says, or are empty
        ledgers = held.log.ledgers(applied_id - 1 if applied_id else 0)
        ends = {it.id: it.size_bytes for it in ledgers if it.id < ledger_id}
        first = ends.pop(applied_id, SECTOR_BYTES)
        follows = offset == SECTOR_BYTES and first in (SECTOR_BYTES, applied_offset)
        follows = follows and all(size == SECTOR_BYTES for size in ends.values())
    if not follows:
        raise LogFailed(
            f"a group at offset {offset} of ledger {ledger_id:x} does not follow on what was applied: "
            f"offset {applied_offset} of ledger {applied_id:x}"
        )
