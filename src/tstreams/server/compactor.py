"""Compaction: what little is alive in an old ledger is copied forward, so that the ledger can be deleted."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

from ..core.records import Filled, InstantMade, ItemsSent, Moved, decode_record
from ..errors import Corrupt
from ..index import Index
from ..ledger.port import LedgerInfo, Readable, position_of
from ..limits import MIB
from .shard import Shard

log = logging.getLogger("tstreams.server")

STEP_BYTES = 2 * MIB
"""How much of a ledger is looked through at a time: nobody waits longer than that takes."""

_ALIVE_NUMERATOR, _ALIVE_DENOMINATOR = 2, 3
"""A ledger is compacted when at most two thirds of its payload are alive: for each byte that is copied half
a byte is freed, at least."""


class Compactor:
    """Copies forward what lives in one ledger after the other, a step at a time."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._steps: Iterator[None] | None = None
        self._live_bytes = 0
        """What was alive in the ledger that is being compacted."""
        self._damaged: set[int] = set()

    def step(self, live_bytes_max: int = sys.maxsize) -> bool:
        """Do a little; False if there is nothing to do. Of ledgers in which more is alive than this
        nothing is copied: there is no room for it."""
        if self._steps is None or self._live_bytes > live_bytes_max:
            ledger = self._choose(self._shard.index, self._shard.log, live_bytes_max)
            if ledger is None:
                self._steps = None
                return False
            self._live_bytes = self._shard.index.live.live(ledger.id)
            self._steps = self._compact(ledger)
        try:
            next(self._steps)
        except StopIteration:
            self._steps = None
        return True

    @property
    def is_busy(self) -> bool:
        """Whether a ledger is being compacted."""
        return self._steps is not None

    def reset(self) -> None:
        """Forget what was begun."""
        self._steps = None

    def _choose(self, index: Index, log_: Readable, live_bytes_max: int) -> LedgerInfo | None:
        """The ledger in which most is dead, if that is enough."""
        best, most = None, 0
        for ledger in log_.ledgers():
            live, dead = index.live.live(ledger.id), index.live.dead(ledger.id)
            if not ledger.closed or not 0 < live <= live_bytes_max or ledger.id in self._damaged:
                continue
            if live * _ALIVE_DENOMINATOR <= (live + dead) * _ALIVE_NUMERATOR and dead > most:
                best, most = ledger, dead
        return best

    def _compact(self, ledger: LedgerInfo) -> Iterator[None]:
        first, end = position_of(ledger.id, 0), position_of(ledger.id + 1, 0)
        seen = 0
        try:
            for _, group in self._shard.log.scan(first, end):
                for position, data in group:
                    self._move_if_alive(position, data)
                    seen += len(data)
                if seen >= STEP_BYTES:
                    seen = 0
                    yield
        except FileNotFoundError:
            return  # the rest of it died meanwhile, and it was deleted
        except Corrupt as error:
            self._damaged.add(ledger.id)
            log.error("a ledger cannot be compacted: %s", error)
            return

    def _move_if_alive(self, position: int, data: memoryview) -> None:
        record, start = decode_record(data)
        if not isinstance(record, Filled | InstantMade | ItemsSent | Moved):
            return
        number = self._shard.index.applier.number_of_batch(
            record.stream, record.partition, record.transaction, position
        )
        if number is not None:
            moved = Moved(0, 0, record.transaction, record.stream, record.partition, number)
            self._shard.move(moved, bytes(data[start:]))
