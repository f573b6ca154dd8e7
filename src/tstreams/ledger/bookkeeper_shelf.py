"""The open ledgers of a log on BookKeeper, and reading from them by place."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .bookkeeper_link import BookKeeperLink, unavailable
from .bookkeeper_list import Listed, ListKeeper
from .bookkeeper_parts import place_of, split_place
from .bookkeeper_reader import LedgerReader
from .bookkeeper_writer import LedgerWriter
from .engine import READ_BYTES, EngineUnavailable, Entry, Place
from .jvm_bridge import JavaFailed

log = logging.getLogger("tstreams.ledger")

OPEN_LEDGERS_MAX = 8
"""Of one log, for reading. A node that begins reads them one after the other."""
POLL_MS = 1000
"""How long a bookie lets a follower wait before it says that there is nothing."""
_PAUSE_S = 0.2

T = TypeVar("T")


class ReaderShelf:
    """Invariant: a reader of an open ledger knows no more than the list says, once the list says that it has ended."""

    def __init__(self, link: BookKeeperLink, ledgers: ListKeeper) -> None:
        self._link = link
        self._list = ledgers
        self._readers: OrderedDict[int, LedgerReader] = OrderedDict()
        self.writer: LedgerWriter | None = None
        """The ledger that this node writes, if it does."""

    async def close(self) -> None:
        """Close all that are open."""
        readers, self._readers = self._readers, OrderedDict()
        for reader in readers.values():
            try:
                await reader.close()
            except JavaFailed as error:
                log.debug("a ledger was not closed properly: %s", error)

    # Opening.

    async def _reader(self, ledger: Listed) -> LedgerReader:
        """A ledger, open for reading."""
        writer = self.writer
        if writer is not None and writer.bookkeeper_id == ledger.bookkeeper_id and writer.at_rest:
            return LedgerReader(self._link, ledger, writer.handle, owned=True)
        reader = self._readers.get(ledger.bookkeeper_id)
        if reader is None:
            handle = await self._link.open(ledger.bookkeeper_id)
            reader = LedgerReader(self._link, ledger, handle)
            await self._put(reader)
        self._readers.move_to_end(ledger.bookkeeper_id)
        return reader

    async def _put(self, reader: LedgerReader) -> None:
        before = self._readers.pop(reader.bookkeeper_id, None)
        self._readers[reader.bookkeeper_id] = reader
        gone = [] if before is None else [before]
        while len(self._readers) > OPEN_LEDGERS_MAX:
            gone.append(self._readers.popitem(last=False)[1])
        for it in gone:
            await it.close()

    async def recover(self, ledger: Listed) -> int:
        """Shut its writer out, and fix where it ends; how many of its entries of BookKeeper belong to whole entries."""
        handle = await self._link.open(ledger.bookkeeper_id, recover=True)
        reader = LedgerReader(self._link, ledger, handle)
        await self._put(reader)  # what was open knew less
        return await reader.whole(await reader.confirmed(0))

    async def _asked(self, ledger: Listed, ask: Callable[[LedgerReader], Awaitable[T]]) -> T | None:
        """Ask a ledger; None if it was deleted meanwhile."""
        try:
            return await ask(await self._reader(ledger))
        except JavaFailed as error:
            self._readers.pop(ledger.bookkeeper_id, None)  # the next one may open better
            if (await self._list.read()).find(ledger.number) is None:
                return None
            raise unavailable(f"ledger {ledger.number:x} cannot be read", error) from error

    # Reading.

    async def _confirmed(self, ledger: Listed, reader: LedgerReader, beyond: int) -> int:
        if ledger.entries is not None:
            return ledger.entries
        # A ledger that is in the list has its head, also if no bookie knows yet that it is confirmed.
        return max(1, await reader.confirmed(beyond))

    async def read(self, after: Place, bytes_max: int = READ_BYTES) -> list[Entry]:
        """Confirmed entries behind a place, from one ledger."""
        number, at = split_place(after)
        now = await self._list.recent()
        while True:
            ledger = now.find(number)
            if ledger is None or (ledger.entries is not None and at >= ledger.entries):
                ledger, at = now.after(number), 0
                if ledger is None:
                    return []
                number = ledger.number
            found = await self._read_some(ledger, at, bytes_max)
            if found:
                return found
            fresh = await self._list.read()
            if fresh.version == now.version:
                return []
            now = fresh

    async def _read_some(self, ledger: Listed, at: int, bytes_max: int) -> list[Entry] | None:
        async def some(reader: LedgerReader) -> list[Entry]:
            confirmed = await self._confirmed(ledger, reader, at)
            return await reader.read(at, confirmed, bytes_max) if at < confirmed else []

        return await self._asked(ledger, some)

    async def end(self) -> Place:
        """Where the log ends."""

        async def settled(reader: LedgerReader) -> int:
            return await reader.whole(await reader.settled())

        while True:
            now = await self._list.read()
            if now.last is None:
                return 0
            entries = await self._asked(now.last, settled)
            if entries is not None:
                return place_of(now.last.number, entries)

    async def find(self, number: int, offset: int) -> Entry | None:
        """The entry at an offset of a ledger."""
        ledger = await self._listed(number)

        async def search(reader: LedgerReader) -> Entry | None:
            assert ledger is not None
            confirmed = await self._confirmed(ledger, reader, 1 if offset == 0 else 1 << 62)
            low, high = 0, confirmed - 1
            while low <= high:
                middle = 0 if offset == 0 else (low + high) // 2
                part = await reader.part(middle)
                if part.offset == offset:
                    found = await reader.read(part.first, confirmed, 1)
                    return found[0] if found else None
                if part.offset < offset:
                    low = part.end
                else:
                    high = part.first - 1
            return None

        return None if ledger is None else await self._asked(ledger, search)

    async def last(self, number: int) -> Entry | None:
        """The last entry of a ledger."""
        ledger = await self._listed(number)

        async def search(reader: LedgerReader) -> Entry | None:
            assert ledger is not None
            confirmed = ledger.entries
            if confirmed is None:
                confirmed = await reader.whole(await reader.settled())
            part = await reader.part(confirmed - 1)
            found = await reader.read(part.first, confirmed, 1)
            return found[-1] if found else None

        return None if ledger is None else await self._asked(ledger, search)

    async def _listed(self, number: int) -> Listed | None:
        """A ledger of the list; one that is not there may have come a moment ago."""
        ledger = (await self._list.recent()).find(number)
        return ledger or (await self._list.read()).find(number)

    # Following.

    async def tell(self, changed: asyncio.Event) -> None:
        """Set the event whenever something more is confirmed in the last ledger, until cancelled."""
        while True:
            try:
                now = await self._list.recent()
                if now.last is None or not await self._poll(now.last):
                    await asyncio.sleep(_PAUSE_S if now.last is None else 0)
                    continue
                changed.set()
            except (EngineUnavailable, JavaFailed) as error:
                log.debug("nobody tells of what is new: %s", error)
                await asyncio.sleep(_PAUSE_S)

    async def _poll(self, last: Listed) -> bool:
        reader = await self._reader(last)
        if reader.owned:
            await asyncio.sleep(_PAUSE_S)  # we write it ourselves
            return False
        return await reader.changed(await reader.confirmed(0), POLL_MS)
