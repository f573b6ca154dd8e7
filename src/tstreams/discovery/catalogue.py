"""The names of all streams, for searching: one text of all of them, in which finding a word is one scan of memory."""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from bisect import bisect_right

from ..errors import Error
from ..limits import LIST_NUMBERS_MAX
from .limits import CATALOGUE_NAMES_MAX, SEARCH_HITS_MAX
from .storage import Storage

log = logging.getLogger("tstreams.discovery")

_PAUSE_S = 1.0
"""How often to ask for streams that are new."""
_REST = 2.0
"""How much longer than the server took for a page it is left alone before the next."""
_DEAD_MIN = 1000
"""With fewer deleted streams than this in it a catalogue is never made anew."""


class Catalogue:
    """Names in the order in which streams were made.

    Invariants: `_names` and `_folded` hold the same names, one per line; `_folded` in lower case. The
    n-th begins at `_starts[n]` and `_folded_starts[n]`. Names of streams that were deleted stay until so
    many are found dead that it is made anew: whoever shows a hit looks it up first.
    """

    def __init__(self) -> None:
        self.complete = False
        """Whether it has had all names once."""
        self._clear()

    def _clear(self) -> None:
        self._names = bytearray()
        self._starts = array("Q")
        self._folded = bytearray()
        self._folded_starts = array("Q")
        self._numbers = array("Q")
        self._after: dict[int, int] = {}
        self._dead: set[int] = set()

    def __len__(self) -> int:
        return len(self._numbers) - len(self._dead)

    def add(self, number: int, name: str) -> None:
        """A stream that is new."""
        self._starts.append(len(self._names))
        self._folded_starts.append(len(self._folded))
        self._numbers.append(number)
        self._names += name.encode() + b"\n"
        self._folded += name.lower().encode() + b"\n"

    def bury(self, place: int) -> None:
        """The stream at this place does not exist any more."""
        self._dead.add(place)

    def name(self, place: int) -> str:
        """The name at a place."""
        end = self._starts[place + 1] if place + 1 < len(self._starts) else len(self._names)
        return self._names[self._starts[place] : end - 1].decode()

    def number(self, place: int) -> int:
        """The number of the stream at a place."""
        return self._numbers[place]

    def find(self, word: str, first: int, limit: int) -> tuple[list[int], int | None]:
        """Up to `limit` places, from `first` on, whose names hold the word, and where to go on, if there are more."""
        sought = word.lower().encode()
        found: list[int] = []
        if b"\n" in sought or first >= len(self._numbers):
            return found, None
        folded, starts = self._folded, self._folded_starts
        at = folded.find(sought, starts[first])
        while at >= 0:
            place = bisect_right(starts, at) - 1
            if place not in self._dead:
                if len(found) == limit:
                    return found, place
                found.append(place)
            if place + 1 >= len(starts):
                break
            at = folded.find(sought, starts[place + 1])
        return found, None

    def count(self, word: str) -> int | None:
        """How many names hold the word; None if that is more than anyone would count."""
        found, more = self.find(word, 0, SEARCH_HITS_MAX)
        return None if more is not None else len(found)

    async def run(self, storage: Storage) -> None:
        """Keep up with the server, until cancelled. It asks slowly: others come first."""
        await storage.connected.wait()
        while True:
            try:
                if await self._catch_up(storage):
                    self.complete = True
                if len(self._dead) > max(_DEAD_MIN, len(self._numbers) // 4):
                    self.complete = False
                    self._clear()
                    continue
            except Error as error:
                log.debug("the catalogue could not ask for new streams: %s", error)
            await asyncio.sleep(_PAUSE_S)

    async def _catch_up(self, storage: Storage) -> bool:
        """Ask until there is nothing new. Whether all names are here now."""
        inspect = storage.inspect
        for shard in inspect.shards:
            more = True
            while more:
                if len(self._numbers) >= CATALOGUE_NAMES_MAX:
                    return False
                begun_at = time.monotonic()
                page = await inspect.numbers(shard, self._after.get(shard, 0), LIST_NUMBERS_MAX)
                for stream in page.streams:
                    self.add(stream.id, stream.name)
                if page.streams:
                    self._after[shard] = page.streams[-1].id
                more = page.more and bool(page.streams)
                if more:
                    await asyncio.sleep((time.monotonic() - begun_at) * _REST)
        return True
