"""A batch, read: a sequence of its items."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import islice
from operator import sub
from struct import Struct
from typing import TYPE_CHECKING, Any, overload

from ..errors import BadRequest, Corrupt
from .batch import Kind, opened
from .codec import Buffer, decompress
from .even import EVEN_ITEMS_MAX, even_sized

if TYPE_CHECKING:
    import pyarrow as pa

_OFFSET = Struct("<i")
_BYTES = Kind.BYTES


class Items(Sequence[bytes]):
    """The items of one batch. Nothing is done per item until one is asked for.

    `Corrupt` if the batch is damaged, also later, when its items are looked at; `BadRequest` if it makes
    no sense. A piece of an item is not a batch of items: see `Joiner`.
    """

    __slots__ = ("_body", "_count", "_kind")

    def __init__(self, blob: Buffer) -> None:
        self._kind, codec, self._count, size, self._body = opened(blob)
        if codec != 0:
            self._body = memoryview(decompress(codec, self._body, size))
        self._check()

    @classmethod
    def of_body(cls, kind: Kind, count: int, body: memoryview) -> Items:
        """The items of a batch that has been checked and decompressed."""
        made = cls.__new__(cls)
        made._kind, made._count, made._body = kind, count, body
        made._check()
        return made

    def _check(self) -> None:
        """The first and the last offset; those between them when they are used."""
        if self._kind is _BYTES:
            last = 4 * self._count
            if len(self._body) < last + 4:
                raise Corrupt(f"a batch of {self._count} items is too short for their offsets")
            (first,), (end,) = (
                _OFFSET.unpack_from(self._body),
                _OFFSET.unpack_from(self._body, last),
            )
            if first != 0 or end != len(self._body) - last - 4:
                raise Corrupt("the offsets of an item batch do not span its data")
        elif self._kind is Kind.PIECE:
            raise BadRequest("this batch is a piece of an item: read it with a Joiner")

    def __len__(self) -> int:
        return self._count

    @property
    def kind(self) -> Kind:
        """BYTES: items, or an Arrow array of them. ARROW: rows, which only `to_arrow` can read."""
        return self._kind

    @property
    def nbytes(self) -> int:
        """The size of the batch in memory, not compressed."""
        return len(self._body)

    def __iter__(self) -> Iterator[bytes]:
        count = self._count
        if count == 1 and self._kind is _BYTES:
            return iter((bytes(self._body[8:]),))
        offsets, data = self._columns()
        width = offsets[1]
        if width > 0 and width * count == len(data) and count <= EVEN_ITEMS_MAX:
            even = even_sized(count, width)
            if self._body[: len(even.offsets)] == even.offsets:
                return iter(even.cutter.unpack(data))
        bounds: list[int] = offsets.tolist()
        if bounds != sorted(bounds):
            raise Corrupt("the offsets of an item batch go back")
        return map(BytesIO(data).read, map(sub, islice(bounds, 1, None), bounds))

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
        if self._count == 1 and self._kind is _BYTES:
            return bytes(self._body[8:])  # both offsets have been looked at
        offsets, data = self._columns()
        start, end = offsets[at], offsets[at + 1]
        if not 0 <= start <= end <= len(data):
            raise Corrupt("the offsets of an item batch go back")
        return bytes(data[start:end])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, bytes | str):
            return len(self) == len(other) and list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._count} items, {len(self._body)} bytes>"

    def to_arrow(self, schema: pa.Schema | None = None) -> pa.Array | pa.RecordBatch:
        """The items as an Arrow binary array or, with the stream's schema, the rows as a record batch.

        Both share the batch's memory. They are validated fully: `Corrupt` if the bytes lie.
        """
        from . import arrow

        if self._kind is Kind.ARROW:
            if schema is None:
                raise BadRequest("a batch of rows is read with the schema of its stream")
            return arrow.read_rows(self._body, self._count, schema)
        if schema is not None:
            raise BadRequest("a batch of items, in a stream with a schema")
        offsets, data = self._columns()
        return arrow.read_column(offsets, data, self._count)

    def _columns(self) -> tuple[Any, memoryview]:
        """The offsets, in the byte order of this machine, and the data."""
        if self._kind is not _BYTES:
            raise BadRequest("a batch with a schema has rows, not items: read it with to_arrow()")
        start = 4 * (self._count + 1)
        offsets = self._body[:start].cast("i")
        if sys.byteorder == "big":
            swapped = array("i", offsets)
            swapped.byteswap()
            offsets = memoryview(swapped)
        return offsets, self._body[start:]
