"""An index on its real database, and a log that exists only as positions: for tests of the index."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from tstreams.core.facts import Session
from tstreams.core.records import AnyRecord, InstantMade, StreamCreated
from tstreams.index import Index, Store, keys
from tstreams.ledger.port import position_of, split_position
from tstreams.model import ID_MAX, IDS_PER_MS

HOUR_MS = 3_600_000
SIZE = 100
"""Bytes of each record with items."""


class Book:
    """An index, and a log that exists only as positions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = Index(Store(path))
        self.ledger = 1
        self.records: list[tuple[AnyRecord, int]] = []

    def apply(self, *records: AnyRecord, sessions: tuple[Session, ...] = ()) -> list[int]:
        """Apply records as one group; their positions."""
        positions = []
        for record in records:
            positions.append(position_of(self.ledger, 512 * (len(self.records) + 1)))
            self.records.append((record, positions[-1]))
        self._apply(list(zip(records, positions, strict=True)), sessions)
        return positions

    def _apply(
        self, records: list[tuple[AnyRecord, int]], sessions: tuple[Session, ...] = ()
    ) -> None:
        last_id = max(
            [self.index.last_id, *(getattr(record, "transaction", 0) for record, _ in records)]
        )
        entries = [(record, position, SIZE) for record, position in records]
        self.index.apply(entries, records[-1][1] + 512, last_id, self.index.last_number, sessions)

    def crash(self) -> None:
        """Lose what was not flushed."""
        copy = self.path.with_name(self.path.name + "-after-the-crash")
        shutil.copytree(self.path, copy)  # what a database that was not closed leaves behind
        self.index.store.close()
        self.path = copy
        self.index = Index(Store(copy))

    def replay(self) -> None:
        """Take from the log what the index has not."""
        missing = [it for it in self.records if it[1] >= self.index.applied]
        if missing:
            self._apply(missing)

    def contents(self) -> dict[bytes, bytes]:
        """All there is."""
        return dict(self.index.store.scan(b""))

    def kinds(self) -> Counter[str]:
        """How many keys there are of each kind."""
        return Counter(chr(key[0]) for key in self.contents())

    def ids(self, stream: int, partition: int = 0) -> list[int]:
        """The transactions of a partition."""
        return [it for it, _ in self.index.facts.transactions(stream, partition, 0, ID_MAX)]

    def live(self) -> dict[int, int]:
        """Live bytes of each ledger, counted anew, and the same as the index says."""
        counted: Counter[int] = Counter()
        for _, value in self.index.store.scan(b"T"):
            for position, size in keys.places_of(value):
                counted[split_position(position)[0]] += size
        for _, value in self.index.store.scan(b"D"):
            position, size, _ = keys.PLACE_AND_COUNT.unpack(value)
            counted[split_position(position)[0]] += size
        for ledger in {*counted, *range(1, self.ledger + 1)}:
            assert self.index.live.live(ledger) == counted[ledger]
        return dict(counted)

    def sweep_all(self, now_ms: int, budget: int = 10) -> list[int]:
        """Sweep until nothing is left to be done: how much each step did."""
        steps = []
        while True:
            steps.append(self.index.sweeper.sweep(now_ms, budget))
            assert len(steps) < 1000, "the sweeper does not come to an end"
            if steps[-1] < budget:
                return steps


def stream(number: int, name: str, partitions: int = 1, ttl_ms: int = HOUR_MS) -> StreamCreated:
    return StreamCreated(0, 0, number, name, partitions, ttl_ms, "", None)


def instant(at_ms: int, of_stream: int, partition: int = 0, counter: int = 0) -> InstantMade:
    return InstantMade(0, 0, at_ms * IDS_PER_MS + counter, of_stream, partition, 3)
