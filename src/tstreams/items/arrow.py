"""Arrow data into batches, and back. No work is done per item or row in Python."""

from __future__ import annotations

import struct
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest, Corrupt, TooLarge
from ..limits import BATCH_ITEMS_MAX, FRAME_BYTES_MAX
from .batch import HEADER_BYTES, Kind, seal
from .codec import Codec
from .pieces import pack_pieces
from .schemas import (
    check_type,
    columns_within,
    first_columns,
    fitted,
    pyarrow,
    was_added,
    widened,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from .sequence import Items

COLUMN = "item"
"""The name of the only column of a stream without a schema."""


# Packing.


def pack_data(data: Any, codec: Codec, schema: pa.Schema | None, bytes_max: int) -> Iterator[bytes]:
    """Any Arrow data as batches: one column of items or, with a schema, rows that fit it."""
    if schema is not None:
        for batch in _merged(_batches_of(data), bytes_max):
            yield from _pack_rows(fitted(batch, schema), codec, bytes_max)
        return
    for batch in _merged(_batches_of(data), bytes_max):
        if batch.num_columns != 1:
            raise BadRequest(
                f"{batch.num_columns} columns for a stream of items: send one column of binary or text"
            )
        yield from pack_column(batch.column(0), codec, bytes_max=bytes_max)


def pack_arrow(batch: pa.RecordBatch, codec: Codec = Codec.NONE) -> bytes:
    """Make one batch of rows. `BadRequest` if there are none, `TooLarge` over the limits of a batch."""
    rows = batch.num_rows
    if rows == 0:
        raise BadRequest("a batch holds at least one row")
    if rows > BATCH_ITEMS_MAX:
        raise TooLarge(f"{rows} rows are over the limit of {BATCH_ITEMS_MAX} in one batch")
    for field in batch.schema:
        check_type(field.type, field.name)
    return seal(Kind.ARROW, codec, rows, memoryview(batch.serialize()))


def pack_column(
    column: pa.Array, codec: Codec = Codec.NONE, *, bytes_max: int = FRAME_BYTES_MAX
) -> Iterator[bytes]:
    """Make batches of the items in an array of binary or text. `BadRequest` if any of them is null."""
    pa = pyarrow()
    column = _with_offsets(column)
    if column.null_count:
        raise BadRequest(f"{column.null_count} of {len(column)} items are null: drop or fill them")
    count = len(column)
    if count == 0:
        return
    column.validate()
    _, held, data = column.buffers()
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    offsets = pa.Array.from_buffers(
        pa.int64() if wide else pa.int32(), count + 1, [None, held], offset=column.offset
    )
    width = 8 if wide else 4
    bounds = memoryview(held)[width * column.offset : width * (column.offset + count + 1)]
    bounds = bounds.cast("q" if wide else "i")
    start = 0
    while start < count:
        end = _last_that_fits(bounds, start, count, bytes_max)
        low, high = bounds[start], bounds[max(end, start + 1)]
        part = memoryview(data.slice(low, high - low)) if high > low else b""
        if end == start:
            yield from pack_pieces(part, codec, bytes_max=bytes_max)
            end += 1
        else:
            rebased = _rebased(offsets.slice(start, end - start + 1), low)
            yield seal(Kind.BYTES, codec, end - start, rebased, part)
        start = end


def _last_that_fits(bounds: Sequence[int], start: int, count: int, bytes_max: int) -> int:
    """The end of the longest run of items from `start` that fits; `start` if not even one does."""
    top = min(count, start + BATCH_ITEMS_MAX)
    room = bytes_max - HEADER_BYTES - 4 + bounds[start] + 4 * start
    return bisect_right(range(top + 1), room, lo=start, key=lambda at: bounds[at] + 4 * at) - 1


def _rebased(offsets: Any, base: int) -> memoryview:
    import pyarrow as pa
    import pyarrow.compute as pc

    moved = offsets if base == 0 else pc.subtract(offsets, pa.scalar(base, offsets.type))
    moved = moved.cast(pa.int32())
    if sys.byteorder == "big":
        return memoryview(b"".join(n.to_bytes(4, "little") for n in moved.to_pylist()))
    raw = memoryview(moved.buffers()[1]).cast("B")
    return raw[4 * moved.offset : 4 * (moved.offset + len(moved))]


def _with_offsets(column: Any) -> Any:
    """The column with offsets and data, whatever layout of binary or text it has."""
    pa = pyarrow()
    types = pa.types
    kind = column.type
    if any(
        is_it(kind)
        for is_it in (
            types.is_binary,
            types.is_string,
            types.is_large_binary,
            types.is_large_string,
        )
    ):
        return column
    if types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if types.is_string_view(kind):
        return column.cast(pa.large_string())
    raise BadRequest(f"items are binary or text, this column is {kind}: cast it")


def _pack_rows(batch: Any, codec: Codec, bytes_max: int) -> Iterator[bytes]:
    rows = batch.num_rows
    size = pyarrow().ipc.get_record_batch_size(batch) + HEADER_BYTES
    if rows <= BATCH_ITEMS_MAX and size <= bytes_max:
        if rows:
            yield pack_arrow(batch, codec)
        return
    if rows == 1:
        raise TooLarge(f"a row of {size} bytes is over the limit of {bytes_max}")
    yield from _pack_rows(batch.slice(0, rows // 2), codec, bytes_max)
    yield from _pack_rows(batch.slice(rows // 2), codec, bytes_max)


def _batches_of(data: Any) -> Iterable[Any]:
    """Arrow data of any form as record batches."""
    pa = pyarrow()
    if not isinstance(
        data, pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table | pa.RecordBatchReader
    ):
        data = _imported(data)
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.Array):
        return [pa.RecordBatch.from_arrays([data], [COLUMN])]
    if isinstance(data, pa.ChunkedArray):
        return [pa.RecordBatch.from_arrays([chunk], [COLUMN]) for chunk in data.chunks]
    if isinstance(data, pa.Table):
        return data.to_batches()  # type: ignore[no-any-return]
    return data  # type: ignore[no-any-return]


def _imported(data: Any) -> Any:
    """What another library holds, through Arrow's C interface: a table of it, or one column."""
    pa = pyarrow()
    if hasattr(data, "__arrow_c_stream__"):
        try:
            return pa.RecordBatchReader.from_stream(data)
        except (pa.ArrowException, ValueError, TypeError):
            return pa.chunked_array(data)
    try:
        return pa.record_batch(data)
    except (pa.ArrowException, ValueError, TypeError):
        return pa.array(data)


def _merged(batches: Iterable[Any], bytes_max: int) -> Iterator[Any]:
    """Small batches put together, so that a table of many chunks does not become as many batches."""
    pa = pyarrow()
    group: list[Any] = []
    size = rows = 0
    for batch in batches:
        if group and (size + batch.nbytes > bytes_max or rows + batch.num_rows > BATCH_ITEMS_MAX):
            yield from pa.Table.from_batches(group).combine_chunks().to_batches()
            group = []
            size = rows = 0
        group.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
    if len(group) > 1:
        yield from pa.Table.from_batches(group).combine_chunks().to_batches()
    else:
        yield from group


# Reading.


def read_column(offsets: Any, data: memoryview, count: int) -> pa.Array:
    """The items of a batch as an array that shares its memory. `Corrupt` if the offsets lie."""
    pa = pyarrow()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    try:
        column = pa.Array.from_buffers(pa.binary(), count, buffers)
        column.validate(full=True)  # offsets that go back would make Arrow read foreign memory
    except Exception as error:
        raise Corrupt(f"an item batch of {count} items is no Arrow array: {error}") from None
    return column


def read_rows(body: memoryview, count: int, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a batch, sharing its memory. `Corrupt` if the bytes are no such rows.

    Columns that the schema did not have when they were written are nulls; those that it has got since are
    left out.
    """
    pa = pyarrow()
    try:
        message = pa.ipc.read_message(pa.py_buffer(body))
        compressed, nodes = _look_into(memoryview(message.metadata))
        if compressed:
            raise Corrupt(
                "the rows of an item batch are compressed inside of it, which is not allowed"
            )
        columns = columns_within(schema, nodes)
        if columns < len(schema) and not was_added(schema.field(columns)):
            raise Corrupt(f"an item batch has no column {schema.field(columns).name!r}")
        batch = pa.ipc.read_record_batch(message, first_columns(schema, columns))
        if batch.num_rows != count:
            raise Corrupt(f"an item batch has {batch.num_rows} rows, its header says {count}")
        batch.validate(full=True)
        return batch if columns == len(schema) else widened(batch, schema)
    except Corrupt:
        raise
    except Exception as error:
        raise Corrupt(f"an item batch of {count} rows cannot be read as Arrow: {error}") from None


def _look_into(metadata: memoryview) -> tuple[bool, int]:
    """Whether an IPC message holds compressed buffers, whose declared sizes would be allocated unseen; and
    of how many arrays its columns consist.

    pyarrow does not tell, so this looks into the message, a flatbuffer that pyarrow has verified.
    """
    message = struct.unpack_from("<I", metadata)[0]
    header = _field(metadata, message, 2)
    if header == 0:
        return False, 0
    record_batch = header + struct.unpack_from("<I", metadata, header)[0]
    nodes = _field(metadata, record_batch, 1)
    count = 0
    if nodes:
        (count,) = struct.unpack_from(
            "<I", metadata, nodes + struct.unpack_from("<I", metadata, nodes)[0]
        )
    return _field(metadata, record_batch, 3) != 0, count


def _field(metadata: memoryview, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table lies; 0 if it is absent."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    at = 4 + 2 * number
    if at >= struct.unpack_from("<H", metadata, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", metadata, vtable + at)[0]
    return table + offset if offset else 0


def to_table(batches: Iterable[Items], schema: pa.Schema | None = None) -> pa.Table:
    """Many batches as one table: the rows, or a column `item`. It shares the memory of the batches."""
    pa = pyarrow()
    if schema is not None:
        return pa.Table.from_batches([items.to_arrow(schema) for items in batches], schema)
    column = pa.chunked_array([items.to_arrow() for items in batches], pa.binary())
    return pa.table({COLUMN: column})
