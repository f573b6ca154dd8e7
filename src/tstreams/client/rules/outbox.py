"""The items of a transaction that have not been sent yet."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from ...errors import BadRequest, TooLarge
from ...items import Codec, pack, pack_many
from ...limits import FRAME_BYTES_MAX, ITEM_BYTES_MAX, SEND_BATCH_BYTES

ITEM_OVERHEAD_BYTES = 4
"""What an item costs in a batch beside its own bytes."""


class Outbox:
    """Gathers items until they are worth a batch. They are the outbox's own: callers may reuse theirs.

    Invariant: `_bytes` is what `_items` take in a batch.
    """

    __slots__ = ("_batch_bytes_max", "_bytes", "_codec", "_items", "_schema")

    def __init__(self, codec: Codec, schema: Any, batch_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._batch_bytes_max = batch_bytes_max
        self._codec = codec
        self._schema = schema
        self._items: list[bytes] = []
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: Any) -> bool:
        """Take one item. True if it is time to send."""
        if type(item) is not bytes:
            item = _owned(item)
        if self._schema is not None:
            raise BadRequest("the stream has a schema: send Arrow data, not single items")
        size = len(item)
        if size > ITEM_BYTES_MAX:
            raise _too_large(size)
        self._items.append(item)
        self._bytes += size + ITEM_OVERHEAD_BYTES
        return self._bytes >= SEND_BATCH_BYTES

    def extend(self, items: Sequence[Any]) -> bool:
        """Take many items, or none if one of them is wrong. True if it is time to send."""
        if not items:
            return False
        if set(map(type, items)) != {bytes}:
            items = [_owned(item) for item in items]
        if self._schema is not None:
            raise BadRequest("the stream has a schema: send Arrow data, not single items")
        largest = max(map(len, items))
        if largest > ITEM_BYTES_MAX:
            raise _too_large(largest)
        self._items += items
        self._bytes += sum(map(len, items)) + ITEM_OVERHEAD_BYTES * len(items)
        return self._bytes >= SEND_BATCH_BYTES

    def take(self) -> Iterator[bytes]:
        """All that was gathered, as batches. The outbox is empty at once; the batches are made on the way."""
        items, self._items = self._items, []
        self._bytes = 0
        return self._batches(items)

    def take_last(self) -> bytes | None:
        """What was gathered as one batch, if it is that small; else None, and it stays here."""
        if not self._items or self._bytes >= SEND_BATCH_BYTES:
            return None
        batch = pack(self._items, self._codec)
        self.clear()
        return batch

    def clear(self) -> None:
        """Forget what was gathered."""
        self._items = []
        self._bytes = 0

    def pack(self, data: Any) -> Iterator[bytes]:
        """Arrow data as batches; what was gathered must have been taken before."""
        return pack_many(data, self._codec, schema=self._schema, bytes_max=self._batch_bytes_max)

    def _batches(self, items: list[bytes]) -> Iterator[bytes]:
        ends = list(accumulate((len(item) + ITEM_OVERHEAD_BYTES for item in items), initial=0))
        start = 0
        while start < len(items):
            enough = bisect_left(ends, ends[start] + SEND_BATCH_BYTES, start + 1)
            end = min(enough, len(items))
            yield from pack_many(items[start:end], self._codec, bytes_max=self._batch_bytes_max)
            start = end


def _owned(item: Any) -> bytes:
    """An item that nobody else can change."""
    if isinstance(item, bytes):
        return item
    try:
        return memoryview(item).tobytes()
    except TypeError:
        raise TypeError(f"an item is bytes-like, this is {type(item).__name__}") from None


def _too_large(size: int) -> TooLarge:
    return TooLarge(
        f"an item of {size} bytes is over the limit of {ITEM_BYTES_MAX}: "
        "put it into an object store, and its address into the item"
    )


def is_arrow(data: Any) -> bool:
    """Whether this is Arrow data, of whatever library."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def check_arrow(data: Any) -> Any:
    """`TypeError` if this is no Arrow data."""
    if not is_arrow(data):
        raise TypeError(f"this is no Arrow data, but {type(data).__name__}")
    return data
