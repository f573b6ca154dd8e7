"""A loop that reads, calls a function, and writes what it gives.

exactly-once    results and position in one commit; some may be under way, each behind the one before.
                What was read from one shard is committed apart from what was read from others
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
from . import closing, spanning
from .delivery import Delivery
from .draft import Draft
from .group import naming
from .heading import Heading
from .link import Link
from .partitioning import chosen_partitions, listed
from .parts import Fresh, Moved, split
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


class _Course:
    """What is committed together: with exactly once all that comes from one shard, else all there is.

    Invariants: `results` is what the next commit will checkpoint. `uncommitted` counts what has been handed out
    since the last one. Each commit says where the one before it has left the reader (`left`, by partition), so
    that after one that failed none takes effect.
    """

    __slots__ = ("left", "results", "since", "uncommitted")

    def __init__(self, results: Results) -> None:
        self.results = results
        self.left: dict[int, int] = {}
        self.uncommitted = 0
        self.since = 0.0


class Processing:
    """Reads, writes and commits for a loop that calls a function in between.

    Invariants: a partition belongs to the course at `_ring[partition % len(_ring)]`. `_under_way` are the commits
    that were sent and not noted, in their order.
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
        self._gathered: deque[Delivery] = deque()
        brings = delivery == EXACTLY_ONCE
        seats = reader.agent.ring if brings else reader.agent.ring[:1]
        courses = {seat.shard: _Course(Results(producer, brings)) for seat in seats}
        self._courses = list(courses.values())
        self._ring = [courses[seat.shard] for seat in seats]
        self._has_begun = False
        """Whether a commit has saved where the reader began."""

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
        for course in self._courses:
            if self._is_due(course):
                yield from self._commit(course)
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
        course = self._ring[found.entry.partition % len(self._ring)]
        if not course.uncommitted:
            course.since = time.monotonic()
        course.uncommitted += 1
        return found

    def _course_of(self, partition: int) -> _Course:
        return self._ring[partition % len(self._ring)]

    def _is_due(self, course: _Course) -> bool:
        if not course.uncommitted:
            return False
        return (
            course.uncommitted >= self._batch
            or time.monotonic() - course.since >= self._commit_every_s
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
        partition = delivery.entry.partition
        course = self._ring[partition % len(self._ring)]
        return type(results) is list and course.results.keep_list(partition, results)

    def write(self, delivery: Delivery, results: Any) -> Steps[None]:
        """Add what the function gave for a transaction to what the next commit will checkpoint."""
        partition = delivery.entry.partition
        return self._ring[partition % len(self._ring)].results.write(partition, results)

    def write_one(self, delivery: Delivery, result: Any) -> Steps[None]:
        """Add one result."""
        partition = delivery.entry.partition
        return self._ring[partition % len(self._ring)].results.write_one(partition, result)

    # Commits.

    def commit(self) -> Steps[None]:
        """Make what was done since the last commit count. Exactly once: see that it will, or nothing later."""
        for course in self._courses:
            if course.uncommitted:
                yield from self._commit(course)

    def _commit(self, course: _Course) -> Steps[None]:
        if self._delivery == EXACTLY_ONCE:
            while len(self._under_way) >= PROCESS_COMMITS_MAX:
                # Not for the first: who is woken for each of them does less in between.
                yield self._under_way[len(self._under_way) // 2].ticket
                self._note()
            yield from self._begin_commit(course)
            return
        drafts = course.results.sealed()
        if drafts:
            yield from closing.prepare(drafts)
            yield from closing.commit([self.producer.turns], [self.producer.agent], drafts)
        if self._delivery == AT_LEAST_ONCE:
            yield from self.reader.checkpoint()
        course.results.take_headings()  # their transactions have ended, and they with them
        self._count(course.uncommitted, course.results.clear())
        course.uncommitted = 0

    def _count(self, transactions: int, items: int) -> None:
        self.done.transactions += transactions
        self.done.items += items
        self.done.commits += 1

    def _begin_commit(self, course: _Course) -> Steps[None]:
        results = course.results
        yield from results.unite()
        drafts = results.sealed()
        marks = self._marks(course)
        self._has_begun = True
        if drafts:
            with naming([self.reader, self.producer], drafts):
                ticket = yield from self._commit_drafts(drafts, self._moved(marks))
        else:
            ticket = yield from self._commit_small(results.batches(), self._moved(marks))
        if headings := results.take_headings():
            ticket.add_callback(partial(_answered, headings))
        items = results.clear()
        self._under_way.append(_UnderWay(ticket, drafts, marks, course.uncommitted, items))
        course.uncommitted = 0

    def _marks(self, course: _Course) -> list[Mark]:
        """What a commit has to save; the first one also where the reader began, in all partitions."""
        marks = self.reader.marks()
        if len(self._courses) == 1:
            return marks
        mine = []
        for mark in marks:
            its = self._course_of(mark[0].partition)
            if its is course or not (self._has_begun or its.uncommitted):
                mine.append(mark)
        return mine

    def _commit_drafts(self, drafts: list[Draft], moved: list[Moved]) -> Steps[Ticket]:
        agents = [self.reader.agent, self.producer.agent]
        yield from closing.prepare(drafts)
        ticket = yield from closing.send([self.producer.turns], agents, drafts, moved)
        closing.entrust(drafts, ticket)
        return ticket

    def _commit_small(self, packed: dict[int, bytes], moved: list[Moved]) -> Steps[Ticket]:
        agent = self.producer.agent
        fresh = [Fresh(agent.seat_of(it), it, batch) for it, batch in packed.items()]
        if fresh:
            size = sum(map(len, packed.values()))
            window = agent.link.window
            if not window.enter(size):
                yield from window.wait(size, agent.link.timeout_s)
            if len(fresh) > 1:
                window.split(len(fresh))
        parts = split([self.reader.agent, agent], (), moved, fresh)
        if len(parts) == 1:
            return parts[0].commit()
        return (yield from spanning.send(parts))

    def _moved(self, marks: list[Mark]) -> list[Moved]:
        ring = self._ring
        moved = self.reader.positions_of(marks)
        for it in moved:
            left = ring[it.partition % len(ring)].left
            it.after = left.get(it.partition)
            left[it.partition] = it.transaction
        return moved

    def _note(self) -> None:
        """Take in the answers to commits; the error, if one was refused."""
        while self._under_way and self._under_way[0].ticket.ended:
            it = self._under_way.popleft()
            if (error := it.ticket.error) is not None:
                with naming([self.reader, self.producer], it.drafts):
                    raise closing.failure_of(it.ticket, it.drafts, error)
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
        for course in self._courses:
            _end(course.results.take_headings(), TransactionState.CANCELLED)


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
