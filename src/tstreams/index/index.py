"""The index of a shard, put together."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.facts import Session
from ..core.records import AnyRecord
from . import keys
from .applier import Applier
from .facts import IndexFacts
from .listing import Listing
from .live import LiveBytes
from .store import Store
from .sweeper import Sweeper


class Index:
    """All that a shard knows durably.

    `applied` is the log position up to which the facts are those of the log; what was written before the
    last `flush` survives a crash, always up to one such position.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        try:
            head = self.store.get(keys.POSITION)
            self.applied, self.last_id, self.last_number = (
                (0, 0, 0) if head is None else keys.unpack_head(head)
            )
            self.facts = IndexFacts(self.store)
            self.listing = Listing(self.store)
            self.live = LiveBytes(self.store)
            self.applier = Applier(self.store, self.facts, self.live)
            self.sweeper = Sweeper(self.store, self.facts, self.live)
        except BaseException:
            self.store.close()
            raise

    def apply(
        self,
        entries: Iterable[tuple[AnyRecord, int, int]],
        end: int,
        last_id: int,
        last_number: int,
        sessions: Iterable[Session],
    ) -> None:
        """Take records of the log: see `Applier.apply`."""
        self.applier.apply(entries, end, last_id, last_number, sessions)
        self.applied, self.last_id, self.last_number = end, last_id, last_number

    def reach(self, end: int) -> None:
        """The log ends here, and all before it was applied: a new ledger was begun."""
        if end > self.applied:
            batch = self.store.batch()
            batch.put(keys.POSITION, keys.HEAD.pack(end, self.last_id, self.last_number))
            self.store.write(batch)
            self.applied = end

    def snapshot(self) -> tuple[int, int, int]:
        """The last whole snapshot in the log: the position that it is of, where it ends, its bytes; 0 if there is none."""
        value = self.store.get(keys.SNAPSHOT)
        return (0, 0, 0) if value is None else keys.unpack_snapshot(value)

    def forget_ledgers(self, ledgers: list[int]) -> None:
        """Ledgers were deleted from the log."""
        batch = self.store.batch()
        self.live.forget(ledgers, batch)
        self.store.write(batch)
