"""A transaction, for a task that reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...items import Items, Joiner, to_table
from ...model import TransactionState, time_of
from ..long_items import LongItems
from ..pickling import refuse_to_pickle
from ..rules.delivery import Delivery
from .driver import Driver

if TYPE_CHECKING:
    import pyarrow as pa

_ITEMS_PER_LOOK = 256
"""Items that are handed out before anyone looks at the clock."""


class ReadTransaction:
    """A transaction that was read: always whole, always checkpointed.

    A large one comes bit by bit: what was not here when it was handed out is fetched when it is needed.
    So its items are not a plain list: `async for item in txn.items` holds one bit of it at a time, and
    `await txn.read_items()` or `await txn.to_arrow()` loads all.
    """

    __slots__ = ("_delivery", "_driver", "_loaded")

    def __init__(self, driver: Driver, delivery: Delivery) -> None:
        self._driver = driver
        self._delivery = delivery
        self._loaded: Sequence[bytes] | None = None

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
    def headers(self) -> dict[str, bytes]:
        """What its producer says of it, beside its items. `Corrupt` if its bytes are not what was written."""
        return self._delivery.headers()

    def traced(self) -> AbstractContextManager[Any]:
        """For `with`: what you do in the block is a span, linked to that of the producer. It is the current
        one, so what you write in there leads on from it. Without tracing this does nothing."""
        tracing = self._delivery.source.link.tracing
        return nullcontext() if tracing is None else tracing.handling(self._delivery)

    @property
    def state(self) -> TransactionState:
        """CHECKPOINTED: nothing else can be read."""
        return TransactionState.CHECKPOINTED

    @property
    def items(self) -> ReceivedItems:
        """Its items, for `async for`. `Corrupt` if their bytes are not what was written."""
        return ReceivedItems(self._driver, self._delivery)

    async def read_items(self) -> Sequence[bytes]:
        """All its items, in memory. Kept: the second time it costs nothing."""
        if self._loaded is None:
            delivery = self._delivery
            if delivery.entry.batches == 1 == len(delivery.entry.sizes):
                self._loaded = Items(delivery.data)
            else:
                groups = []
                source = _Groups(self._driver, delivery)
                while (group := await source.next()) is not None:
                    groups.append(group)
                self._loaded = LongItems(delivery.entry.items, lambda: iter(groups))
        return self._loaded

    async def to_arrow(self) -> pa.Table:
        """Its rows as an Arrow table: those of the stream's schema, or a column `item`."""
        schema = self._delivery.source.schema
        tables = []
        source = _Groups(self._driver, self._delivery)
        while (group := await source.next()) is not None:
            tables.append(to_table([group], schema))
        import pyarrow as pa

        return pa.concat_tables(tables)

    def __len__(self) -> int:
        return self._delivery.entry.items

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<transaction {self.id} of {self.stream!r}/{self.partition}, {len(self)} items>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a transaction")


class ReceivedItems:
    """The items of a transaction that was read. Each `async for` begins with the first."""

    __slots__ = ("_delivery", "_driver")

    def __init__(self, driver: Driver, delivery: Delivery) -> None:
        self._driver = driver
        self._delivery = delivery

    def __len__(self) -> int:
        return self._delivery.entry.items

    def __aiter__(self) -> ItemIterator:
        return ItemIterator(self._driver, self._delivery)

    def __repr__(self) -> str:
        return f"<{len(self)} items, for async for>"


class ItemIterator:
    """Hands out one item after the other. If the task is cancelled in between, none is lost."""

    __slots__ = ("_driver", "_groups", "_items", "_until_look")

    def __init__(self, driver: Driver, delivery: Delivery) -> None:
        self._driver = driver
        self._groups = _Groups(driver, delivery)
        self._items: Iterator[bytes] = iter(())
        self._until_look = _ITEMS_PER_LOOK

    def __aiter__(self) -> ItemIterator:
        return self

    async def __anext__(self) -> bytes:
        self._until_look -= 1
        if self._until_look <= 0:
            await self._driver.breathe()
            self._until_look = _ITEMS_PER_LOOK
        while True:
            for item in self._items:
                return item
            group = await self._groups.next()
            if group is None:
                raise StopAsyncIteration
            self._items = iter(group)


class _Groups:
    """The items of a transaction, batch by batch; those that are not here are fetched, an answer at a time.

    Invariant: nothing changes while it waits, so that whoever is interrupted can go on.
    """

    __slots__ = ("_at", "_batches", "_delivery", "_driver", "_joiner")

    def __init__(self, driver: Driver, delivery: Delivery) -> None:
        self._driver = driver
        self._delivery = delivery
        self._batches = delivery.batches()
        self._at = len(delivery.entry.sizes)
        self._joiner = Joiner()

    async def next(self) -> Items | None:
        """The next items; None after the last."""
        await self._driver.breathe()
        while True:
            for batch in self._batches:
                items = self._joiner.add(batch)
                if items is not None:
                    return items
            if self._at >= self._delivery.entry.batches:
                self._joiner.finish()
                return None
            more = await self._driver.run(self._delivery.more(self._at))
            self._batches = more.batches()
            self._at += len(more.entry.sizes)
