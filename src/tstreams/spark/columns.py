"""Transactions as the columns that Spark sees, without any work per item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ..client.blocking.received import ReadTransaction
from ..errors import BadRequest
from ..items import Items, Kind
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

HEADERS = pa.field("headers", pa.map_(pa.string(), pa.binary()), nullable=False)
"""What the transaction of every item says of itself."""

ITEM = pa.schema([pa.field("item", pa.binary(), nullable=False)])


def to_spark(field: pa.Field) -> pa.Field:
    """A column as Spark wants it from a source: it knows one type of text, of time, and so on.

    `BadRequest` names the column that Spark has no type for.
    """
    try:
        made = to_arrow_schema(from_arrow_schema(pa.schema([field])), timezone="UTC")
    except Exception as error:
        raise BadRequest(f"Spark has no type for column {field.name!r}: {error}") from None
    return made.field(0)


def spark_type(field: pa.Field) -> pa.DataType:
    """The type that Spark gives such a column when it writes it."""
    return to_spark(field).type


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns a read gives: those of the stream, and what is known of every item."""

    schema: pa.Schema
    """All of them, with the types that Spark has for them. A stream's own come first if it has a schema."""
    typed: bool

    @staticmethod
    def of(schema: pa.Schema | None, metadata: bool | None = None, headers: bool = False) -> Layout:
        """For a stream with this schema, or with none. Items come with what is known of them, rows
        without, unless it is said otherwise. Headers come if they are wanted."""
        extra = [to_spark(HEADERS)] if headers else []
        if schema is None:
            known = [*METADATA] if metadata is not False else []
            return Layout(pa.schema([*known, *extra, *ITEM]), False)
        own = [to_spark(it) for it in schema]
        known = [it.with_name("_" + it.name) for it in [*(METADATA if metadata else ()), *extra]]
        return Layout(pa.schema([*own, *known]), True)

    def only(self, names: Sequence[str]) -> Layout:
        """These columns of it: a plan keeps those that there were when it was made."""
        for name in names:
            if name not in self.schema.names:
                has = ", ".join(self.schema.names)
                raise BadRequest(f"there is no column {name!r}: a read gives {has}")
        return Layout(pa.schema([self.schema.field(it) for it in names]), self.typed)

    @property
    def prefix(self) -> str:
        """What stands before the names of what is known of every item."""
        return "_" if self.typed else ""


class Columns:
    """Makes record batches of the transactions of one partition."""

    def __init__(self, layout: Layout, stream: str, partition: int) -> None:
        self._schema = layout.schema
        self._name = stream
        self._typed = layout.typed
        self._ids: list[int] = []
        self._counts: list[int] = []
        self._parts: list[Any] = []
        """Of typed rows tables, else arrays of items."""
        self._rows = 0
        self._header_column = layout.prefix + HEADERS.name
        self._with_headers = self._header_column in layout.schema.names
        self._headers: list[dict[str, bytes]] = []
        """Of each transaction, if they are wanted."""
        self._index = pa.array([], pa.int32())
        self._indexed: list[int] = []
        self._stream = _Constant(pa.scalar(stream, pa.string()))
        self._partition = _Constant(pa.scalar(partition, pa.int32()))
        self._known: dict[str, Callable[[], pa.Array]] = {
            layout.prefix + name: make
            for name, make in (
                ("stream", lambda: self._stream.column(self._rows)),
                ("partition", lambda: self._partition.column(self._rows)),
                ("transaction", lambda: self._repeated(np.array(self._ids), pa.int64())),
                ("index", self._indices),
                ("time", lambda: self._repeated(np.array(self._ids) // IDS_PER_MS * 1000, _TIME)),
                (HEADERS.name, self._repeated_headers),
            )
        }

    def batches(self, transactions: Iterable[ReadTransaction]) -> Iterator[pa.RecordBatch]:
        """Record batches of about `ROWS_PER_BATCH` rows."""
        for transaction in transactions:
            if self._typed:
                self._parts.append(transaction.to_arrow())
            else:
                self._parts += self._item_arrays(transaction)
            if self._with_headers:
                self._headers.append(transaction.headers)
            rows = len(transaction)
            self._ids.append(transaction.id)
            self._counts.append(rows)
            self._rows += rows
            if self._rows >= ROWS_PER_BATCH:
                yield from self._flush()
        yield from self._flush()

    def _flush(self) -> Iterator[pa.RecordBatch]:
        if not self._rows:
            return
        own = self._own_columns()
        columns = [self._column(it, own) for it in self._schema]
        whole = pa.Table.from_arrays(columns, schema=self._schema)
        self._ids, self._counts, self._parts, self._rows = [], [], [], 0
        self._headers = []
        yield from whole.to_batches(max_chunksize=2 * ROWS_PER_BATCH)

    def _item_arrays(self, transaction: ReadTransaction) -> list[pa.Array]:
        items = transaction.items
        if isinstance(items, Items) and items.kind is Kind.BYTES:  # one batch, as most are
            return [items.to_arrow()]
        table = transaction.to_arrow()
        if table.schema.names != ITEM.names:
            raise self._misses(ITEM.names[0], table.schema.names)
        return table.column(0).chunks  # type: ignore[no-any-return]

    def _misses(self, column: str, names: list[str]) -> BadRequest:
        """A stream came later, with another schema, among those of a prefix."""
        return BadRequest(
            f"stream {self._name!r} has no column {column!r}, as the others that are read with "
            f"it: it has {', '.join(names)}"
        )

    def _own_columns(self) -> pa.Table:
        """What the stream has, in one piece, unless that would be more than an array can hold."""
        if self._typed:
            return pa.concat_tables(self._parts).combine_chunks()
        column = pa.chunked_array(self._parts, pa.binary())
        return pa.Table.from_arrays([column], schema=ITEM).combine_chunks()

    def _column(self, wanted: pa.Field, own: pa.Table) -> pa.Array | pa.ChunkedArray:
        names = own.schema.names
        if wanted.name in names:
            return _as_type(own.column(wanted.name), wanted.type)
        known = self._known.get(wanted.name)
        if known is None:
            raise self._misses(wanted.name, names)
        return known()

    def _repeated(self, values: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
        """A column with one value for each transaction."""
        repeated = np.repeat(values, self._counts)
        return pa.Array.from_buffers(kind, self._rows, [None, pa.py_buffer(repeated)])

    def _repeated_headers(self) -> pa.Array:
        kind = self._schema.field(self._header_column).type
        each = pa.array([list(it.items()) for it in self._headers], kind)
        return each.take(pa.array(np.repeat(np.arange(len(self._counts)), self._counts)))

    def _indices(self) -> pa.Array:
        if self._counts != self._indexed:  # transactions are often of one size: they share it
            indices = np.arange(max(self._counts), dtype=np.int32)
            self._index = pa.array(np.concatenate([indices[:count] for count in self._counts]))
            self._indexed = self._counts
        return self._index


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
    if column.type == wanted:
        return column
    # Spark counts time in microseconds, and cuts off what is finer.
    return column.cast(options=pc.CastOptions(wanted, allow_time_truncate=True))
