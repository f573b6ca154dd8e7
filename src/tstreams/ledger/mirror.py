"""The mirror: an engine's sequence as local ledger files, to the byte what a local log writes for the same groups.

It is never synced, and never believed over the engine: after a crash it may be torn, shorter or longer than the sequence,
or have holes. Whoever opens it compares and mends; whoever reads from it checks every checksum.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable

from ..errors import Corrupt
from ..items import Buffer
from ..limits import MIB
from .engine import Entry
from .files import File, Folder
from .format import (
    GROUP_OVERHEAD_BYTES,
    SECTOR_BYTES,
    Head,
    decode_group,
    group_at,
    sectors_up,
)
from .ledgers import Ledger, Ledgers, name_of
from .port import DiskFull, Group, LogBehind, LogFailed, position_of

FRESH = "fresh"
"""A file that becomes the next ledger."""

RESERVE_BYTES = 1 * MIB
"""Room is set aside in such steps before anything is sent to the engine: what is confirmed must find room here."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Mirror:
    """The files of one shard's log on this node.

    Invariants: every group within the sizes of the list was confirmed by the engine; ledgers follow on each other as
    their heads say, but for those that were deleted. A file that is not what the list says is damaged, not news.
    """

    def __init__(self, folder: Folder) -> None:
        """Take what is there. Files whose heads are damaged, or of other ledgers than their names say, are removed.
        Sizes are those of the files: `fit` sets them right."""
        self.ledgers = Ledgers(folder)
        self._reserved_bytes = 0
        """How long the file of the last ledger is."""
        self._next: File | None = None
        """The file of the next ledger, with some room."""
        bad = []
        for name in self.ledgers.names():
            try:
                head = self.ledgers.head(name)
            except Corrupt:
                head = None
            if head is None or name_of(head.ledger_id) != name:
                self.ledgers.shelf.drop(name)
                bad.append(name)
            else:
                size = max(SECTOR_BYTES, self.ledgers.shelf.file(name).size())
                self.ledgers.list.append(Ledger(head, size))
        if bad:
            folder.remove(bad)
        self.ledgers.list.sort(key=lambda ledger: ledger.id)

    # Comparing.

    def keep_only(self, ledger_ids: Iterable[int]) -> None:
        """Remove the ledgers that the engine does not have."""
        kept = set(ledger_ids)
        doomed = {ledger.id for ledger in self.ledgers.list if ledger.id not in kept}
        if doomed:
            self.remove(doomed)

    def remove(self, doomed: Iterable[int]) -> None:
        """Remove ledgers, also the last one."""
        doomed = set(doomed)
        last = self.ledgers.last
        if last is not None and last.id in doomed:
            self._let_go()
        self.ledgers.remove(doomed)

    def size_by_next(self, ledger_id: int, next_id: int) -> int | None:
        """How long a ledger is by the head of the one that follows it, if that is here."""
        following = self.ledgers.find(next_id)
        if following is None or following.head.previous_id != ledger_id:
            return None
        return following.head.previous_size

    def fit(self, ledger_id: int, size: int, *, check: bool) -> bool:
        """Set a ledger's size to what the engine says. False if the file is shorter than that, or if something
        in it is damaged and `check` says to look."""
        ledger = self.ledgers.find(ledger_id)
        if ledger is None:
            return False
        ledger.size = size
        file_size = self._file_size(ledger)
        if file_size < size or (check and not self.is_whole(ledger)):
            return False
        if file_size > size:
            self.ledgers.file(ledger).truncate(size)
        return True

    def is_whole(self, ledger: Ledger) -> bool:
        """Whether every byte of a ledger that can be read is right."""
        try:
            head = self.ledgers.file(ledger).read(0, SECTOR_BYTES)
            right = Head.decode(head, ledger.name) == ledger.head
            return right and self.ledgers.whole_until(ledger, end=ledger.size) == ledger.size
        except (Corrupt, OSError):
            return False

    def cut_last(self, end: int) -> int:
        """Cut the last ledger behind its last whole group before `end`; where that is."""
        ledger = self.ledgers.last
        assert ledger is not None
        ledger.size = self.ledgers.whole_until(ledger, end=end)
        self.ledgers.file(ledger).truncate(ledger.size)
        return ledger.size

    def _file_size(self, ledger: Ledger) -> int:
        try:
            return self.ledgers.file(ledger).size()
        except FileNotFoundError:
            return 0

    # Following.

    def check_follows(self, head: Head) -> None:
        """Raise `LogBehind` unless this ledger is the next after what is here."""
        last = self.ledgers.last
        if last is None or head.previous_id != last.id:
            here = "nothing" if last is None else f"ledger {last.id:x}"
            raise LogBehind(
                f"after {here} comes ledger {head.ledger_id:x}, which follows on "
                f"{head.previous_id:x}: what lay between was deleted before it was read here"
            )
        if head.previous_size > last.size:
            raise LogBehind(
                f"ledger {last.id:x} has {head.previous_size} bytes, of which {last.size} were read "
                f"here before it was deleted"
            )
        if head.previous_size < last.size:
            raise Corrupt(
                f"ledger {last.id:x} has {last.size} bytes here, but was closed with "
                f"{head.previous_size}: the engine has lost what it had confirmed"
            )

    def begin(self, head: Head) -> None:
        """A new ledger. The file of the one before is cut to its size. `DiskFull` if there is no room, but not after
        `reserve_next`."""
        self.reserve_next()
        file, self._next = self._next, None
        assert file is not None
        name = name_of(head.ledger_id)
        try:
            file.write([head.encode()], 0)
            self.ledgers.folder.rename(FRESH, name)
        except OSError as error:
            file.close()
            raise LogFailed(f"beginning the copy of a ledger, {name}, failed: {error}") from error
        self.ledgers.begin(Ledger(head, SECTOR_BYTES), file)
        self._reserved_bytes = RESERVE_BYTES

    def reserve_next(self) -> None:
        """Have room for a new ledger; `DiskFull` if there is none."""
        if self._next is not None:
            return
        file = self.ledgers.folder.open(FRESH, create=True)
        try:
            file.truncate(0)
            self._allocate(file, RESERVE_BYTES, 0)
        except BaseException:
            file.close()
            raise
        self._next = file

    def add(self, entry: Entry) -> Group:
        """A group, at the end of the last ledger. `Corrupt` if it is damaged, or does not follow on what is here;
        `LogBehind` if it is of a ledger that was not begun here."""
        ledger = self.ledgers.last
        if ledger is None or entry.ledger_id > ledger.id:
            raise LogBehind(f"ledger {entry.ledger_id:x} is being deleted, and was not read here")
        if ledger.id != entry.ledger_id or ledger.size != entry.offset:
            raise Corrupt(
                f"the entry at {entry.place} is for ledger {entry.ledger_id:x}, offset {entry.offset}, but "
                f"the log here ends at {self.ledgers.end:x}: something is missing in the sequence"
            )
        group = decode_entry(entry)
        self.write([entry.data], entry.end)
        return group

    def write(self, buffers: list[Buffer], end: int) -> None:
        """The bytes of a group that was confirmed, at the end of the last ledger. `LogFailed` if that fails."""
        ledger = self.ledgers.last
        assert ledger is not None
        file = self._writing()
        try:
            file.write(buffers, ledger.size)
        except OSError as error:
            raise LogFailed(f"writing the copy of ledger {ledger.id:x} failed: {error}") from error
        self._reserved_bytes = max(self._reserved_bytes, end)
        ledger.size = end

    def reserve(self, end: int) -> None:
        """Have room up to this offset in the last ledger; `DiskFull` if there is none."""
        if end <= self._reserved_bytes and self.ledgers.current is not None:
            return
        wanted = -(-end // RESERVE_BYTES) * RESERVE_BYTES
        self._allocate(self._writing(), wanted, self._reserved_bytes)
        self._reserved_bytes = wanted

    def _allocate(self, file: File, size: int, before: int) -> None:
        try:
            file.allocate(size)
        except OSError as error:
            if error.errno not in _FULL:
                raise LogFailed(f"the disk of the log's copy failed: {error}") from error
            with contextlib.suppress(OSError):
                file.truncate(before)
            raise DiskFull(f"there is no room for the copy of the log: {error}") from error

    def put(self, entry: Entry) -> None:
        """Write an entry again where it belongs, in a ledger that is damaged, or missing between others."""
        name = name_of(entry.ledger_id)
        head = Head.decode(entry.data, name) if entry.offset == 0 else None
        if head is None:
            decode_entry(entry)
        else:
            self._have_file(head, name)
        ledger = self.ledgers.find(entry.ledger_id)
        if ledger is None:
            return  # it was deleted meanwhile
        try:
            self.ledgers.file(ledger).write([entry.data], entry.offset)
        except OSError as error:
            kind = DiskFull if error.errno in _FULL else LogFailed
            raise kind(f"mending the copy of a ledger, {name}, failed: {error}") from error
        ledger.size = max(ledger.size, entry.end)

    def _have_file(self, head: Head, name: str) -> None:
        """See that a ledger is in the list and has a file with a name: others would not see one that was deleted
        while it is open."""
        folder, shelf = self.ledgers.folder, self.ledgers.shelf
        if name not in folder.names():
            shelf.drop(name)
            last = self.ledgers.last
            if last is not None and last.id == head.ledger_id:
                self._let_go()
            folder.open(name, create=True).close()
        if self.ledgers.find(head.ledger_id) is None:
            self.ledgers.list.append(Ledger(head, SECTOR_BYTES))
            self.ledgers.list.sort(key=lambda ledger: ledger.id)

    def close(self) -> None:
        """Close all files; room that was not used is given back."""
        last = self.ledgers.last
        if last is not None and self.ledgers.current is not None:
            with contextlib.suppress(OSError):
                self.ledgers.current.truncate(last.size)
        if self._next is not None:
            self._next.close()
            self._next = None
        self.ledgers.close()

    def _writing(self) -> File:
        """The file of the last ledger, to write to."""
        if self.ledgers.current is None:
            last = self.ledgers.last
            assert last is not None
            self.ledgers.shelf.drop(last.name)
            self.ledgers.current = self.ledgers.folder.open(last.name, create=True)
            self._reserved_bytes = self.ledgers.current.size()
        return self.ledgers.current

    def _let_go(self) -> None:
        """Close the file of the last ledger; it is opened again when it is needed."""
        current, self.ledgers.current = self.ledgers.current, None
        if current is not None:
            current.close()
        self._reserved_bytes = 0


def decode_entry(entry: Entry) -> Group:
    """The records of a group. `Corrupt` if what the engine holds is damaged."""
    found = group_at(entry.ledger_id, entry.offset, entry.data)
    if found is not None:
        body, count = found
        if sectors_up(GROUP_OVERHEAD_BYTES + body) == len(entry.data):
            data = memoryview(entry.data)[GROUP_OVERHEAD_BYTES : GROUP_OVERHEAD_BYTES + body]
            records = [
                (position_of(entry.ledger_id, where), record)
                for where, record in decode_group(entry.ledger_id, entry.offset, data, count)
            ]
            return position_of(entry.ledger_id, entry.end), records
    raise Corrupt(
        f"the engine's entry at {entry.place}, ledger {entry.ledger_id:x}, offset {entry.offset}, is damaged"
    )
