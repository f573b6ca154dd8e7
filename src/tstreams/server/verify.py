"""Checks a data directory that nobody serves: every byte of the log, every entry of the index."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..core.records import Filled, InstantMade, ItemsSent, Moved, decode_record
from ..errors import Corrupt, Error, NotFound
from ..index import Index, Store, keys
from ..items import check
from ..ledger.files import RealFolder
from ..ledger.format import (
    GROUP_OVERHEAD_BYTES,
    SECTOR_BYTES,
    Head,
    decode_group,
    group_at,
    sectors_up,
)
from ..ledger.ledgers import SUFFIX
from ..ledger.port import position_of, split_position
from ..limits import MIB
from ..lock import DirectoryLock
from .payloads import batch_of

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""

PROBLEMS_MAX = 1000
"""So many problems are listed; a disk that has more has said enough."""


@dataclass(slots=True)
class Report:
    """What was found."""

    ledgers: int = 0
    records: int = 0
    transactions: int = 0
    streams: int = 0
    bytes: int = 0
    records_to_replay: int = 0
    """Records that the index has not taken yet: the next start takes them. Their transactions are not in
    the count of transactions."""
    problems: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        """Something is wrong."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


def verify(data: Path, progress: Progress | None = None) -> Report:
    """Check everything. `InvalidState` if a server has the directory, `NotFound` if there is none."""
    shards = sorted(data.glob("shard-*"))
    if not shards:
        raise NotFound(f"there is no data of tstreams in {data}")
    report = Report()
    lock = DirectoryLock(data)
    try:
        for path in shards:
            _Shard(path, report, progress or (lambda done, total: None)).check()
    finally:
        lock.release()
    return report


class _Batches:
    """The records of one ledger that carry items, in order: 16 bytes each, for there may be millions."""

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._sizes = array("I")
        self._items = array("I")

    def add(self, offset: int, size: int, items: int) -> None:
        self._offsets.append(offset)
        self._sizes.append(size)
        self._items.append(items)

    def find(self, offset: int, size: int) -> int | None:
        """The number of items in the record of that size at that offset; None if there is none."""
        at = bisect_left(self._offsets, offset)
        if at == len(self._offsets) or (self._offsets[at], self._sizes[at]) != (offset, size):
            return None
        return self._items[at]


