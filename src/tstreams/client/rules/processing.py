"""A loop that reads, calls a function, and writes what it gives.

exactly-once    results and position in one commit
at-least-once   results, then the position
at-most-once    the position, then the results
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ...errors import BadRequest
from ...items import Buffer
from ...limits import FETCH_BYTES
from ...model import Offset, Ttl
from .delivery import Delivery
from .draft import Draft
from .group import Group
from .link import Link
from .outbox import is_arrow
from .partitioning import chosen_partitions, listed
from .producer import Producer, open_producer
from .reader import Reader, check_offset, open_reader
from .streams import get_stream
from .ticket import Steps

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
        yield from producer.close()
        raise
    return Processing(link, reader, producer, delivery, batch, commit_every_s)


class Processing:
    """Reads, writes and commits for a loop that calls a function in between.

    Invariants: `_open` holds the transactions that the next commit will checkpoint, by partition.
    `_uncommitted` counts what has been handed out since the last commit.
    """

    def __init__(
        self,
        link: Link,
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
        self._group = Group(link)
        self._group.add(reader)
        self._group.add(producer)
        self._open: dict[int, Draft] = {}
        self._gathered: deque[Delivery] = deque()
        self._uncommitted = 0
        self._items = 0
        self._since = 0.0

    def next(
        self, max_wait_s: float | None, is_stopped: Callable[[], bool]
    ) -> Steps[Delivery | None]:
        """The next transaction to call the function for; None when it is over, and all is committed."""
        if self._gathered:  # its position is saved: it has to be worked on, stopped or not
            return self._hand_out(self._gathered.popleft())
        if is_stopped():
            yield from self.commit()
            return None
        if self._is_due():
            yield from self.commit()
        found = self.reader.take_any()
        if found is None:
            yield from self.commit()  # who waits for results must not wait for more to come
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
        here = delivery.entry.partition % self.producer.agent.stream.partitions
        if results is None:
            return
        if is_arrow(results):
            yield from self._add(here, results)
            return
        if isinstance(results, str | bytes | bytearray | memoryview):
            raise TypeError(
                f"the function gives a list of items or the like, not one {type(results).__name__}"
            )
        if type(results) is list and set(map(type, results)) == {bytes}:
            yield from self._draft(here).add_many(results)
            self._items += len(results)
            return
        for result in results:
            if isinstance(result, tuple):
                where, item = self._place(result)
                yield from self._add(where, item)
            else:
                yield from self._add(here, result)

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

    def _draft(self, partition: int) -> Draft:
        draft = self._open.get(partition)
        if draft is None:
            draft = self._open[partition] = self.producer.begin(partition)
        return draft

    def _add(self, partition: int, item: Any) -> Steps[None]:
        draft = self._draft(partition)
        if is_arrow(item):
            yield from draft.add_many(item)
            self._items += getattr(item, "num_rows", 0) or len(item)
            return
        if draft.add(item):
            yield from draft.flush()
        self._items += 1

    # Commits.

    def commit(self) -> Steps[None]:
        """Make what was done since the last commit count."""
        if not self._uncommitted:
            return
        if self._delivery == EXACTLY_ONCE:
            yield from self._group.checkpoint()
        elif self._delivery == AT_LEAST_ONCE:
            if self._open:
                yield from self.producer.checkpoint()
            yield from self.reader.checkpoint()
        elif self._open:
            yield from self.producer.checkpoint()
        self._open.clear()
        self.done.transactions += self._uncommitted
        self.done.items += self._items
        self.done.commits += 1
        self._uncommitted = self._items = 0

    def close(self) -> Steps[None]:
        """Give the names back. What was not committed is dropped."""
        yield from self.producer.close()
        yield from self.reader.close()
