"""Transactions as the columns that Spark sees, without any work per item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..client.blocking.received import ReadTransaction
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


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns a read gives: those of the stream, and what is known of every item."""

    own: pa.Schema
    metadata: bool
    typed: bool

    @staticmethod
    def of(schema: pa.Schema | None, metadata: bool) -> Layout:
        """For a stream with this schema, or with none."""
        if schema is None:
            return Layout(ITEM, True, False)
        return Layout(schema, metadata, True)

    @property
    def schema(self) -> pa.Schema:
        """All columns. A stream's own names come first, and are not taken by ours."""
        if not self.typed:
            return pa.schema([*METADATA, *self.own])
        known = METADATA if self.metadata else ()
        return pa.schema([*self.own, *(it.with_name("_" + it.name) for it in known)])

    def arrange(self, own: list[pa.Array], known: list[pa.Array]) -> list[pa.Array]:
        """Columns in the order of the schema."""
        return [*own, *known] if self.typed else [*known, *own]


class Columns:
    """Makes record batches of the transactions of one partition."""

    def __init__(self, layout: Layout, stream: str, partition: int) -> None:
        self._layout = layout
        self._schema = layout.schema
        self._stream = pa.scalar(stream, pa.string())
        self._partition = pa.scalar(partition, pa.int32())
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
        own = [table.column(it.name).cast(it.type) for it in self._layout.own]
        known = self._known() if self._layout.metadata else []
        columns = self._layout.arrange(own, known)
        whole = pa.Table.from_arrays(columns, schema=self._schema)
        self._ids, self._counts, self._tables, self._rows = [], [], [], 0
        yield from whole.to_batches(max_chunksize=2 * ROWS_PER_BATCH)

    def _known(self) -> list[pa.Array]:
        """The metadata columns, in their order."""
        counts = np.array(self._counts, np.int64)
        ids = np.repeat(np.array(self._ids, np.int64), counts)
        begins = np.repeat(np.cumsum(counts) - counts, counts)
        return [
            pa.repeat(self._stream, self._rows),
            pa.repeat(self._partition, self._rows),
            pa.array(ids),
            pa.array((np.arange(self._rows) - begins).astype(np.int32)),
            pa.array(ids // IDS_PER_MS * 1000).cast(METADATA.field("time").type),
        ]
