"""Item batches: from the cache of recent ones, else from the ledger."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ..core.records import LENGTH_BYTES
from ..items import Buffer
from ..ledger.port import Readable
from .metrics import Metrics


class Payloads:
    """Reads batches. Those that were written last are still in memory.

    Invariant: `_cache` is in the order of writing, and holds at most `cache_bytes` (or one batch).
    """

    def __init__(self, log: Readable, cache_bytes: int, metrics: Metrics) -> None:
        self._log = log
        self._cache: OrderedDict[int, Buffer] = OrderedDict()
        self._cache_bytes = 0
        self._cache_bytes_max = cache_bytes
        self._metrics = metrics

    @property
    def cached_bytes(self) -> int:
        """What is in memory."""
        return self._cache_bytes

    def remember(self, position: int, batch: Buffer) -> None:
        """A batch was written."""
        self._cache[position] = batch
        self._cache_bytes += len(batch)
        while self._cache_bytes > self._cache_bytes_max and len(self._cache) > 1:
            self._cache_bytes -= len(self._cache.popitem(last=False)[1])

    def read(self, places: Sequence[tuple[int, int]]) -> list[Buffer]:
        """The batches in the records at these (position, size). `Corrupt` names what is damaged."""
        cache = self._cache
        found: list[Buffer | None] = [cache.get(position) for position, _ in places]
        missing = [place for place, batch in zip(places, found, strict=True) if batch is None]
        self._metrics.cache_hits += len(found) - len(missing)
        if not missing:
            return found  # type: ignore[return-value]
        self._metrics.cache_misses += len(missing)
        records = iter(self._log.read_many(missing))
        return [batch_of(next(records)) if batch is None else batch for batch in found]


def batch_of(record: memoryview) -> memoryview:
    """The batch that follows a record's header."""
    return record[LENGTH_BYTES + int.from_bytes(record[:LENGTH_BYTES], "little") :]
