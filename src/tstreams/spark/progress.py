"""How a query gets on, as Spark tells it, in a few numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..model import IDS_PER_MS


@dataclass(frozen=True, slots=True)
class Progress:
    """A micro-batch that is done."""

    batch: int
    rows: int
    rows_per_s: float
    seconds: float
    """How long it took."""
    lag_s: float | None
    """How much older the last transaction that was read is than the newest one; None if nobody knows."""
    time: str
    """When it began."""

    @staticmethod
    def of(told: Mapping[str, Any]) -> Progress:
        """From Spark's own report."""
        sources = told.get("sources") or []
        rows = told.get("numInputRows")
        if rows is None:  # Spark Connect leaves it out
            rows = sum(source.get("numInputRows") or 0 for source in sources)
        seconds = told.get("batchDuration", 0) / 1000
        return Progress(
            int(told["batchId"]),
            rows,
            round(rows / seconds, 1) if seconds else 0.0,
            seconds,
            lag_of(sources),
            str(told.get("timestamp", "")),
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def lag_of(sources: list[Mapping[str, Any]]) -> float | None:
    """The longest lag of all partitions of all sources that are streams of ours. An id is a time."""
    lags = [lag for source in sources for lag in _lags(source)]
    return max(lags) / 1000 if lags else None


def _lags(source: Mapping[str, Any]) -> Iterator[int]:
    """Of each partition of a source, in milliseconds."""
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    for name, partitions in latest.items():
        reached = end.get(name)
        if not isinstance(partitions, dict) or not isinstance(reached, dict):
            continue
        for partition, newest in partitions.items():
            last = reached.get(partition, 0)
            if isinstance(newest, int) and isinstance(last, int) and (last or not newest):
                yield max(0, newest // IDS_PER_MS - last // IDS_PER_MS)


def _offsets(found: Any) -> dict[str, Any]:
    """An offset as the report has it: JSON, or what it says. Other sources have offsets of other kinds."""
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            return {}
    return found if isinstance(found, dict) else {}
