"""An engine in memory: a sequence that all engines of a test share, and faults between them and it.

Requests and answers are lost, requests arrive late, proposals are under way for a while and then happen or not, and who
answers may not be up to date. Without faults it is just an engine.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tstreams.ledger.engine import (
    READ_BYTES,
    Draft,
    EndMoved,
    EngineFull,
    EngineUnavailable,
    Entry,
    LedgerEnded,
    Place,
)


@dataclass
class Faults:
    """How often things go wrong: chances between 0 and 1."""

    lost_request: float = 0.0
    lost_answer: float = 0.0
    late_request: float = 0.0
    """It arrives when its sender has given up on it."""
    undecided: float = 0.0
    """It is refused or taken by the leader, who dies: whether it happens shows later, and until then the end has moved."""
    stale: float = 0.0
    """Who answers does not have the last entries."""
    ended: float = 0.0
    """The engine takes nothing more into the ledger that is written to."""


@dataclass
class Sequence:
    """What the engines agree on."""

    rng: random.Random = field(default_factory=lambda: random.Random(1))
    entries: list[Entry] = field(default_factory=list)
    place: Place = 0
    room_bytes: int = 1 << 60
    watchers: set[asyncio.Event] = field(default_factory=set)
    late: list[tuple[Draft, Place]] = field(default_factory=list)
    undecided: tuple[Draft, Place] | None = None
    ended: set[int] = field(default_factory=set)

    def append(self, draft: Draft, expected: Place) -> Place:
        if self.undecided is not None or self.place != expected:
            raise EndMoved(f"wrong end: {self.place}")
        if draft.offset and draft.ledger_id in self.ended:
            raise LedgerEnded(f"ledger {draft.ledger_id:x} has ended")
        if len(draft.data) > self.room_bytes:
            raise EngineFull("no room")
        before = self.place
        self.place += 1 + len(draft.data) // 4096  # as if large ones were several messages
        entry = Entry(
            before, self.place, draft.ledger_id, draft.offset, draft.mark, bytes(draft.data)
        )
        self.entries.append(entry)
        for event in self.watchers:
            event.set()
        return self.place

    def decide(self, happens: bool) -> None:
        """What was undecided is in the sequence now, or never will be."""
        if self.undecided is not None:
            (draft, expected), self.undecided = self.undecided, None
            if happens:
                with suppress(LedgerEnded):
                    self.append(draft, expected)

    def time_passes(self) -> None:
        """Something of what is under way arrives."""
        if self.undecided is not None and self.rng.random() < 0.3:
            self.decide(self.rng.random() < 0.5)
        if self.late and self.rng.random() < 0.3:
            draft, expected = self.late.pop(self.rng.randrange(len(self.late)))
            with suppress(EndMoved, EngineFull, LedgerEnded):
                self.append(draft, expected)


class MemoryEngine:
    """One node's way to the sequence."""

    tells_again = True

    def __init__(self, sequence: Sequence, faults: Faults | None = None) -> None:
        self.sequence = sequence
        self.faults = faults or Faults()
        self.cut_off = False
        """Whether nothing gets through."""
        self.attempts = 0

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.sequence.rng.random() < chance

    async def _travel(self) -> None:
        await asyncio.sleep(0)
        self.sequence.time_passes()
        if self.cut_off or self._happens(self.faults.lost_request):
            raise EngineUnavailable("the request is lost")

    def _seen(self) -> list[Entry]:
        """What the one who answers has."""
        entries = self.sequence.entries
        if self._happens(self.faults.stale):
            return entries[: -self.sequence.rng.randrange(1, 4)]
        return entries

    async def append(self, entry: Draft, expected: Place) -> Place:
        self.attempts += 1
        await self._travel()
        sequence = self.sequence
        if self._happens(self.faults.late_request):
            sequence.late.append((entry, expected))
            raise EngineUnavailable("the request is late")
        if (
            self._happens(self.faults.undecided)
            and sequence.undecided is None
            and sequence.place == expected
        ):
            sequence.undecided = entry, expected
            raise EngineUnavailable("the leader died")
        if self._happens(self.faults.ended):
            sequence.ended.add(entry.ledger_id)
        place = sequence.append(entry, expected)
        await asyncio.sleep(0)
        if self._happens(self.faults.lost_answer):
            raise EngineUnavailable("the answer is lost")
        return place

    async def end(self) -> Place:
        await self._travel()
        return self.sequence.place

    async def read(self, after: Place, bytes_max: int = READ_BYTES) -> list[Entry]:
        await self._travel()
        entries = self._seen()
        found: list[Entry] = []
        for entry in entries[bisect_left(entries, after, key=lambda it: it.before) :]:
            found.append(entry)
            bytes_max -= len(entry.data)
            if bytes_max <= 0:
                break
        if self.sequence.place > (found[-1].place if found else after):
            for event in self.sequence.watchers:
                event.set()
        return found

    async def ledgers(self) -> list[int]:
        await self._travel()
        return sorted({entry.ledger_id for entry in self.sequence.entries})

    async def find(self, ledger_id: int, offset: int) -> Entry | None:
        await self._travel()
        wanted = (ledger_id, offset)
        return next((it for it in self._seen() if (it.ledger_id, it.offset) == wanted), None)

    async def last(self, ledger_id: int) -> Entry | None:
        await self._travel()
        found = [it for it in self._seen() if it.ledger_id == ledger_id]
        return found[-1] if found else None

    async def delete(self, ledger_ids: Iterable[int]) -> None:
        await self._travel()
        doomed = set(ledger_ids)
        self.sequence.entries = [it for it in self.sequence.entries if it.ledger_id not in doomed]

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[asyncio.Event]:
        event = asyncio.Event()
        self.sequence.watchers.add(event)
        try:
            yield event
        finally:
            self.sequence.watchers.discard(event)

    async def close(self) -> None:
        self.cut_off = True
