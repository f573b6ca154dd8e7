"""Removes what has died: transactions whose ttl is over or that were purged, and deleted streams.

It looks at what is due and at nothing else. What has died is invisible from that moment on, whenever it
is removed here.
"""

from __future__ import annotations

from typing import Any

from ..limits import JOB_TTL_MS
from ..model import IDS_PER_MS
from . import keys
from .facts import IndexFacts, decode_job
from .keys import SLOT_MS
from .live import LiveBytes
from .store import Store


def floor_of(purged_before: int, ttl_ms: int, now_ms: int) -> int:
    """The first id of a stream that is not dead."""
    return max(purged_before, (now_ms - ttl_ms) * IDS_PER_MS, 0)


_FIRST_SLOT = keys.slot_key(0, 0, 0)
"""Slot 0 holds what has to be looked at as soon as possible."""


_FIRST_JOB = b"J"
_JOBS_EVERY_MS = 3_600_000


class Sweeper:
    """Removes the dead, so many at a time that nobody has to wait."""

    def __init__(self, store: Store, facts: IndexFacts, live: LiveBytes) -> None:
        self._store = store
        self._facts = facts
        self._live = live
        self._cursor = keys.slot_key(1, 0, 0)
        self._job_cursor = _FIRST_JOB
        self._jobs_due_ms = 0

    def sweep(self, now_ms: int, budget: int) -> int:
        """Remove up to about `budget` transactions; how many it were. Less than that: all is done."""
        self._sweep_jobs(now_ms, budget)
        removed = self._sweep_deleted(budget)
        for start in (_FIRST_SLOT, self._cursor):
            for due in self._due(start, now_ms, budget - removed):
                if removed >= budget:
                    return removed
                removed += self._sweep_partition(due, now_ms, budget - removed)
        if removed < budget:
            # New entries lie in the future, or in slot 0. Starting here, what was removed before need
            # not be skipped again each time.
            self._cursor = keys.slot_key(now_ms // SLOT_MS, 0, 0)
        return removed

    def _sweep_jobs(self, now_ms: int, budget: int) -> None:
        """Forget jobs that nobody has used for long. Looks at all of them once an hour, in turns."""
        if now_ms < self._jobs_due_ms:
            return
        batch = self._store.batch()
        for number, (key, value) in enumerate(self._store.scan(_FIRST_JOB, self._job_cursor)):
            if number == budget:
                self._job_cursor = key
                break
            if decode_job(value).used_ms + JOB_TTL_MS <= now_ms:
                batch.delete(key)
        else:
            self._job_cursor = _FIRST_JOB
            self._jobs_due_ms = now_ms + _JOBS_EVERY_MS
        self._store.write(batch)

    def _due(self, start: bytes, now_ms: int, limit: int) -> list[bytes]:
        """The slots that are due from this key on; of slot 0 only, if it is there that we start."""
        last_slot = 0 if start == _FIRST_SLOT else now_ms // SLOT_MS
        due: list[bytes] = []
        for key, _ in self._store.scan(b"E", start):
            if len(due) >= limit or keys.split_slot(key)[0] > last_slot:
                break
            due.append(key)
        return due

    def _sweep_partition(self, due: bytes, now_ms: int, budget: int) -> int:
        """Remove what has died of the partition that a slot names; 1 at least, for the look."""
        slot, stream_id, partition = keys.split_slot(due)
        batch = self._store.batch()
        removed = 0
        stream = self._facts.stream(stream_id)
        if stream is not None:
            floor = floor_of(stream.purged_before, stream.ttl_ms, now_ms)
            first = keys.transaction_key(b"T", stream_id, partition, 0)
            removed, end = self._remove(batch, first, floor, budget)
            if removed == budget:
                self._write(batch)
                return removed  # the slot stays: there may be more
            oldest = None if end is None else keys.split_transaction(end)
            if oldest is not None and oldest[:2] == (stream_id, partition):
                dies_in = (oldest[2] // IDS_PER_MS + stream.ttl_ms) // SLOT_MS + 1
                batch.put(keys.slot_key(max(dies_in, slot + 1), stream_id, partition), b"")
        batch.delete(due)
        self._write(batch)
        return max(removed, 1)

    def _sweep_deleted(self, budget: int) -> int:
        """Remove what deleted streams held."""
        removed = 0
        for key, _ in self._store.scan(b"X"):
            if removed >= budget:
                break
            batch = self._store.batch()
            prefix = keys.stream_prefix(keys.number_of(key))
            allowed = budget - removed
            count, _ = self._remove(batch, prefix, None, allowed)
            if count < allowed:
                for kind in (b"C", b"A"):
                    self._store.delete_prefix(batch, prefix.replace(b"T", kind, 1))
                batch.delete(key)
            self._write(batch)
            removed += max(count, 1)
        return removed

    def _remove(
        self, batch: Any, first: bytes, floor: int | None, budget: int
    ) -> tuple[int, bytes | None]:
        """Delete transactions from `first` on: those below the id `floor` of one partition, or all of
        a stream. How many, and the key of the first that stays."""
        prefix = first[:11] if floor is not None else first
        iterator = self._store.iterator()
        iterator.seek(first)
        removed = 0
        end: bytes | None = None
        while iterator.valid():
            key: bytes = iterator.key()
            if not key.startswith(prefix):
                break
            if removed == budget or (
                floor is not None and int.from_bytes(key[11:], "big") >= floor
            ):
                end = key
                break
            for position, size in keys.places_of(iterator.value()):
                self._live.remove(position, size)
            removed += 1
            iterator.next()
        self._store.check(iterator)
        if removed:
            batch.delete_range(first, end if end is not None else keys.after_prefix(prefix))
        return removed, end

    def _write(self, batch: Any) -> None:
        self._live.write(batch)
        self._store.write(batch)
