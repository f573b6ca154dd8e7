"""The list of the ledgers of a log: an entry of ZooKeeper, changed by compare-and-set only.

It says which ledgers of BookKeeper are the ledgers of the log, in which order, and how many entries each has. The last one is
open: how many it has is known to BookKeeper alone, until the next one is in the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec
from kazoo import exceptions as zk

from ..errors import Corrupt
from ..limits import LEDGER_LIST_BYTES_MAX
from .engine import EngineFull, EngineUnavailable
from .zookeeper_link import ZooKeeperLink

FORMAT = 1
FRESH_S = 1.0
"""How long what was read is believed, if ZooKeeper has not told of a change."""


class ListMoved(Exception):
    """Somebody else has changed the list since it was read: this change did nothing, and never will."""


class Listed(msgspec.Struct, frozen=True, array_like=True):
    """One ledger: its number in the log, its id in BookKeeper, the epoch of its writer, and how many entries it has. None:
    it is the last."""

    number: int
    bookkeeper_id: int
    epoch: int
    entries: int | None = None


class _Stored(msgspec.Struct, frozen=True):
    format: int
    ledgers: list[Listed]
    dropped: list[int] = []


@dataclass(frozen=True, slots=True)
class LedgerList:
    """The list at one time. `version` is ZooKeeper's, -1 if there is none yet. `dropped` are ledgers of BookKeeper that
    are to be deleted.

    Invariants: numbers rise; only the last has no number of entries.
    """

    ledgers: tuple[Listed, ...] = ()
    dropped: tuple[int, ...] = ()
    version: int = field(default=-1, compare=False)

    @property
    def last(self) -> Listed | None:
        """The newest."""
        return self.ledgers[-1] if self.ledgers else None

    def find(self, number: int) -> Listed | None:
        """A ledger by its number in the log."""
        return next((it for it in self.ledgers if it.number == number), None)

    def after(self, number: int) -> Listed | None:
        """The first ledger with a higher number."""
        return next((it for it in self.ledgers if it.number > number), None)

    def has(self, bookkeeper_id: int) -> bool:
        """Whether a ledger of BookKeeper is one of the log."""
        return any(it.bookkeeper_id == bookkeeper_id for it in self.ledgers)

    def with_next(self, entries: int, following: Listed) -> LedgerList:
        """One more ledger; the last one until now has so many entries."""
        before = [replace_entries(it, entries) for it in self.ledgers[-1:]]
        return replace(self, ledgers=(*self.ledgers[:-1], *before, following))

    def without(self, numbers: Iterable[int]) -> LedgerList:
        """Without these ledgers, which are to be deleted."""
        doomed = set(numbers)
        return replace(
            self,
            ledgers=tuple(it for it in self.ledgers if it.number not in doomed),
            dropped=(
                *self.dropped,
                *(it.bookkeeper_id for it in self.ledgers if it.number in doomed),
            ),
        )

    def encode(self) -> bytes:
        """As it is stored. `EngineFull` if ZooKeeper would not take it."""
        data = msgspec.json.encode(_Stored(FORMAT, list(self.ledgers), list(self.dropped)))
        if len(data) > LEDGER_LIST_BYTES_MAX:
            raise EngineFull(
                f"the log has {len(self.ledgers)} ledgers, and ZooKeeper takes no longer list: let data expire, or "
                f"make ledgers larger (ledger_bytes, ledger_age_s)"
            )
        return data

    @staticmethod
    def decode(data: bytes, version: int, path: str) -> LedgerList:
        """From what is stored. `Corrupt` if it is not ours."""
        try:
            stored = msgspec.json.decode(data, type=_Stored)
        except msgspec.DecodeError as error:
            raise Corrupt(f"what ZooKeeper has at {path} is no list of ledgers: {error}") from error
        if stored.format != FORMAT:
            raise Corrupt(
                f"the list at {path} has format {stored.format}; this program reads {FORMAT}"
            )
        return LedgerList(tuple(stored.ledgers), tuple(stored.dropped), version)


def replace_entries(ledger: Listed, entries: int | None) -> Listed:
    """The same ledger with another number of entries."""
    return Listed(ledger.number, ledger.bookkeeper_id, ledger.epoch, entries)


class ListKeeper:
    """The list of one log. Reading may be repeated at will; `EngineUnavailable` if ZooKeeper does not answer."""

    def __init__(self, link: ZooKeeperLink, path: str) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self.path = path
        self._known = LedgerList()
        self._read_s = float("-inf")
        self._watched = False
        self.watchers: set[asyncio.Event] = set()
        """Are set when the list has changed."""

    async def read(self) -> LedgerList:
        """The list as it is now, behind every change that was made before this was asked."""
        await self._link.ask(lambda client: client.sync_async(self.path))
        return await self._read()

    async def recent(self) -> LedgerList:
        """The list as it was a moment ago: read anew if ZooKeeper has told of a change, or if that is a while ago."""
        if self._watched and self._loop.time() - self._read_s < FRESH_S:
            return self._known
        return await self._read()

    async def _read(self) -> LedgerList:
        changed = self._link.in_loop(self._changed)
        began_s = self._loop.time()
        try:
            found = await self._link.ask(lambda client: client.get_async(self.path, changed))
        except zk.NoNodeError:
            return self._keep(LedgerList(), began_s)
        data, stat = found
        self._watched = True
        return self._keep(LedgerList.decode(data, stat.version, self.path), began_s)

    def _keep(self, found: LedgerList, began_s: float) -> LedgerList:
        if found.version >= self._known.version:
            self._known, self._read_s = found, began_s
        return self._known

    def _changed(self) -> None:
        self._watched = False
        for event in self.watchers:
            event.set()

    async def change(self, before: LedgerList, after: LedgerList) -> LedgerList:
        """Set the list, if it is still what it was. `ListMoved`: it is not. `EngineUnavailable`: not known; the same
        change may be tried again, and happens once."""
        data = after.encode()
        try:
            if before.version < 0:
                await self._link.ask(
                    lambda client: client.create_async(self.path, data, makepath=True)
                )
                version = 0
            else:
                stat = await self._link.ask(
                    lambda client: client.set_async(self.path, data, before.version)
                )
                version = stat.version
        except (zk.BadVersionError, zk.NodeExistsError) as error:
            raise ListMoved(f"the list at {self.path} has changed") from error
        except zk.NoNodeError as error:
            raise EngineUnavailable(f"somebody has deleted the list at {self.path}") from error
        return self._keep(replace(after, version=version), self._loop.time())
