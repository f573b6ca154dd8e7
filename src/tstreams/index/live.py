"""How much of each ledger is still referred to: what says when a ledger can go."""

from __future__ import annotations

from typing import Any

from ..ledger.port import OFFSET_BITS
from . import keys
from .store import Store


class LiveBytes:
    """Payload bytes per ledger: alive, and ever written. Changes go into the batch that caused them.

    Only records with a payload count: the others are in the index as soon as they are applied, and nobody
    reads them again.
    """

    def __init__(self, store: Store) -> None:
        self._live: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._dirty: set[int] = set()
        for key, value in store.scan(b"L"):
            ledger = keys.number_of(key)
            self._live[ledger], self._written[ledger] = keys.unpack_live(value)

    def add(self, position: int, size: int) -> None:
        """A record was written and is referred to."""
        ledger = position >> OFFSET_BITS
        self._live[ledger] = self._live.get(ledger, 0) + size
        self._written[ledger] = self._written.get(ledger, 0) + size
        self._dirty.add(ledger)

    def remove(self, position: int, size: int) -> None:
        """A record is referred to no more."""
        ledger = position >> OFFSET_BITS
        left = self._live[ledger] - size
        assert left >= 0, f"ledger {ledger:x} has fewer than no live bytes"
        self._live[ledger] = left
        self._dirty.add(ledger)

    def total(self) -> int:
        """Payload bytes of all ledgers that are referred to."""
        return sum(self._live.values())

    def live(self, ledger: int) -> int:
        """Payload bytes of a ledger that are referred to."""
        return self._live.get(ledger, 0)

    def dead(self, ledger: int) -> int:
        """Payload bytes of a ledger that were written and are referred to no more."""
        return self._written.get(ledger, 0) - self._live.get(ledger, 0)

    def forget(self, ledgers: list[int], batch: Any) -> None:
        """Ledgers are deleted."""
        for ledger in ledgers:
            if self._live.pop(ledger, None) is not None:
                del self._written[ledger]
                batch.delete(keys.ledger_key(ledger))
                self._dirty.discard(ledger)

    def write(self, batch: Any) -> None:
        """Put what has changed into a batch."""
        for ledger in self._dirty:
            value = keys.LIVE.pack(self._live[ledger], self._written[ledger])
            batch.put(keys.ledger_key(ledger), value)
        self._dirty.clear()
