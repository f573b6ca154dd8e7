"""Readers that wait, and which of them to look at when something has become visible."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from moebius import Request

from ..core.transitions import WHOLE_STREAM
from ..protocol import Fetch

NARROW_MAX = 8
"""Up to so many partitions a reader stands in the table of each of them. One that waits for more stands in the table of
its stream: entering it a thousand times would cost more than looking at it each time."""


Again: TypeAlias = Callable[[Request, Fetch], object]
"""Hands in a `Fetch` once more, the way it came. Raises what a handler may raise."""


@dataclass(slots=True)
class Waiter:
    """A `Fetch` that found nothing."""

    number: int
    request: Request
    fetch: Fetch
    timer: asyncio.TimerHandle
    again: Again
    partitions: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.partitions = frozenset(want.partition for want in self.fetch.wants)

    @property
    def is_narrow(self) -> bool:
        """Whether it waits for few partitions."""
        return len(self.partitions) <= NARROW_MAX


class Waiters:
    """All readers that wait. A commit finds those of its partition without going through the others."""

    def __init__(self) -> None:
        self._all: dict[int, Waiter] = {}
        self._narrow: dict[tuple[int, int], dict[int, None]] = {}
        self._wide: dict[int, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, waiter: Waiter) -> None:
        """One more."""
        self._all[waiter.number] = waiter
        for table, key in self._places(waiter):
            table.setdefault(key, {})[waiter.number] = None

    def get(self, number: int) -> Waiter | None:
        """One of them, if it still waits."""
        return self._all.get(number)

    def remove(self, waiter: Waiter) -> None:
        """It waits no more."""
        del self._all[waiter.number]
        for table, key in self._places(waiter):
            numbers = table[key]
            del numbers[waiter.number]
            if not numbers:
                del table[key]

    def all(self) -> list[Waiter]:
        """Everyone, in the order in which they came."""
        return list(self._all.values())

    def concerned(self, stirred: Iterable[tuple[int, int]]) -> list[tuple[Waiter, Collection[int]]]:
        """Those who wait for something in these partitions, in the order in which they came; and in which of
        their stream's partitions something may be."""
        by_stream: dict[int, set[int]] = {}
        numbers: set[int] = set()
        for key in stirred:
            stream_id, partition = key
            numbers.update(self._narrow.get(key, ()))
            if partition == WHOLE_STREAM:
                numbers.update(
                    it.number for it in self._all.values() if it.fetch.stream == stream_id
                )
            by_stream.setdefault(stream_id, set()).add(partition)
        for stream_id, partitions in by_stream.items():
            for number in self._wide.get(stream_id, ()):
                if not self._all[number].partitions.isdisjoint(partitions):
                    numbers.add(number)
        found = [self._all[number] for number in sorted(numbers)]
        return [(it, by_stream[it.fetch.stream]) for it in found]

    def _places(self, waiter: Waiter) -> Iterable[tuple[dict[Any, dict[int, None]], Any]]:
        stream_id = waiter.fetch.stream
        if not waiter.is_narrow:
            return [(self._wide, stream_id)]
        return [(self._narrow, (stream_id, partition)) for partition in waiter.partitions]
