"""Sweeping that is written down: what several nodes remove from their indexes must be the same to the byte.

The sweeper of a single server looks at its clock, and goes on where it stopped. Here all of that is in the record, and what
is removed depends on it and on the index alone. So every node that applies the record removes the same.
"""

from __future__ import annotations

from typing import Any

from ..core.records import Swept
from ..limits import JOB_TTL_MS
from ..model import IDS_PER_MS
from . import keys
from .facts import IndexFacts, decode_job
from .keys import SLOT_MS
from .live import LiveBytes
from .store import Store
from .sweeper import floor_of

JOBS_EVERY_MS = 3_600_000
"""How often jobs are looked at: all of them, in turns."""

_FIRST_JOB = b"J"


class Due:
    """What the leader looks at to know whether there is something to sweep, and from where on.

    New slots lie in the future, or are slot 0: where the last sweep ended, the next can begin. Whoever is new begins at
    the first.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._first_slot = 1
        self._job: bytes | None = _FIRST_JOB
        self._jobs_due_ms = 0

    def look(self, now_ms: int, budget: int) -> Swept | None:
        """What to write down; None: nothing is due."""
        now_slot = now_ms // SLOT_MS
        job = self._job if self._jobs_are_due(now_ms) else None
        found = job is not None or self._has(b"X", b"X")
        found = found or self._slot_in(0, 1) or self._slot_in(self._first_slot, now_slot + 1)
        if not found:
            self._first_slot = max(1, now_slot)
            return None
        record = Swept(0, 0, now_ms, budget, self._first_slot, job)
        if job is not None:
            self._pass_jobs(now_ms, budget)
        return record

    def _jobs_are_due(self, now_ms: int) -> bool:
        if self._jobs_due_ms - now_ms > JOBS_EVERY_MS:  # the clock went back
            self._jobs_due_ms = 0
        return now_ms >= self._jobs_due_ms and self._has(_FIRST_JOB, self._job or _FIRST_JOB)

    def _pass_jobs(self, now_ms: int, budget: int) -> None:
        for number, (key, _) in enumerate(self._store.scan(_FIRST_JOB, self._job)):
            if number == budget:
                self._job = key
                return
        self._job = _FIRST_JOB
        self._jobs_due_ms = now_ms + JOBS_EVERY_MS

    def _has(self, prefix: bytes, start: bytes) -> bool:
        return next(self._store.scan(prefix, start), None) is not None

    def _slot_in(self, first: int, end: int) -> bool:
        found = next(self._store.scan(b"E", keys.slot_key(first, 0, 0)), None)
        return found is not None and keys.split_slot(found[0])[0] < end


def sweep(
    store: Store, facts: IndexFacts, live: LiveBytes, batch: Any, record: Swept
) -> set[tuple[int, int]]:
    """Remove what the record says. Nothing may be in the batch that this could find. The partitions whose slots are
    gone."""
    it = _Sweep(store, facts, live, batch, record)
    it.jobs()
    it.deleted()
    it.slots(0, 0)
    it.slots(record.first_slot, record.now_ms // SLOT_MS)
    return it.partitions


class _Sweep:
    """One sweep. A partition is looked at once: what was removed from it is still in the database meanwhile."""

    def __init__(
        self, store: Store, facts: IndexFacts, live: LiveBytes, batch: Any, record: Swept
    ) -> None:
        self._store = store
        self._facts = facts
        self._live = live
        self._batch = batch
        self._now_ms = record.now_ms
        self._budget = record.budget
        self._left = record.budget
        self._job = record.first_job
        self.partitions: set[tuple[int, int]] = set()

    def jobs(self) -> None:
        """Forget jobs that nobody has used for long."""
        if self._job is None:
            return
        for number, (key, value) in enumerate(self._store.scan(_FIRST_JOB, self._job)):
            if number == self._budget:
                break
            if decode_job(value).used_ms + JOB_TTL_MS <= self._now_ms:
                self._batch.delete(key)

    def deleted(self) -> None:
        """Remove what deleted streams held."""
        for key, _ in self._store.scan(b"X"):
            if self._left <= 0:
                return
            prefix = keys.stream_prefix(keys.number_of(key))
            removed, end = self._remove(prefix, prefix, None)
            if end is None:
                for kind in (b"C", b"A"):
                    self._store.delete_prefix(self._batch, prefix.replace(b"T", kind, 1))
                self._batch.delete(key)
            self._left -= max(removed, 1)

    def slots(self, first: int, last: int) -> None:
        """Look at the partitions of these slots."""
        for key, _ in self._store.scan(b"E", keys.slot_key(first, 0, 0)):
            slot, stream, partition = keys.split_slot(key)
            if self._left <= 0 or slot > last:
                return
            if (stream, partition) not in self.partitions:
                self.partitions.add((stream, partition))
                self._left -= self._partition(key, slot, stream, partition)

    def _partition(self, due: bytes, slot: int, stream_id: int, partition: int) -> int:
        removed = 0
        stream = self._facts.stream(stream_id)
        if stream is not None:
            floor = floor_of(stream.purged_before, stream.ttl_ms, self._now_ms)
            prefix = keys.partition_prefix(stream_id, partition)
            removed, end = self._remove(prefix, prefix, floor)
            if removed and removed == self._left:
                return removed  # the slot stays: there may be more
            if end is not None:
                oldest = keys.split_transaction(end)[2]
                dies_in = (oldest // IDS_PER_MS + stream.ttl_ms) // SLOT_MS + 1
                again = keys.slot_key(max(dies_in, slot + 1), stream_id, partition)
                self._batch.put(again, b"")
        self._batch.delete(due)
        return max(removed, 1)

    def _remove(self, first: bytes, prefix: bytes, floor: int | None) -> tuple[int, bytes | None]:
        """Delete what begins with `prefix`, up to the id `floor`. How many, and the key of the first that stays."""
        removed = 0
        for key, value in self._store.scan(prefix, first):
            dead = floor is None or int.from_bytes(key[11:], "big") < floor
            if not dead or removed == self._left:
                if removed:
                    self._batch.delete_range(first, key)
                return removed, key
            for position, size in keys.places_of(value):
                self._live.remove(position, size)
            removed += 1
        if removed:
            self._batch.delete_range(first, keys.after_prefix(prefix))
        return removed, None
