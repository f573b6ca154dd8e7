"""Which stream and partition each row of a record batch goes to, without any work per row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..client.rules.partitioning import place_of
from ..errors import BadRequest
from ..model import Stream

Numbers: TypeAlias = npt.NDArray[np.int64]

ROUTES = ("stream", "partition", "key")
"""Columns that say where a row goes, unless the stream's own schema has one of that name."""


def split_by_stream(
    batch: pa.RecordBatch, default: str | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each stream, in their order."""
    if default is not None:
        yield default, batch
        return
    column = batch.column("stream")
    if column.null_count:
        raise BadRequest(f"{column.null_count} rows have no stream: the column `stream` is null")
    encoded = column.dictionary_encode()
    names, codes = encoded.dictionary.to_pylist(), encoded.indices
    if len(names) == 1:
        yield names[0], batch
        return
    for code, name in enumerate(names):
        yield name, batch.filter(pc.equal(codes, code))


def split_by_partition(
    batch: pa.RecordBatch, stream: Stream, default: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each partition, in their order: by the column `partition`, or by `key`."""
    partitions = _partitions(batch, stream)
    if partitions is None:
        yield default, batch
        return
    for partition in np.unique(partitions).tolist():
        rows = partitions == partition
        yield partition, batch if rows.all() else batch.filter(pa.array(rows))


def _partitions(batch: pa.RecordBatch, stream: Stream) -> Numbers | None:
    names = batch.schema.names
    if "partition" in names:
        column = batch.column("partition")
        if column.null_count:
            raise BadRequest(f"{column.null_count} rows have no partition: the column is null")
        found = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if len(found) and not 0 <= found.min() <= found.max() < stream.partitions:
            raise BadRequest(
                f"stream {stream.name!r} has the partitions 0 to {stream.partitions - 1}, not "
                f"{found.min() if found.min() < 0 else found.max()}"
            )
        return np.asarray(found, np.int64)
    if "key" not in names:
        return None
    column = batch.column("key")
    if column.null_count:
        raise BadRequest(f"{column.null_count} rows have no key: the column `key` is null")
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        column = column.cast(pa.string())
    encoded = column.cast(pa.binary()).dictionary_encode()
    # The same key leads to the same partition as with a producer's `key=`.
    of_keys = [place_of(key, stream.partitions) for key in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return np.asarray(np.array(of_keys, np.int64)[codes])
