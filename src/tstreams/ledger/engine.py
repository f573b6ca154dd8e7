"""The port of an engine: who keeps the sequence of entries that is the log of a shard, on several machines.

An entry is what one ledger's file holds end to end: first the head of the ledger, then groups, each as
`format` lays them out. So the entries of a ledger in their order are its file. Every entry carries its ledger and offset,
so that a reader notices if one is missing, and a `mark` that no other entry has, so that a writer knows its own.

The rules every engine keeps:
- entries have a total order, and whoever has read one will find it there until its ledger is deleted;
- `append` adds an entry if the sequence ends at the place that the writer expects, else nothing;
- an entry is there whole or not at all, however large it is;
- what `append` has confirmed is durable on as many machines as the engine was told;
- `read` gives confirmed entries only.

We write no consensus: an engine stands on one that exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ..errors import Unavailable
from ..items import Buffer
from ..limits import MIB

Place: TypeAlias = int
"""Where the sequence ends behind an entry. Places only rise; what lies between two says nothing. 0: the beginning."""

READ_BYTES = 4 * MIB
"""How much is read at a time: it is in memory as a whole."""


class EngineUnavailable(Unavailable):
    """The engine does not answer, or not with what was asked for. Of an append nothing is known then: it may have
    happened, and it may yet happen."""


class EndMoved(Unavailable):
    """The sequence does not end, or will not end, where the writer expects: this append did nothing. Who was faster is
    seen by reading on; it may take a moment until it is confirmed, and it may be an earlier attempt of our own."""


class EngineFull(Unavailable):
    """The engine has no room: this append did nothing."""


class LedgerEnded(Unavailable):
    """The engine takes nothing more into this ledger, though the sequence ends where the writer expects: this append did
    nothing, and never will. The writer begins another ledger, and appends there."""


class EngineUnfit(Unavailable):
    """The engine cannot be used as it is set up: the message says what to change. Trying again does not help."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry that is not in the sequence yet."""

    ledger_id: int
    offset: int
    mark: str
    data: Buffer


@dataclass(frozen=True, slots=True)
class Entry:
    """A confirmed entry. `before` and `place` are where the sequence ended before it, and behind it."""

    before: Place
    place: Place
    ledger_id: int
    offset: int
    mark: str
    data: bytes

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + len(self.data)


class Engine(Protocol):
    """The sequence of one shard. Not for several threads. All calls but `append` may be repeated at will, and raise
    `EngineUnavailable` if the engine does not answer in time."""

    tells_again: bool
    """Whether the event of `watch` is set again if a read has brought less than it told of. Then nobody has to read once
    more to see that there was no more."""

    async def end(self) -> Place:
        """Where the sequence ends: behind everything that was confirmed before this was asked, if the one that
        answers is up to date. A writer must not lean on it: `append` tells."""

    async def append(self, entry: Draft, expected: Place) -> Place:
        """Add an entry behind `expected`; the place behind it. `EndMoved`, `EngineFull` and, for a group,
        `LedgerEnded`: nothing happened. `EngineUnavailable`, and if the caller is cancelled: not known. The same draft may be sent again."""

    async def read(self, after: Place, bytes_max: int = READ_BYTES) -> list[Entry]:
        """Entries behind a place, in order, whole: about so many bytes, but at least one, if there is any. None:
        there may be some that the one who answers does not have yet."""

    async def ledgers(self) -> list[int]:
        """The ledgers of which there is anything, in order."""

    async def find(self, ledger_id: int, offset: int) -> Entry | None:
        """The entry that lies at this offset of a ledger."""

    async def last(self, ledger_id: int) -> Entry | None:
        """The last entry of a ledger."""

    async def delete(self, ledger_ids: Iterable[int]) -> None:
        """Delete ledgers whole: from the list first, if there is one beside the data. One that is gone already is no
        error. The caller sees to it that none of them is written to."""

    def watch(self) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set when there may be something new. Best effort: look now and then all the same."""

    async def close(self) -> None:
        """Give everything back. What is under way ends with `EngineUnavailable`."""
