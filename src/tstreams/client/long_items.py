"""The items of a transaction that is more than one batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import overload

from ..items import Items


class LongItems(Sequence[bytes]):
    """The items of a transaction of many batches."""

    __slots__ = ("_count", "_ends", "_groups", "_read")

    def __init__(self, count: int, read: Callable[[], Iterator[Items]]) -> None:
        self._count = count
        self._read = read
        self._groups: list[Items] | None = None
        self._ends: list[int] = []

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        for group in self._groups or self._read():
            yield from group

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._count))]
        at = index + self._count if index < 0 else index
        if not 0 <= at < self._count:
            raise IndexError(f"item {index} of {self._count}")
        groups = self._load()
        number = bisect_right(self._ends, at)
        return groups[number][at - (self._ends[number - 1] if number else 0)]

    def _load(self) -> list[Items]:
        groups = self._groups
        if groups is None:
            groups = list(self._read())
            self._ends = list(accumulate(map(len, groups)))
            self._groups = groups
        return groups

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, bytes | str):
            return len(self) == len(other) and list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._count} items in many batches>"
