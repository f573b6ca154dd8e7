"""A transaction, for whoever writes it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from ...errors import Error, Unavailable
from ...items import Buffer
from ...model import TransactionState, time_of
from ..pickling import refuse_to_pickle
from ..rules.draft import Draft
from ..rules.outbox import check_arrow
from .driver import Driver

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("tstreams.client")


class Transaction:
    """A transaction that a producer has opened. Threads may share it.

    `with` it: leaving the block checkpoints it, an exception cancels it. Nothing of it is visible before
    the checkpoint. Items are gathered and sent in batches; a batch that could not be sent raises at the
    next call, and at the checkpoint at the latest. After that the transaction can only be cancelled.
    """

    def __init__(self, driver: Driver, draft: Draft) -> None:
        self._driver = driver
        self._draft = draft

    @property
    def id(self) -> int:
        """Its id: greater than that of every transaction opened before it."""
        return self._draft.id

    @property
    def partition(self) -> int:
        """The partition that it writes to."""
        return self._draft.partition

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._draft.producer.agent.stream.name

    @property
    def time(self) -> datetime:
        """When it was opened, by the server's clock."""
        return time_of(self._draft.id)

    @property
    def headers(self) -> dict[str, bytes]:
        """What it says of itself, beside its items; with tracing, the context of its span too."""
        return self._draft.headers

    @property
    def state(self) -> TransactionState:
        """What has become of it, as far as this client knows."""
        return self._draft.state

    def send(self, item: Buffer) -> None:
        """Add an item. Waits only if too much is under way already. The item may be reused afterwards."""
        if self._draft.add(item):
            self._driver.run(self._draft.flush())

    def send_many(
        self,
        items: Iterable[Buffer] | pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table,
    ) -> None:
        """Add items, or Arrow data: a column of binary or, if the stream has a schema, rows that fit it."""
        self._driver.run(self._draft.add_many(items))

    def send_arrow(self, data: pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table) -> None:
        """Add Arrow data, of any library that has its C interface: rows that fit the stream's schema or,
        if it has none, one column of binary or text. `BadRequest` names the column that does not fit.
        """
        self._driver.run(self._draft.add_many(check_arrow(data)))

    @overload
    def checkpoint(self, *, wait: Literal[True] = True) -> None: ...
    @overload
    def checkpoint(self, *, wait: Literal[False]) -> Future[None]: ...
    def checkpoint(self, *, wait: bool = True) -> Future[None] | None:
        """Make it durable and visible, whole. An empty one ends CANCELLED.

        Without `wait` a future of it, which cannot be cancelled. On `Timeout` or `Unavailable` nobody
        knows whether it took effect.
        """
        producer = self._draft.producer
        self._driver.run(producer.prepare_one(self._draft))
        if wait:
            self._driver.run(producer.commit_one(self._draft))
            return None
        return self._driver.spawn(producer.commit_one(self._draft))

    def cancel(self) -> None:
        """Drop it and all that was sent into it."""
        self._driver.run(self._draft.producer.cancel_one(self._draft))

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._draft.own_up()
        if self.state is not TransactionState.OPENED or self._draft.sealed:
            return
        if kind is not None:
            self._cancel_quietly()
            return
        try:
            self.checkpoint()
        except Unavailable:
            self._draft.producer.abandon(self._draft)
            raise
        except Exception:
            self._cancel_quietly()
            raise
        except BaseException:  # an interrupt: nobody wants to wait
            self._draft.producer.abandon(self._draft)
            raise

    def _cancel_quietly(self) -> None:
        """Cancel, if it can be done: there is an error already that its user must see."""
        if self.state is TransactionState.OPENED:
            try:
                self.cancel()
            except Unavailable:
                self._draft.producer.abandon(self._draft)
            except Error as error:
                log.warning("transaction %d could not be cancelled: %s", self.id, error)

    def __repr__(self) -> str:
        return f"<transaction {self.id} of {self.stream!r}/{self.partition}, {self.state.value}>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a transaction")
