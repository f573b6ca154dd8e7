"""The log in local files: one file per ledger, one write and one fdatasync per group."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import Corrupt, InvalidState
from ..limits import MIB
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
    DiskFull,
    LedgerInfo,
    LogFailed,
    Position,
    Record,
    position_of,
    split_position,
)

LEDGER_BYTES = 64 * MIB
"""When a ledger is closed and the next begun. Small enough that whole ledgers die soon, large enough
that there are few of them: a terabyte is 16 000 files."""

LEDGER_AGE_MS = 10 * 60 * 1000
"""A ledger that has anything in it is closed after this, however small: data that died in it can then
be removed."""

SPARE = "spare"
_SPARE_STEP_BYTES = 4 * MIB
_SUFFIX = ".ledger"
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class _Ledger:
    """One file of the list. `size` is where its confirmed bytes end."""

    head: Head
    file: File
    size: int


class LocalLog:
    """The managed ledger of a shard, in a folder.

    Invariants: `_list` is ordered by id; every ledger but the last is closed, and its size is what the
    next one's head says; only the last one is written to, only by the process that created it, and
    `size` covers exactly the groups that were synced. After a failed write or sync nothing is written
    any more.
    """

    def __init__(
        self, folder: Folder, *, applied: Position = 0, ledger_bytes: int = LEDGER_BYTES
    ) -> None:
        """Open the log. `applied` is the end of what an index has taken from it already: that much
        must be there, and the end is looked for from there on."""
        self._folder = folder
        self._ledger_bytes = ledger_bytes
        self._list: list[_Ledger] = []
        self._writing = False
        self._failed: str | None = None
        self._spare_ready = False
        try:
            self._open_list(applied)
        except BaseException:
            self.close()
            raise

    # Opening.

    def _open_list(self, applied: Position) -> None:
        names = [name for name in self._folder.names() if name.endswith(_SUFFIX)]
        for name in names:
            file = self._folder.open(name)
            self._list.append(_Ledger(Head.decode(file.read(0, SECTOR_BYTES), name), file, 0))
        self._list.sort(key=lambda ledger: ledger.head.ledger_id)
        for ledger, following in zip(self._list, self._list[1:], strict=False):
            ledger.size = ledger.file.size()
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
        if at > ledger.file.size():
            raise Corrupt(
                f"ledger {ledger_id:x} ends at {ledger.file.size()}, but the index has taken what "
                f"lies before {at}: the ledger's file was cut"
            )
        while (end := self._group_end(ledger, at)) is not None:
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
        found = group_at(ledger_id, at, ledger.file.read(at, GROUP_OVERHEAD_BYTES))
        if found is None:
            return None
        body, count = found
        data = memoryview(ledger.file.read(at + GROUP_OVERHEAD_BYTES, body))
        try:
            for _ in decode_group(ledger_id, at, data, count):
                pass
        except Corrupt:
            return None
        return sectors_up(at + GROUP_OVERHEAD_BYTES + body)

    def _group_behind(self, ledger: _Ledger, at: int) -> int | None:
        """The offset of a group header behind `at`, if there is one."""
        size = ledger.file.size()
        step = 1 * MIB
        for first in range(sectors_up(at + 1), size, step):
            data = ledger.file.read(first, step)
            for inside in range(0, len(data), SECTOR_BYTES):
                if group_at(ledger.head.ledger_id, first + inside, data, inside) is not None:
                    return first + inside
        return None

    # Writing.

    def take_over(self, epoch: int, now_ms: int) -> None:
        """Begin a new ledger under this epoch."""
        newest = max((ledger.head.epoch for ledger in self._list), default=0)
        if epoch <= newest:
            raise InvalidState(f"epoch {epoch} is not above {newest}, which the log has seen")
        self._begin_ledger(epoch, now_ms)
        self._writing = True

    def append(self, records: Sequence[Record], now_ms: int) -> list[Position]:
        """Write the records as one group, and sync."""
        self._check_writable()
        current = self._list[-1]
        if current.size > SECTOR_BYTES and (
            current.size >= self._ledger_bytes or now_ms - current.head.created_ms >= LEDGER_AGE_MS
        ):
            self._begin_ledger(current.head.epoch, now_ms)
            current = self._list[-1]
        ledger_id = current.head.ledger_id
        buffers, offsets, end = encode_group(ledger_id, current.size, records)
        try:
            current.file.write(buffers, current.size)
            current.file.sync()
        except OSError as error:
            raise self._fail(f"writing to ledger {ledger_id:x} failed", error) from error
        current.size = end
        return [position_of(ledger_id, offset) for offset in offsets]

    def prepare(self) -> None:
        """Have an empty file ready for the next ledger. May run in a thread beside `append`.

        A file whose blocks were written before needs no journal commit when it is synced: that makes
        small groups half as fast again.
        """
        if self._spare_ready:
            return
        file = self._folder.open(SPARE, create=True)
        try:
            for offset in range(0, self._ledger_bytes, _SPARE_STEP_BYTES):
                file.write([bytes(min(_SPARE_STEP_BYTES, self._ledger_bytes - offset))], offset)
                file.sync()
        except OSError as error:
            if error.errno in _FULL:
                return  # the next ledger will say so, if there is still no room then
            raise
        finally:
            file.close()
        self._spare_ready = True

    def _begin_ledger(self, epoch: int, now_ms: int) -> None:
        """Create the next ledger, and close the one before by writing its length into the new head."""
        last = self._list[-1] if self._list else None
        ledger_id = last.head.ledger_id + 1 if last else 1
        head = Head(
            ledger_id,
            epoch,
            now_ms,
            last.head.ledger_id if last else 0,
            last.size if last else 0,
        )
        file = self._folder.open(SPARE, create=True)
        try:
            file.write([head.encode()], 0)
            file.sync()
            self._folder.rename(SPARE, f"{ledger_id:012x}{_SUFFIX}")
        except OSError as error:
            file.close()
            if error.errno in _FULL:
                raise DiskFull(f"there is no room for another ledger: {error}") from error
            raise self._fail(f"beginning ledger {ledger_id:x} failed", error) from error
        self._spare_ready = False
        self._list.append(_Ledger(head, file, SECTOR_BYTES))
        if last is not None:
            last.file.truncate(last.size)  # what was prepared and not used

    def _check_writable(self) -> None:
        if self._failed is not None:
            raise LogFailed(self._failed)
        if not self._writing:
            raise InvalidState("take the log over before writing to it")

    def _fail(self, what: str, error: OSError) -> LogFailed:
        """A write or sync failed: the kernel may have dropped the pages. Never try to sync again."""
        self._failed = f"{what}: {error}. Stop the server, check the disk, and start it again."
        return LogFailed(self._failed)

    # Reading.

    def read(self, position: Position, size: int) -> memoryview:
        """One record."""
        ledger_id, offset = split_position(position)
        ledger = self._ledger(ledger_id)
        if ledger is None:
            raise Corrupt(f"ledger {ledger_id:x} is not there, but a record in it is wanted")
        data = memoryview(ledger.file.read(offset, RECORD_OVERHEAD_BYTES + size))
        record = decode_record(ledger_id, offset, data)
        if len(record) != size:
            raise Corrupt(f"ledger {ledger_id:x}: the record at offset {offset} has another size")
        return record

    def scan(self, start: Position) -> Iterator[tuple[Position, memoryview]]:
        """All records from this position (where a group begins) on."""
        first_id, offset = split_position(start)
        for ledger in list(self._list):
            ledger_id = ledger.head.ledger_id
            if ledger_id < first_id:
                continue
            at = max(offset, SECTOR_BYTES) if ledger_id == first_id else SECTOR_BYTES
            while at < ledger.size:
                found = group_at(ledger_id, at, ledger.file.read(at, GROUP_OVERHEAD_BYTES))
                if found is None:
                    raise Corrupt(f"ledger {ledger_id:x}: the group at offset {at} is damaged")
                body, count = found
                data = memoryview(ledger.file.read(at + GROUP_OVERHEAD_BYTES, body))
                for where, record in decode_group(ledger_id, at, data, count):
                    yield position_of(ledger_id, where), record
                at = sectors_up(at + GROUP_OVERHEAD_BYTES + body)

    @property
    def end(self) -> Position:
        """Behind the last group."""
        if not self._list:
            return 0
        return position_of(self._list[-1].head.ledger_id, self._list[-1].size)

    def ledgers(self) -> list[LedgerInfo]:
        """The list, oldest first."""
        last = len(self._list) - 1
        return [
            LedgerInfo(
                ledger.head.ledger_id,
                ledger.head.epoch,
                ledger.size,
                not (self._writing and index == last),
                ledger.head.created_ms,
            )
            for index, ledger in enumerate(self._list)
        ]

    def trim(self, ledger_ids: Iterable[int]) -> None:
        """Delete whole ledgers."""
        doomed = set(ledger_ids)
        if self._writing and self._list and self._list[-1].head.ledger_id in doomed:
            raise InvalidState(f"ledger {self._list[-1].head.ledger_id:x} is being written to")
        gone = [ledger for ledger in self._list if ledger.head.ledger_id in doomed]
        self._list = [ledger for ledger in self._list if ledger.head.ledger_id not in doomed]
        for ledger in gone:
            ledger.file.close()
        self._folder.remove([f"{ledger.head.ledger_id:012x}{_SUFFIX}" for ledger in gone])

    def close(self) -> None:
        """Close all files. A writer that stops well cuts off what it had prepared."""
        if self._writing and self._failed is None:
            self._list[-1].file.truncate(self._list[-1].size)
            self._list[-1].file.sync()
        self._writing = False
        for ledger in self._list:
            ledger.file.close()
        self._list.clear()

    def _ledger(self, ledger_id: int) -> _Ledger | None:
        if not self._list:
            return None
        # Ids are dense except for what was trimmed, so the guess is nearly always right.
        guess = ledger_id - self._list[0].head.ledger_id
        if 0 <= guess < len(self._list) and self._list[guess].head.ledger_id == ledger_id:
            return self._list[guess]
        return next((it for it in self._list if it.head.ledger_id == ledger_id), None)
