"""Transactions as the columns that Spark sees, without any work per item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ..client.blocking.received import ReadTransaction
from ..errors import BadRequest
from ..model import IDS_PER_MS

ROWS_PER_BATCH = 10_000
"""Rows of one record batch: more make Spark slower, not faster."""

METADATA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("transaction", pa.int64(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
"""What is known of every item."""

ITEM = pa.schema([pa.field("item", pa.binary(), nullable=False)])


def to_spark(schema: pa.Schema) -> pa.Schema:
    """The same columns as Spark wants them from a source: it knows one type of text, of time, and so on.

    `BadRequest` names the column that Spark has no type for.
    """
    fields = []
    for field in schema:
        try:
            fields.append(from_arrow_schema(pa.schema([field])).fields[0])
        except Exception as error:
            raise BadRequest(f"Spark has no type for column {field.name!r}: {error}") from None
    return to_arrow_schema(StructType(fields), timezone="UTC")


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns a read gives: those of the stream, and what is known of every item."""

    own: pa.Schema
    """The stream's columns, with the types that Spark has for them."""
    metadata: bool
    typed: bool

    @staticmethod
    def of(schema: pa.Schema | None, metadata: bool | None = None) -> Layout:
        """For a stream with this schema, or with none. Items come with what is known of them, rows
        without, unless it is said otherwise."""
        if schema is None:
            return Layout(ITEM, metadata is not False, False)
        return Layout(to_spark(schema), metadata is True, True)

    @property
    def schema(self) -> pa.Schema:
        """All columns. A stream's own names come first, and are not taken by ours."""
        known = METADATA if self.metadata else ()
        if not self.typed:
            return pa.schema([*known, *self.own])
        return pa.schema([*self.own, *(it.with_name("_" + it.name) for it in known)])

    def arrange(self, own: list[pa.Array], known: list[pa.Array]) -> list[pa.Array]:
        """Columns in the order of the schema."""
        return [*own, *known] if self.typed else [*known, *own]


class Columns:
    """Makes record batches of the transactions of one partition."""

    def __init__(self, layout: Layout, stream: str, partition: int) -> None:
        self._layout = layout
        self._schema = layout.schema
        self._stream = _Constant(pa.scalar(stream, pa.string()))
        self._partition = _Constant(pa.scalar(partition, pa.int32()))
        self._ids: list[int] = []
        self._counts: list[int] = []
        self._tables: list[pa.Table] = []
        self._rows = 0

    def batches(self, transactions: Iterable[ReadTransaction]) -> Iterator[pa.RecordBatch]:
        """Record batches of about `ROWS_PER_BATCH` rows."""
        for transaction in transactions:
            table = transaction.to_arrow()
            self._ids.append(transaction.id)
            self._counts.append(table.num_rows)
            self._tables.append(table)
            self._rows += table.num_rows
            if self._rows >= ROWS_PER_BATCH:
                yield from self._flush()
        yield from self._flush()

    def _flush(self) -> Iterator[pa.RecordBatch]:
        if not self._rows:
            return
        table = pa.concat_tables(self._tables).combine_chunks()
        own = [_as_type(table.column(it.name), it.type) for it in self._layout.own]
        known = self._known() if self._layout.metadata else []
        columns = self._layout.arrange(own, known)
        whole = pa.Table.from_arrays(columns, schema=self._schema)
        self._ids, self._counts, self._tables, self._rows = [], [], [], 0
        yield from whole.to_batches(max_chunksize=2 * ROWS_PER_BATCH)

    def _known(self) -> list[pa.Array]:
        """The metadata columns, in their order."""
        counts = self._counts
        ids = np.array(self._ids, np.int64)
        indices = np.arange(max(counts), dtype=np.int32)
        times = np.repeat(ids // IDS_PER_MS * 1000, counts)
        return [
            self._stream.column(self._rows),
            self._partition.column(self._rows),
            pa.array(np.repeat(ids, counts)),
            pa.array(np.concatenate([indices[:count] for count in counts])),
            pa.Array.from_buffers(_TIME, self._rows, [None, pa.py_buffer(times)]),
        ]


_TIME = METADATA.field("time").type


class _Constant:
    """A column with the same value in every row, made once and sliced."""

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value
        self._column = pa.repeat(value, 0)

    def column(self, rows: int) -> pa.Array:
        """So many rows of it."""
        if len(self._column) < rows:
            self._column = pa.repeat(self._value, max(rows, 2 * ROWS_PER_BATCH))
        return self._column.slice(0, rows)


def _as_type(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == wanted else column.cast(wanted)
