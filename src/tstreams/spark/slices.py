"""The slices of a read: each is read by one task, straight from the server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition

from ..client.blocking.client import Client
from ..client.config import ClientConfig
from ..errors import Error, NotFound
from ..model import Stream
from . import connections
from .columns import Columns, Layout
from .tracing import received

COUNTED_AT_ONCE = 20_000


class Slice(InputPartition):
    """A part of a partition. Whole transactions, so that each is read by one task."""

    def __init__(self, stream: str, partition: int, after: int, up_to: int) -> None:
        self.stream = stream
        self.partition = partition
        self.after = after
        self.up_to = up_to
        self.seen: Stream | None = None
        """The stream when the read was planned; None if what happened to it since does not matter."""
        self.value = None

    def __repr__(self) -> str:
        return f"<{self.stream!r}/{self.partition}, ({self.after}, {self.up_to}]>"


def cut(
    ts: Client, ranges: Iterable[tuple[str, int, int, int]], partitions_min: int
) -> list[Slice]:
    """One slice for each range, or more of them if there must be so many."""
    slices = [Slice(*it) for it in ranges]
    if not slices or len(slices) >= partitions_min:
        return slices
    parts = math.ceil(partitions_min / len(slices))
    return [part for it in slices for part in _split(ts, it, parts)]


def _split(ts: Client, whole: Slice, parts: int) -> Iterator[Slice]:
    """Parts with about as many transactions each."""
    count = sum(count for count, _ in _steps(ts, whole, COUNTED_AT_ONCE))
    after = whole.after
    for _, last_id in _steps(ts, whole, max(1, math.ceil(count / parts))):
        yield Slice(whole.stream, whole.partition, after, last_id)
        after = last_id


def _steps(ts: Client, whole: Slice, transactions: int) -> Iterator[tuple[int, int]]:
    """The numbers of transactions, and the last of each step, from the beginning to the end."""
    after = whole.after
    while after < whole.up_to:
        found = ts.survey(whole.stream, {whole.partition: after}, transactions=transactions)
        stretch = found[whole.partition]
        if stretch.last_id is None or stretch.last_id >= whole.up_to or not stretch.more:
            yield stretch.transactions, whole.up_to
            return
        yield stretch.transactions, stretch.last_id
        after = stretch.last_id


class DataLost(Error):
    """What a query was to read next is not there any more."""


def read(
    config: ClientConfig,
    layout: Layout,
    slice_: Slice,
    fail_on_data_loss: bool,
    traceparent: str | None = None,
) -> Iterator[Any]:
    """The rows of a slice, as record batches."""
    ts = connections.client(config)
    last_id = slice_.after
    columns = Columns(layout, slice_.stream, slice_.partition)

    def transactions() -> Iterator[Any]:
        nonlocal last_id
        found = ts.scan(slice_.stream, slice_.partition, after=slice_.after, up_to=slice_.up_to)
        for transaction in received(ts, found, slice_.stream, slice_.partition, traceparent):
            last_id = transaction.id
            yield transaction

    try:
        yield from columns.batches(transactions())
    except NotFound:
        if fail_on_data_loss:
            raise
    if slice_.seen is not None:
        _check_kept(ts, slice_, slice_.seen)
    if last_id != slice_.up_to and fail_on_data_loss:
        raise DataLost(
            f"transaction {slice_.up_to} of stream {slice_.stream!r}, partition {slice_.partition}, is "
            "not there any more: its ttl ended, or it was purged, before the query came to it. Give the "
            'stream a longer ttl, or go on without it with .option("failOnDataLoss", "false").'
        )


def _check_kept(ts: Client, slice_: Slice, seen: Stream) -> None:
    """Half of the old and nothing of the new is no state that the stream ever had: say so."""
    now = ts.stream(slice_.stream)
    if now.id != seen.id or now.purged_before > max(seen.purged_before, slice_.after + 1):
        raise DataLost(
            f"stream {slice_.stream!r} was overwritten, purged or made anew while it was read: read it again, "
            'or take what was left of it with .option("failOnDataLoss", "false").'
        )
