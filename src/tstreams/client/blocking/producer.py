"""A producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, overload

from ...items import Buffer
from ...protocol import Done
from ..pickling import refuse_to_pickle
from ..rules import producer as rules
from ..rules.heading import Heading, make_heading
from ..rules.instant import InstantSink
from ..rules.ticket import Ticket
from .driver import Driver
from .transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa


class Producer:
    """Writes transactions into a stream, under a name that nobody else may use at the same time.

    Threads may share it. Made by `client.producer(...)`; close it, or `with` it: what it left open is
    cancelled then. While the client lives, the leases of open transactions are kept in the background.
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
    ) -> Transaction:
        """Open a transaction in this partition, in that of a key's hash, or in the next one in turn.

        `policy` says what happens to transactions of this producer that are open in the partition:
        "checkpoint" or "cancel" them, "error" raises `InvalidState`, "enqueue" leaves them. `headers` are
        names with bytes that travel with the transaction, beside its items: few and small ones.
        """
        draft = self._driver.run(self._rules.open(partition, key, policy, headers))
        return Transaction(self._driver, draft)

    def transaction(
        self,
        partition: int | None = None,
        *,
        key: Buffer | None = None,
        policy: str = "enqueue",
        headers: Mapping[str, Buffer] | None = None,
    ) -> Transaction:
        """The same as `open`, to be used with `with`."""
        return self.open(partition, key=key, policy=policy, headers=headers)

    def checkpoint(self, partition: int | None = None) -> None:
        """Checkpoint all open transactions, or those of a partition, at once: all of them or none."""
        self._driver.run(self._rules.checkpoint(partition))

    def cancel(self, partition: int | None = None) -> None:
        """Cancel all open transactions, or those of a partition."""
        self._driver.run(self._rules.cancel(partition))

    # Instant ones.

    @overload
    def instant(
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
    def instant(
        self,
        items: Iterable[Buffer] | pa.Array | pa.RecordBatch | pa.Table,
        partition: int | None = None,
        *,
        key: Buffer | None = None,
        reliable: Literal[True] = True,
        wait: Literal[False],
        headers: Mapping[str, Buffer] | None = None,
    ) -> Future[int]: ...
    @overload
    def instant(
        self,
        items: Iterable[Buffer] | pa.Array | pa.RecordBatch | pa.Table,
        partition: int | None = None,
        *,
        key: Buffer | None = None,
        reliable: Literal[False],
        wait: bool = True,
        headers: Mapping[str, Buffer] | None = None,
    ) -> None: ...
    def instant(
        self,
        items: Iterable[Buffer] | pa.Array | pa.RecordBatch | pa.Table,
        partition: int | None = None,
        *,
        key: Buffer | None = None,
        reliable: bool = True,
        wait: bool = True,
        headers: Mapping[str, Buffer] | None = None,
    ) -> int | Future[int] | None:
        """Open, fill and checkpoint a transaction in one round trip: its id.

        Without `wait` a future of the id, so that one thread can keep many under way; they take effect
        in the order of the calls. It waits only if too much is under way. `reliable=False` sends it
        and forgets it: None, and it is lost if the connection breaks.
        """
        producer = self._rules
        producer.agent.check()
        chosen = producer.partitioner.pick(partition, key)
        if headers is not None or producer.tracing is not None:
            return self._headed_instant(items, chosen, headers, reliable, wait)
        batch = producer.pack_instant(items)
        if type(batch) is not bytes:
            return self._long_instant(chosen, batch, reliable, wait)  # type: ignore[arg-type]
        return self._short_instant(chosen, batch, reliable, wait)

    def _short_instant(
        self, chosen: int, batch: bytes, reliable: bool, wait: bool
    ) -> int | Future[int] | None:
        if not reliable:
            self._send(InstantSink(None), chosen, batch, True)
            return None
        if wait:
            ticket = Ticket()
            self._send(ticket, chosen, batch)
            if not ticket.ended:
                self._driver.wait(ticket)
            return ticket.reply(Done).id
        future: Future[int] = Future()
        future.set_running_or_notify_cancel()  # what was sent cannot be called back
        self._send(InstantSink(future), chosen, batch)
        return future

    def _headed_instant(
        self,
        items: Any,
        partition: int,
        headers: Mapping[str, Buffer] | None,
        reliable: bool,
        wait: bool,
    ) -> int | Future[int] | None:
        producer = self._rules
        heading = make_heading(producer.agent, partition, headers)
        with heading.failing():
            batch = producer.pack_instant(items, heading.batch_bytes_max)
            if not isinstance(batch, bytes):
                return self._long_instant(partition, batch, reliable, wait, heading)
            batch = heading.put_on(batch)
            result = self._short_instant(partition, batch, reliable, wait)
        heading.settle(result)
        return result

    def _send(
        self, sink: Ticket | InstantSink, partition: int, batch: bytes, one_way: bool = False
    ) -> None:
        if self._rules.try_instant(sink, partition, batch, one_way):
            return
        if self._driver.may_wait():
            self._driver.run(self._rules.send_instant(sink, partition, batch, one_way))
        else:
            steps = self._rules.send_instant(sink, partition, batch, one_way, hurry=True)
            self._driver.spawn(steps)

    def _long_instant(
        self,
        partition: int,
        batches: Iterator[bytes],
        reliable: bool,
        wait: bool,
        heading: Heading | None = None,
    ) -> int | Future[int] | None:
        """More than one batch takes: opened, filled and checkpointed, also if it need not be reliable."""
        draft = self._driver.run(self._rules.write_long(partition, batches, heading))
        future = self._driver.spawn(self._rules.commit_long(draft))
        if not reliable:
            return None
        return future.result() if wait else future

    # The end.

    def close(self) -> None:
        """Cancel what is open, and give the name back. May be called again."""
        if not self._rules.agent.is_foreign:
            self._driver.run(self._rules.close())
            self._on_close(self)

    def _leave(self) -> None:
        """Give the name back without waiting for it. Nothing may be open."""
        self._rules.agent.closed = True
        self._rules.dismiss()
        self._on_close(self)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<producer {self.name!r} of {self.stream!r}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a producer")
