"""What a node does by itself for a shard whose log others read too.

Whoever leads does what changes anything, and all of it goes through the log: leases that run out, sweeping, compaction,
snapshots, ledgers that are deleted. Whoever follows only flushes its index, and deletes what the leader has deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from moebius.errors import Error as WireError

from ..core.records import LedgersDropped
from ..errors import Error
from ..index.sweeping import Due
from ..ledger.engine import EngineUnavailable
from ..ledger.port import DiskFull, LedgerDamaged, LedgerInfo, LogFenced, split_position
from ..limits import MIB
from .compactor import Compactor
from .housekeeping import (
    AGE_EVERY_MS,
    FLUSH_EVERY_MS,
    FLUSH_LEDGERS,
    FLUSH_RECORDS,
    FLUSH_TO_TRIM_MS,
    RECLAIM_EVERY_MS,
    ROLL_AFTER_MS,
    SWEEP_BUDGET,
    TICK_S,
)
from .shared import SharedShard
from .snapshots import write_snapshot

log = logging.getLogger("tstreams.server")

SNAPSHOT_BYTES_MIN = 1 * MIB
"""A snapshot is written if that lets ledgers go that are as large as it will be, and as this: so at most as much is
written for it as is freed, and a quiet shard is left alone."""

FORGET_EVERY_MS = 5_000
FORGET_TRIES = 12
"""How often, and how many times, a follower asks which ledgers are left after the leader has said that it deletes some."""


class Upkeep:
    """The background work of one replica, from when it is opened until it is closed: `run`."""

    def __init__(
        self, shared: SharedShard, *, snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN
    ) -> None:
        self._shared = shared
        self._shard = shard = shared.shard
        self._snapshot_bytes_min = snapshot_bytes_min
        self._compactor = Compactor(shard)
        self._due: Due | None = None
        """What there is to sweep, while we lead."""
        self._flushed_at_ms = shard.clock()
        self._flushed = shard.index.applied
        self._reclaimed_at_ms = self._aged_at_ms = self._forgot_at_ms = 0
        self._forget_tries = 0
        self._snapshot: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until it is cancelled, or the shard has failed. What runs in a thread is waited for."""
        try:
            while self._shard.failed is None:
                await asyncio.sleep(TICK_S)
                await self._guarded(self._tick(self._shard.clock()))
        finally:
            if self._snapshot is not None:
                self._snapshot.cancel()
            tasks = [it for it in (self._snapshot, self._flushing) if it is not None]
            if tasks:
                await asyncio.wait(tasks)

    def ledgers_dropped(self) -> None:
        """The leader has deleted ledgers, or is about to."""
        self._forget_tries = FORGET_TRIES

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        shard = self._shard
        try:
            await work
        except LogFenced as error:
            self._shared.fenced(error.message)
        except DiskFull as error:
            shard.condition.note_full(error.message)
        except EngineUnavailable as error:
            log.warning("shard %d: the engine does not answer: %s", shard.number, error)
        except LedgerDamaged:
            self._compactor.reset()  # it is being mended
        except (
            WireError
        ) as error:  # a record of ours was not confirmed: the shard knows, and has said why
            log.debug("shard %d: %s", shard.number, error)
        except Error as error:
            shard.fail(error)

    async def _tick(self, now_ms: int) -> None:
        shard = self._shard
        self._shared.look_at_disk()
        if abs(now_ms - self._aged_at_ms) >= AGE_EVERY_MS:
            self._aged_at_ms = now_ms
            shard.metrics.age(now_ms)
        if self._shared.leading:
            self._shared.tick()
            await self._lead(now_ms)
        else:
            self._due = None
            self._compactor.reset()
            await self._forget(now_ms)
        self._flush(now_ms)

    # Leading.

    async def _lead(self, now_ms: int) -> None:
        if self._due is None:
            self._due = Due(self._shard.index.store)
        if abs(now_ms - self._reclaimed_at_ms) >= RECLAIM_EVERY_MS:
            self._reclaimed_at_ms = now_ms
            await self.reclaim(now_ms)
        elif self._compactor.is_busy and self._shared.is_settled:
            self._compactor.step()

    async def reclaim(self, now_ms: int) -> None:
        """Find what has died, have it removed everywhere, and give room back."""
        shard = self._shard
        due = self._due or Due(shard.index.store)
        if (record := due.look(now_ms, SWEEP_BUDGET)) is not None:
            await self._shared.write_record(record, alone=True)
        ledgers = self._shared.log.ledgers()
        metrics = shard.metrics
        metrics.ledgers, metrics.ledger_bytes = len(ledgers), sum(it.size_bytes for it in ledgers)
        current = ledgers[-1]
        died = shard.index.live.dead(current.id) > 0
        if died and abs(now_ms - current.created_ms) >= ROLL_AFTER_MS:
            await self._shared.log.roll(now_ms)
        if self._shared.is_settled:
            self._compactor.step(*([shard.condition.room.look()[0] // 2] if shard.full else []))
        dead = [it for it in ledgers if it.closed and not shard.index.live.live(it.id)]
        await self._trim(dead)
        if self._snapshot is None and self._snapshot_is_due(dead):
            self._begin_snapshot()

    async def _trim(self, dead: list[LedgerInfo]) -> None:
        """Delete ledgers. First it is written down, so that all nodes forget them at the same position."""
        shard = self._shard
        snapshot_id = split_position(shard.index.snapshot()[0])[0]
        flushed_id = split_position(self._flushed)[0]
        doomed = [it.id for it in dead if it.id < min(snapshot_id, flushed_id)]
        if doomed:
            await self._shared.write_record(LedgersDropped(0, 0, doomed))
            await self._shared.log.trim(doomed)
            log.debug("deleted ledgers", extra={"tstreams": {"ledgers": doomed}})

    def _snapshot_is_due(self, dead: list[LedgerInfo]) -> bool:
        at, ended, size_bytes = self._shard.index.snapshot()
        first, last = split_position(at)[0], split_position(ended)[0]
        freed = [it for it in dead if it.id >= first]
        freed_bytes = sum(it.size_bytes for it in freed)
        if any(first <= it.id <= last for it in freed):
            freed_bytes -= size_bytes  # the last snapshot itself is no reason for the next
        estimate = self._shard.index.store.number("estimate-live-data-size")
        return freed_bytes >= max(size_bytes, estimate, self._snapshot_bytes_min)

    def _begin_snapshot(self) -> None:
        def ended(_: asyncio.Task[None]) -> None:
            self._snapshot = None

        work = self._guarded(write_snapshot(self._shared))
        self._snapshot = asyncio.get_running_loop().create_task(work)
        self._snapshot.add_done_callback(ended)

    # All nodes.

    async def _forget(self, now_ms: int) -> None:
        if self._forget_tries and abs(now_ms - self._forgot_at_ms) >= FORGET_EVERY_MS:
            self._forgot_at_ms = now_ms
            self._forget_tries -= 1
            if await self._shared.log.forget():
                self._forget_tries = 0

    def _flush(self, now_ms: int) -> None:
        """Flush in a thread, when it is due: it bounds what has to be replayed."""
        shard = self._shard
        applied = shard.index.applied
        if (
            self._flushing is not None
            or applied == self._flushed
            or not shard.condition.can_flush()
        ):
            return
        waited_ms = abs(now_ms - self._flushed_at_ms)
        ledgers = split_position(applied)[0] - split_position(self._flushed)[0]
        if (
            waited_ms >= FLUSH_EVERY_MS
            or (ledgers and waited_ms >= FLUSH_TO_TRIM_MS)
            or shard.contents.records_since_flush >= FLUSH_RECORDS
            or ledgers >= FLUSH_LEDGERS
        ):
            self._flushed_at_ms = now_ms
            shard.contents.records_since_flush = 0
            self._flushing = asyncio.get_running_loop().create_task(
                self._guarded(self._flush_now(applied))
            )

    async def _flush_now(self, applied: int) -> None:
        try:
            await asyncio.to_thread(self._shard.index.store.flush)
            self._flushed = applied
        finally:
            self._flushing = None
