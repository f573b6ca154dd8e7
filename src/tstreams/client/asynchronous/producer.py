"""A producer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from ...items import Buffer
from ...protocol import Done
from ..pickling import refuse_to_pickle
from ..rules import producer as rules
from ..rules.heading import Heading, make_heading
from ..rules.instant import InstantSink
from ..rules.ticket import Ticket
from .driver import Driver
from .opening import Opening
from .transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa


class Producer:
    """Writes transactions into a stream, under a name that nobody else may use at the same time.

    Tasks may share it. Made by `client.producer(...)`; close it, or `async with` it: what it left open is
    cancelled then. While the client lives and its loop turns, the leases of open transactions are kept in
    the background.
    """

    def __init__(
        self, driver: Driver, producer: rules.Producer, on_close: Callable[[Producer], None]
    ) -> None:
        self._driver = driver
        self._rules = producer
        self._on_close = on_close

    @property
    def name(self) -> str:
        """Its name: unique among the producers of its stream."""
        return self._rules.agent.name

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._rules.agent.stream.name

    @property
    def partitions(self) -> list[int]:
        """The partitions that it writes to."""
        return list(self._rules.partitioner.partitions)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._rules.agent.closed

    # Transactions.

    def open(
        self,
        partition: int | None = None,
        *,
        key: Buffer | None = None,
        policy: str = "enqueue",
        headers: Mapping[str, Buffer] | None = None,
    ) -> Opening[Transaction]:
        """Open a transaction in this partition, in that of a key's hash, or in the next one in turn.

        `await` it, or `async with` it. `policy` says what happens to transactions of this producer that
        are open in the partition: "checkpoint" or "cancel" them, "error" raises `InvalidState`, "enqueue"
        leaves them. `headers` are names with bytes that travel with the transaction, beside its items: few
        and small ones. If the task is cancelled in here, no transaction stays open.
        """
        return Opening(self._open(partition, key, policy, headers))

    def transaction(
        self,
        partition: int | None = None,
        *,
        key: Buffer | None = None,
        policy: str = "enqueue",
        headers: Mapping[str, Buffer] | None = None,
    ) -> Opening[Transaction]:
        """The same as `open`, to be used with `async with`."""
        return Opening(self._open(partition, key, policy, headers))

    async def _open(
        self,
        partition: int | None,
        key: Buffer | None,
        policy: str,
        headers: Mapping[str, Buffer] | None,
    ) -> Transaction:
        draft = await self._driver.run(self._rules.open(partition, key, policy, headers))
        return Transaction(self._driver, draft)

    async def checkpoint(self, partition: int | None = None) -> None:
        """Checkpoint all open transactions, or those of a partition, at once: all of them or none.

        If the task is cancelled in here they are open as before, or, if the checkpoint was under way to
        the server already, their `state` will say CHECKPOINTED soon.
        """
        await self._driver.run(self._rules.checkpoint(partition))

    async def cancel(self, partition: int | None = None) -> None:
        """Cancel all open transactions, or those of a partition. Goes on if the task is cancelled."""
        await self._driver.finish(self._rules.cancel(partition))

    # Instant ones.

    @overload
    async def instant(
        self,
        items: Iterable[Buffer] | pa.Array | pa.RecordBatch | pa.Table,
        partition: int | None = None,
        *,
        key: Buffer | None = None,
        reliable: Literal[True] = True,
        wait: Literal[True] = True,
        headers: Mapping[str, Buffer] | None = None,
    ) -> int: ...
    @overload
    async def instant(
        self,
        items: Iterable[Buffer] | pa.Array | pa.RecordBatch | pa.Table,
        partition: int | None = None,
        *,
        key: Buffer | None = None,
        reliable: Literal[True] = True,
        wait: Literal[False],
        headers: Mapping[str, Buffer] | None = None,
    ) -> asyncio.Future[int]: ...
    @overload
    async def instant(
        self,
        items: Iterable[Buffer] | pa.Array | pa.RecordBatch | pa.Table,
        partition: int | None = None,
        *,
        key: Buffer | None = None,
        reliable: Literal[False],
        wait: bool = True,
        headers: Mapping[str, Buffer] | None = None,
    ) -> None: ...
    async def instant(
        self,
        items: Any,
        partition: int | None = None,
        *,
        key: Buffer | None = None,
        reliable: bool = True,
        wait: bool = True,
        headers: Mapping[str, Buffer] | None = None,
    ) -> int | asyncio.Future[int] | None:
        """A whole transaction in one round trip: its id, when it is durable and visible.

        Without `wait` a future of the id, as soon as there is room for it: the futures of one producer
        take effect in the order of the calls, and cancelling one calls nothing back. With
        `reliable=False` it is sent and forgotten: None, and it is lost if the connection breaks. If the
        task is cancelled in here nobody knows whether the transaction was sent; it is never half there.
        """
        self._driver.check()
        await self._driver.breathe()
        producer = self._rules
        producer.agent.check()
        chosen = producer.partitioner.pick(partition, key)
        if headers is not None or producer.tracing is not None:
            return await self._headed_instant(items, chosen, headers, reliable, wait)
        batch = producer.pack_instant(items)
        if type(batch) is not bytes:
            return await self._long_instant(chosen, batch, reliable, wait)  # type: ignore[arg-type]
        return await self._short_instant(chosen, batch, reliable, wait)

    async def _short_instant(
        self, chosen: int, batch: bytes, reliable: bool, wait: bool
    ) -> int | asyncio.Future[int] | None:
        if not reliable:
            await self._send(InstantSink(None), chosen, batch, True)
            return None
        if wait:
            ticket = Ticket()
            await self._send(ticket, chosen, batch)
            if not ticket.ended:
                await self._driver.wait(ticket)
            return ticket.reply(Done).id
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        await self._send(InstantSink(future), chosen, batch)
        return future

    async def _headed_instant(
        self,
        items: Any,
        partition: int,
        headers: Mapping[str, Buffer] | None,
        reliable: bool,
        wait: bool,
    ) -> int | asyncio.Future[int] | None:
        producer = self._rules
        heading = make_heading(producer.agent, partition, headers)
        with heading.failing():
            batch = producer.pack_instant(items, heading.batch_bytes_max)
            if not isinstance(batch, bytes):
                return await self._long_instant(partition, batch, reliable, wait, heading)
            batch = heading.put_on(batch)
            result = await self._short_instant(partition, batch, reliable, wait)
        heading.settle(result)
        return result

    async def _send(
        self, sink: Ticket | InstantSink, partition: int, batch: bytes, one_way: bool = False
    ) -> None:
        if not self._rules.try_instant(sink, partition, batch, one_way):
            await self._driver.run(self._rules.send_instant(sink, partition, batch, one_way))

    async def _long_instant(
        self,
        partition: int,
        batches: Iterator[bytes],
        reliable: bool,
        wait: bool,
        heading: Heading | None = None,
    ) -> int | asyncio.Future[int] | None:
        """More than one batch takes: opened, filled and checkpointed, also if it need not be reliable."""
        draft = await self._driver.run(self._rules.write_long(partition, batches, heading))
        future = self._driver.spawn(self._rules.commit_long(draft))
        if not reliable:
            future.add_done_callback(lambda done: done.exception())  # nobody wants to know
            return None
        return await future if wait else future

    # The end.

    async def close(self) -> None:
        """Cancel what is open, and give the name back. May be called again.

        Goes on if the task is cancelled.
        """
        if not self._rules.agent.is_foreign:
            try:
                await self._driver.finish(self._rules.close())
            finally:
                self._on_close(self)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<producer {self.name!r} of {self.stream!r}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a producer")
