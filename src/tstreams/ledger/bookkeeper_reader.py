"""Reads one ledger of BookKeeper: what is confirmed in it, as entries of the log."""

from __future__ import annotations

from typing import Any

from .bookkeeper_link import BookKeeperLink
from .bookkeeper_list import Listed
from .bookkeeper_parts import PART_BYTES, Part, whole_entries
from .engine import READ_BYTES, Entry
from .jvm_bridge import JavaFailed

ENTRIES_PER_READ = 1000
FIRST_READ = 8
"""How many entries are read at once as long as it is not known how large they are."""
SETTLE_MS, SETTLE_LOOKS = 200, 5
"""How long an entry that nobody has called confirmed is waited for, and how often. Its writer does so twenty times a second,
if it lives."""


class LedgerReader:
    """An open ledger. `JavaFailed` if BookKeeper cannot read: the caller knows what that means.

    `owned`: it is the handle of the writer in this process, which knows what is confirmed without asking anybody.
    """

    def __init__(
        self, link: BookKeeperLink, ledger: Listed, handle: Any, *, owned: bool = False
    ) -> None:
        self._link = link
        self._handle = handle
        self.number = ledger.number
        self.bookkeeper_id = ledger.bookkeeper_id
        self.owned = owned
        self._largest_bytes = 0
        self._ahead: Part | None = None

    async def confirmed(self, beyond: int = 1 << 62) -> int:
        """How many entries of BookKeeper are confirmed: as was known before if that is more than `beyond`, else as its
        bookies know it now."""
        known = int(self._handle.getLastAddConfirmed()) + 1
        if self.owned or known > beyond:
            return known
        return int(await self._link.ask(self._handle.readLastAddConfirmedAsync)) + 1

    async def settled(self) -> int:
        """The same, behind everything that was confirmed before this was asked. That the last entry is confirmed is told
        to bookies with the next one, or a moment later: so if there is one more, it is waited for."""
        known = await self.confirmed()
        if self.owned:
            return known
        try:
            (part,) = await self._parts(known, known)
        except JavaFailed:
            return known  # there is none
        looks = SETTLE_LOOKS
        while known < part.end and looks > 0:
            if not await self.changed(known, SETTLE_MS):
                looks -= 1
            known = await self.confirmed()
        return known

    async def changed(self, known: int, within_ms: int) -> bool:
        """Wait until more than so many entries are confirmed; False if that takes too long. A bookie waits for us."""
        handle = self._handle
        found = await self._link.ask(
            lambda: handle.readLastAddConfirmedAndEntryAsync(known, within_ms, False)
        )
        try:
            if found.hasEntry():  # it came along: nobody has to read it again
                self._ahead = self._part_of(found.getEntry())
        finally:
            found.close()
        return int(handle.getLastAddConfirmed()) + 1 > known

    async def whole(self, confirmed: int) -> int:
        """How many of these belong to whole entries of the log: a large one may have been under way."""
        if confirmed == 0:
            return 0
        (part,) = await self._parts(confirmed - 1, confirmed - 1)
        return confirmed if part.number == part.count else part.first

    async def part(self, at: int) -> Part:
        """One that is confirmed."""
        (part,) = await self._parts(at, at)
        return part

    async def read(self, at: int, confirmed: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        """Entries from `at` on, whole: about so many bytes, but at least one, if there is any among the confirmed."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.at == at and ahead.count == 1 and confirmed == at + 1:
            return whole_entries([ahead])
        count = FIRST_READ
        if self._largest_bytes:
            count = max(1, min(ENTRIES_PER_READ, bytes_max // self._largest_bytes))
        parts = await self._parts(at, min(at + count, confirmed) - 1)
        if parts[-1].end > parts[-1].at + 1 and parts[0].first == parts[-1].first:
            # One that is larger than all that was asked for.
            if parts[-1].end > confirmed:
                return []
            parts += await self._parts(parts[-1].at + 1, parts[-1].end - 1)
        return whole_entries(parts)

    async def _parts(self, first: int, last: int) -> list[Part]:
        """Entries of BookKeeper. The caller knows what is confirmed; the handle may not know it yet."""
        handle = self._handle
        size = (last - first + 1) * (self._largest_bytes or PART_BYTES)
        async with self._link.room.hold(size):
            found = await self._link.ask(lambda: handle.readUnconfirmedAsync(first, last))
            try:
                parts = [self._part_of(it) for it in found]
            finally:
                found.close()
        self._largest_bytes = max(self._largest_bytes, *(len(it.data) for it in parts))
        return parts

    def _part_of(self, entry: Any) -> Part:
        data = memoryview(entry.getEntryBytes()).cast("B")
        return Part.decode(
            int(entry.getEntryId()), data, f"BookKeeper's ledger {self.bookkeeper_id}"
        )

    async def close(self) -> None:
        """Let it go. The handle of a writer stays as it is."""
        if not self.owned:
            await self._link.ask(self._handle.closeAsync)
