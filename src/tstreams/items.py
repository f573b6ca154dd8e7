"""Item batches: how the items of a transaction lie on the wire, in the ledger, and in Arrow.

A batch is columnar: a header, `count + 1` offsets, then all items end to end. That is the layout of an
Arrow binary array, so a batch becomes an Arrow column without any work per item.

    version u8 | kind u8 | codec u8 | 0 u8 | count u32 | body bytes u32 | crc32c u32 | body

All numbers are little-endian. The body is compressed as the codec says; `body bytes` is its size
before that. The checksum covers the header before it and the body as stored. It is made by the
producer and checked by the server and by the reader: nothing between them can change a bit unseen.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from crc32c import crc32c

from .errors import BadRequest, Corrupt, TooLarge
from .limits import BATCH_ITEMS_MAX, FRAME_BYTES_MAX, ITEM_BYTES_MAX

if TYPE_CHECKING:
    import pyarrow as pa

Buffer: TypeAlias = bytes | bytearray | memoryview

VERSION = 1
HEADER = struct.Struct("<BBBxIII")
HEADER_BYTES = HEADER.size
_CHECKED_BYTES = HEADER_BYTES - 4


class Kind(Enum):
    """What the body holds."""

    BYTES = 0
    """Offsets and items."""
    ARROW = 1
    """One Arrow record batch, in IPC encapsulation without its schema."""


class Codec(Enum):
    """How the body is compressed."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


CODECS = {"none": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


def pack(items: Iterable[Buffer], codec: Codec = Codec.NONE) -> bytes:
    """Make a batch of items. `TypeError` for a `str`, `TooLarge` over a limit, `BadRequest` if empty."""
    parts = items if isinstance(items, list | tuple) else list(items)
    count = len(parts)
    if not 0 < count <= BATCH_ITEMS_MAX:
        if count == 0:
            raise BadRequest("a batch holds at least one item")
        raise TooLarge(f"{count} items are over the limit of {BATCH_ITEMS_MAX} in one batch")
    try:
        data = b"".join(parts)
    except TypeError:
        wrong = next(part for part in parts if not isinstance(part, Buffer))
        raise TypeError(f"an item is bytes-like, this is {type(wrong).__name__}") from None
    offsets = array("i", accumulate(map(len, parts), initial=0))
    if sys.byteorder == "big":
        offsets.byteswap()
    return _seal(Kind.BYTES, codec, count, offsets.tobytes() + data)


def _seal(kind: Kind, codec: Codec, count: int, body: Buffer) -> bytes:
    size = len(body)
    stored = _compress(codec, body)
    if len(stored) >= size:
        codec, stored = Codec.NONE, body  # what does not shrink is stored as it is
    if max(size, len(stored)) + HEADER_BYTES > max(FRAME_BYTES_MAX, ITEM_BYTES_MAX):
        raise TooLarge(f"a batch of {size} bytes is over the limit of {FRAME_BYTES_MAX}")
    head = HEADER.pack(VERSION, kind.value, codec.value, count, size, 0)[:_CHECKED_BYTES]
    checksum = crc32c(stored, crc32c(head))
    return b"".join((head, checksum.to_bytes(4, "little"), stored))


def _compress(codec: Codec, body: Buffer) -> Buffer:
    if codec is Codec.LZ4:
        import lz4.block

        return bytes(lz4.block.compress(body, store_size=False))
    if codec is Codec.ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=1).compress(body)
    return body


def _decompress(codec: Codec, stored: Buffer, size: int) -> Buffer:
    if codec is Codec.LZ4:
        import lz4.block

        return bytes(lz4.block.decompress(stored, uncompressed_size=size))
    if codec is Codec.ZSTD:
        import zstandard

        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)
    return stored


_KINDS = tuple(Kind)
_CODECS = tuple(Codec)


class Items(Sequence[bytes]):
    """A batch, read: a sequence of its items. Nothing is done per item until one is asked for."""

    __slots__ = ("_body", "_count", "_kind", "_offsets", "_start")

    def __init__(self, blob: Buffer) -> None:
        kind, codec, count, size, stored = _open(blob)
        try:
            body = _decompress(codec, stored, size)
        except Exception as error:
            raise Corrupt(
                f"an item batch of {count} items cannot be decompressed: {error}"
            ) from None
        if len(body) != size:
            raise Corrupt(f"an item batch has {len(body)} bytes, its header says {size}")
        self._kind = kind
        self._count = count
        self._body = memoryview(body)
        self._start = 4 * (count + 1)
        self._offsets = _offsets_of(self._body, count) if kind is Kind.BYTES else None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        data = self._data()
        return (data[start:end] for start, end in pairwise(self._bounds()))

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
        bounds = self._bounds()
        return bytes(self._body[self._start + bounds[at] : self._start + bounds[at + 1]])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, bytes | str):
            return len(self) == len(other) and list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._count} items, {len(self._body)} bytes>"

    def to_arrow(self) -> pa.Array:
        """The items as an Arrow binary array that shares the batch's memory."""
        import pyarrow as pa

        buffer = pa.py_buffer(self._body)
        offsets, data = buffer.slice(0, self._start), buffer.slice(self._start)
        column = pa.Array.from_buffers(pa.binary(), self._count, [None, offsets, data])
        column.validate(full=True)  # offsets that go back would make Arrow read foreign memory
        return column

    def _bounds(self) -> Sequence[int]:
        if self._offsets is None:
            raise BadRequest("a batch with a schema has rows, not items: read it with to_arrow()")
        return self._offsets

    def _data(self) -> bytes:
        return bytes(self._body[self._start :])


def _open(blob: Buffer) -> tuple[Kind, Codec, int, int, memoryview]:
    """Take a batch apart, and check what can be checked without decompressing it."""
    view = memoryview(blob)
    if len(view) < HEADER_BYTES:
        raise Corrupt(f"an item batch of {len(view)} bytes is shorter than its header")
    version, kind, codec, count, size, checksum = HEADER.unpack_from(view)
    stored = view[HEADER_BYTES:]
    if crc32c(stored, crc32c(view[:_CHECKED_BYTES])) != checksum:
        raise Corrupt(f"the checksum of an item batch of {len(view)} bytes does not match")
    if version != VERSION:
        raise BadRequest(f"an item batch of version {version}: this is version {VERSION}")
    if kind >= len(_KINDS) or codec >= len(_CODECS):
        raise BadRequest(f"an item batch of kind {kind} and codec {codec} is not known")
    if not 0 < count <= BATCH_ITEMS_MAX or size > ITEM_BYTES_MAX + FRAME_BYTES_MAX:
        raise BadRequest(f"an item batch of {count} items and {size} bytes is out of bounds")
    return _KINDS[kind], _CODECS[codec], count, size, stored


def check(blob: Buffer) -> int:
    """Check a batch as a server does, without decompressing it: the number of its items."""
    return _open(blob)[2]


def _offsets_of(body: memoryview, count: int) -> Sequence[int]:
    if len(body) < 4 * (count + 1):
        raise Corrupt(f"an item batch of {count} items is too short for their offsets")
    offsets: Any = body[: 4 * (count + 1)].cast("i")
    if sys.byteorder == "big":
        offsets = array("i", offsets)
        offsets.byteswap()
    last = len(body) - 4 * (count + 1)
    if offsets[0] != 0 or offsets[count] != last:
        raise Corrupt("the offsets of an item batch do not span its data")
    return offsets  # type: ignore[no-any-return]