class _Shard:
    """One shard's folder."""

    def __init__(self, path: Path, report: Report, progress: Progress) -> None:
        self._path = path
        self._report = report
        self._progress = progress
        self._folder = RealFolder(path / "ledgers")
        self._names = [name for name in self._folder.names() if name.endswith(SUFFIX)]
        self._total = sum((path / "ledgers" / name).stat().st_size for name in self._names)
        self._done = 0
        self._sizes: dict[int, int] = {}
        """Where the confirmed bytes of each ledger end."""
        self._batches: dict[int, _Batches] = {}
        """The records of each ledger that carry items."""
        self._applied = 0

    def check(self) -> None:
        """Check the log, then the index against it."""
        try:
            store = Store(self._path / "index", read_only=True)
        except Error as error:
            self._report.add(error.message)
            self._check_ledgers()
            return
        try:
            index = Index(store)
            self._applied = index.applied
            self._check_ledgers()
            self._check_index(index)
        except (Error, AssertionError) as error:
            self._report.add(f"the index cannot be read: {error}")
        finally:
            store.close()

    # The log.

    def _check_ledgers(self) -> None:
        heads: list[tuple[str, Head]] = []
        for name in self._names:
            self._report.ledgers += 1
            file = self._folder.open(name)
            try:
                sector = file.read(0, SECTOR_BYTES)
                heads.append((name, Head.decode(sector, name)))
                if any(sector[Head.SIZE :]):
                    self._report.add(f"the head of ledger file {name} has bytes where none belong")
            except Corrupt as error:
                self._report.add(error.message)
            finally:
                file.close()
        heads.sort(key=lambda pair: pair[1].ledger_id)
        for number, (name, head) in enumerate(heads):
            following = heads[number + 1][1] if number + 1 < len(heads) else None
            closed_at = None
            if following is not None and following.previous_id == head.ledger_id:
                closed_at = following.previous_size
            self._check_ledger(name, head, closed_at)

    def _check_ledger(self, name: str, head: Head, closed_at: int | None) -> None:
        """One file: its groups, their padding, and nothing behind them but zeros or a torn tail."""
        file = self._folder.open(name)
        try:
            size = file.size()
            end = size if closed_at is None else closed_at
            if end > size:
                self._report.add(
                    f"ledger {head.ledger_id:x} has {size} bytes of the {end} that it was closed with"
                )
                end = size
            at = SECTOR_BYTES
            while at < end:
                following = self._check_group(file.read, head.ledger_id, at, end, closed_at is None)
                if following is None:
                    break
                self._done += following - at
                self._progress(self._done, self._total)
                at = following
            self._sizes[head.ledger_id] = at
            self._report.bytes += at
        finally:
            file.close()

    def _check_group(
        self, read: Callable[[int, int], bytes], ledger_id: int, at: int, end: int, is_last: bool
    ) -> int | None:
        """One group; where the next begins, or None if the ledger ends here."""
        found = group_at(ledger_id, at, read(at, GROUP_OVERHEAD_BYTES))
        if found is None:
            later = self._group_behind(read, ledger_id, at, end)
            if later is None and is_last and self._may_be_torn(ledger_id, at):
                return None  # nothing was written there, or its writer died while it wrote
            self._report.add(f"ledger {ledger_id:x}: the group at offset {at} is damaged")
            return later
        body, count = found
        following = sectors_up(at + GROUP_OVERHEAD_BYTES + body)
        data = memoryview(read(at + GROUP_OVERHEAD_BYTES, following - at - GROUP_OVERHEAD_BYTES))
        try:
            for offset, record in decode_group(ledger_id, at, data[:body], count):
                self._check_record(ledger_id, offset, record)
        except Corrupt as error:
            behind = self._group_behind(read, ledger_id, at, end)
            if behind is None and is_last and self._may_be_torn(ledger_id, at):
                return None
            self._report.add(error.message)
            return following
        if any(data[body:]):
            self._report.add(
                f"ledger {ledger_id:x}: the padding of the group at offset {at} is damaged"
            )
        return following

    def _may_be_torn(self, ledger_id: int, at: int) -> bool:
        """Whether what lies here may be the torn tail of a writer that died: what the index has taken
        was whole."""
        return position_of(ledger_id, at) >= self._applied

    def _group_behind(
        self, read: Callable[[int, int], bytes], ledger_id: int, at: int, end: int
    ) -> int | None:
        for first in range(sectors_up(at + 1), end, MIB):
            data = read(first, min(MIB, end - first))
            for inside in range(0, len(data), SECTOR_BYTES):
                if group_at(ledger_id, first + inside, data, inside) is not None:
                    return first + inside
        return None

    def _check_record(self, ledger_id: int, offset: int, data: memoryview) -> None:
        self._report.records += 1
        if position_of(ledger_id, offset) >= self._applied:
            self._report.records_to_replay += 1
        record, _ = decode_record(data)
        if not isinstance(record, Filled | InstantMade | ItemsSent | Moved):
            return
        try:
            items = check(batch_of(data))
        except Error as error:
            raise Corrupt(f"ledger {ledger_id:x}: the items at offset {offset}: {error}") from None
        if not isinstance(record, Moved) and items != record.count:
            raise Corrupt(
                f"ledger {ledger_id:x}: the record at offset {offset} has {items} items, "
                f"and says {record.count}"
            )
        self._batches.setdefault(ledger_id, _Batches()).add(offset, len(data), items)

    # The index.

    def _check_index(self, index: Index) -> None:
        ledger_id, offset = split_position(index.applied)
        size = self._sizes.get(ledger_id)
        if size is None and index.applied and ledger_id > max(self._sizes, default=0):
            # One that is older than others may have been deleted, because all in it was dead.
            self._report.add(f"the index has taken ledger {ledger_id:x}, which is not there")
        elif size is not None and offset > size:
            self._report.add(
                f"the index has taken ledger {ledger_id:x} up to {offset}, but it ends at {size}"
            )
        live: dict[int, int] = {}
        self._check_transactions(index, live)
        self._check_open(index, live)
        self._check_streams(index)
        for ledger in {*live, *(keys.number_of(key) for key, _ in index.store.scan(b"L"))}:
            counted, stored = live.get(ledger, 0), index.live.live(ledger)
            if counted != stored:
                self._report.add(
                    f"ledger {ledger:x} has {counted} live bytes, the index says {stored}"
                )

    def _check_transactions(self, index: Index, live: dict[int, int]) -> None:
        deleted = {keys.number_of(key) for key, _ in index.store.scan(b"X")}
        for key, value in index.store.scan(b"T"):
            self._report.transactions += 1
            stream, partition, transaction = keys.split_transaction(key)
            where = f"transaction {transaction} of stream {stream}, partition {partition}"
            items, places = keys.unpack_transaction(value)
            found = [self._check_place(where, *place, live) for place in places]
            if None not in found and sum(it or 0 for it in found) != items:
                self._report.add(f"{where}: the index counts {items} items, its batches differ")
            if stream not in deleted and index.facts.stream(stream) is None:
                self._report.add(f"{where}: there is no such stream")

    def _check_open(self, index: Index, live: dict[int, int]) -> None:
        for it in index.facts.open_transactions():
            for place, _ in index.facts.batches_of_open(it.id):
                self._check_place(f"open transaction {it.id}", place.position, place.size, live)

    def _check_place(
        self, where: str, position: int, size: int, live: dict[int, int]
    ) -> int | None:
        """The number of items of a batch that the index refers to."""
        ledger_id, offset = split_position(position)
        live[ledger_id] = live.get(ledger_id, 0) + size
        found = self._batches.get(ledger_id, _Batches()).find(offset, size)
        if found is None:
            self._report.add(f"{where}: no sound batch at offset {offset} of ledger {ledger_id:x}")
        return found

    def _check_streams(self, index: Index) -> None:
        for key, value in index.store.scan(keys.STREAM_IDS):
            self._report.streams += 1
            stream = index.facts.stream(int.from_bytes(value, "big"))
            if stream is None or keys.name_key(stream.name) != key:
                self._report.add(f"the name {key[1:].decode(errors='replace')!r} leads nowhere")
