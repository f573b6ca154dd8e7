"""What a shard counts while it works: plain numbers, added up group by group.

It runs with every commit, so it does nothing but add integers. Whoever wants to see it pays for the rest.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..core.records import (
    AgentBegun,
    AgentEnded,
    AnyRecord,
    Committed,
    Ended,
    Filled,
    InstantMade,
    ItemsSent,
    Opened,
    OpenedWith,
    Overruled,
    ReaderReset,
    SessionsEnded,
    StepCommitted,
    StreamDeleted,
)
from ..limits import BUSIEST_STREAMS, STREAMS_MEASURED_MAX

if TYPE_CHECKING:
    from .visible import Chosen

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
SECONDS_BOUNDS = (*_SECONDS, 2.5, 5.0, 10.0)
RECORDS_BOUNDS = tuple(4**n for n in range(8))
BYTES_BOUNDS = tuple(256 * 4**n for n in range(9))
NS_PER_S = 1_000_000_000

_TRANSACTION_WEIGHT = 1000
"""How busy a stream is: its bytes, and so much for each transaction, however small."""


class Tally:
    """A histogram of whole numbers: how often each was at most which bound."""

    __slots__ = ("bounds", "counts", "sum", "unit")

    def __init__(self, bounds: Sequence[float], unit: int = 1) -> None:
        self.unit = unit
        """How many of what is counted make one of what the bounds are in."""
        self.bounds = [round(bound * unit) for bound in bounds]
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0

    def add(self, value: int, times: int = 1) -> None:
        """It was this much, so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class Traffic:
    """What was written to a stream and read from it."""

    __slots__ = (
        "bytes",
        "bytes_read",
        "items",
        "items_read",
        "marked",
        "since_ms",
        "transactions",
        "transactions_read",
    )

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.transactions = self.items = self.bytes = 0
        self.transactions_read = self.items_read = self.bytes_read = 0
        self.marked = 0
        """Its weight up to some time ago; what has come since says how busy it is."""

    @property
    def weight(self) -> int:
        """All of it, as one number."""
        transactions = self.transactions + self.transactions_read
        return self.bytes + self.bytes_read + _TRANSACTION_WEIGHT * transactions

    @property
    def lately(self) -> int:
        """How busy it is."""
        return self.weight - self.marked


