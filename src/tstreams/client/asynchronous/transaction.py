"""A transaction, for a task that writes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
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
    """A transaction that a producer has opened. Tasks may share it.

    `async with` it: leaving the block checkpoints it; an exception cancels it, and so does cancelling
    the task. Nothing of it is visible before the checkpoint. Items are gathered and sent in batches; a
    batch that could not be sent raises at the next call, and at the checkpoint at the latest. After that
    the transaction can only be cancelled.
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

    async def send(self, item: Buffer) -> None:
        """Add an item. Waits only if too much is under way already. The item may be reused afterwards.

        If the task is cancelled in here, the item is in the transaction all the same.
        """
        self._driver.check()
        if self._draft.add(item):
            await self._driver.run(self._draft.flush())

    async def send_many(
        self,
        items: Iterable[Buffer] | pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table,
    ) -> None:
        """Add items, or Arrow data: a column of binary or, if the stream has a schema, rows that fit it.

        If the task is cancelled in here, all items are in the transaction; of an iterator, those that it
        has given.
        """
        await self._driver.run(self._draft.add_many(items))

    async def send_arrow(
        self, data: pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Table
    ) -> None:
        """Add Arrow data, of any library that has its C interface: rows that fit the stream's schema or,
        if it has none, one column of binary or text. `BadRequest` names the column that does not fit.

        If the task is cancelled in here, all of it is in the transaction.
        """
        await self._driver.run(self._draft.add_many(check_arrow(data)))

    @overload
    async def checkpoint(self, *, wait: Literal[True] = True) -> None: ...
    @overload
    async def checkpoint(self, *, wait: Literal[False]) -> asyncio.Future[None]: ...
    async def checkpoint(self, *, wait: bool = True) -> asyncio.Future[None] | None:
        """Make it durable and visible, whole. An empty one ends CANCELLED.

        Without `wait` a future of it, as soon as all items are on their way; the checkpoint goes on also
        if the future is cancelled. On `Timeout` or `Unavailable` nobody knows whether it took effect. If
        the task is cancelled in here the transaction is open as before, or, if the checkpoint was under
        way to the server already, `state` will say CHECKPOINTED soon.
        """
        producer = self._draft.producer
        await self._driver.run(producer.prepare_one(self._draft))
        if wait:
            await self._driver.run(producer.commit_one(self._draft))
            return None
        return self._driver.spawn(producer.commit_one(self._draft))

    async def cancel(self) -> None:
        """Drop it and all that was sent into it. Goes on if the task is cancelled."""
        await self._driver.finish(self._draft.producer.cancel_one(self._draft))

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        draft = self._draft
        if kind is None:
            draft.own_up()
        if self.state is not TransactionState.OPENED:
            return
        if kind is not None and (draft.in_doubt or not issubclass(kind, Exception)):
            if draft.in_doubt or not draft.sealed:
                draft.producer.abandon(draft)
        elif draft.sealed:
            return
        elif kind is not None:
            await self._cancel_quietly()
        else:
            await self._checkpoint_or_drop()

    async def _checkpoint_or_drop(self) -> None:
        try:
            await self.checkpoint()
        except Unavailable:
            self._draft.producer.abandon(self._draft)
            raise
        except Exception:
            await self._cancel_quietly()
            raise
        except BaseException:  # a cancelled task must not wait for the server
            self._draft.producer.abandon(self._draft)
            raise

    async def _cancel_quietly(self) -> None:
        """Cancel, if it can be done: there is an error already that its user must see."""
        if self.state is not TransactionState.OPENED:
            return
        try:
            await self.cancel()
        except Unavailable:
            self._draft.producer.abandon(self._draft)
        except Error as error:
            log.warning("transaction %d could not be cancelled: %s", self.id, error)

    def __repr__(self) -> str:
        return f"<transaction {self.id} of {self.stream!r}/{self.partition}, {self.state.value}>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a transaction")
