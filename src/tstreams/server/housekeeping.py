"""What a shard does by itself: it lets time pass, removes the dead, flushes the index, gives room back."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from ..errors import Error
from ..ledger.port import DiskFull, split_position
from .compactor import Compactor
from .local import LocalShard

log = logging.getLogger("tstreams.server")

TICK_S = 0.1
"""How often leases are looked at: an expired transaction holds readers back so much longer at most."""

RECLAIM_EVERY_MS = 1_000
"""How often the dead are looked for."""

SWEEP_BUDGET = 2_000
"""Transactions removed from the index at a time: a few milliseconds."""

FLUSH_EVERY_MS = 10_000
FLUSH_RECORDS = 100_000
FLUSH_LEDGERS = 2
"""The index is flushed when any of these is over: it bounds what has to be replayed after a crash."""

FLUSH_TO_TRIM_MS = 3_000
"""Ledgers can go only after a flush; it comes this soon if there are some that could."""

ROLL_AFTER_MS = 15_000
"""The current ledger is closed when something in it has died, but not more often than this."""


AGE_EVERY_MS = 10_000
"""How often what streams have done begins to count half as much, when the busiest are looked for."""


class Housekeeping:
    """The background work of one shard, on its own loop; what takes long runs in threads."""

    def __init__(self, local: LocalShard) -> None:
        self._local = local
        self._shard = shard = local.shard
        self._compactor = Compactor(shard)
        self._threads = ThreadPoolExecutor(2, f"shard-{shard.number}")
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Future[None] | None = None
        self._preparing: asyncio.Future[None] | None = None
        self._reclaimed_at_ms = 0
        self._aged_at_ms = shard.clock()
        self._dead: list[int] = []
        """Ledgers in which nothing is alive, since they were looked at last."""
        self._flushed_at_ms = shard.clock()
        self._flushed = shard.index.applied
        self._stopped = False

    def start(self) -> None:
        """Begin, on the running loop."""
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    async def stop(self) -> None:
        """End, and wait for what runs in threads."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for future in (self._flushing, self._preparing):
            if future is not None:
                await asyncio.wait([future])
        self._threads.shutdown()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        shard = self._shard
        if shard.failed is not None:  # what was begun or found out is of no use after a recovery
            self._compactor.reset()
            self._dead = []
        if self._flushing is None:
            self._local.look_at_disk()  # it may open the index again, which nobody may be using then
        if shard.failed is not None:
            return
        try:
            self._work(shard.clock())
        except DiskFull as error:
            shard.condition.note_full(error.message)
        except Error as error:
            shard.fail(error)

    def _work(self, now_ms: int) -> None:
        shard = self._shard
        shard.tick()
        if abs(now_ms - self._aged_at_ms) >= AGE_EVERY_MS:
            self._aged_at_ms = now_ms
            shard.metrics.age(now_ms)
        if abs(now_ms - self._reclaimed_at_ms) >= RECLAIM_EVERY_MS:
            self._reclaim(now_ms)
        elif self._compactor.is_busy:
            self._compact()
        if self._flushing is None and self._flush_is_due(now_ms):
            self._begin_flush(now_ms)
        if self._preparing is None:
            log_ = self._local.log
            log_.relax(now_ms, scarce=shard.full is not None)
            wanted = log_.spare_bytes_wanted
            if wanted and shard.full is None and shard.condition.room.fits(4 * wanted):
                self._begin_prepare()

    def _reclaim(self, now_ms: int) -> None:
        """Find what has died. It looks at every ledger, of which there may be thousands."""
        shard = self._shard
        if shard.index.sweeper.sweep(now_ms, SWEEP_BUDGET) < SWEEP_BUDGET:
            self._reclaimed_at_ms = now_ms  # else go on with the next tick
        self._dead = self._dead_ledgers()
        current = self._local.log.ledgers()[-1]
        died = shard.index.live.dead(current.id) > 0
        if died and abs(now_ms - current.created_ms) >= ROLL_AFTER_MS:
            self._local.log.roll(now_ms)
        self._compact()

    def _dead_ledgers(self) -> list[int]:
        live, metrics = self._shard.index.live, self._shard.metrics
        ledgers = self._local.log.ledgers()
        metrics.ledgers, metrics.ledger_bytes = len(ledgers), sum(it.size_bytes for it in ledgers)
        return [it.id for it in ledgers if it.closed and not live.live(it.id)]

    def _compact(self) -> None:
        shard = self._shard
        if shard.full is None:
            self._compactor.step()
        else:  # little can be copied, but that may be what makes room
            self._compactor.step(shard.condition.room.look()[0] // 2)

    def _flush_is_due(self, now_ms: int) -> bool:
        shard = self._shard
        if not shard.condition.can_flush():
            return False  # RocksDB would stop for good; the log has everything
        waited_ms = abs(now_ms - self._flushed_at_ms)
        # On a full disk, as long as there is room for it.
        to_trim = self._dead or (shard.full is not None and shard.contents.records_since_flush)
        if to_trim and waited_ms >= FLUSH_TO_TRIM_MS:
            return True
        if shard.index.applied == self._flushed:
            return False
        ledger, _ = split_position(shard.index.applied)
        return (
            waited_ms >= FLUSH_EVERY_MS
            or shard.contents.records_since_flush >= FLUSH_RECORDS
            or ledger - split_position(self._flushed)[0] >= FLUSH_LEDGERS
        )

    def _begin_flush(self, now_ms: int) -> None:
        """Flush in a thread. What is dead now is dead in what the flush makes durable."""
        shard = self._shard
        dead, self._dead = self._dead, []
        self._local.log.sync()  # the index must not be ahead of the log after a power failure
        shard.index.reach(self._local.log.end)
        applied = shard.index.applied
        shard.contents.records_since_flush = 0
        self._flushed_at_ms = now_ms
        loop = asyncio.get_running_loop()
        self._flushing = loop.run_in_executor(self._threads, shard.index.store.flush)

        def flushed(future: asyncio.Future[None]) -> None:
            self._flushing = None
            error = future.exception()
            if isinstance(error, Error):
                shard.fail(error)
                return
            if error is not None:
                raise error
            self._flushed = applied
            if not self._stopped:
                self._trim([it for it in dead if it < split_position(applied)[0]])

        self._flushing.add_done_callback(flushed)

    def _trim(self, ledgers: list[int]) -> None:
        if not ledgers:
            return
        try:
            self._local.log.trim(ledgers)
        except Error as error:  # it may have been a sync that failed
            self._shard.fail(error)
            return
        self._shard.index.forget_ledgers(ledgers)
        log.debug("deleted ledgers", extra={"tstreams": {"ledgers": ledgers}})

    def _begin_prepare(self) -> None:
        loop = asyncio.get_running_loop()
        self._preparing = loop.run_in_executor(self._threads, self._local.log.prepare)

        def prepared(future: asyncio.Future[None]) -> None:
            self._preparing = None
            if (error := future.exception()) is not None:
                log.error("preparing a ledger failed: %s", error)

        self._preparing.add_done_callback(prepared)
