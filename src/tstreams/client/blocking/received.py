"""A transaction, for whoever reads it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, overload

from ...items import Buffer, Items, read, to_table
from ...model import TransactionState, time_of
from ..pickling import refuse_to_pickle
from ..rules.delivery import Delivery
from .driver import Driver

if TYPE_CHECKING:
    import pyarrow as pa


class ReadTransaction:
    """A transaction that was read: always whole, always checkpointed.

    A large one comes bit by bit: what was not here when it was handed out is fetched when it is needed.
    Iterating over `items` holds one bit of it at a time; to look at single items of it, or to make it an
    Arrow table, loads all.
    """

    __slots__ = ("_delivery", "_driver", "_items")

    def __init__(self, driver: Driver, delivery: Delivery) -> None:
        self._driver = driver
        self._delivery = delivery
        self._items: Sequence[bytes] | None = None

    @property
    def id(self) -> int:
        """Its id."""
        return self._delivery.id

    @property
    def partition(self) -> int:
        """The partition that it is in."""
        return self._delivery.entry.partition

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._delivery.source.stream.name

    @property
    def time(self) -> datetime:
        """When it was opened, by the server's clock."""
        return time_of(self._delivery.id)

    @property
    def state(self) -> TransactionState:
        """CHECKPOINTED: nothing else can be read."""
        return TransactionState.CHECKPOINTED

    @property
    def items(self) -> Sequence[bytes]:
        """Its items. `Corrupt` if their bytes are not what was written."""
        if self._items is None:
            delivery = self._delivery
            if delivery.entry.batches == 1 and delivery.is_whole:
                self._items = Items(delivery.data)
            else:
                self._items = LongItems(delivery.entry.items, self._batches)
        return self._items

    def to_arrow(self) -> pa.Table:
        """Its rows as an Arrow table: those of the stream's schema, or a column `item`."""
        return to_table(read(self._batches()), self._delivery.source.schema)

    def __len__(self) -> int:
        return self._delivery.entry.items

    def __bool__(self) -> bool:
        return True

    def _batches(self) -> Iterator[Buffer]:
        """All batches; those that are not here are fetched, an answer at a time."""
        delivery = self._delivery
        total = delivery.entry.batches
        yield from delivery.batches()
        at = len(delivery.entry.sizes)
        while at < total:
            more = self._driver.run(delivery.more(at))
            yield from more.batches()
            at += len(more.entry.sizes)

    def __repr__(self) -> str:
        return f"<transaction {self.id} of {self.stream!r}/{self.partition}, {len(self)} items>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a transaction")


class LongItems(Sequence[bytes]):
    """The items of a transaction of many batches."""

    __slots__ = ("_batches", "_count", "_ends", "_groups")

    def __init__(self, count: int, batches: Callable[[], Iterator[Buffer]]) -> None:
        self._count = count
        self._batches = batches
        self._groups: list[Items] | None = None
        self._ends: list[int] = []

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        for group in self._groups or read(self._batches()):
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
            groups = list(read(self._batches()))
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
