"""What `spark` compares with: sources and sinks for Spark in Python that do nothing of their own.

Spark's Python workers import this module: it holds what runs there, and no more.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tstreams.spark.columns import Layout

ITEM_BYTES = 100
ROWS_PER_BATCH = 10_000
_DISTINCT = 32
"""Record batches that a worker makes beforehand, and gives in turn: more than its processor's cache holds."""

TYPED = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("account", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("note", pa.string()),
    ]
)
"""100 B in each row: 8, 16, 8, 8 and 60."""
BINARY = Layout.of(None, True).schema
"""What the source of tstreams gives for items."""


def typed_rows(count: int, first: int = 0) -> pa.RecordBatch:
    """Rows of `TYPED`."""
    ids = np.arange(first, first + count)
    digits = pa.array(ids).cast(pa.string())
    columns = [
        pa.array(ids),
        pc.utf8_lpad(digits, 16, "0"),
        pa.array(ids / 7),
        pa.array(ids * 1_000_003, pa.int64()).cast(TYPED.field("at").type),
        pc.utf8_rpad(digits, 60, "."),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=TYPED)


def item_column(count: int, seed: int = 0) -> pa.Array:
    """Items of 100 B that do not compress."""
    data = np.random.default_rng(seed).bytes(count * ITEM_BYTES)
    offsets = np.arange(0, (count + 1) * ITEM_BYTES, ITEM_BYTES, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def item_rows(count: int, seed: int = 0) -> pa.RecordBatch:
    """Rows of `BINARY`, as the source of tstreams would give them."""
    ids = np.repeat(np.arange(count // 1000 + 1) + 179_300_000_000_000_000, 1000)[:count]
    columns = [
        pa.repeat(pa.scalar("items", pa.string()), count),
        pa.repeat(pa.scalar(seed % 4, pa.int32()), count),
        pa.array(ids),
        pa.array((np.arange(count) % 1000).astype(np.int32)),
        pa.array(ids // 100).cast(BINARY.field("time").type),
        item_column(count, seed),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BINARY)


@cache
def _made(typed: bool, number: int) -> pa.RecordBatch:
    """Made once in each worker, in the round that is not counted."""
    make = typed_rows if typed else item_rows
    return make(ROWS_PER_BATCH, number)


def batches(rows: int, typed: bool) -> Iterator[pa.RecordBatch]:
    """So many rows."""
    whole, rest = divmod(rows, ROWS_PER_BATCH)
    for number in range(whole):
        yield _made(typed, number % _DISTINCT)
    if rest:
        yield _made(typed, 0).slice(0, rest)


class Share(InputPartition):
    """The rows of one task."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.value = None


class MemoryReader(DataSourceReader):
    """Gives record batches that are there already."""

    def __init__(self, rows: int, tasks: int, typed: bool) -> None:
        self._rows = rows
        self._tasks = tasks
        self._typed = typed

    def partitions(self) -> list[InputPartition]:
        """As many tasks as a stream has partitions."""
        even, rest = divmod(self._rows, self._tasks)
        return [Share(even + (number < rest)) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In a task."""
        assert isinstance(partition, Share)
        return batches(partition.rows, self._typed)


class MemoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of as many rows as are asked for, a fixed number of them."""

    def __init__(self, rows: int, batches: int) -> None:
        self._rows = rows
        self._batches = batches

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first."""
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One at a time."""
        return ReadMaxRows(1)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The next."""
        return {"batch": min(start["batch"] + 1, self._batches)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """It ends by itself."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One task."""
        return [Share(self._rows * (end["batch"] - start["batch"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In a task."""
        assert isinstance(partition, Share)
        return batches(partition.rows, False)


@dataclass
class Counted(WriterCommitMessage):
    """The rows of one task."""

    rows: int


class NullWriter(DataSourceArrowWriter):
    """Takes rows, and lets go of them."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Counted:
        """In a task."""
        return Counted(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver."""
        _check(messages, self._rows)


class NullStreamWriter(DataSourceStreamArrowWriter):
    """The same, for micro-batches."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Counted:
        """In a task."""
        return Counted(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver."""
        _check(messages, self._rows)


def _check(messages: list[WriterCommitMessage | None], rows: int) -> None:
    found = sum(it.rows for it in messages if isinstance(it, Counted))
    if found != rows:
        raise RuntimeError(f"{found} rows came, not {rows}")


class Memory(DataSource):
    """`format("memory-arrow")`: options `rows`, `tasks`, `batches` and `typed`."""

    @classmethod
    def name(cls) -> str:
        """What goes into `format(...)`."""
        return "memory-arrow"

    @property
    def _typed(self) -> bool:
        return self.options.get("typed") == "true"

    def _number(self, name: str) -> int:
        return int(self.options.get(name, "1"))

    def schema(self) -> Any:
        """The columns of a read."""
        return from_arrow_schema(TYPED if self._typed else BINARY)

    def reader(self, schema: Any) -> MemoryReader:
        """For `spark.read`."""
        return MemoryReader(self._number("rows"), self._number("tasks"), self._typed)

    def streamReader(self, schema: Any) -> MemoryStreamReader:  # noqa: N802
        """For `spark.readStream`."""
        return MemoryStreamReader(self._number("rows"), self._number("batches"))

    def writer(self, schema: Any, overwrite: bool) -> NullWriter:
        """For `df.write`."""
        return NullWriter(self._number("rows"))

    def streamWriter(self, schema: Any, overwrite: bool) -> NullStreamWriter:  # noqa: N802
        """For `df.writeStream`."""
        return NullStreamWriter(self._number("rows"))


gc.collect()
gc.freeze()
# As in a worker of tstreams: Spark collects garbage after every task, and a floor must not pay more for it.
