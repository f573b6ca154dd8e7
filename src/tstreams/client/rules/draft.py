"""A transaction while its producer writes it.

OPENED --checkpoint--> CHECKPOINTED, or CANCELLED if it is empty
       --cancel------> CANCELLED
       --too late----> INVALID
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...errors import Error, Expired, InvalidState
from ...items import Buffer
from ...limits import TRANSACTION_SENDS_MAX
from ...model import NEXT_STATES, TransactionState
from ...protocol import SendItems
from .failures import is_session_end
from .handling import at_hand
from .heading import Heading
from .outbox import Outbox, is_arrow
from .ticket import PAUSE, Steps, Ticket
from .turns import Turns

if TYPE_CHECKING:
    from .producer import Producer


class Draft:
    """A transaction that is being written.

    Invariants: `state` only moves as `NEXT_STATES` allows. Batches leave one after the other, in the turn
    of whoever sends them, so that the pieces of an item stay together. What a sender took and could not
    send, because it was interrupted or found no room, is in `_due`, and goes before all that comes later.
    After a failed send nothing more is sent: the transaction can only be cancelled. `last` is a batch that
    will travel with the checkpoint: it comes after all that was sent. It has `_room` in the window from when
    all is ready until the checkpoint leaves with it, or is given up: only while sealed. `id` is 0 while the
    transaction is not opened: its first batch or its checkpoint does that.
    """

    def __init__(
        self,
        producer: Producer,
        transaction_id: int,
        partition: int,
        heading: Heading | None = None,
    ) -> None:
        self.producer = producer
        self.id = transaction_id
        self.partition = partition
        self.seat = producer.agent.seat_of(partition)
        """Its producer in the shard of the partition."""
        self.state = TransactionState.OPENED
        self.handling = at_hand()
        """The callback that it was opened in, if it was."""
        self._lock = threading.Lock()
        self.heading = heading
        """Its headers and its span, if it has any of them."""
        if heading is None:
            self._outbox = Outbox(producer.codec, producer.schema)
        else:
            self._outbox = Outbox(producer.codec, producer.schema, heading.batch_bytes_max)
        self._turns = Turns()
        self._due: deque[Iterator[Buffer]] = deque()
        self._batch: Buffer | None = None
        self.last: Buffer | None = None
        self._room = 0
        self._sends: deque[Ticket] = deque()
        self._failure: Error | None = None
        self._sealed = False
        self._in_doubt = False
        self._handed_over = False
        self._batches = 0

    # Writing.

    def add(self, item: Any) -> bool:
        """Take one item. True if the caller should `flush` now."""
        with self._lock:
            self._check_writable()
            return self._outbox.add(item)

    def add_many(self, items: Any) -> Steps[None]:
        """Take items or Arrow data, and send what is due."""
        if is_arrow(items):
            yield from self._send(items)
        elif isinstance(items, list | tuple):
            with self._lock:
                self._check_writable()
                due = self._outbox.extend(items)
            if due:
                yield from self.flush()
        else:
            if isinstance(items, str | bytes | bytearray | memoryview):
                raise TypeError(
                    f"many items are a list or the like, not one {type(items).__name__}"
                )
            for item in items:
                if self.add(item):
                    yield from self.flush()

    def add_batches(self, batches: Iterable[bytes]) -> Steps[None]:
        """Send batches that are made already."""
        yield from self._turns.enter()
        try:
            self._due.append(self._headed(iter(batches)))
            yield from self._send_due()
        finally:
            self._turns.leave()

    def flush(self) -> Steps[None]:
        """Send what was gathered. Comes back when it is on its way, not when it has arrived."""
        yield from self._send(None)

    def _send(self, data: Any) -> Steps[None]:
        yield from self._turns.enter()
        try:
            with self._lock:
                self._check_sendable()
                self._take_gathered()
                if data is not None:
                    self._due.append(self._headed(self._outbox.pack(data)))
            yield from self._send_due()
        finally:
            self._turns.leave()

    def finish(self, may_bring: bool) -> Steps[None]:
        """Before the checkpoint of a sealed one: send what was gathered or, if it is little, have it ready
        as `last`."""
        yield from self._turns.enter()
        try:
            with self._lock:
                self._check_sendable()
                if may_bring and not self._due and (self.last is None or not self._outbox):
                    self.last = self.last or self._take_last()
                self._take_gathered(but_last=may_bring)
            yield from self._send_due()
        finally:
            self._turns.leave()

    def _take_last(self) -> bytes | None:
        batch = self._outbox.take_last()
        return batch if batch is None or self.heading is None else self.heading.put_on(batch)

    def _headed(self, batches: Iterator[bytes]) -> Iterator[bytes]:
        return batches if self.heading is None else map(self.heading.put_on, batches)

    def give_room(self, size: int) -> None:
        """Somebody has taken room in the window for `last`."""
        with self._lock:
            self._room = size
        if self.last is None:  # it has ended meanwhile
            self._leave_room()

    def _leave_room(self) -> None:
        with self._lock:
            size, self._room = self._room, 0
        if size:
            self.producer.agent.link.window.leave(size)

    def hand_over(self) -> Buffer:
        """The last batch, for a commit that leaves now and has its room from now on."""
        assert self.last is not None
        with self._lock:
            self._room = 0
        return self.last

    def _take_gathered(self, but_last: bool = False) -> None:
        """What waits here is to be sent; `last` too if something else comes after it."""
        if self.last is not None and (self._outbox or not but_last):
            self._due.append(iter((self.last,)))
            self.last = None
        if self._outbox:
            self._due.append(self._headed(self._outbox.take()))

    def _send_due(self) -> Steps[None]:
        due = self._due
        while due:
            batch = self._batch
            if batch is None:
                try:
                    batch = self._batch = next(due[0], None)
                except BaseException:
                    due.popleft()
                    raise
            if batch is None:
                due.popleft()
                continue
            yield from self._send_batch(batch)
            self._batch = None
            yield PAUSE

    def _send_batch(self, batch: Buffer) -> Steps[None]:
        seat, link = self.seat, self.producer.agent.link
        while len(self._sends) >= TRANSACTION_SENDS_MAX:
            if not self._sends[0].ended:
                yield self._sends[0]
            self._sent(self._sends.popleft())
        self._check_sendable()
        if not self.id:
            self.id = yield from self.producer.open_id(self.partition)
        if not link.window.enter(len(batch)):
            yield from link.window.wait(len(batch), link.timeout_s)
        ticket = seat.session.start_batch(SendItems, seat.number, self.id, batch=batch)
        self._batches += 1
        self._sends.append(ticket)
        ticket.add_callback(self._sent)

    def _sent(self, ticket: Ticket) -> None:
        """A batch has been answered."""
        if ticket.error is not None and self._failure is None:
            self._failure = ticket.error
            if isinstance(ticket.error, Expired) or is_session_end(ticket.error):
                self.close(TransactionState.INVALID)
                self.producer.lose(self)

    def own_up(self) -> None:
        """`Expired` if it has expired, and nobody was told."""
        self.producer.own_up(lambda draft: draft is self)

    # Closing.

    def seal(self) -> None:
        """Nothing more is written: a checkpoint or a cancel is under way."""
        with self._lock:
            self._check_open()
            self._sealed = True

    def try_seal(self) -> bool:
        """Seal it if it is open, and nobody else is closing it."""
        with self._lock:
            if self._sealed or self.state is not TransactionState.OPENED:
                return False
            self._sealed = True
            return True

    def unseal(self) -> None:
        """That did not work, and the transaction is open as before."""
        self._leave_room()
        self._sealed = False

    def settle(self) -> Steps[None]:
        """Wait until all batches have arrived; the error, if one did not."""
        for ticket in tuple(self._sends):
            if not ticket.ended:
                yield ticket
            self._sent(ticket)  # the thread that ended it may not have told us yet
        if self._failure is not None:
            raise self._failure

    def close(self, state: TransactionState) -> None:
        """The transaction has ended."""
        with self._lock:
            if state in NEXT_STATES[self.state]:
                self.state = state
            self._outbox.clear()
            self._due = deque()
            self._batch = self.last = None
        self._leave_room()
        self.producer.forget(self)

    def checkpointed(self) -> None:
        """The server has checkpointed it: an empty one is nothing that was ever there."""
        if self._batches or self.last is not None:
            self.close(TransactionState.CHECKPOINTED)
        else:
            self.close(TransactionState.CANCELLED)

    def doubt(self) -> None:
        """A checkpoint was sent, and nobody knows whether it took effect."""
        self._in_doubt = True
        if self.id:
            self.unseal()
        else:  # sent again it would be another one, and both might come to be
            self.producer.forget(self)

    def entrust(self) -> None:
        """A checkpoint was sent, and nobody waits for it any more: the answer will tell."""
        self._in_doubt = True

    def staged(self) -> None:
        """It belongs to a job now, and its producer has done with it."""
        self._handed_over = True
        if self.heading is not None:
            self.heading.end(self.id, "staged")
        self.producer.forget(self)

    def abandon(self) -> None:
        """Nobody will use it any more: it ends as a checkpoint that was sent says, or cancelled."""
        if self._in_doubt:
            self._sealed = True
            self.producer.forget(self)
        else:
            self.close(TransactionState.CANCELLED)

    def vanished(self) -> None:
        """The server says that it is not open: its stream was deleted, or a checkpoint in doubt worked."""
        if self._in_doubt:
            self.producer.forget(self)
        else:
            self.close(TransactionState.CANCELLED)

    @property
    def headers(self) -> dict[str, bytes]:
        """Its headers."""
        return {} if self.heading is None else dict(self.heading.headers)

    @property
    def sealed(self) -> bool:
        """Whether somebody is closing it."""
        return self._sealed

    @property
    def in_doubt(self) -> bool:
        """Whether a checkpoint was sent whose answer nobody got."""
        return self._in_doubt

    # Checks.

    def _check_writable(self) -> None:
        self._check_open()
        if self._failure is not None:
            raise self._failure

    def _check_open(self) -> None:
        self.producer.agent.check()
        if self.state is TransactionState.INVALID:
            self.producer.forget(self)
            raise Expired(f"transaction {self.id} has expired; what it held is dropped")
        if self.state is not TransactionState.OPENED:
            raise InvalidState(f"transaction {self.id} is {self.state.value} already")
        if self._handed_over:
            raise InvalidState(
                f"transaction {self.id} was staged: its job will commit it, or drop it"
            )
        if self._sealed:
            raise InvalidState(
                f"a checkpoint or a cancel of transaction {self.id} is under way already"
            )

    def _check_sendable(self) -> None:
        if self._failure is not None:
            if self.state is TransactionState.INVALID:
                self.producer.forget(self)
            raise self._failure
        if self.state is not TransactionState.OPENED:
            raise InvalidState(f"transaction {self.id} is {self.state.value} already")
