"""Where a task's rows for one stream go."""

from __future__ import annotations

import pyarrow as pa

from ..client.blocking.client import Client
from ..client.blocking.transaction import Transaction
from ..errors import BadRequest
from ..items.schemas import was_added
from ..model import Stream
from .columns import spark_type
from .options import WriteOptions
from .routing import ROUTES


class Outlet:
    """A producer, and a transaction in each partition that the task writes to.

    A transaction is opened when there is something to send into it, because an open one holds up readers.
    """

    def __init__(self, ts: Client, name: str, options: WriteOptions, number: int) -> None:
        self.producer = ts.producer(name, compression=options.compression)
        self.stream: Stream = self.producer._rules.agent.stream
        self.schema: pa.Schema | None = self.stream.schema
        self.default = number % self.stream.partitions
        """Where rows go that do not say where: with each task and micro-batch to another partition."""
        self._bytes_max = options.transaction_bytes_max
        self._open: dict[int, Transaction] = {}
        self._sent: dict[int, int] = {}

    @property
    def used(self) -> bool:
        """Whether anything was sent."""
        return bool(self._sent)

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
        """The stream's columns, in its order and with its types. Columns that were added to the schema
        may be missing; they are nulls then."""
        assert self.schema is not None
        given = rows.schema.names
        extra = [it for it in given if it not in self.schema.names and it not in ROUTES]
        if extra:
            own = ", ".join(self.schema.names)
            raise BadRequest(
                f"stream {self.stream.name!r} has no column {extra[0]!r}: it has {own}"
            )
        fields = [it for it in self.schema if it.name in given or was_added(it)]
        columns = [
            self._as_type(rows.column(it.name), it)
            if it.name in given
            else pa.nulls(rows.num_rows, it.type)
            for it in fields
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _as_type(self, column: pa.Array, wanted: pa.Field) -> pa.Array:
        """Arrow has several types where Spark has one; between those a column is cast, and between no
        others."""
        if column.type == wanted.type:
            return column
        if column.type == spark_type(wanted):
            try:
                return column.cast(wanted.type)
            except pa.ArrowInvalid as error:
                reason = f"does not fit into {wanted.type}: {error}"
        else:
            reason = f"is {column.type}, and {wanted.type} in the stream's schema: cast it"
        raise BadRequest(f"stream {self.stream.name!r}: column {wanted.name!r} {reason}")
