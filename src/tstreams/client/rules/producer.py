"""What a producer does: opens transactions, closes them, and sends instant ones."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

from ...errors import BadRequest, Error, Expired, InvalidState, TooLarge
from ...items import CODECS, Buffer, pack, pack_many
from ...limits import (
    CLIENT_CLOSE_TIMEOUT_S,
    FRAME_BYTES_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    LOST_TRANSACTIONS_MAX,
)
from ...model import TransactionState, Ttl, milliseconds
from ...protocol import CancelTransactions, Done, Instant, OpenTransaction
from . import closing
from .agent import Agent, Seat, open_agent
from .draft import Draft
from .heading import Heading, make_heading
from .link import Link
from .outbox import Outbox, is_arrow
from .partitioning import Partitioner, listed
from .ticket import AnyOf, Steps, Ticket, answer_within
from .turns import Turns

POLICIES = ("checkpoint", "cancel", "error", "enqueue")
"""What `open` does about transactions that are open in the same partition."""


def open_producer(
    link: Link,
    stream: str,
    name: str | None,
    partitions: Iterable[int] | None,
    transaction_ttl: Ttl,
    compression: str,
) -> Steps[Producer]:
    """Make a producer."""
    lease_ms = milliseconds(transaction_ttl)
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        raise BadRequest(
            f"a transaction's ttl is {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, not {lease_ms}"
        )
    if compression not in CODECS:
        raise BadRequest(f"compression is one of {', '.join(CODECS)}, not {compression!r}")
    chosen = listed(partitions)
    agent = yield from open_agent(link, "producer", stream, name, chosen)
    return Producer(agent, chosen, lease_ms, compression)


class Producer:
    """Writes transactions under one name.

    Invariants: `_open` holds the transactions that are OPENED, in the order of their opening. `_lost` holds
    those that have expired while nobody waited: the next checkpoint says so. What closes transactions, and
    every instant one, goes through `turns`.
    """

    def __init__(
        self, agent: Agent, partitions: list[int] | None, lease_ms: int, compression: str
    ) -> None:
        self.agent = agent
        self.codec = CODECS[compression]
        self.schema = agent.stream.schema
        self.lease_ms = lease_ms
        self.tracing = agent.link.tracing
        self.partitioner = Partitioner(agent.stream, partitions, agent.name)
        self.turns = Turns()
        self._lock = threading.Lock()
        self._open: dict[Draft, None] = {}
        self._lost: dict[Draft, None] = {}
        self._opening: Counter[int] = Counter()
        self._ring = agent.ring
        for seat in agent.seats:
            seat.session.hold_lease(lease_ms)

    # Opening.

    def open(
        self,
        partition: int | None,
        key: Buffer | None,
        policy: str,
        headers: Mapping[str, Buffer] | None = None,
    ) -> Steps[Draft]:
        """Open a transaction."""
        self.agent.check()
        if policy not in POLICIES:
            raise BadRequest(f"a policy is one of {', '.join(POLICIES)}, not {policy!r}")
        chosen = self.partitioner.pick(partition, key)
        heading = None
        if headers is not None or self.tracing is not None:
            heading = make_heading(self.agent, chosen, headers)
        if heading is None:
            return (yield from self._open_by(policy, chosen, None))
        with heading.failing():
            return (yield from self._open_by(policy, chosen, heading))

    def _open_by(self, policy: str, chosen: int, heading: Heading | None) -> Steps[Draft]:
        with self._lock:
            if policy == "error":
                self._check_free(chosen)
            self._opening[chosen] += 1
        try:
            if policy == "checkpoint":
                yield from self.checkpoint(chosen)
            elif policy == "cancel":
                yield from self.cancel(chosen)
            return (yield from self._open_in(chosen, heading))
        finally:
            with self._lock:
                self._opening[chosen] -= 1

    def _check_free(self, partition: int) -> None:
        held = next((it.id for it in self._open if it.partition == partition), None)
        if held is not None or self._opening[partition]:
            raise InvalidState(
                f"transaction {held or '(being opened)'} of producer {self.agent.name!r} is open in "
                f"partition {partition}: close it first, or open with another policy"
            )

    def begin(self, partition: int, heading: Heading | None = None) -> Draft:
        """A transaction that is opened by its checkpoint, or earlier if it grows large: nobody waits."""
        self.agent.check()
        draft = Draft(self, 0, self.partitioner.check(partition), heading)
        with self._lock:
            self._open[draft] = None
        return draft

    def _open_in(
        self, partition: int, heading: Heading | None, *, hidden: bool = False
    ) -> Steps[Draft]:
        draft = Draft(self, (yield from self.open_id(partition)), partition, heading)
        if not hidden:
            with self._lock:
                self._open[draft] = None
        return draft

    def open_id(self, partition: int) -> Steps[int]:
        """Open a transaction on the server: its id."""
        seat = self.agent.seat_of(partition)
        # It has no deadline of its own: if nobody waits for its answer any more, it is cancelled when
        # the answer comes. Else a transaction that nobody knows of would stay open, and hold up readers.
        ticket = seat.session.start(
            OpenTransaction, seat.number, partition, self.lease_ms, timeout_s=None
        )
        try:
            timeout_s = self.agent.link.timeout_s
            done = yield from answer_within(ticket, Done, timeout_s, "opening a transaction")
        except BaseException:
            ticket.add_callback(partial(self._drop_orphan, seat))
            raise
        return done.id

    def _drop_orphan(self, seat: Seat, ticket: Ticket) -> None:
        if ticket.error is None:
            self._drop(seat, ticket.reply(Done).id)

    def _drop(self, seat: Seat, transaction_id: int, draft: Draft | None = None) -> None:
        """Cancel a transaction that nobody will miss, without waiting, however long it takes."""

        def note(ticket: Ticket) -> None:
            if draft is not None and ticket.error is None:
                draft.close(TransactionState.CANCELLED)

        with suppress(Error):  # the session is over, and the transaction with it
            ticket = seat.session.start(
                CancelTransactions, [seat.number], [transaction_id], timeout_s=None
            )
            ticket.add_callback(note)

    def forget(self, draft: Draft) -> None:
        """A transaction is not open any more, and its user knows, or will be told."""
        with self._lock:
            self._open.pop(draft, None)
            self._lost.pop(draft, None)
        if draft.heading is not None:
            draft.heading.end(draft.id, draft.state.value)

    def lose(self, draft: Draft) -> None:
        """A transaction has expired, and nobody has been told yet."""
        with self._lock:
            self._lost[draft] = None
            if len(self._lost) > LOST_TRANSACTIONS_MAX:
                del self._lost[next(iter(self._lost))]

    def own_up(self, is_wanted: Callable[[Draft], bool]) -> None:
        """`Expired` if some of those that are wanted have expired, and nobody was told: what is left must
        not be checkpointed as if it were all."""
        if lost := self._take_lost(is_wanted):
            raise Expired(
                f"{self.agent.title}: transaction {lost[0].id} has expired; what it held is dropped"
            )

    def _take_lost(self, is_wanted: Callable[[Draft], bool]) -> list[Draft]:
        with self._lock:
            lost = [draft for draft in self._lost if is_wanted(draft)]
            for draft in lost:
                del self._lost[draft]
        return lost

    # Closing.

    def checkpoint(self, partition: int | None = None) -> Steps[None]:
        """Checkpoint all open transactions, or those of a partition, at once."""
        self.agent.check()
        self.own_up(self._in(partition))
        drafts = self._claim(partition)
        yield from closing.prepare(drafts)
        yield from closing.commit([self.turns], [self.agent], drafts)

    def cancel(self, partition: int | None = None) -> Steps[None]:
        """Cancel all open transactions, or those of a partition."""
        self.agent.check()
        drafts = self._claim(partition)
        if drafts:
            yield from closing.cancel(drafts)

    def _claim(self, partition: int | None) -> list[Draft]:
        return self.claim(self._in(partition))

    def _in(self, partition: int | None) -> Callable[[Draft], bool]:
        if partition is None:
            return lambda draft: True
        self.partitioner.check(partition)
        return lambda draft: draft.partition == partition

    def claim(self, is_wanted: Callable[[Draft], bool]) -> list[Draft]:
        """Seal the open transactions that are wanted, and that nobody else is closing."""
        self._take_lost(is_wanted)
        with self._lock:
            drafts = list(self._open)
        return [draft for draft in drafts if is_wanted(draft) and draft.try_seal()]

    def prepare_one(self, draft: Draft) -> Steps[None]:
        """The first half of a checkpoint of one transaction: what takes work."""
        draft.seal()
        yield from closing.prepare([draft])

    def commit_one(self, draft: Draft) -> Steps[None]:
        """The second half: only waiting."""
        yield from closing.commit([self.turns], [self.agent], [draft])

    def cancel_one(self, draft: Draft) -> Steps[None]:
        """Cancel one transaction."""
        draft.seal()
        yield from closing.cancel([draft])

    def abandon(self, draft: Draft) -> None:
        """A checkpoint failed, and nobody will try again: if it is open, it must not stay so."""
        draft.abandon()
        if draft.id:
            self._drop(draft.seat, draft.id, draft)

    def close(self, until: float | None = None) -> Steps[None]:
        """Cancel what is open and give the name back. What was submitted before takes effect before."""
        if self.agent.closed:
            return
        self.agent.closed = True
        until = until or time.monotonic() + CLIENT_CLOSE_TIMEOUT_S
        self._drop_leases()
        yield from self._wait_for_turns(until)
        with self._lock:
            drafts = list(self._open)
        for draft in drafts:
            if not draft.sealed:  # of one that somebody is closing, the answer will tell
                draft.close(TransactionState.CANCELLED)
        yield from self.agent.leave(until)

    def dismiss(self) -> None:
        """Give the name back without waiting: nobody has used it."""
        self._drop_leases()
        self.agent.abandon()

    def _drop_leases(self) -> None:
        for seat in self.agent.seats:
            seat.session.drop_lease(self.lease_ms)

    def _wait_for_turns(self, until: float) -> Steps[None]:
        entering = self.turns.enter()
        try:
            for ticket in entering:
                assert isinstance(ticket, Ticket)
                yield AnyOf((ticket,), max(0.0, until - time.monotonic()))
                if not ticket.ended:
                    return
            self.turns.leave()
        finally:
            entering.close()

    # Instant transactions.

    def pack_instant(
        self, items: Any, batch_bytes_max: int = FRAME_BYTES_MAX
    ) -> bytes | Iterator[bytes]:
        """The batch of an instant transaction, or its batches if one does not take them all."""
        if self.schema is not None or (type(items) is not list and is_arrow(items)):
            return self._pack_arrow(items, batch_bytes_max)
        if type(items) is not list:
            if isinstance(items, str | bytes | bytearray | memoryview):
                raise TypeError(f"items are a list or the like, not one {type(items).__name__}")
            items = list(items)
        try:
            return pack(items, self.codec, batch_bytes_max)
        except TooLarge:
            outbox = Outbox(self.codec, None, batch_bytes_max)
            outbox.extend(items)
            return outbox.take()

    def _pack_arrow(self, items: Any, batch_bytes_max: int) -> bytes | Iterator[bytes]:
        batches = pack_many(items, self.codec, schema=self.schema, bytes_max=batch_bytes_max)
        first = next(batches, None)
        if first is None:
            raise BadRequest("a transaction holds at least one item")
        second = next(batches, None)
        return first if second is None else chain((first, second), batches)

    def try_instant(self, sink: Any, partition: int, batch: bytes, one_way: bool = False) -> bool:
        """Send an instant transaction if nothing has to be waited for."""
        seat = self._ring[partition % len(self._ring)]
        session = seat.session
        if self.turns.taken or not session.link.window.enter(len(batch)):
            return False
        session.send(sink, Instant, (seat.number, partition), (batch,), one_way=one_way)
        return True

    def send_instant(
        self, sink: Any, partition: int, batch: bytes, one_way: bool = False, hurry: bool = False
    ) -> Steps[None]:
        """Send an instant transaction after what was asked for before, when there is room.

        In a `hurry` it goes without room: on the thread that makes room nobody can wait for it.
        """
        seat, size = self.agent.seat_of(partition), len(batch)
        link = self.agent.link
        window = link.window
        yield from self.turns.enter()
        try:
            if hurry:
                window.push_in(size)
            elif not window.enter(size):
                yield from window.wait(size, link.timeout_s)
            fields = (seat.number, partition)
            seat.session.send(sink, Instant, fields, (batch,), one_way=one_way)
        finally:
            self.turns.leave()

    def write_long(
        self, partition: int, batches: Iterator[bytes], heading: Heading | None = None
    ) -> Steps[Draft]:
        """An instant transaction that is larger than a batch: opened and filled; the caller commits."""
        draft = yield from self._open_in(partition, heading, hidden=True)
        draft.seal()
        try:
            yield from draft.add_batches(batches)
        except BaseException:
            self.forget(draft)
            self._drop(draft.seat, draft.id)
            raise
        return draft

    def commit_long(self, draft: Draft) -> Steps[int]:
        """Its end: the id. If that fails it must not stay open, because nobody else knows of it."""
        try:
            yield from self.commit_one(draft)
        except BaseException:
            self.abandon(draft)
            raise
        return draft.id
