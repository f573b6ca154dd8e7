"""What can be wrong with a history, and what was found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

KINDS = {
    "lost-write": "acknowledged, alive, and not there for a reader that had to see it (G1)",
    "aborted-read": "cancelled, expired or refused, and read all the same (G2; Adya's G1a)",
    "precommitted-read": "read before anybody asked for its checkpoint (G2)",
    "intermediate-read": "read with some of its items, as it was before it was complete (G2; Adya's G1b)",
    "torn-read": "read with other items than were written (G2, G8)",
    "disagreement": "two reads of one id gave different items (G2)",
    "phantom-read": "read, and nobody wrote it (G2)",
    "misplaced-read": "read in another partition than the one it was written to (G3)",
    "duplicate-write": "written once, and there under two ids (G5)",
    "dead-read": "read after its stream was purged or deleted, or its ttl had ended (G7)",
    "order-violation": "a reader was handed a smaller id after a greater one (G3)",
    "repeated-read": "a reader was handed the same id twice in a row, without going back (G3)",
    "gap": "a reader was not handed what others read (G3)",
    "read-past-open": "read while an earlier transaction of its partition was open (G3)",
    "stale-read": "a reader found nothing, where others had read something before (G3)",
    "group-torn": "some of a group's checkpoint took effect, and some did not (G4)",
    "fenced-acknowledged": "an agent was told ok after a newer one of its name had begun (G6)",
    "id-reused": "two transactions of a partition were given the same id",
    "id-went-back": "a transaction was given a smaller id than one opened before it",
    "contradiction": "a transaction was told to be checkpointed and cancelled, or ended twice",
    "offset-went-back": "a reader resumed before what it had checkpointed (G4, G5)",
    "offset-ahead": "a reader saved, or resumed after, more than it had read",
    "write-cycle": "transactions overwrote each other's order (Adya's G0)",
    "information-cycle": "transactions read from each other in a circle (Adya's G1c)",
    "skew-cycle": "a transaction saw another's effects and missed what those stand on (Adya's G-single)",
}

SHOWN_MAX = 20
"""Findings of one kind that are kept in words. All are counted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(slots=True)
class Findings:
    """All that is wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    shown: list[Finding] = field(default_factory=list)

    def add(self, kind: str, text: str) -> None:
        """Something is wrong."""
        assert kind in KINDS, kind
        self.counts[kind] += 1
        if self.counts[kind] <= SHOWN_MAX:
            self.shown.append(Finding(kind, text))

    @property
    def kinds(self) -> set[str]:
        """What kinds of things."""
        return set(self.counts)

    def __bool__(self) -> bool:
        return bool(self.counts)
