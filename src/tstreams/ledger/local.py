"""The log in local files: one file per ledger, one write and one fdatasync per group."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from ..errors import Corrupt, InvalidState
from ..limits import KIB, MIB
from .files import File, Folder
from .format import SECTOR_BYTES, Head, encode_group
from .ledgers import Ledger, Ledgers
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

SPARE = "spare"
FRESH = "fresh"
"""A file that becomes a ledger without having been prepared. `prepare` may be busy with the spare one."""
_SPARE_STEP_BYTES = 4 * MIB
_FULL = (errno.ENOSPC, errno.EDQUOT)


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
        self._ledgers = Ledgers(folder)
        self._ledger_bytes = ledger_bytes
        self._ledger_age_ms = ledger_age_ms
        self._fsync = fsync
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
        ledgers = self._ledgers
        ledgers.list = [Ledger(ledgers.head(name), 0) for name in ledgers.names()]
        ledgers.list.sort(key=lambda ledger: ledger.id)
        taken, _ = split_position(applied)
        if taken and ledgers.find(taken) is None:
            raise Corrupt(
                f"ledger {taken:x}, up to which the index has taken the log, is not there"
            )
        for ledger, following in pairwise(ledgers.list):
            ledger.size = ledgers.file(ledger).size()
            if following.head.previous_id == ledger.id:
                if following.head.previous_size > ledger.size:
                    raise Corrupt(
                        f"ledger {ledger.id:x} has {ledger.size} bytes of the "
                        f"{following.head.previous_size} that it was closed with"
                    )
                ledger.size = following.head.previous_size
        if ledgers.last is not None:
            self._find_end(ledgers.last, applied)

    def _find_end(self, ledger: Ledger, applied: Position) -> None:
        """Find the end of the last ledger: its writer may have died in the middle of a group."""
        ledger_id, offset = split_position(applied)
        at = offset if ledger_id == ledger.id else SECTOR_BYTES
        file_size = self._ledgers.file(ledger).size()
        if at > file_size:
            raise Corrupt(
                f"ledger {ledger_id:x} ends at {file_size}, but the index has taken what "
                f"lies before {at}: the ledger's file was cut"
            )
        ledger.size = at = self._ledgers.whole_until(ledger, at)
        if (later := self._ledgers.group_behind(ledger, at)) is not None:
            raise Corrupt(
                f"ledger {ledger.id:x}: the group at offset {at} is damaged; "
                f"a later one, at {later}, is not, so it was complete once"
            )

    # Writing.

    def take_over(self, epoch: int, now_ms: int) -> None:
        """Begin a new ledger under this epoch."""
        if epoch <= self.epoch:
            raise InvalidState(f"epoch {epoch} is not above {self.epoch}, which the log has seen")
        self._begin_ledger(epoch, now_ms)

    @property
    def epoch(self) -> int:
        """The greatest epoch that the log has seen."""
        return self._ledgers.epoch

    def append(self, records: Sequence[Record], now_ms: int) -> list[Position]:
        """Write the records as one group, and sync."""
        file = self._ledgers.current if self._failed is None else None
        if file is None:
            file = self._check_writable()
        current = self._ledgers.list[-1]
        if self._is_full(current, now_ms):
            self.roll(now_ms)
            current, file = self._ledgers.list[-1], self._check_writable()
        ledger_id = current.id
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
        if not self._fsync and self._ledgers.current is not None:
            self._sync(self._ledgers.current, self._ledgers.list[-1].id)

    def _sync(self, file: File, ledger_id: int) -> None:
        begun_ns = time.perf_counter_ns()
        try:
            file.sync()
        except OSError as error:
            raise self._fail(f"syncing ledger {ledger_id:x} failed", error) from error
        self.synced_ns = time.perf_counter_ns() - begun_ns

    def _is_full(self, current: Ledger, now_ms: int) -> bool:
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
        current = self._ledgers.list[-1]
        age_ms = now_ms - current.head.created_ms
        if current.size >= self._prepared_bytes and age_ms < BUSY_MS:
            self._next_bytes = min(self._next_bytes * 2, self._ledger_bytes)
        elif age_ms > 10 * BUSY_MS:
            self._next_bytes = min(SPARE_BYTES_MIN, self._ledger_bytes)
        self._begin_ledger(current.head.epoch, now_ms)

    @property
    def spare_bytes_wanted(self) -> int:
        """How much room `prepare` would take; 0: it has nothing to do."""
        idle = self._spare_bytes > 0 or self._ledgers.current is None or self._failed is not None
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
        if self._ledgers.current is None or (busy and not scarce):
            return
        self._next_bytes = small
        spare_bytes = 0 if scarce else small
        if self._spare_bytes > spare_bytes:
            file = self._folder.open(SPARE)
            file.truncate(spare_bytes)
            file.close()
            self._spare_bytes = spare_bytes
        enough = self._ledgers.list[-1].size + small
        if self._prepared_bytes > enough:
            self._ledgers.current.truncate(enough)
            self._prepared_bytes = enough

    def _begin_ledger(self, epoch: int, now_ms: int) -> None:
        """Create the next ledger, and close the one before by writing its length into the new head."""
        self.sync()
        last = self._ledgers.list[-1] if self._ledgers.list else None
        head = Head(
            last.id + 1 if last else 1,
            epoch,
            now_ms,
            last.id if last else 0,
            last.size if last else 0,
        )
        ledger = Ledger(head, SECTOR_BYTES)
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
        self._ledgers.begin(ledger, file)

    def _check_writable(self) -> File:
        if self._failed is not None:
            raise LogFailed(self._failed)
        if self._ledgers.current is None:
            raise InvalidState("take the log over before writing to it")
        return self._ledgers.current

    def _fail(self, what: str, error: OSError) -> LogFailed:
        """A write or sync failed: the kernel may have dropped the pages. Never try to sync again."""
        self._failed = f"{what}: {error}. Stop the server, check the disk, and start it again."
        if self._ledgers.current is not None and self._ledgers.list:
            # The page cache may show what the disk does not hold: nobody may find it there later.
            with contextlib.suppress(OSError):
                self._ledgers.current.truncate(self._ledgers.list[-1].size)
        return LogFailed(self._failed)

    # Reading.

    def read_many(self, wanted: Sequence[tuple[Position, int]]) -> list[memoryview]:
        """Records that lie close to each other in one ledger are read with one call."""
        return self._ledgers.read_many(wanted)

    def scan(self, start: Position, stop: Position = NO_END) -> Iterator[Group]:
        """All groups from this position on, up to those that begin at `stop`."""
        return self._ledgers.scan(start, stop)

    @property
    def end(self) -> Position:
        """Behind the last group."""
        return self._ledgers.end

    def ledgers(self, after: int = 0, limit: int | None = None) -> list[LedgerInfo]:
        """The list, oldest first: all of it, or up to so many of those after a ledger."""
        writing = self._ledgers.current is not None
        return self._ledgers.infos(after, limit, last_is_open=writing)

    def trim(self, ledger_ids: Iterable[int]) -> None:
        """Delete whole ledgers."""
        doomed = set(ledger_ids)
        if self._ledgers.current is not None and self._ledgers.list[-1].id in doomed:
            raise InvalidState(f"ledger {self._ledgers.list[-1].id:x} is being written to")
        for ledger, following in pairwise(self._ledgers.list):
            if following.id in doomed and ledger.id not in doomed:
                self._settle_end(ledger)
        try:
            self._ledgers.remove(doomed)
        except OSError as error:
            raise self._fail("deleting ledgers failed", error) from error

    def _settle_end(self, ledger: Ledger) -> None:
        """The head that says where this ledger ends is about to go: from now on its file must say it."""
        file = self._ledgers.file(ledger)
        try:
            file.truncate(ledger.size)
            file.sync()
        except OSError as error:
            raise self._fail(f"cutting ledger {ledger.id:x} failed", error) from error

    def close(self) -> None:
        """Close all files. A writer that stops well cuts off what it had prepared."""
        current = self._ledgers.current
        try:
            if current is not None and self._failed is None:
                current.truncate(self._ledgers.list[-1].size)
                current.sync()
        finally:
            self._ledgers.close()
