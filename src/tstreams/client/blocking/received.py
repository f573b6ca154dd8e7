"""A transaction, for whoever reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...items import Buffer, Items, read, to_table
from ...model import TransactionState, time_of
from ..long_items import LongItems
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
    def items(self) -> Sequence[bytes]:
        """Its items. `Corrupt` if their bytes are not what was written."""
        if self._items is None:
            delivery = self._delivery
            if delivery.entry.batches == 1 == len(delivery.entry.sizes):
                self._items = Items(delivery.data)
            else:
                self._items = LongItems(delivery.entry.items, lambda: read(self._batches()))
        return self._items

    def to_arrow(self) -> pa.Table:
        """Its rows as an Arrow table: those of the stream's schema, or a column `item`."""
        items = self.items
        batches = [items] if isinstance(items, Items) else read(self._batches())
        return to_table(batches, self._delivery.source.schema)

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
