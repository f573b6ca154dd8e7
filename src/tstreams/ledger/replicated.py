"""The log that an engine keeps for all nodes, read from a mirror of it in local files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..errors import Corrupt, InvalidState, Unavailable
from .comparing import check_chain, compare, read_until, refetch
from .engine import Engine, EngineUnavailable, Entry, LedgerEnded, Place
from .files import Folder
from .format import SECTOR_BYTES, Head, encode_group
from .ledgers import name_of
from .local import LEDGER_AGE_MS, LEDGER_BYTES
from .mirror import Mirror
from .port import (
    NO_END,
    START,
    Group,
    LedgerDamaged,
    LedgerInfo,
    LogBehind,
    LogFailed,
    LogFenced,
    Position,
    Record,
    position_of,
    split_position,
)
from .tail import Tail, fenced_by

log = logging.getLogger("tstreams.ledger")

LOOK_EVERY_S = 1.0
"""How often a follower looks for something new if nobody tells it. Engines tell, but may forget to."""

Told = Callable[[Group], None]
"""Is called with each group that others wrote, when it is in the mirror."""


class ReplicatedLog:
    """The managed ledger of a shard, on this node. `await ReplicatedLog.open(...)`. It follows, or it writes.

    States: following (from the start) -> `take_over` -> writing -> following, when another has taken over; `failed`
    (the mirror cannot be written, or the sequence has a hole): nothing goes on until it is opened again.
    Invariants: the mirror holds exactly the entries up to `_tail.place`, of the ledgers that are still there;
    `_lock` is held by whoever moves `_tail.place`; a writer has one group under way at most; `_others_write` is set
    while `_writes` is not.
    """

    def __init__(
        self,
        engine: Engine,
        mirror: Mirror,
        place: Place,
        *,
        told: Told | None = None,
        ledger_bytes: int = LEDGER_BYTES,
        ledger_age_ms: int = LEDGER_AGE_MS,
    ) -> None:
        self._engine = engine
        self._mirror = mirror
        self._tail = Tail(engine, place)
        self._told = told
        self._ledger_bytes = ledger_bytes
        self._ledger_age_ms = ledger_age_ms
        self._lock = asyncio.Lock()
        self._writes = False
        self._others_write = asyncio.Event()
        self._others_write.set()
        self._fenced: str | None = None
        self._failed: str | None = None
        self._under_way: asyncio.Task[list[Position]] | None = None
        self._mending: dict[int, asyncio.Task[None]] = {}
        self.synced_ns = 0
        """How long the engine took to confirm the last group."""

    @classmethod
    async def open(
        cls,
        engine: Engine,
        folder: Folder,
        *,
        applied: Position = START,
        told: Told | None = None,
        ledger_bytes: int = LEDGER_BYTES,
        ledger_age_ms: int = LEDGER_AGE_MS,
    ) -> ReplicatedLog:
        """Compare the mirror in `folder` with the engine, mend it, and read to the end.

        `applied` is the end of what an index has taken already: all behind it is checked, and must be there.
        `LogBehind` if some of it was deleted; `Corrupt` if the engine never had it. `EngineUnavailable` if the engine
        does not answer: what was mended stays so.
        """
        mirror = Mirror(folder)
        try:
            place = await compare(engine, mirror, applied)
        except BaseException:
            mirror.close()
            raise
        return cls(
            engine,
            mirror,
            place,
            told=told,
            ledger_bytes=ledger_bytes,
            ledger_age_ms=ledger_age_ms,
        )

    async def close(self) -> None:
        """End what is under way (nothing is known of it then), and close the files. The engine stays open. End `follow`
        and `take_over` before."""
        self.step_down()
        self._failed = self._failed or "the log was closed"
        tasks: list[asyncio.Task[Any]] = [*self._mending.values()]
        if self._under_way is not None:
            tasks.append(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._mirror.close()

    # Following.

    async def follow(self) -> None:
        """Take what others write, until it is cancelled; while we write it rests. An engine that does not answer is
        waited for. Raises what `told` raises, `DiskFull` (call it again when there is room), `LogBehind`, `Corrupt`."""
        while True:
            await self._others_write.wait()
            async with self._engine.watch() as changed:
                await self._follow(changed)

    async def _follow(self, changed: asyncio.Event) -> None:
        """Take what others write, until we write."""
        enough = False
        while not self._writes:
            try:
                more = True
                while more and not self._writes:
                    changed.clear()
                    more = await self._read_some() and (not enough or changed.is_set())
            except EngineUnavailable as error:
                log.warning("the log cannot be followed at the moment: %s", error)
            enough = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):  # `wait_for` may lose a cancel
                    enough = await changed.wait() and self._engine.tells_again

    async def catch_up(self) -> Position:
        """Read to the present end of the sequence; where the log ends then."""
        async with self._lock:
            await self._catch_up()
        return self.end

    async def _catch_up(self, end: Place = 0) -> None:
        """Read to this place; to the present end, if none is given."""
        self._check_usable()
        end = end or await self._engine.end()
        async for entry in read_until(self._engine, self._tail.place, end):
            self._take(entry)

    async def _read_some(self) -> bool:
        """Take some of what follows; False if there is nothing, or if we write."""
        async with self._lock:
            self._check_usable()
            if self._writes:
                return False
            entries = await self._engine.read(self._tail.place)
            for entry in entries:
                self._take(entry)
            return bool(entries)

    def _take(self, entry: Entry) -> None:
        """An entry that is not ours. After any error but `DiskFull` and `Corrupt` the log must be opened again."""
        self._check_usable()
        if self._writes:
            self._fence(fenced_by(entry))
        group: Group | None = None
        try:
            if entry.offset == 0:
                head = Head.decode(entry.data, name_of(entry.ledger_id))
                if self._mirror.ledgers.last is not None or head.previous_id:
                    self._mirror.check_follows(head)
                self._mirror.begin(head)
            else:
                group = self._mirror.add(entry)
        except (LogBehind, LogFailed) as error:
            self._failed = error.message
            raise
        self._tail.place = entry.place
        if group is not None and self._told is not None:
            try:
                self._told(group)
            except BaseException as error:
                self._failed = f"a group was not taken: {type(error).__name__}: {error}"
                raise

    # Writing.

    async def take_over(self, epoch: int, now_ms: int, end: Place = 0) -> None:
        """Read to the end and begin a new ledger under this epoch: from then on every append of earlier writers fails.

        `end` is where the sequence ends, if somebody has said so: then the engine is not asked for it. If it ends elsewhere,
        that is found out when the ledger is begun.

        `InvalidState` if the log has seen this epoch, or a higher one. While the engine has no majority this waits;
        if it is cancelled, it may take effect all the same.
        """
        async with self._lock:
            while True:
                await self._catch_up(end)
                end = 0
                if epoch <= self.epoch:
                    raise InvalidState(
                        f"epoch {epoch} is not above {self.epoch}, which the log has seen"
                    )
                try:
                    await self._begin_ledger(epoch, now_ms)
                except LogFenced:
                    continue  # something came in between
                self._fenced = None
                self._writes = True
                self._others_write.clear()
                return

    def step_down(self) -> None:
        """Write no more, and follow again. What is under way goes on; nobody is shut out by this."""
        self._writes = False
        self._others_write.set()

    async def roll(self, now_ms: int) -> None:
        """Close the current ledger and begin the next."""
        self._check_writable()
        async with self._lock:
            self._check_writable()
            await self._begin_ledger(self.epoch, now_ms)

    def append(self, records: Sequence[Record], now_ms: int) -> asyncio.Future[list[Position]]:
        """Begin to append a group. The future has its positions when it is confirmed and in the mirror.

        Cancelling the future changes nothing. As long as the engine does not answer, it waits, and sends again.
        `LogFenced`: another has taken over, and whether the group is in the log is not known here. `DiskFull`:
        there is no room, here or at the engine, and nothing was written. `LogFailed`: the mirror cannot be written.
        """
        self._check_writable()
        if self._under_way is not None:
            raise InvalidState("a group is under way: wait until it is confirmed")
        self._under_way = asyncio.ensure_future(self._append(records, now_ms))
        self._under_way.add_done_callback(self._landed)
        return asyncio.shield(self._under_way)

    def _landed(self, task: asyncio.Task[list[Position]]) -> None:
        self._under_way = None
        if not task.cancelled():
            task.exception()  # told to whoever waits, if anybody does

    async def _append(self, records: Sequence[Record], now_ms: int) -> list[Position]:
        try:
            return await self._append_now(records, now_ms)
        except asyncio.CancelledError:  # by `close`, and nobody else
            raise LogFailed(
                "the log was closed; whether the group that was under way is in it is not known"
            ) from None

    async def _append_now(self, records: Sequence[Record], now_ms: int) -> list[Position]:
        async with self._lock:
            self._check_writable()
            if self._is_full(now_ms):
                await self._begin_ledger(self.epoch, now_ms)
            while True:
                try:
                    return await self._append_group(records)
                except LedgerEnded as error:
                    log.warning("%s; the log goes on in the next one", error)
                    await self._begin_ledger(self.epoch, now_ms)

    async def _append_group(self, records: Sequence[Record]) -> list[Position]:
        """Add a group to the last ledger."""
        ledger = self._mirror.ledgers.list[-1]
        buffers, offsets, end = encode_group(ledger.id, ledger.size, records)
        self._mirror.reserve(end)
        data = b"".join(buffers)
        begun_ns = time.perf_counter_ns()
        await self._add(ledger.id, ledger.size, data)
        self.synced_ns = time.perf_counter_ns() - begun_ns
        self._mirrored(lambda: self._mirror.write([data], end))
        first = position_of(ledger.id, 0)
        return [first | offset for offset in offsets]

    def _is_full(self, now_ms: int) -> bool:
        current = self._mirror.ledgers.list[-1]
        if current.size <= SECTOR_BYTES:
            return False
        old = now_ms - current.head.created_ms >= self._ledger_age_ms
        return old or current.size >= self._ledger_bytes

    async def _begin_ledger(self, epoch: int, now_ms: int) -> None:
        last = self._mirror.ledgers.last
        head = Head(
            last.id + 1 if last else 1,
            epoch,
            now_ms,
            last.id if last else 0,
            last.size if last else 0,
        )
        self._mirror.reserve_next()
        await self._add(head.ledger_id, 0, head.encode())
        self._mirrored(lambda: self._mirror.begin(head))

    async def _add(self, ledger_id: int, offset: int, data: bytes) -> None:
        try:
            await self._tail.add(ledger_id, offset, data)
        except LogFenced as error:
            self._fence(error)
            raise

    def _fence(self, error: LogFenced) -> None:
        self.step_down()
        self._fenced = error.message

    def _mirrored(self, write: Callable[[], None]) -> None:
        """Write what is confirmed. If that fails, this node cannot serve it."""
        self._check_usable()
        try:
            write()
        except (Unavailable, OSError) as error:
            self._failed = f"{error}. It is in the log; open the log again."
            self.step_down()
            raise LogFailed(self._failed) from error

    def _check_usable(self) -> None:
        if self._failed is not None:
            raise LogFailed(self._failed)

    def _check_writable(self) -> None:
        self._check_usable()
        if self._fenced is not None:
            raise LogFenced(self._fenced)
        if not self._writes:
            raise InvalidState("take the log over before writing to it")

    # Reading.

    @property
    def epoch(self) -> int:
        """The greatest epoch that the log has seen."""
        return self._mirror.ledgers.epoch

    @property
    def place(self) -> Place:
        """The place in the engine's sequence up to which everything is here."""
        return self._tail.place

    @property
    def end(self) -> Position:
        """Behind the last confirmed group that is here."""
        return self._mirror.ledgers.end

    def ledgers(self, after: int = 0, limit: int | None = None) -> list[LedgerInfo]:
        """The list, oldest first. The last one is being written to, by us or by others."""
        return self._mirror.ledgers.infos(after, limit, last_is_open=True)

    def check_from(self, position: Position) -> None:
        """Raise `LogBehind` unless everything behind this position is here: also what was deleted meanwhile."""
        check_chain(self._mirror.ledgers.list, position)

    def read_many(self, wanted: Sequence[tuple[Position, int]]) -> list[memoryview]:
        """Records of these positions and sizes, from the mirror. `LedgerDamaged` if that is damaged: it is being mended."""
        try:
            return self._mirror.ledgers.read_many(wanted)
        except (Corrupt, OSError) as error:
            self._mend_damage({split_position(position)[0] for position, _ in wanted}, error)
            raise

    def scan(self, start: Position, stop: Position = NO_END) -> Iterator[Group]:
        """All groups from this position on, from the mirror. `LedgerDamaged` if that is damaged: it is being mended."""
        ledgers = self._mirror.ledgers
        for ledger, at in ledgers.ledgers_from(start):
            if position_of(ledger.id, at) >= stop:
                return
            try:
                yield from ledgers.scan_ledger(ledger, at, stop)
            except (Corrupt, OSError) as error:
                self._mend_damage([ledger.id], error)
                raise

    # Mending.

    def _mend_damage(self, ledger_ids: Iterable[int], error: Exception) -> None:
        """Begin to fetch anew those ledgers whose copies are damaged, and say so."""
        damaged = []
        for ledger_id in ledger_ids:
            ledger = self._mirror.ledgers.find(ledger_id)
            if ledger is not None and not self._mirror.is_whole(ledger):
                damaged.append(f"{ledger_id:x}")
                self._begin_mending(ledger_id)
        if damaged:
            log.error("the copy of ledger %s is damaged: %s", ", ".join(damaged), error)
            raise LedgerDamaged(
                f"the copy of ledger {', '.join(damaged)} on this node is damaged and is being fetched again"
            ) from error

    def _begin_mending(self, ledger_id: int) -> asyncio.Task[None]:
        task = self._mending.get(ledger_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._mend(ledger_id))
            self._mending[ledger_id] = task
            task.add_done_callback(lambda _: self._mending.pop(ledger_id, None))
        return task

    async def _mend(self, ledger_id: int) -> None:
        try:
            if not await refetch(self._engine, self._mirror, ledger_id):
                await self.forget()
        except (Unavailable, Corrupt) as error:  # the next reader will find it again
            log.warning("ledger %x could not be mended: %s", ledger_id, error)

    async def mend(self, ledger_id: int) -> bool:
        """Fetch a ledger anew, or wait for that if it goes on already; whether all of it is right now."""
        await self._begin_mending(ledger_id)
        ledger = self._mirror.ledgers.find(ledger_id)
        return ledger is not None and self._mirror.is_whole(ledger)

    # Deleting.

    async def trim(self, ledger_ids: Iterable[int]) -> None:
        """Delete whole ledgers: from the engine, for all, then here. Repeat it if it fails."""
        doomed = set(ledger_ids)
        last = self._mirror.ledgers.last
        if last is not None and last.id in doomed:
            raise InvalidState(f"ledger {last.id:x} is being written to")
        await self._engine.delete(doomed)
        self._mirror.remove(doomed)

    async def forget(self) -> list[int]:
        """Delete here what another node has deleted from the engine; which ledgers those are."""
        kept = set(await self._engine.ledgers())
        last = self._mirror.ledgers.last
        gone = [it.id for it in self._mirror.ledgers.list if it.id not in kept and it is not last]
        self._mirror.remove(gone)
        return gone
