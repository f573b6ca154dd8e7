"""What happened, and when: for the screen while it runs, and for the report."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

RATE_S = 5.0
"""Over how long a rate is taken."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How far everybody was at some moment, in seconds since the beginning."""

    at: float
    produced: int
    processed: int

    @property
    def lag(self) -> int:
        """Payments that wait for the pipeline."""
        return self.produced - self.processed


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch that was done."""

    number: int
    life: int
    begun: float
    duration_s: float
    rows: int
    late_rows: int
    state_rows: int

    @property
    def rate(self) -> float:
        """Payments in a second."""
        return self.rows / self.duration_s if self.duration_s else 0.0


@dataclass(slots=True)
class Life:
    """One life of the driver."""

    number: int
    started: float
    ready: float | None = None
    ended: float | None = None
    killed_in: int | None = None
    """The micro-batch in whose middle it was killed."""
    batches: int = 0


@dataclass(slots=True)
class History:
    """All of it, in order. Times are seconds since `began`."""

    began: float = field(default_factory=time.time)
    samples: list[Sample] = field(default_factory=list)
    batches: list[MicroBatch] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    closed: float | None = None
    """When the last payment had been read, and the day was closed."""
    ended: float = 0.0

    def now(self) -> float:
        """Seconds since the beginning."""
        return time.time() - self.began

    @property
    def kills(self) -> list[Life]:
        """The lives that ended in the middle of a micro-batch."""
        return [it for it in self.lives if it.killed_in is not None]

    def add_batch(self, line: dict[str, Any]) -> MicroBatch:
        """What the driver says of a micro-batch."""
        life = self.lives[-1]
        life.batches += 1
        begun = datetime.fromisoformat(line["begun"]).timestamp() - self.began
        batch = MicroBatch(
            line["batch"],
            life.number,
            begun,
            line["duration_ms"] / 1000,
            line["rows"],
            line["late_rows"],
            line["state_rows"],
        )
        self.batches.append(batch)
        return batch

    def add_sample(self, produced: int, processed: int) -> None:
        """How far everybody is now."""
        self.samples.append(Sample(self.now(), produced, processed))

    def rates(self) -> tuple[float, float]:
        """Payments in a second that were produced and processed lately."""
        if len(self.samples) < 2:
            return 0.0, 0.0
        last = self.samples[-1]
        first = next(it for it in self.samples if it.at >= last.at - RATE_S)
        if first is last:
            first = self.samples[-2]
        over = last.at - first.at or 1.0
        produced = (last.produced - first.produced) / over
        return produced, (last.processed - first.processed) / over
