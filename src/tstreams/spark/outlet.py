"""Where a task's rows for one stream go."""

from __future__ import annotations

import pyarrow as pa

from ..client.blocking.client import Client
from ..client.blocking.transaction import Transaction
from ..errors import BadRequest
from ..model import Stream
from .options import WriteOptions
from .routing import ROUTES


class Outlet:
    """A producer, and a transaction in each partition that the task writes to.

    A transaction is opened when there is something to send into it, because an open one holds up readers.
    """

    def __init__(self, ts: Client, name: str, options: WriteOptions, number: int) -> None:
        self.stream: Stream = ts.stream(name)
        self.schema: pa.Schema | None = self.stream.schema
        self.producer = ts.producer(name, compression=options.compression)
        self.default = number % self.stream.partitions
        """Where rows go that do not say where: with each task and micro-batch to another partition."""
        self._bytes_max = options.transaction_bytes_max
        self._open: dict[int, Transaction] = {}
        self._sent: dict[int, int] = {}

    def send(self, partition: int, rows: pa.RecordBatch) -> None:
        """Send rows into the partition's transaction, or into a new one when that is full."""
        payload = self._payload(rows)
        if self._sent.get(partition, 0) >= self._bytes_max:
            del self._open[partition]  # it stays open until it is staged
            self._sent[partition] = 0
        transaction = self._open.get(partition)
        if transaction is None:
            transaction = self._open[partition] = self.producer.open(partition)
        transaction.send_many(payload)
        self._sent[partition] = self._sent.get(partition, 0) + payload.nbytes

    def _payload(self, rows: pa.RecordBatch) -> pa.RecordBatch | pa.Array:
        """The column of items, or the rows of the stream's schema."""
        if self.schema is not None:
            return self._typed(rows)
        if "item" not in rows.schema.names:
            others = [name for name in rows.schema.names if name not in ROUTES]
            raise BadRequest(
                f"stream {self.stream.name!r} holds items: give a column `item` of binary or text, not "
                f"{', '.join(others)}; or create the stream with a schema"
            )
        return rows.select(["item"])

    def _typed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        assert self.schema is not None
        own = self.schema.names
        extra = [it for it in rows.schema.names if it not in own and it not in ROUTES]
        if extra:
            raise BadRequest(
                f"stream {self.stream.name!r} has no column {extra[0]!r}: it has {', '.join(own)}"
            )
        return rows.select([it for it in rows.schema.names if it in own])
