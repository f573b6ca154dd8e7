"""A loop that reads, calls a function, and writes what it gives.

exactly-once    results and position in one commit; some may be under way, each behind the one before
at-least-once   results, then the position
at-most-once    the position, then the results
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...errors import BadRequest
from ...items import Buffer, pack
from ...limits import (
    COMMIT_BROUGHT_MAX,
    FETCH_BYTES,
    PROCESS_COMMITS_MAX,
    SEND_BATCH_BYTES,
)
from ...model import Offset, Ttl
from ...protocol import Brought, ReadPosition
from . import closing
from .delivery import Delivery
from .draft import Draft
from .group import naming
from .link import Link
from .outbox import ITEM_OVERHEAD_BYTES, is_arrow
from .partitioning import chosen_partitions, listed
from .producer import Producer, open_producer
from .reader import Mark, Reader, check_offset, open_reader
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

    Invariants: `_open` holds the transactions that the next commit will checkpoint, by partition, and `_small`
    the items that it will bring along as new ones: so few that they need no transaction before. A partition
    is in one of the two at most, and `_small_bytes` is what is in the second.
    `_uncommitted` counts what has been handed out since the last commit. `_under_way` are the commits that
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
        self._open: dict[int, Draft] = {}
        self._small: dict[int, list[bytes]] = {}
        self._small_bytes = 0
        self._gathered: deque[Delivery] = deque()
        self._uncommitted = 0
        self._items = 0
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

    def write(self, delivery: Delivery, results: Any) -> Steps[None]:
        """Add what the function gave for a transaction to those that the next commit will checkpoint.

        Results are items, or pairs of a key or a partition and an item; or Arrow data. Items without
        either go to the partition of the same number, so that their order stays.
        """
        if results is None:
            return
        if is_arrow(results):
            yield from self._add(self._same_partition(delivery), results)
            return
        if isinstance(results, str | bytes | bytearray | memoryview):
            raise TypeError(
                f"the function gives a list of items or the like, not one {type(results).__name__}"
            )
        if type(results) is list and set(map(type, results)) == {bytes}:
            here = self._same_partition(delivery)
            if not self._keep(here, results):
                draft = yield from self._draft(here)
                yield from draft.add_many(results)
            self._items += len(results)
            return
        for result in results:
            yield from self.write_one(delivery, result)

    def write_one(self, delivery: Delivery, result: Any) -> Steps[None]:
        """Add one result."""
        if isinstance(result, tuple):
            where, item = self._place(result)
            yield from self._add(where, item)
        else:
            yield from self._add(self._same_partition(delivery), result)

    def _same_partition(self, delivery: Delivery) -> int:
        return delivery.entry.partition % self.producer.agent.stream.partitions

    def _place(self, result: tuple[Any, ...]) -> tuple[int, Any]:
        if len(result) != 2:
            raise TypeError("a result is an item, or a key or a partition and an item")
        where, item = result
        partitioner = self.producer.partitioner
        if isinstance(where, int) and not isinstance(where, bool):
            return partitioner.check(where), item
        if isinstance(where, Buffer):
            return partitioner.pick(None, where), item
        raise TypeError(f"a key is bytes-like, a partition a number, not {type(where).__name__}")

    def _keep(self, partition: int, items: list[bytes]) -> bool:
        """Keep items for the next commit to bring along, if they are few. Whether they were kept."""
        size = sum(map(len, items)) + ITEM_OVERHEAD_BYTES * len(items)
        held = self._small.get(partition)
        if (
            self._delivery != EXACTLY_ONCE
            or self._small_bytes + size >= SEND_BATCH_BYTES
            or partition in self._open
            or self.producer.schema is not None
            or (held is None and len(self._small) >= COMMIT_BROUGHT_MAX)
        ):
            return False
        if held is None:
            held = self._small[partition] = []
        held += items
        self._small_bytes += size
        return True

    def _draft(self, partition: int) -> Steps[Draft]:
        """The transaction for a partition. What was kept for it goes before what comes now."""
        draft = self._open.get(partition)
        if draft is None:
            draft = self._open[partition] = self.producer.begin(partition)
            if kept := self._small.pop(partition, None):
                self._small_bytes -= sum(map(len, kept)) + ITEM_OVERHEAD_BYTES * len(kept)
                yield from draft.add_many(kept)
        return draft

    def _add(self, partition: int, item: Any) -> Steps[None]:
        if type(item) is bytes and self._keep(partition, [item]):
            self._items += 1
            return
        draft = yield from self._draft(partition)
        if is_arrow(item):
            yield from draft.add_many(item)
            self._items += getattr(item, "num_rows", 0) or len(item)
            return
        if draft.add(item):
            yield from draft.flush()
        self._items += 1

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
        drafts = self._sealed()
        if drafts:
            agent = self.producer.agent
            yield from closing.prepare(drafts)
            yield from closing.commit(agent.session, [self.producer.turns], [agent.id], drafts)
        if self._delivery == AT_LEAST_ONCE:
            yield from self.reader.checkpoint()
        self._open.clear()
        self._count(self._uncommitted, self._items)
        self._uncommitted = self._items = 0

    def _count(self, transactions: int, items: int) -> None:
        self.done.transactions += transactions
        self.done.items += items
        self.done.commits += 1

    def _sealed(self) -> list[Draft]:
        drafts = list(self._open.values())
        for draft in drafts:
            draft.seal()  # raises if it has ended: then what was read must not count either
        return drafts

    def _begin_commit(self) -> Steps[None]:
        if self._open:
            for partition in list(self._small):
                yield from self._draft(partition)
        drafts = self._sealed()
        marks = self.reader.marks()
        if drafts:
            ticket = yield from self._commit_drafts(drafts, marks)
        else:
            ticket = yield from self._commit_small(marks)
        under_way = _UnderWay(ticket, drafts, marks, self._uncommitted, self._items)
        self._under_way.append(under_way)
        self._open.clear()
        self._uncommitted = self._items = 0

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
        agent, codec = self.producer.agent, self.producer.codec
        kept, self._small, self._small_bytes = self._small, {}, 0
        brought = [Brought(agent.id, partition) for partition in kept]
        batches = tuple(pack(items, codec) for items in kept.values())
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
        yield from self.producer.close()
        yield from self.reader.close()
