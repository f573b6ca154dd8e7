"""The engine on Apache BookKeeper: one ledger of BookKeeper for a ledger of the log, and a list of them in ZooKeeper.

A place is (number of the ledger, entries of BookKeeper in it). Behind `expected` a group can be added only by the one who has
created that ledger and was not shut out of it; and a ledger can be begun only by recovering those before it, which shuts their
writers out, and by a change of the list, which succeeds if nobody else made one. See docs/internals/cluster.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from ..errors import InvalidState, Unavailable
from .bookkeeper_link import BookKeeperLink, Code, code_of, unavailable
from .bookkeeper_list import LedgerList, Listed, ListKeeper, ListMoved
from .bookkeeper_parts import place_of, split_place
from .bookkeeper_shelf import ReaderShelf
from .bookkeeper_writer import LedgerWriter
from .engine import (
    READ_BYTES,
    Draft,
    EndMoved,
    EngineFull,
    EngineUnavailable,
    EngineUnfit,
    Entry,
    LedgerEnded,
    Place,
)
from .format import Head
from .jvm_bridge import JavaFailed
from .ledgers import name_of

log = logging.getLogger("tstreams.ledger")

FENCED_S = 2.0
"""How long a writer that was shut out leaves it to whoever did that to take over. It may have died on the way; or it was a bookie
that is being replaced, and nobody wants to take over."""
_CLOSE_S = 2.0


@dataclass(slots=True)
class _Making:
    """A new ledger that has its head, and may be in the list, or get there yet."""

    mark: str
    writer: LedgerWriter
    before: LedgerList
    after: LedgerList


class BookKeeperEngine:
    """The log of one shard on BookKeeper. `await BookKeeperEngine.open(...)`.

    Invariants: `_writer` is the ledger that this engine has put at the end of the list last; what is in `_making` or
    `_abandoned` is not in the list, as far as is known.
    """

    tells_again = False

    def __init__(self, link: BookKeeperLink, name: str) -> None:
        self._link = link
        self.name = name
        self._list = ListKeeper(link.zookeeper, f"{link.settings.lists}/{name}")
        self._shelf = ReaderShelf(link, self._list)
        self._making: _Making | None = None
        self._abandoned: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @classmethod
    async def open(cls, link: BookKeeperLink, name: str) -> BookKeeperEngine:
        """The log of this name (letters, digits, `-` and `_`), which is made when it is written to first."""
        if re.fullmatch(r"[A-Za-z0-9_-]+", name) is None:
            raise EngineUnfit(f"a log cannot be called {name!r}")
        engine = cls(link, name)
        await engine._list.read()
        return engine

    async def close(self) -> None:
        """Close the ledger that is written to, if that goes fast. The link is the caller's."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                if self._writer is not None:
                    await self._writer.close()
                await self._shelf.close()

    @property
    def _writer(self) -> LedgerWriter | None:
        return self._shelf.writer

    def _check_open(self) -> None:
        if self._closed:
            raise EngineUnavailable("the engine was closed")

    # Writing.

    async def append(self, entry: Draft, expected: Place) -> Place:
        """A group goes into the ledger that we write; the head of a ledger begins one."""
        self._check_open()
        try:
            if entry.offset == 0:
                return await self._begin(entry, expected)
            number, at = split_place(expected)
            writer = self._writer
            if writer is not None and writer.number == number and writer.failed_s is None:
                return await writer.append(entry, at)
            return await self._settle(entry, number, at)
        except JavaFailed as error:
            raise unavailable("BookKeeper cannot append", error) from error

    async def _settle(self, draft: Draft, number: int, at: int) -> Place:
        """What has become of a group in a ledger that we cannot write any more. Either somebody else has gone on, or the
        ledger is fixed here and now: then the group is in it, or never will be."""
        writer = self._writer
        now = await self._list.read()
        self._check_end(now, number, at)
        if writer is not None and writer.number == number and writer.fenced:
            since_s = asyncio.get_running_loop().time() - (writer.failed_s or 0.0)
            if since_s < FENCED_S:
                raise EngineUnavailable(f"another has shut us out of ledger {number:x}")
        entries = await self._recover(now)
        if entries < at:
            _lost(number, entries, at)
        if entries > at:
            found = await self.read(place_of(number, at), 1)
            if found and found[0].mark == draft.mark:
                return found[0].place
            raise EndMoved(f"ledger {number:x} has {entries} entries, not {at}")
        raise LedgerEnded(f"ledger {number:x} was closed by BookKeeper behind {entries} entries")

    def _check_end(self, now: LedgerList, number: int, at: int) -> None:
        """Raise unless this ledger is the last in the list."""
        last = 0 if now.last is None else now.last.number
        if last > number:
            raise EndMoved(f"the log goes on in ledger {last:x}")
        if last < number or (last == 0 and at):
            raise EngineUnfit(
                f"the list of ledgers at {self._list.path} ends with {last:x}, but {number:x} was written: "
                f"ZooKeeper has lost it, or was restored from an old copy"
            )

    async def _recover(self, now: LedgerList) -> int:
        """Shut the writers of the last two ledgers out, and fix where these end; how many entries the last one has. The
        one before it may be open if its writer died while it rolled."""
        entries = 0
        for ledger in now.ledgers[-2:]:
            entries = await self._shelf.recover(ledger)
        return entries

    async def _begin(self, draft: Draft, expected: Place) -> Place:
        making = self._making
        if making is None or making.mark != draft.mark:
            if making is not None:
                self._abandoned.append(making.writer.bookkeeper_id)
                self._making = None
            making = self._making = await self._make(draft, expected)
        try:
            now = await self._list.change(making.before, making.after)
        except ListMoved as error:
            now = await self._list.read()
            if not now.has(making.writer.bookkeeper_id):
                self._making = None
                self._begin_task(self._remove([making.writer.bookkeeper_id]))
                raise EndMoved(str(error)) from error
        self._making = None
        previous, self._shelf.writer = self._shelf.writer, making.writer
        if previous is not None:
            self._begin_task(previous.close())
        doomed = [it for it in self._abandoned if not now.has(it)]
        self._abandoned = []
        if doomed or now.dropped:
            self._begin_task(self._remove(doomed, now))
        return place_of(making.writer.number, making.writer.entries)

    async def _make(self, draft: Draft, expected: Place) -> _Making:
        """Shut earlier writers out, see that the log ends where it should, and make a ledger with its head in it."""
        number, at = split_place(expected)
        now = await self._list.read()
        self._check_end(now, number, at)
        if draft.ledger_id <= number:
            raise InvalidState(f"ledger {draft.ledger_id:x} cannot follow on {number:x}")
        entries = 0
        if now.last is not None:
            writer = self._writer
            ours = writer is not None and writer.number == number and writer.at_rest
            entries = writer.entries if ours and writer is not None else await self._recover(now)
        if entries < at:
            _lost(number, entries, at)
        if entries > at:
            raise EndMoved(f"ledger {number:x} has {entries} entries, not {at}")
        epoch = Head.decode(draft.data, name_of(draft.ledger_id)).epoch
        writer = await self._create(draft, epoch)
        following = Listed(draft.ledger_id, writer.bookkeeper_id, epoch)
        return _Making(draft.mark, writer, now, now.with_next(entries, following))

    async def _create(self, draft: Draft, epoch: int) -> LedgerWriter:
        about = {
            "application": "tstreams",
            "log": self.name,
            "ledger": str(draft.ledger_id),
            "epoch": str(epoch),
        }
        for sizes in self._link.settings.sizes:
            try:
                handle = await self._link.create(sizes, about)
            except JavaFailed as error:
                if code_of(error) != Code.NOT_ENOUGH_BOOKIES:
                    raise
                continue
            if sizes != self._link.settings.sizes[0]:
                log.warning(
                    "bookies are missing: ledger %x of %s is written to %d of them only",
                    draft.ledger_id,
                    self.name,
                    sizes[0],
                )
            writer = LedgerWriter(self._link, draft.ledger_id, handle)
            try:
                await writer.append(draft, 0)
            except BaseException:
                self._begin_task(self._remove([writer.bookkeeper_id]))
                raise
            return writer
        raise await self._shortage()

    async def _shortage(self) -> Unavailable:
        """Why there are not enough bookies for a ledger."""
        bookies = await self._link.bookies()
        writable = sum(bookies.values())
        needed = self._link.settings.ack_quorum
        if writable < needed <= len(bookies):
            return EngineFull(
                f"{needed} bookies are needed, and only {writable} of {len(bookies)} can be written to: their disks "
                f"are full"
            )
        return EngineUnavailable(f"{needed} bookies are needed, and {writable} are there")

    # Deleting.

    async def delete(self, ledger_ids: Iterable[int]) -> None:
        """From the list first. What is to be deleted is in the list too, until it is: so nothing is left if we die."""
        self._check_open()
        doomed = set(ledger_ids)
        while True:
            now = await self._list.read()
            if now.last is not None and now.last.number in doomed:
                raise InvalidState(f"ledger {now.last.number:x} is the last one")
            after = now.without(doomed)
            if after == now:
                break
            try:
                now = await self._list.change(now, after)
            except ListMoved:
                continue
            break
        await self._remove([], now)

    async def _remove(self, ids: Iterable[int], now: LedgerList | None = None) -> None:
        """Delete ledgers of BookKeeper, and those that the list says are to be deleted."""
        dropped = () if now is None else now.dropped
        for bookkeeper_id in (*ids, *dropped):
            await self._link.delete(bookkeeper_id)
        if now is not None and dropped:
            with contextlib.suppress(ListMoved):  # then it is done the next time
                await self._list.change(now, LedgerList(now.ledgers))

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> None:
        async def quietly() -> None:
            try:
                await work
            except (EngineUnavailable, JavaFailed) as error:
                log.warning("%s: what is not needed any more was not removed: %s", self.name, error)

        task = asyncio.get_running_loop().create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Reading.

    async def end(self) -> Place:
        """Of the last ledger in the list, what its writer has told the bookies."""
        self._check_open()
        return await self._shelf.end()

    async def ledgers(self) -> list[int]:
        """The list."""
        self._check_open()
        return [it.number for it in (await self._list.read()).ledgers]

    async def read(self, after: Place, bytes_max: int = READ_BYTES) -> list[Entry]:
        """From any bookie that has them."""
        self._check_open()
        return await self._shelf.read(after, bytes_max)

    async def find(self, ledger_id: int, offset: int) -> Entry | None:
        """By bisection: the offsets of a ledger rise."""
        self._check_open()
        return await self._shelf.find(ledger_id, offset)

    async def last(self, ledger_id: int) -> Entry | None:
        """The last confirmed one."""
        self._check_open()
        return await self._shelf.last(ledger_id)

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncIterator[asyncio.Event]:
        """A bookie answers when something more is confirmed, and ZooKeeper tells of another ledger."""
        self._check_open()
        changed = asyncio.Event()
        self._list.watchers.add(changed)
        task = asyncio.get_running_loop().create_task(self._shelf.tell(changed))
        try:
            yield changed
        finally:
            self._list.watchers.discard(changed)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _lost(number: int, entries: int, at: int) -> NoReturn:
    raise EngineUnfit(
        f"ledger {number:x} has {entries} entries in BookKeeper, but {at} were confirmed: it has lost some"
    )
