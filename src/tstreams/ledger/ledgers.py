"""The ledgers of a log as files in a folder: which there are, and what is in them, by position.

What every log in files has, whoever decides where its ledgers end: the local log, or an engine.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import Corrupt
from ..limits import KIB, MIB
from .files import File, Folder
from .format import (
    GROUP_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    SECTOR_BYTES,
    Head,
    decode_group,
    decode_record,
    group_at,
    sectors_up,
)
from .port import NO_END, Group, LedgerInfo, Position, position_of, split_position
from .shelf import Shelf

_GAP_BYTES_MAX = 16 * KIB
_SPAN_BYTES_MAX = 4 * MIB
"""Reading what is not wanted, up to so much between two records, is cheaper than another call."""

SUFFIX = ".ledger"


@dataclass(slots=True)
class Ledger:
    """One file of the list. `size` is where its confirmed bytes end."""

    head: Head
    size: int

    @property
    def id(self) -> int:
        """Its number."""
        return self.head.ledger_id

    @property
    def name(self) -> str:
        """Its file."""
        return name_of(self.head.ledger_id)


def name_of(ledger_id: int) -> str:
    """The file of a ledger."""
    return f"{ledger_id:012x}{SUFFIX}"


class Ledgers:
    """The list, and reading.

    Invariants: `list` is ordered by id; nothing behind the `size` of a ledger is read; `current` is the open file
    of the last ledger while that is written to, else None.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.shelf = Shelf(folder)
        self.list: list[Ledger] = []
        self.current: File | None = None

    # The list.

    def names(self) -> list[str]:
        """The files that are ledgers by their names."""
        return [name for name in self.folder.names() if name.endswith(SUFFIX)]

    def head(self, name: str) -> Head:
        """What a file begins with; `Corrupt` if that is no head."""
        return Head.decode(self.shelf.file(name).read(0, SECTOR_BYTES), name)

    @property
    def last(self) -> Ledger | None:
        """The newest, if there is any."""
        return self.list[-1] if self.list else None

    @property
    def epoch(self) -> int:
        """The greatest epoch that is in the list."""
        return max((ledger.head.epoch for ledger in self.list), default=0)

    @property
    def end(self) -> Position:
        """Behind the last group."""
        if not self.list:
            return 0
        return position_of(self.list[-1].head.ledger_id, self.list[-1].size)

    def find(self, ledger_id: int) -> Ledger | None:
        """A ledger of the list."""
        if not self.list:
            return None
        # Ids are dense except for what was trimmed, so the guess is nearly always right.
        guess = ledger_id - self.list[0].head.ledger_id
        if 0 <= guess < len(self.list) and self.list[guess].head.ledger_id == ledger_id:
            return self.list[guess]
        at = bisect_left(self.list, ledger_id, key=lambda ledger: ledger.head.ledger_id)
        found = self.list[at] if at < len(self.list) else None
        return found if found is not None and found.head.ledger_id == ledger_id else None

    def infos(self, after: int, limit: int | None, *, last_is_open: bool) -> list[LedgerInfo]:
        """The list, oldest first: all of it, or up to so many of those after a ledger."""
        last = self.list[-1] if last_is_open and self.list else None
        first = bisect_right(self.list, after, key=lambda ledger: ledger.head.ledger_id)
        until = None if limit is None else first + limit
        return [
            LedgerInfo(
                ledger.head.ledger_id,
                ledger.head.epoch,
                ledger.size,
                ledger is not last,
                ledger.head.created_ms,
            )
            for ledger in self.list[first:until]
        ]

    def begin(self, ledger: Ledger, file: File) -> None:
        """A new ledger, which is written to from now on. What was prepared for the one before it and not used
        is given back."""
        last, before = self.last, self.current
        self.current = file
        self.list.append(ledger)
        if last is not None:
            if before is not None:
                self.shelf.put(last.name, before)
            self.file(last).truncate(last.size)

    def remove(self, doomed: set[int]) -> None:
        """Take ledgers from the list, and delete their files. None of them is written to."""
        gone = [ledger for ledger in self.list if ledger.head.ledger_id in doomed]
        self.list = [ledger for ledger in self.list if ledger.head.ledger_id not in doomed]
        for ledger in gone:
            self.shelf.drop(ledger.name)
        self.folder.remove([ledger.name for ledger in gone])

    def file(self, ledger: Ledger) -> File:
        """The open file of a ledger."""
        if self.current is not None and ledger is self.list[-1]:
            return self.current
        return self.shelf.file(ledger.name)

    def close(self) -> None:
        """Close all files. The list is empty then."""
        current, self.current = self.current, None
        if current is not None:
            current.close()
        self.shelf.close()
        self.list.clear()

    # Whole groups.

    def group_end(self, ledger: Ledger, at: int) -> int | None:
        """Where the whole and undamaged group at `at` ends; None if there is none."""
        ledger_id = ledger.head.ledger_id
        found = group_at(ledger_id, at, self.file(ledger).read(at, GROUP_OVERHEAD_BYTES))
        if found is None:
            return None
        body, count = found
        data = memoryview(self.file(ledger).read(at + GROUP_OVERHEAD_BYTES, body))
        try:
            for _ in decode_group(ledger_id, at, data, count):
                pass
        except Corrupt:
            return None
        return sectors_up(at + GROUP_OVERHEAD_BYTES + body)

    def whole_until(self, ledger: Ledger, at: int = SECTOR_BYTES, end: int | None = None) -> int:
        """Behind the last of the groups from `at` on that follow on each other whole and undamaged, before `end`.
        One whose padding is not all there was cut short, and is not whole."""
        limit = self.file(ledger).size() if end is None else min(end, self.file(ledger).size())
        while (behind := self.group_end(ledger, at)) is not None and behind <= limit:
            at = behind
        return at

    def group_behind(self, ledger: Ledger, at: int) -> int | None:
        """The offset of a group header behind `at`, if there is one."""
        size = self.file(ledger).size()
        step = 1 * MIB
        for first in range(sectors_up(at + 1), size, step):
            data = self.file(ledger).read(first, step)
            for inside in range(0, len(data), SECTOR_BYTES):
                if group_at(ledger.head.ledger_id, first + inside, data, inside) is not None:
                    return first + inside
        return None

    # Reading.

    def read_many(self, wanted: Sequence[tuple[Position, int]]) -> list[memoryview]:
        """Records that lie close to each other in one ledger are read with one call."""
        records: list[memoryview] = []
        at = 0
        while at < len(wanted):
            begin, size = wanted[at]
            end = begin + RECORD_OVERHEAD_BYTES + size
            until = at + 1
            while until < len(wanted):
                position, size = wanted[until]
                close = end <= position <= end + _GAP_BYTES_MAX  # ledgers lie far apart
                if not close or position + size - begin > _SPAN_BYTES_MAX:
                    break
                end = position + RECORD_OVERHEAD_BYTES + size
                until += 1
            records += self._read_span(begin, end, wanted[at:until])
            at = until
        return records

    def _read_span(
        self, begin: Position, end: Position, wanted: Sequence[tuple[Position, int]]
    ) -> Iterator[memoryview]:
        ledger_id, offset = split_position(begin)
        ledger = self.find(ledger_id)
        if ledger is None:
            raise Corrupt(f"ledger {ledger_id:x} is not there, but a record in it is wanted")
        data = memoryview(self.file(ledger).read(offset, end - begin))
        for position, size in wanted:
            at = position - begin
            record = decode_record(
                ledger_id, offset + at, data[at : at + RECORD_OVERHEAD_BYTES + size]
            )
            if len(record) != size:
                raise Corrupt(
                    f"ledger {ledger_id:x}: the record at offset {offset + at} has another size"
                )
            yield record

    def scan(self, start: Position, stop: Position = NO_END) -> Iterator[Group]:
        """All groups from this position on, up to those that begin at `stop`."""
        for ledger, at in self.ledgers_from(start):
            if position_of(ledger.id, at) >= stop:
                return
            yield from self.scan_ledger(ledger, at, stop)

    def ledgers_from(self, start: Position) -> list[tuple[Ledger, int]]:
        """The ledgers that a scan from this position on goes through, and where it begins in each."""
        first_id, offset = split_position(start)
        first = bisect_left(self.list, first_id, key=lambda ledger: ledger.head.ledger_id)
        return [
            (it, max(offset, SECTOR_BYTES) if it.head.ledger_id == first_id else SECTOR_BYTES)
            for it in self.list[first:]
        ]

    def scan_ledger(self, ledger: Ledger, at: int, stop: Position = NO_END) -> Iterator[Group]:
        """The groups of one ledger from an offset on, up to those that begin at `stop`."""
        ledger_id = ledger.head.ledger_id
        while at < ledger.size and position_of(ledger_id, at) < stop:
            file = self.file(ledger)
            found = group_at(ledger_id, at, file.read(at, GROUP_OVERHEAD_BYTES))
            if found is None:
                raise Corrupt(f"ledger {ledger_id:x}: the group at offset {at} is damaged")
            body, count = found
            data = memoryview(file.read(at + GROUP_OVERHEAD_BYTES, body))
            records = [
                (position_of(ledger_id, where), record)
                for where, record in decode_group(ledger_id, at, data, count)
            ]
            at = sectors_up(at + GROUP_OVERHEAD_BYTES + body)
            yield position_of(ledger_id, at), records
