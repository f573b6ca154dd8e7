"""A database like RocksDB without a write-ahead log: a crash takes it back to a batch it once held.

What `flush` has made durable stays. Of what came later a crash keeps any number of whole batches, in
order: RocksDB flushes by itself when its memory is full.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from tstreams.index.keys import after_prefix

Contents = dict[bytes, bytes]


class SimulatedDatabase:
    """What lies on the disk. `states` begins with what is durable and ends with what is in memory."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.step = step
        self.states: list[Contents] = [{}]
        self.fails: Exception | None = None
        """What writing fails with, as it does when there is no room for the database's own files."""

    def flushed(self, state: Contents) -> None:
        """This state, which the database was in since the last flush, is durable from now on."""
        at = next(n for n, it in enumerate(self.states) if it is state)
        del self.states[:at]

    def close_badly(self, seed: int) -> None:
        """Be closed after a failure: what was not flushed may be lost."""
        self.lose_power(random.Random(seed))

    def lose_power(self, rng: random.Random) -> None:
        kept = 0 if rng.random() < 0.5 else rng.randrange(len(self.states))
        self.states = [self.states[kept]]


class SimulatedBatch:
    """Changes that are made together."""

    def __init__(self) -> None:
        self.changes: list[Callable[[Contents], None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.changes.append(lambda contents: contents.update({key: value}))

    def delete(self, key: bytes) -> None:
        def delete(contents: Contents) -> None:
            contents.pop(key, None)

        self.changes.append(delete)

    def delete_range(self, first: bytes, end: bytes) -> None:
        def delete(contents: Contents) -> None:
            for key in [key for key in contents if first <= key < end]:
                del contents[key]

        self.changes.append(delete)


class SimulatedIterator:
    """Sees the database as it was when it was made."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._keys = sorted(contents)
        self._at = len(self._keys)

    def seek(self, key: bytes) -> None:
        self._at = bisect_left(self._keys, key)

    def seek_for_prev(self, key: bytes) -> None:
        at = bisect_right(self._keys, key) - 1
        self._at = at if at >= 0 else len(self._keys)

    def valid(self) -> bool:
        return self._at < len(self._keys)

    def key(self) -> bytes:
        return self._keys[self._at]

    def value(self) -> bytes:
        return self._contents[self._keys[self._at]]

    def next(self) -> None:
        self._at += 1

    def prev(self) -> None:
        self._at = self._at - 1 if self._at > 0 else len(self._keys)

    def status(self) -> None:
        """Reading never fails here."""


class SimulatedStore:
    """The database as an index has it open: the methods of `tstreams.index.store.Store`."""

    def __init__(self, database: SimulatedDatabase) -> None:
        self._database = database
        self.is_open = True

    @property
    def contents(self) -> Contents:
        assert self.is_open, "the index is used after it was closed"
        return self._database.states[-1]

    def get(self, key: bytes) -> bytes | None:
        return self.contents.get(key)

    @staticmethod
    def batch() -> SimulatedBatch:
        return SimulatedBatch()

    def write(self, batch: SimulatedBatch) -> None:
        self._database.step()
        if self._database.fails is not None:
            raise self._database.fails
        contents = dict(self.contents)
        for change in batch.changes:
            change(contents)
        self._database.states.append(contents)

    def iterator(self) -> SimulatedIterator:
        return SimulatedIterator(self.contents)

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        iterator = self.iterator()
        iterator.seek(start or prefix)
        while iterator.valid() and iterator.key().startswith(prefix):
            yield iterator.key(), iterator.value()
            iterator.next()

    def scan_keys(self, prefix: bytes, start: bytes) -> Iterator[bytes]:
        return (key for key, _ in self.scan(prefix, start))

    def number(self, name: str) -> int:
        """What RocksDB says of itself: nothing."""
        return 0

    def check(self, iterator: SimulatedIterator) -> None:
        iterator.status()

    @staticmethod
    def delete_prefix(batch: SimulatedBatch, prefix: bytes) -> None:
        batch.delete_range(prefix, after_prefix(prefix))

    def flush(self) -> None:
        """Durable at once, but the power may fail before or after."""
        self._database.step()
        self._database.flushed(self.contents)
        self._database.step()

    def close(self) -> None:
        self.is_open = False
