"""The log in local files: one file per ledger, one write and one fdatasync per group."""

from __future__ import annotations

import contextlib
import errno
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..errors import Corrupt, InvalidState
from ..limits import KIB, MIB
from .files import File, Folder
from .format import (
    GROUP_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    SECTOR_BYTES,
    Head,
    decode_group,
    decode_record,
    encode_group,
    group_at,
    sectors_up,
)
from .port import (
    NO_END,
    DiskFull,
    Group,
    LedgerInfo,
    LogFailed,
    Position,
    Record,
    position_of,
    split_position,
)
from .shelf import Shelf

LEDGER_BYTES = 64 * MIB
"""When a ledger is closed at the latest and the next begun. Small enough that whole ledgers die soon, large
enough that there are few of them: a terabyte is 16 000 files."""

SPARE_BYTES_MIN = 1 * MIB
"""The smallest file that is prepared for a ledger: an idle server takes little room."""

LARGE_GROUP_BYTES = 32 * KIB
"""From this size on, on average, writing a ledger's file twice costs more than the journal."""

BUSY_MS = 10_000
"""A ledger that was full within this time is followed by one of twice the size."""

LEDGER_AGE_MS = 10 * 60 * 1000
"""A ledger that has anything in it is closed after this, however small: data that died in it can then
be removed."""

_GAP_BYTES_MAX = 16 * KIB
_SPAN_BYTES_MAX = 4 * MIB
"""Reading what is not wanted, up to so much between two records, is cheaper than another call."""

SPARE = "spare"
FRESH = "fresh"
"""A file that becomes a ledger without having been prepared. `prepare` may be busy with the spare one."""
_SPARE_STEP_BYTES = 4 * MIB
SUFFIX = ".ledger"
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class _Ledger:
    """One file of the list. `size` is where its confirmed bytes end."""

    head: Head
    size: int

    @property
    def name(self) -> str:
        return f"{self.head.ledger_id:012x}{SUFFIX}"


