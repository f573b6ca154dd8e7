"""A shard on one node of a cluster: opened from its index and its log, following, leading when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from ..errors import Corrupt, Error, Unavailable
from ..index import Index
from ..ledger.engine import Engine, EngineUnfit, Place
from ..ledger.local import LEDGER_AGE_MS, LEDGER_BYTES
from ..ledger.port import DiskFull, LogBehind
from ..ledger.replicated import ReplicatedLog
from ..limits import PAYLOAD_CACHE_BYTES
from .shard import Clock, Shard, system_clock
from .shared import SharedShard
from .snapshots import load_snapshot, needs_snapshot
from .storage import LocalStorage
from .upkeep import SNAPSHOT_BYTES_MIN, Upkeep

log = logging.getLogger("tstreams.server")

OpenEngine = Callable[[], Awaitable[Engine]]
"""Connects to what keeps the log of a shard."""

REOPEN_S_MIN, REOPEN_S_MAX = 0.05, 2.0
"""The pause before a replica that has failed is opened again; it doubles each time."""

FULL_PAUSE_S = 0.2
"""How often a follower without room looks whether there is some."""

LANDING_S = 2.0
"""How long stepping down and closing wait for a group that is under way. Then nothing is known of it."""


class Replica:
    """One shard on this node. `start`, then `lead` and `step_down` as coordination says; `close`.

    It follows from the start, and again whenever it does not lead. Whatever fails on this node (a disk, the copy of the
    log, an index that is behind) makes it open everything anew, again and again, until that works. `on_lost` is
    called when it stops leading without having been told to: fenced, or failed; `on_opened` whenever it is open.
    """

    def __init__(
        self,
        number: int,
        storage: LocalStorage,
        engine: OpenEngine,
        *,
        clock: Clock = system_clock,
        ledger_bytes: int = LEDGER_BYTES,
        ledger_age_ms: int = LEDGER_AGE_MS,
        cache_bytes: int = PAYLOAD_CACHE_BYTES,
        snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN,
        shards: int = 1,
    ) -> None:
        self.shared = SharedShard(
            number, storage, clock=clock, cache_bytes=cache_bytes, shards=shards
        )
        self.shared.changed = self._shard_changed
        self.on_lost: Callable[[], None] = lambda: None
        self.on_opened: Callable[[], None] = lambda: None
        self.snapshots_loaded = 0
        self._storage = storage
        self._open_engine = engine
        self._ledger_bytes = ledger_bytes
        self._ledger_age_ms = ledger_age_ms
        self._snapshot_bytes_min = snapshot_bytes_min
        self._engine: Engine | None = None
        self._log: ReplicatedLog | None = None
        self._upkeep: Upkeep | None = None
        self._led = False
        self._failed = asyncio.Event()
        self._opened = asyncio.Event()
        self._steps = asyncio.Lock()
        """Held by whoever opens, closes, begins to lead or stops leading."""
        self._task: asyncio.Task[None] | None = None

    @property
    def number(self) -> int:
        """Which shard it is."""
        return self.shared.number

    @property
    def shard(self) -> Shard:
        """What works on requests."""
        return self.shared.shard

    @property
    def leading(self) -> bool:
        """Whether it leads."""
        return self.shared.leading

    @property
    def is_open(self) -> bool:
        """Whether it follows or leads."""
        return self._opened.is_set()

    async def start(self) -> None:
        """Open, and begin to follow. Returns when that works for the first time; `EngineUnfit` and `Corrupt` if it will
        not. While the engine does not answer it waits."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._live())
        opened = loop.create_task(self._opened.wait())
        try:
            await asyncio.wait([self._task, opened], return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if self._task.done():
            self._task.result()

    @property
    def place(self) -> Place:
        """Up to where it has the log; 0 if it is not open."""
        return 0 if self._log is None else self._log.place

    async def lead(self, epoch: int, end: Place = 0) -> None:
        """Take over under this epoch: read to the end, shut out whoever led before, serve. `InvalidState` if the log has
        seen that epoch; waits as long as the engine has no majority. If it is cancelled it does not lead. `end`: where
        the log ends, if whoever led before has said so."""
        await self._opened.wait()
        async with self._steps:
            await self._step_down()  # it may lead in an earlier epoch
            log_ = self._log
            if log_ is None or self.shard.failed is not None:
                raise Unavailable(self.shard.failed or "the shard is being opened")
            await log_.take_over(epoch, self.shard.clock(), end)
            self.shared.begin_leading(epoch)
            self._led = True

    async def catch_up(self) -> None:
        """Have all that the log has at this moment: then there is little left to read when it takes over."""
        log_ = self._log
        if log_ is None or not self.is_open:
            raise Unavailable(self.shard.failed or "the shard is being opened")
        await log_.catch_up()

    async def step_down(self) -> None:
        """Lead no longer, and follow. What is under way is waited for, for a moment."""
        async with self._steps:
            await self._step_down()

    async def _step_down(self) -> None:
        self._led = False
        if self._log is None or not self.leading:
            return
        if await self._let_land():
            self._log.step_down()
            self.shared.follow()
        else:  # what is under way may still happen, and nobody would apply it
            self.shard.fail(Unavailable("the engine did not answer while this node stepped down"))

    async def close(self) -> None:
        """Answer what is under way, if it can be; then close everything. Closing twice does nothing."""
        self.shared.expect(False)
        async with self._steps:
            self._led = False
            if self._log is not None and self.leading:
                await self._let_land()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Error):
                await self._task
            self._task = None

    async def _let_land(self) -> bool:
        landing = self.shared.retire()
        return landing is None or bool((await asyncio.wait([landing], timeout=LANDING_S))[0])

    def _shard_changed(self) -> None:
        if self.shard.failed is not None:
            self._failed.set()
        if self._led:
            self._led = False
            self.on_lost()

    # Life.

    async def _live(self) -> None:
        """Open, follow, and open again whatever has failed."""
        pause_s = REOPEN_S_MIN
        try:
            while True:
                try:
                    async with self._steps:
                        await self._open()
                    self._opened.set()
                    self.on_opened()
                    pause_s = REOPEN_S_MIN
                    await self._follow()
                except EngineUnfit:
                    raise
                except Error as error:
                    if isinstance(error, Corrupt) and not self._opened.is_set():
                        raise
                    log.error("shard %d is opened anew: %s", self.number, error)
                except Exception:  # what is durable is not touched by it
                    log.critical("shard %d: a mistake in the program", self.number, exc_info=True)
                finally:
                    self._opened.clear()
                    await self._shut()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, REOPEN_S_MAX)
        finally:
            if self._engine is not None:
                await self._engine.close()
                self._engine = None

    async def _open(self) -> None:
        if self._engine is None:
            self._engine = await self._open_engine()
        index = Index(self._storage.store())
        try:
            try:
                self._log = await self._open_log(index.applied)
                behind = needs_snapshot(self._log, index.applied)
            except LogBehind as error:
                log.warning("shard %d begins anew from a snapshot: %s", self.number, error)
                self._log = await self._open_log(0)
                behind = True
            if behind:
                index.store.close()
                loaded = load_snapshot(self._log, self._storage)
                self._log.check_from(loaded.at)
                index = Index(self._storage.store())
                self.snapshots_loaded += 1
            self.shared.recover(index, self._log)
        except BaseException:
            index.store.close()
            raise
        self._failed.clear()
        self._upkeep = Upkeep(self.shared, snapshot_bytes_min=self._snapshot_bytes_min)
        self.shared.dropped = self._upkeep.ledgers_dropped

    async def _open_log(self, applied: int) -> ReplicatedLog:
        assert self._engine is not None
        return await ReplicatedLog.open(
            self._engine,
            self._storage.folder(),
            applied=applied,
            told=self.shared.told,
            ledger_bytes=self._ledger_bytes,
            ledger_age_ms=self._ledger_age_ms,
        )

    async def _follow(self) -> None:
        """Take what comes, and do what is to be done, until something fails."""
        assert self._log is not None
        assert self._upkeep is not None
        loop = asyncio.get_running_loop()
        following = loop.create_task(self._follow_log(self._log))
        tasks: list[asyncio.Task[object]] = [
            following,
            loop.create_task(self._upkeep.run()),
            loop.create_task(self._failed.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _follow_log(self, log_: ReplicatedLog) -> None:
        while True:
            try:
                await log_.follow()
            except DiskFull as error:
                self.shard.condition.note_full(error.message)
                await asyncio.sleep(FULL_PAUSE_S)

    async def _shut(self) -> None:
        """Close what was opened. The index is flushed, if that can be: less has to be replayed then."""
        shard = self.shard
        was_open = shard.failed is None
        log_, self._log = self._log, None
        self.shared.shut()
        if log_ is not None:
            await log_.close()
        if was_open:
            with contextlib.suppress(Error):
                if shard.condition.can_flush():
                    await asyncio.to_thread(shard.index.store.flush)
        if self._upkeep is not None:
            self._upkeep = None
            shard.index.store.close()
