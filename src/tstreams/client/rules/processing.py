"""A loop that reads, calls a function, and writes what it gives.

exactly-once    results and position in one commit; some may be under way, each behind the one before
at-least-once   results, then the position
at-most-once    the position, then the results
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...errors import BadRequest
from ...limits import (
    FETCH_BYTES,
    PROCESS_COMMITS_MAX,
)
from ...model import Offset, TransactionState, Ttl
from ...protocol import Brought, ReadPosition
from . import closing
from .delivery import Delivery
from .draft import Draft
from .group import naming
from .heading import Heading
from .link import Link
from .partitioning import chosen_partitions, listed
from .producer import Producer, open_producer
from .reader import Mark, Reader, check_offset, open_reader
from .results import Results
from .streams import get_stream
from .ticket import Steps, Ticket

EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE = DELIVERIES = (
    "exactly-once",
    "at-least-once",
    "at-most-once",
)


@dataclass(slots=True)
class Processed:
    """What a processing loop has done."""

    transactions: int = 0
    """Transactions that were read, and whose results are committed."""
    items: int = 0
    """Items that were written for them."""
    commits: int = 0
    """Commits that it took."""

    def copy(self) -> Processed:
        """As it is now."""
        return replace(self)


@dataclass(slots=True)
class _UnderWay:
    """A commit that was sent."""

    ticket: Ticket
    drafts: list[Draft]
    marks: list[Mark]
    transactions: int
    items: int


def open_processing(
    link: Link,
    source: str,
    name: str,
    sink: str,
    *,
    delivery: str,
    start: Offset,
    resume: bool,
    partitions: Iterable[int] | None,
    transaction_ttl: Ttl,
    compression: str,
    batch: int,
    commit_every_s: float,
) -> Steps[Processing]:
    """Make the two agents of a loop, both of this name."""
    if delivery not in DELIVERIES:
        raise BadRequest(f"delivery is one of {', '.join(DELIVERIES)}, not {delivery!r}")
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise BadRequest(f"a batch is a number of transactions, not {batch!r}")
    if link.shard_of(source) != link.shard_of(sink):
        raise BadRequest(
            f"{source!r} and {sink!r} live in different shards: one commit is within one"
        )
    chosen = listed(partitions)
    check_offset(start)
    chosen_partitions((yield from get_stream(link, source)), chosen)  # a mistake must fence nobody
    # The producer first: once the reader has the name, whoever had it before can write nothing more.
    producer = yield from open_producer(link, sink, name, None, transaction_ttl, compression)
    try:
        reader = yield from open_reader(link, source, name, start, resume, chosen)
    except BaseException:
        producer.dismiss()  # whoever is interrupted must not wait
        raise
    return Processing(reader, producer, delivery, batch, commit_every_s)


class Processing:
    """Reads, writes and commits for a loop that calls a function in between.

    Invariants: `_results` is what the next commit will checkpoint. `_uncommitted` counts what has been handed out since the last commit. `_under_way` are the commits that
    were sent and not noted, in their order. Each says where the one before it has left the reader (`_left`),
    so that after one that failed none takes effect.
    """

    def __init__(
        self,
        reader: Reader,
        producer: Producer,
        delivery: str,
        batch: int,
        commit_every_s: float,
    ) -> None:
        self.reader = reader
        self.producer = producer
        self.done = Processed()
        self._delivery = delivery
        self._batch = batch
        self._commit_every_s = commit_every_s
        self._under_way: deque[_UnderWay] = deque()
        self._left: dict[int, int] = {}
        self._results = Results(producer, delivery == EXACTLY_ONCE)
        self._gathered: deque[Delivery] = deque()
        self._uncommitted = 0
        self._since = 0.0

    def next(
        self, max_wait_s: float | None, is_stopped: Callable[[], bool]
    ) -> Steps[Delivery | None]:
        """The next transaction to call the function for; None when it is over, and all is committed."""
        self._note()
        if self._gathered:  # its position is saved: it has to be worked on, stopped or not
            return self._hand_out(self._gathered.popleft())
        if is_stopped():
            yield from self.commit()
            yield from self._settle()
            return None
        if self._is_due():
            yield from self.commit()
        found = self.reader.take_any()
        if found is None:
            yield from self.commit()  # who waits for results must not wait for more to come
            yield from self._settle()
            found = yield from self.reader.next(max_wait_s, is_stopped)
        if found is None:
            return None
        if self._delivery == AT_MOST_ONCE:
            yield from self.commit()
            self._gather(found)
            yield from self.reader.checkpoint()
            found = self._gathered.popleft()
        return self._hand_out(found)

    def _hand_out(self, found: Delivery) -> Delivery:
        if not self._uncommitted:
            self._since = time.monotonic()
        self._uncommitted += 1
        return found

    def _is_due(self) -> bool:
        if not self._uncommitted:
            return False
        return (
            self._uncommitted >= self._batch
            or time.monotonic() - self._since >= self._commit_every_s
        )

    def _gather(self, first: Delivery) -> None:
        """What is here, up to a batch: one saved position for all of it."""
        self._gathered.append(first)
        size = len(first.data)
        while len(self._gathered) < self._batch and size < FETCH_BYTES:
            found = self.reader.take_any()
            if found is None:
                return
            self._gathered.append(found)
            size += len(found.data)

    # Results.

    def write_now(self, delivery: Delivery, results: Any) -> bool:
        """The same as `write`, if nothing has to be waited for. Whether it was done."""
        return type(results) is list and self._results.keep_list(delivery.entry.partition, results)

    def write(self, delivery: Delivery, results: Any) -> Steps[None]:
        """Add what the function gave for a transaction to what the next commit will checkpoint."""
        return self._results.write(delivery.entry.partition, results)

    def write_one(self, delivery: Delivery, result: Any) -> Steps[None]:
        """Add one result."""
        return self._results.write_one(delivery.entry.partition, result)

    # Commits.

    def commit(self) -> Steps[None]:
        """Make what was done since the last commit count. Exactly once: see that it will, or nothing later."""
        if not self._uncommitted:
            return
        if self._delivery == EXACTLY_ONCE:
            while len(self._under_way) >= PROCESS_COMMITS_MAX:
                # Not for the first: who is woken for each of them does less in between.
                yield self._under_way[len(self._under_way) // 2].ticket
                self._note()
            yield from self._begin_commit()
            return
        drafts = self._results.sealed()
        if drafts:
            agent = self.producer.agent
            yield from closing.prepare(drafts)
            yield from closing.commit(agent.session, [self.producer.turns], [agent.id], drafts)
        if self._delivery == AT_LEAST_ONCE:
            yield from self.reader.checkpoint()
        self._results.take_headings()  # their transactions have ended, and they with them
        self._count(self._uncommitted, self._results.clear())
        self._uncommitted = 0

    def _count(self, transactions: int, items: int) -> None:
        self.done.transactions += transactions
        self.done.items += items
        self.done.commits += 1

    def _begin_commit(self) -> Steps[None]:
        yield from self._results.unite()
        drafts = self._results.sealed()
        marks = self.reader.marks()
        if drafts:
            ticket = yield from self._commit_drafts(drafts, marks)
        else:
            ticket = yield from self._commit_small(marks)
        if headings := self._results.take_headings():
            ticket.add_callback(partial(_answered, headings))
        items = self._results.clear()
        self._under_way.append(_UnderWay(ticket, drafts, marks, self._uncommitted, items))
        self._uncommitted = 0

    def _commit_drafts(self, drafts: list[Draft], marks: list[Mark]) -> Steps[Ticket]:
        reader, producer = self.reader, self.producer
        with naming([reader, producer], drafts):
            yield from closing.prepare(drafts)
            ticket = yield from closing.send(
                reader.agent.session,
                [producer.turns],
                [reader.agent.id, producer.agent.id],
                drafts,
                self._positions(marks),
            )
        closing.entrust(drafts, ticket)
        return ticket

    def _commit_small(self, marks: list[Mark]) -> Steps[Ticket]:
        agent = self.producer.agent
        packed = self._results.batches()
        brought = [Brought(agent.id, partition) for partition in packed]
        batches = tuple(packed.values())
        size = sum(map(len, batches))
        link = agent.session.link
        if not link.window.enter(size):
            yield from link.window.wait(size, link.timeout_s)
        members = [self.reader.agent.id, agent.id]
        return agent.session.start_commit(
            members, [], self._positions(marks), brought, batches=batches
        )

    def _positions(self, marks: list[Mark]) -> list[ReadPosition]:
        positions = [
            ReadPosition(it.agent, it.partition, it.transaction, self._left.get(it.partition))
            for it in self.reader.positions_of(marks)
        ]
        self._left.update((it.partition, it.transaction) for it in positions)
        return positions

    def _note(self) -> None:
        """Take in the answers to commits; the error, if one was refused."""
        while self._under_way and self._under_way[0].ticket.ended:
            it = self._under_way.popleft()
            if it.ticket.error is not None:
                with naming([self.reader, self.producer], it.drafts):
                    raise it.ticket.error
            self.reader.saved(it.marks)
            self._count(it.transactions, it.items)

    def _settle(self) -> Steps[None]:
        """Wait for the answers to all commits."""
        while self._under_way:
            if not self._under_way[0].ticket.ended:
                yield self._under_way[0].ticket
            self._note()

    def close(self) -> Steps[None]:
        """Give the names back. What was not committed is dropped."""
        self.drop()
        yield from self.producer.close()
        yield from self.reader.close()

    def drop(self) -> None:
        """What was not committed will not be."""
        _end(self._results.take_headings(), TransactionState.CANCELLED)


def _answered(headings: Collection[Heading], ticket: Ticket) -> None:
    """A commit with results that no transaction was opened for has its answer."""
    if ticket.error is None:
        _end(headings, TransactionState.CHECKPOINTED)
        return
    for heading in headings:
        heading.fail(ticket.error)


def _end(headings: Collection[Heading], state: TransactionState) -> None:
    for heading in headings:
        heading.end(0, state.value)