class LocalLog:
    """The managed ledger of a shard, in a folder.

    Invariants: `_list` is ordered by id; every ledger but the last is closed, and its size is what the
    next one's head says; only the last one is written to, only by the process that created it, and
    `size` covers exactly the groups that were synced. After a failed write or sync nothing is written
    any more.
    """

    def __init__(
        self,
        folder: Folder,
        *,
        applied: Position = 0,
        ledger_bytes: int = LEDGER_BYTES,
        ledger_age_ms: int = LEDGER_AGE_MS,
        fsync: bool = True,
    ) -> None:
        """Open the log. `applied` is the end of what an index has taken from it already: that much
        must be there, and the end is looked for from there on. Without `fsync` groups are written and not
        synced: only `sync` and the end of a ledger do that."""
        self._folder = folder
        self._shelf = Shelf(folder)
        self._ledger_bytes = ledger_bytes
        self._ledger_age_ms = ledger_age_ms
        self._fsync = fsync
        self._list: list[_Ledger] = []
        self._current: File | None = None
        """The file of the last ledger, if we write to it."""
        self._failed: str | None = None
        self._spare_bytes = 0
        """How much of the spare file is prepared; 0: there is none."""
        self._prepared_bytes = 0
        """How much of the current ledger's file was prepared."""
        self._next_bytes = min(SPARE_BYTES_MIN, ledger_bytes)
        self._written_at_ms = 0
        self._groups = 0
        """Groups in the current ledger."""
        self._groups_are_large = False
        self.synced_ns = 0
        """How long the sync of the last group took; 0 if it had none."""
        try:
            self._open_list(applied)
        except BaseException:
            self.close()
            raise

    # Opening.

    def _open_list(self, applied: Position) -> None:
        names = [name for name in self._folder.names() if name.endswith(SUFFIX)]
        for name in names:
            head = Head.decode(self._shelf.file(name).read(0, SECTOR_BYTES), name)
            self._list.append(_Ledger(head, 0))
        self._list.sort(key=lambda ledger: ledger.head.ledger_id)
        taken, _ = split_position(applied)
        if taken and all(ledger.head.ledger_id != taken for ledger in self._list):
            raise Corrupt(
                f"ledger {taken:x}, up to which the index has taken the log, is not there"
            )
        for ledger, following in zip(self._list, self._list[1:], strict=False):
            ledger.size = self._file(ledger).size()
            if following.head.previous_id == ledger.head.ledger_id:
                if following.head.previous_size > ledger.size:
                    raise Corrupt(
                        f"ledger {ledger.head.ledger_id:x} has {ledger.size} bytes of the "
                        f"{following.head.previous_size} that it was closed with"
                    )
                ledger.size = following.head.previous_size
        if self._list:
            self._find_end(self._list[-1], applied)

    def _find_end(self, ledger: _Ledger, applied: Position) -> None:
        """Find the end of the last ledger: its writer may have died in the middle of a group."""
        ledger_id, offset = split_position(applied)
        at = offset if ledger_id == ledger.head.ledger_id else SECTOR_BYTES
        if at > self._file(ledger).size():
            raise Corrupt(
                f"ledger {ledger_id:x} ends at {self._file(ledger).size()}, but the index has taken what "
                f"lies before {at}: the ledger's file was cut"
            )
        # One whose padding is not all there was cut short, and nobody was told of it.
        file_size = self._file(ledger).size()
        while (end := self._group_end(ledger, at)) is not None and end <= file_size:
            at = end
        ledger.size = at
        if (later := self._group_behind(ledger, at)) is not None:
            raise Corrupt(
                f"ledger {ledger.head.ledger_id:x}: the group at offset {at} is damaged; "
                f"a later one, at {later}, is not, so it was complete once"
            )

    def _group_end(self, ledger: _Ledger, at: int) -> int | None:
        """Where the whole and undamaged group at `at` ends; None if there is none."""
        ledger_id = ledger.head.ledger_id
        found = group_at(ledger_id, at, self._file(ledger).read(at, GROUP_OVERHEAD_BYTES))
        if found is None:
            return None
        body, count = found
        data = memoryview(self._file(ledger).read(at + GROUP_OVERHEAD_BYTES, body))
        try:
            for _ in decode_group(ledger_id, at, data, count):
                pass
        except Corrupt:
            return None
        return sectors_up(at + GROUP_OVERHEAD_BYTES + body)

    def _group_behind(self, ledger: _Ledger, at: int) -> int | None:
        """The offset of a group header behind `at`, if there is one."""
        size = self._file(ledger).size()
        step = 1 * MIB
        for first in range(sectors_up(at + 1), size, step):
            data = self._file(ledger).read(first, step)
            for inside in range(0, len(data), SECTOR_BYTES):
                if group_at(ledger.head.ledger_id, first + inside, data, inside) is not None:
                    return first + inside
        return None

    # Writing.

    def take_over(self, epoch: int, now_ms: int) -> None:
        """Begin a new ledger under this epoch."""
        if epoch <= self.epoch:
            raise InvalidState(f"epoch {epoch} is not above {self.epoch}, which the log has seen")
        self._begin_ledger(epoch, now_ms)

    @property
    def epoch(self) -> int:
        """The greatest epoch that the log has seen."""
        return max((ledger.head.epoch for ledger in self._list), default=0)

    def append(self, records: Sequence[Record], now_ms: int) -> list[Position]:
        """Write the records as one group, and sync."""
        file = self._current if self._failed is None else None
        if file is None:
            file = self._check_writable()
        current = self._list[-1]
        if self._is_full(current, now_ms):
            self.roll(now_ms)
            current, file = self._list[-1], self._check_writable()
        ledger_id = current.head.ledger_id
        buffers, offsets, end = encode_group(ledger_id, current.size, records)
        try:
            file.write(buffers, current.size)
        except OSError as error:
            if error.errno in _FULL:
                # What was written of it is a torn tail, and will be written over. Give its room back.
                with contextlib.suppress(OSError):
                    file.truncate(max(current.size, self._prepared_bytes))
                raise DiskFull(f"there is no room in ledger {ledger_id:x}: {error}") from error
            raise self._fail(f"writing to ledger {ledger_id:x} failed", error) from error
        self.synced_ns = 0
        if self._fsync:
            self._sync(file, ledger_id)
        current.size = end
        self._written_at_ms = now_ms
        self._groups += 1
        first = position_of(ledger_id, 0)
        return [first | offset for offset in offsets]

    def sync(self) -> None:
        """Make durable what `append` has left to the system, if it does that."""
        if not self._fsync and self._current is not None:
            self._sync(self._current, self._list[-1].head.ledger_id)

    def _sync(self, file: File, ledger_id: int) -> None:
        begun_ns = time.perf_counter_ns()
        try:
            file.sync()
        except OSError as error:
            raise self._fail(f"syncing ledger {ledger_id:x} failed", error) from error
        self.synced_ns = time.perf_counter_ns() - begun_ns

    def _is_full(self, current: _Ledger, now_ms: int) -> bool:
        if current.size <= SECTOR_BYTES:
            return False
        if current.size >= self._ledger_bytes:
            return True
        if now_ms - current.head.created_ms >= self._ledger_age_ms:
            return True
        return current.size >= self._prepared_bytes and self._spare_bytes > 0

    def roll(self, now_ms: int) -> None:
        """Close the current ledger and begin the next, which is larger after a busy one."""
        self._check_writable()
        current = self._list[-1]
        age_ms = now_ms - current.head.created_ms
        if current.size >= self._prepared_bytes and age_ms < BUSY_MS:
            self._next_bytes = min(self._next_bytes * 2, self._ledger_bytes)
        elif age_ms > 10 * BUSY_MS:
            self._next_bytes = min(SPARE_BYTES_MIN, self._ledger_bytes)
        self._begin_ledger(current.head.epoch, now_ms)

    @property
    def spare_bytes_wanted(self) -> int:
        """How much room `prepare` would take; 0: it has nothing to do."""
        idle = self._spare_bytes > 0 or self._current is None or self._failed is not None
        return 0 if idle else self._next_bytes

    def prepare(self) -> None:
        """Have an empty file ready for the next ledger. May run in a thread beside `append`.

        A file whose blocks were written before needs no journal commit when it is synced: that makes
        small groups half as fast again. With large groups the disk has enough to do, and blocks are only
        set aside. How large the file is follows the traffic: see `roll`.
        """
        if self._spare_bytes:
            return
        wanted = self._next_bytes
        file = self._folder.open(SPARE, create=True)
        try:
            if self._groups_are_large:
                file.truncate(0)
                file.allocate(wanted)
            else:
                for offset in range(0, wanted, _SPARE_STEP_BYTES):
                    file.write([bytes(min(_SPARE_STEP_BYTES, wanted - offset))], offset)
                    file.sync()
            file.truncate(wanted)  # it may be there from before, and longer
        except OSError as error:
            if error.errno in _FULL:
                file.truncate(0)  # others need the room more
                return
            raise
        finally:
            file.close()
        self._spare_bytes = wanted

    def relax(self, now_ms: int, *, scarce: bool = False) -> None:
        """Give back the room that was prepared for traffic that has ended; the spare file too if room is
        scarce. A little stays in the current ledger: readers must be able to checkpoint on a full disk."""
        small = min(SPARE_BYTES_MIN, self._ledger_bytes)
        busy = abs(now_ms - self._written_at_ms) < BUSY_MS
        if self._current is None or (busy and not scarce):
            return
        self._next_bytes = small
        spare_bytes = 0 if scarce else small
        if self._spare_bytes > spare_bytes:
            file = self._folder.open(SPARE)
            file.truncate(spare_bytes)
            file.close()
            self._spare_bytes = spare_bytes
        enough = self._list[-1].size + small
        if self._prepared_bytes > enough:
            self._current.truncate(enough)
            self._prepared_bytes = enough

    def _begin_ledger(self, epoch: int, now_ms: int) -> None:
        """Create the next ledger, and close the one before by writing its length into the new head."""
        self.sync()
        last = self._list[-1] if self._list else None
        head = Head(
            last.head.ledger_id + 1 if last else 1,
            epoch,
            now_ms,
            last.head.ledger_id if last else 0,
            last.size if last else 0,
        )
        ledger = _Ledger(head, SECTOR_BYTES)
        name = SPARE if self._spare_bytes else FRESH
        file = self._folder.open(name, create=True)
        try:
            file.write([head.encode()], 0)
            file.sync()
            self._folder.rename(name, ledger.name)
        except OSError as error:
            file.close()
            # If it has its name, it says where the one before it ends, and that must not grow any more.
            begun = ledger.name in self._folder.names()
            if error.errno in _FULL and not begun:
                raise DiskFull(f"there is no room for another ledger: {error}") from error
            raise self._fail(f"beginning ledger {head.ledger_id:x} failed", error) from error
        if last is not None and self._groups:
            self._groups_are_large = last.size >= self._groups * LARGE_GROUP_BYTES
        self._groups = 0
        self._prepared_bytes, self._spare_bytes = self._spare_bytes, 0
        before, self._current = self._current, file
        self._list.append(ledger)
        if last is not None:
            if before is not None:
                self._shelf.put(last.name, before)
            self._file(last).truncate(last.size)  # what was prepared and not used

    def _check_writable(self) -> File:
        if self._failed is not None:
            raise LogFailed(self._failed)
        if self._current is None:
            raise InvalidState("take the log over before writing to it")
        return self._current

    def _fail(self, what: str, error: OSError) -> LogFailed:
        """A write or sync failed: the kernel may have dropped the pages. Never try to sync again."""
        self._failed = f"{what}: {error}. Stop the server, check the disk, and start it again."
        if self._current is not None and self._list:
            # The page cache may show what the disk does not hold: nobody may find it there later.
            with contextlib.suppress(OSError):
                self._current.truncate(self._list[-1].size)
        return LogFailed(self._failed)

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
        ledger = self._ledger(ledger_id)
        if ledger is None:
            raise Corrupt(f"ledger {ledger_id:x} is not there, but a record in it is wanted")
        data = memoryview(self._file(ledger).read(offset, end - begin))
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
        first_id, offset = split_position(start)
        for ledger in list(self._list):
            ledger_id = ledger.head.ledger_id
            if ledger_id < first_id:
                continue
            at = max(offset, SECTOR_BYTES) if ledger_id == first_id else SECTOR_BYTES
            while at < ledger.size and position_of(ledger_id, at) < stop:
                file = self._file(ledger)
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

    @property
    def end(self) -> Position:
        """Behind the last group."""
        if not self._list:
            return 0
        return position_of(self._list[-1].head.ledger_id, self._list[-1].size)

    def ledgers(self, after: int = 0, limit: int | None = None) -> list[LedgerInfo]:
        """The list, oldest first: all of it, or up to so many of those after a ledger."""
        last = self._list[-1] if self._current is not None else None
        first = bisect_right(self._list, after, key=lambda ledger: ledger.head.ledger_id)
        until = None if limit is None else first + limit
        return [
            LedgerInfo(
                ledger.head.ledger_id,
                ledger.head.epoch,
                ledger.size,
                ledger is not last,
                ledger.head.created_ms,
            )
            for ledger in self._list[first:until]
        ]

    def trim(self, ledger_ids: Iterable[int]) -> None:
        """Delete whole ledgers."""
        doomed = set(ledger_ids)
        if self._current is not None and self._list[-1].head.ledger_id in doomed:
            raise InvalidState(f"ledger {self._list[-1].head.ledger_id:x} is being written to")
        for ledger, following in pairwise(self._list):
            if following.head.ledger_id in doomed and ledger.head.ledger_id not in doomed:
                self._settle_end(ledger)
        gone = [ledger for ledger in self._list if ledger.head.ledger_id in doomed]
        self._list = [ledger for ledger in self._list if ledger.head.ledger_id not in doomed]
        for ledger in gone:
            self._shelf.drop(ledger.name)
        try:
            self._folder.remove([ledger.name for ledger in gone])
        except OSError as error:
            raise self._fail("deleting ledgers failed", error) from error

    def _settle_end(self, ledger: _Ledger) -> None:
        """The head that says where this ledger ends is about to go: from now on its file must say it."""
        file = self._file(ledger)
        try:
            file.truncate(ledger.size)
            file.sync()
        except OSError as error:
            raise self._fail(f"cutting ledger {ledger.head.ledger_id:x} failed", error) from error

    def close(self) -> None:
        """Close all files. A writer that stops well cuts off what it had prepared."""
        current, self._current = self._current, None
        if current is not None:
            if self._failed is None:
                current.truncate(self._list[-1].size)
                current.sync()
            current.close()
        self._shelf.close()
        self._list.clear()

    def _file(self, ledger: _Ledger) -> File:
        if self._current is not None and ledger is self._list[-1]:
            return self._current
        return self._shelf.file(ledger.name)

    def _ledger(self, ledger_id: int) -> _Ledger | None:
        if not self._list:
            return None
        # Ids are dense except for what was trimmed, so the guess is nearly always right.
        guess = ledger_id - self._list[0].head.ledger_id
        if 0 <= guess < len(self._list) and self._list[guess].head.ledger_id == ledger_id:
            return self._list[guess]
        return next((it for it in self._list if it.head.ledger_id == ledger_id), None)