class Metrics:
    """The numbers of one shard. They live as long as the process, also if the shard is opened anew.

    Invariant: `_streams` has at most `STREAMS_MEASURED_MAX` entries between two groups. Of more streams than
    that those are dropped that did least lately: they begin anew when they are heard of again.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        """The time, as of when `age` was called last: exact enough for when counting began."""
        self.items = self.append_bytes = self.records = self.groups = 0
        self.commits = self.opened = self.cancelled = self.expired = 0
        self.overruled = self.fenced = 0
        self.answers_read = self.transactions_read = self.items_read = self.bytes_read = 0
        self.cache_hits = self.cache_misses = 0
        self.ledgers = self.ledger_bytes = 0
        """As of when the ledgers were looked at last: there may be thousands."""
        self.commit_seconds = Tally(SECONDS_BOUNDS, NS_PER_S)
        self.sync_seconds = Tally(SECONDS_BOUNDS, NS_PER_S)
        self.read_seconds = Tally(SECONDS_BOUNDS, NS_PER_S)
        self.group_records = Tally(RECORDS_BOUNDS)
        self.group_bytes = Tally(BYTES_BOUNDS)
        self._streams: dict[int, Traffic] = {}
        self._others: dict[type, Callable[[Any, int], None]] = {
            ItemsSent: self._with_items,
            Filled: self._with_items,
            OpenedWith: self._opened_with,
            Opened: self._opened,
            Committed: self._committed,
            StepCommitted: self._step_committed,
            Ended: self._ended,
            Overruled: self._overruled,
            SessionsEnded: self._sessions_ended,
            AgentEnded: self._with_cancelled,
            StreamDeleted: self._with_cancelled,
            AgentBegun: self._fenced,
            ReaderReset: self._fenced,
        }

    # Writing.

    def wrote(
        self,
        entries: Sequence[tuple[AnyRecord, int, int]],
        shown: Sequence[int],
        commit_ns: int,
        sync_ns: int,
    ) -> None:
        """A group is durable: its records with their sizes, the streams in which transactions were
        checkpointed that had been open (once for each), and how long it took."""
        streams = self._streams
        commits = items = total = 0
        for record, _, size in entries:
            total += size
            if type(record) is InstantMade:
                traffic = streams.get(record.stream) or self._traffic(record.stream)
                traffic.transactions += 1
                traffic.bytes += size
                count = record.count
                traffic.items += count
                commits += 1
                items += count
            elif (note := self._others.get(type(record))) is not None:
                note(record, size)
        self.commits += commits + len(shown)
        self.items += items
        for stream in shown:
            (streams.get(stream) or self._traffic(stream)).transactions += 1
        count = len(entries)
        self.records += count
        self.groups += 1
        self.append_bytes += total
        self.group_records.add(count)
        self.group_bytes.add(total)
        self.commit_seconds.add(commit_ns, count)
        if sync_ns:
            self.sync_seconds.add(sync_ns)
        if len(streams) > STREAMS_MEASURED_MAX:
            self._drop_idle()

    def _with_items(self, record: ItemsSent | Filled | OpenedWith, size: int) -> None:
        traffic = self._streams.get(record.stream) or self._traffic(record.stream)
        traffic.items += record.count
        traffic.bytes += size
        self.items += record.count

    def _opened_with(self, record: OpenedWith, size: int) -> None:
        self._with_items(record, size)
        self.opened += 1

    def _opened(self, record: Opened, size: int) -> None:
        self.opened += 1

    def _committed(self, record: Committed, size: int) -> None:
        self.cancelled += len(record.empty)

    def _step_committed(self, record: StepCommitted, size: int) -> None:
        self.cancelled += len(record.empty) + len(record.dropped)

    def _ended(self, record: Ended, size: int) -> None:
        if record.expired:
            self.expired += len(record.transactions)
        else:
            self.cancelled += len(record.transactions)

    def _with_cancelled(self, record: AgentEnded | StreamDeleted, size: int) -> None:
        self.cancelled += len(record.cancelled)

    def _overruled(self, record: Overruled, size: int) -> None:
        self.overruled += len(record.transactions)

    def _sessions_ended(self, record: SessionsEnded, size: int) -> None:
        self.expired += len(record.expired)

    def _fenced(self, record: AgentBegun | ReaderReset, size: int) -> None:
        if record.fenced:
            self.fenced += 1
        if isinstance(record, AgentBegun):
            self.cancelled += len(record.cancelled)

    # Reading.

    def read(self, stream: int, chosen: Sequence[Chosen], size: int) -> None:
        """Transactions went to a reader; the last part of one counts for all of it."""
        whole = [it.items for it in chosen if it.batches == 1 or it.whole]
        self.sent(stream, len(whole), sum(whole), size)

    def sent(self, stream: int, transactions: int, items: int, size: int) -> None:
        """So much went to a reader."""
        traffic = self._streams.get(stream) or self._traffic(stream)
        traffic.transactions_read += transactions
        traffic.items_read += items
        traffic.bytes_read += size
        self.answers_read += 1
        self.transactions_read += transactions
        self.items_read += items
        self.bytes_read += size

    # Streams.

    def _traffic(self, stream: int) -> Traffic:
        """The numbers of a stream that was not heard of for a while."""
        if len(self._streams) >= 2 * STREAMS_MEASURED_MAX:  # readers came to many, and nobody wrote
            self._drop_idle()
        traffic = self._streams[stream] = Traffic(self._now_ms)
        return traffic

    def _drop_idle(self) -> None:
        """Keep the busier half."""
        kept = heapq.nlargest(
            STREAMS_MEASURED_MAX // 2, self._streams.items(), key=lambda it: it[1].lately
        )
        self._streams.clear()  # whoever holds it goes on with it
        self._streams.update(kept)

    def age(self, now_ms: int) -> None:
        """Time passes: what was long ago says less about how busy a stream is."""
        self._now_ms = now_ms
        for traffic in self._streams.values():
            traffic.marked += traffic.lately // 2

    def busiest(self) -> list[tuple[int, Traffic]]:
        """The streams that have been the busiest lately."""
        return heapq.nlargest(BUSIEST_STREAMS, self._streams.items(), key=lambda it: it[1].lately)

    @property
    def streams(self) -> int:
        """How many streams are counted."""
        return len(self._streams)
