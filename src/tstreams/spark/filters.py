"""Filters of a batch read that say which partitions and ids it needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ..model import ID_MAX, IDS_PER_MS, first_id_at

Range = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What can be left out without looking at it. Rows that do not fit may be left in."""

    partitions: frozenset[int] | None = None
    streams: frozenset[str] | None = None
    first_id: int = 0
    last_id: int = ID_MAX

    @staticmethod
    def of(filters: Iterable[Filter], prefix: str) -> Bounds:
        """What these filters, of which all must hold, leave of it."""
        bounds = Bounds()
        for it in filters:
            path: tuple[str, ...] = getattr(it, "attribute", ())
            if len(path) == 1 and path[0].startswith(prefix):
                bounds = bounds.within(it, path[0].removeprefix(prefix))
        return bounds

    def within(self, filter_: Filter, column: str) -> Bounds:
        """These bounds, and those of one more filter."""
        values = _values(filter_)
        if column == "partition" and values is not None:
            return self._only(partitions=frozenset(values))
        if column == "stream" and values is not None:
            return self._only(streams=frozenset(values))
        if column not in ("transaction", "time"):
            return self
        first, last = _ids(filter_, values)
        return Bounds(
            self.partitions,
            self.streams,
            max(self.first_id, first),
            min(self.last_id, last),
        )

    def _only(
        self,
        partitions: frozenset[int] | None = None,
        streams: frozenset[str] | None = None,
    ) -> Bounds:
        if self.partitions is not None and partitions is not None:
            partitions &= self.partitions
        if self.streams is not None and streams is not None:
            streams &= self.streams
        return Bounds(
            self.partitions if partitions is None else partitions,
            self.streams if streams is None else streams,
            self.first_id,
            self.last_id,
        )

    def narrow(self, found: Range) -> Range | None:
        """What is left of a range; None if nothing is."""
        stream, partition, after, up_to = found
        if self.partitions is not None and partition not in self.partitions:
            return None
        if self.streams is not None and stream not in self.streams:
            return None
        after, up_to = max(after, self.first_id - 1), min(up_to, self.last_id)
        return (stream, partition, after, up_to) if up_to > after else None


def _values(filter_: Filter) -> list[Any] | None:
    """The values that a column must have one of."""
    if isinstance(filter_, EqualTo | EqualNullSafe):
        return [filter_.value]
    if isinstance(filter_, In):
        return list(filter_.value)
    return None


def _ids(filter_: Filter, values: list[Any] | None) -> tuple[int, int]:
    """The first and the last id that a filter on the id, or on the time, lets through."""
    if values is not None:
        spans = [_span(it) for it in values if it is not None]
        if not spans:
            return 0, ID_MAX
        return min(first for first, _ in spans), max(last for _, last in spans)
    value = getattr(filter_, "value", None)
    if value is None:
        return 0, ID_MAX
    first, last = _span(value)
    if isinstance(filter_, GreaterThan | GreaterThanOrEqual):
        return first, ID_MAX
    if isinstance(filter_, LessThan | LessThanOrEqual):
        return 0, last
    return 0, ID_MAX


def _span(value: Any) -> tuple[int, int]:
    """The ids that a value of either column stands for."""
    if isinstance(value, datetime):
        # A row's time is its millisecond, cut off: a later moment in it begins no later.
        first = first_id_at(value.astimezone()) - IDS_PER_MS
        return max(0, first), min(first + 3 * IDS_PER_MS, ID_MAX)
    return int(value), int(value)
