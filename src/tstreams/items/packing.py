"""Making batches of items."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest, TooLarge
from ..limits import BATCH_ITEMS_MAX, FRAME_BYTES_MAX
from .batch import HEADER_BYTES, Kind, seal
from .codec import Buffer, Codec
from .even import EVEN_ITEMS_MAX, even_sized
from .pieces import pack_pieces

if TYPE_CHECKING:
    import pyarrow as pa

_PAIR = struct.Struct("<ii")


def pack(
    items: Iterable[Buffer], codec: Codec = Codec.NONE, bytes_max: int = FRAME_BYTES_MAX
) -> bytes:
    """Make one batch of items.

    `TypeError` for a `str`, `BadRequest` if there are none, `TooLarge` if there are more than one batch
    takes: `pack_many` makes several.
    """
    parts = items if isinstance(items, (list, tuple)) else list(items)
    if len(parts) == 1 and type(parts[0]) is bytes:
        return _pack_one(parts[0], codec, bytes_max)
    if not parts:
        raise BadRequest("a batch holds at least one item")
    return _pack(parts, codec, bytes_max)


def pack_many(
    items: Iterable[Buffer] | pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table,
    codec: Codec = Codec.NONE,
    *,
    schema: pa.Schema | None = None,
    bytes_max: int = FRAME_BYTES_MAX,
) -> Iterator[bytes]:
    """Make as many batches as it takes, each of at most `bytes_max`; none if there are no items.

    `items` are bytes-like items or Arrow data: anything with Arrow's C interface. For a stream without a
    schema that is one column of binary or text, for one with a `schema` it is rows that fit it. An item
    larger than a batch goes in pieces.

    Errors are those of `pack`. They may come when some batches have been made: cancel the transaction then.
    """
    if isinstance(items, list | tuple):
        if schema is None:
            try:
                return iter((_pack(items, codec, bytes_max),) if items else ())
            except TooLarge:
                return _split(items, codec, bytes_max)
    elif hasattr(items, "__arrow_c_stream__") or hasattr(items, "__arrow_c_array__"):
        from . import arrow

        return arrow.pack_data(items, codec, schema, bytes_max)
    if schema is not None:
        raise BadRequest("the stream has a schema: send Arrow data, not single items")
    return _split(items, codec, bytes_max)


def _pack(parts: Sequence[Buffer], codec: Codec, bytes_max: int) -> bytes:
    count = len(parts)
    if count == 1 and type(parts[0]) is bytes:
        return _pack_one(parts[0], codec, bytes_max)
    if count > BATCH_ITEMS_MAX:
        raise TooLarge(f"{count} items are over the limit of {BATCH_ITEMS_MAX} in one batch")
    try:
        lengths = list(map(len, parts))
        size = sum(lengths)
        if size + 4 * (count + 1) + HEADER_BYTES > bytes_max:
            raise TooLarge(f"{count} items of {size} bytes are over the limit of {bytes_max}")
        data = b"".join(parts)
    except TypeError:
        return _pack([_plain(part) for part in parts], codec, bytes_max)
    if len(data) != size:
        return _pack([_plain(part) for part in parts], codec, bytes_max)
    return seal(Kind.BYTES, codec, count, _offsets(lengths), data)


def _pack_one(item: bytes, codec: Codec, bytes_max: int) -> bytes:
    """The same for one item, the most frequent batch of all, in half the time."""
    size = len(item)
    if size + _PAIR.size + HEADER_BYTES > bytes_max:
        raise TooLarge(f"an item of {size} bytes is over the limit of {bytes_max}")
    return seal(Kind.BYTES, codec, 1, _PAIR.pack(0, size), item)


def _offsets(lengths: list[int]) -> bytes:
    count = len(lengths)
    width = lengths[0]
    if width and count <= EVEN_ITEMS_MAX and lengths.count(width) == count:
        return even_sized(count, width).offsets
    return struct.pack(f"<{count + 1}i", *accumulate(lengths, initial=0))


def _plain(item: Any) -> bytes:
    """An item in a form whose `len` is its size: a view of numbers, say, counts those."""
    if isinstance(item, bytes):
        return item
    try:
        return memoryview(item).tobytes()
    except TypeError:
        raise TypeError(f"an item is bytes-like, this is {type(item).__name__}") from None


def _split(items: Iterable[Buffer], codec: Codec, bytes_max: int) -> Iterator[bytes]:
    room = bytes_max - HEADER_BYTES - 4
    parts: list[Buffer] = []
    size = 0
    for item in items:
        part = item if isinstance(item, bytes) else _plain(item)
        need = len(part) + 4
        if size + need > room or len(parts) == BATCH_ITEMS_MAX:
            if parts:
                yield _pack(parts, codec, bytes_max)
                parts = []
                size = 0
            if need > room:
                yield from pack_pieces(part, codec, bytes_max=bytes_max)
                continue
        parts.append(part)
        size += need
    if parts:
        yield _pack(parts, codec, bytes_max)
