"""What a consumer does: asks for what comes next, ahead of its user, and hands it out in order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from ...errors import BadRequest
from ...limits import (
    CLIENT_CLOSE_TIMEOUT_S,
    FETCH_BYTES,
    FETCH_WAIT_MS_MAX,
    FETCH_WANTS_MAX,
    KIB,
)
from ...model import Anchor, Offset
from ...protocol import GetPositions, Positions, Want
from . import closing
from .agent import Agent, open_agent
from .cursor import NEVER, Cursor, Start, Starts
from .delivery import Delivery, Source, unpack
from .lane import Ask, Lane
from .link import Link
from .partitioning import check_partition, chosen_partitions, listed
from .parts import Moved
from .roaming import is_astray
from .ticket import AnyOf, Steps, Ticket, answer
from .turns import Hold, Turns

_WAIT_S_MAX = FETCH_WAIT_MS_MAX / 1000
_LANE_BYTES_MIN = 128 * KIB
_STOP_S = 0.1

Mark: TypeAlias = tuple[Cursor, int, int | None]
"""A partition, and where its reader stood: the next id, and the position."""


def open_reader(
    link: Link,
    stream: str,
    name: str | None,
    start: Offset,
    resume: bool,
    partitions: Iterable[int] | None,
    roams: bool | None = None,
) -> Steps[Reader]:
    """Make a reader: where it was checkpointed last, or at `start`. `roams`: see `Source`."""
    agent, starts = yield from open_at(link, stream, name, start, resume, partitions)
    return Reader(agent, [Cursor(*it) for it in starts], roams)


def open_at(
    link: Link,
    stream: str,
    name: str | None,
    start: Offset,
    resume: bool,
    partitions: Iterable[int] | None,
) -> Steps[tuple[Agent, list[Start]]]:
    """Take a reader's name, and find out where it begins."""
    check_offset(start)
    chosen = listed(partitions)
    agent = yield from open_agent(link, "reader", stream, name, chosen)
    mine = chosen_partitions(agent.stream, chosen)
    # After the name was taken: whoever had it before cannot move the offset any more.
    try:
        by_shard = yield from _starts(agent, mine)
    except BaseException:
        agent.abandon()
        raise
    found: list[Start] = []
    for partition in mine:
        starts = by_shard[agent.seat_of(partition).shard]
        at = starts.saved.get(partition) if resume else None
        if at is not None:
            found.append((partition, at + 1, at or None, False))
        else:
            # Where "newest" was is known only now: the first checkpoint saves it, also where nothing
            # was read. Else the next reader of this name would begin later, and miss what came between.
            unsaved = start.anchor is not Anchor.OLDEST
            found.append((partition, *starts.of(start, partition), unsaved))
    return agent, found


def check_offset(offset: Offset) -> Offset:
    """An offset, and nothing else."""
    if not isinstance(offset, Offset):
        raise BadRequest(
            f"an offset is made with Offset.oldest(), newest(), at() or after(), not {offset!r}"
        )
    return offset


def check_wait(seconds: float | None, what: str) -> float | None:
    """How long to wait: a number of seconds from 0 on, or None for ever."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise BadRequest(f"{what} is a number of seconds, not {seconds!r}")
    return float(seconds)


def _starts(agent: Agent, partitions: Iterable[int]) -> Steps[dict[int, Starts]]:
    """Where the reader stands, and what is newest, in the shards of these partitions."""
    message = GetPositions(agent.stream_id, agent.name)
    shards = [seat.shard for seat in agent.seats_of(partitions)]
    tickets = [(shard, agent.link.ask(message, shard=shard)) for shard in shards]
    found = {}
    for shard, ticket in tickets:
        found[shard] = Starts((yield from answer(ticket, Positions)))
    return found


class Reader:
    """Reads the partitions of a stream, each in order.

    A lane is of one shard. Of each lane one answer at most is queued, and one more is asked for or lies in its
    `ask`: that bounds the memory. Answers to questions from before the last `seek` (an older epoch) are dropped, and so is
    what came twice, because two questions overlapped.
    """

    def __init__(self, agent: Agent, cursors: list[Cursor], roams: bool | None = None) -> None:
        self.agent = agent
        self.source = Source(agent.link, agent.stream, agent.stream_id, agent.name, roams)
        self._lock = threading.Lock()
        self.saving = Turns()
        self._cursors = {cursor.partition: cursor for cursor in cursors}
        lanes = [
            partitions[at : at + FETCH_WANTS_MAX]
            for partitions in self.source.by_shard(self._cursors).values()
            for at in range(0, len(partitions), FETCH_WANTS_MAX)
        ]
        bytes_max = max(_LANE_BYTES_MIN, FETCH_BYTES // len(lanes))
        self._lanes = [Lane([self._cursors[it] for it in lane], bytes_max) for lane in lanes]
        self._lane_of = {cursor.partition: lane for lane in self._lanes for cursor in lane.cursors}
        self._ready: deque[Cursor] = deque()
        self._asks: dict[Ask, None] = {}
        self._epoch = 0

    # One partition.

    def get(self, partition: int, timeout_s: float) -> Steps[Delivery | None]:
        """The next transaction of a partition, if one is there in time."""
        cursor = self._cursor(partition)
        deadline = time.monotonic() + timeout_s
        surely = False
        while True:
            self.agent.check()
            if (found := self._take(cursor)) is not None:
                return found
            prefetch = cursor.prefetch
            if prefetch is not None:  # the server answers it at once
                if not prefetch.ticket.ended:
                    yield prefetch.ticket
                self._absorb_prefetch(cursor, prefetch)
                continue
            wait_s = min(max(0.0, deadline - time.monotonic()), _WAIT_S_MAX)
            with self._lock:
                want = Want(partition, cursor.fetch_id)
                ask = self._ask([want], cursor.fetch_bytes, wait_s, surely=surely)
            yield from self._wait([ask])
            self._absorb_single(cursor, ask)
            if (found := self._take(cursor)) is not None:
                return found
            if time.monotonic() >= deadline and ask.epoch == self._epoch:
                if not is_astray(ask.ticket):
                    return None
                surely = True

    def _take(self, cursor: Cursor) -> Delivery | None:
        with self._lock:
            if not cursor.queue:
                self._absorb_arrived()
            if not cursor.queue:
                return None
            self._lane_of[cursor.partition].queued -= 1
            found = cursor.take()
            if len(cursor.queue) <= cursor.refill_at and cursor.prefetch is None:
                cursor.refill_at = NEVER
                want = Want(cursor.partition, cursor.fetch_id)
                cursor.prefetch = self._ask([want], cursor.fetch_bytes, 0.0, ahead=True)
            return found

    def _absorb_prefetch(self, cursor: Cursor, ask: Ask) -> None:
        with self._lock:
            if cursor.prefetch is not ask:
                return  # another thread was faster
            cursor.prefetch = None
        self._absorb_single(cursor, ask)

    def _absorb_single(self, cursor: Cursor, ask: Ask) -> None:
        """Take in an answer for one partition. If it was full there is more: that is asked for when half of
        this has been taken, so that readers that jump about do not cost more than they read."""
        with self._lock:
            found = self._absorb(ask)
            if ask.was_full(found):
                cursor.refill_at = len(cursor.queue) // 2
                cursor.fetch_bytes = min(4 * cursor.fetch_bytes, FETCH_BYTES)

    # All partitions.

    def take_any(self) -> Delivery | None:
        """The next transaction of any partition, if one is here: each partition in its turn."""
        with self._lock:
            if not self._ready or len(self._lanes) > 1:
                self._absorb_arrived()
            while self._ready:
                cursor = self._ready.popleft()
                cursor.ready = False
                if cursor.queue:
                    found = cursor.take()
                    self._lane_of[cursor.partition].queued -= 1
                    if cursor.queue:
                        cursor.ready = True
                        self._ready.append(cursor)
                    return found
            return None

    def next(
        self, max_wait_s: float | None, is_stopped: Callable[[], bool] | None = None
    ) -> Steps[Delivery | None]:
        """The next transaction of any partition; None if there was none for so long, or it was stopped."""
        since = time.monotonic()
        while True:
            self.agent.check()
            if is_stopped is not None and is_stopped():
                return None
            if (found := self.take_any()) is not None:
                return found
            left_s = None if max_wait_s is None else max_wait_s - (time.monotonic() - since)
            if left_s is not None and left_s <= 0:
                return (yield from self._look_once_more())
            if is_stopped is not None:  # nobody wakes us for this: we look at it now and then
                left_s = _STOP_S if left_s is None else min(left_s, _STOP_S)
            yield AnyOf(self._ask_lanes(), left_s)

    def _ask_lanes(self) -> list[Ticket]:
        with self._lock:
            tickets = []
            for lane in self._lanes:
                if lane.ask is None:
                    lane.ask = self._ask(lane.wants(), lane.fetch_bytes, _WAIT_S_MAX)
                tickets.append(lane.ask.ticket)
            return tickets

    def _look_once_more(self) -> Steps[Delivery | None]:
        """Ask without waiting: what was asked before may not have reached the server at all."""
        with self._lock:
            asks = [
                self._ask(lane.wants(), lane.fetch_bytes, 0.0, surely=True) for lane in self._lanes
            ]
        yield from self._wait(asks)
        with self._lock:
            for ask in asks:
                self._absorb(ask)
        return self.take_any()

    # Answers.

    def _ask(
        self,
        wants: list[Want],
        bytes_max: int,
        wait_s: float,
        *,
        ahead: bool = False,
        surely: bool = False,
    ) -> Ask:
        ticket = self.source.fetch(wants, bytes_max, wait_s, ahead=ahead, surely=surely)
        ask = Ask(ticket, self._epoch, bytes_max)
        self._asks[ask] = None
        return ask

    def _wait(self, asks: list[Ask]) -> Steps[None]:
        """Wait for answers that nobody else waits for."""
        try:
            for ask in asks:
                if not ask.ticket.ended:
                    yield ask.ticket
        except BaseException:
            for ask in asks:
                self._asks.pop(ask, None)
                self.source.link.cancel(ask.ticket)
            raise

    def _absorb_arrived(self) -> None:
        """Take in the answers for lanes that have run dry, and ask for what follows."""
        for lane in self._lanes:
            ask = lane.ask
            if ask is not None and ask.ticket.ended and not lane.queued:
                lane.ask = None
                if found := self._absorb(ask):
                    lane.learn(ask, found)
                    ahead = ask.was_full(found)
                    lane.ask = self._ask(lane.wants(), lane.fetch_bytes, _WAIT_S_MAX, ahead=ahead)

    def _absorb(self, ask: Ask) -> list[Delivery]:
        """Take in an answer: what was in it, whether or not it was new."""
        self._asks.pop(ask, None)
        if ask.epoch != self._epoch:
            return []
        found = unpack(self.source, ask.ticket)
        for delivery in found:
            cursor = self._cursors[delivery.entry.partition]
            if delivery.id < cursor.fetch_id:
                continue
            cursor.put(delivery)
            self._lane_of[cursor.partition].queued += 1
            if not cursor.ready:
                cursor.ready = True
                self._ready.append(cursor)
        return found

    def _start_anew(self) -> None:
        """Drop all answers that are under way, or here and not taken in."""
        self._epoch += 1
        asks, self._asks = self._asks, {}
        for lane in self._lanes:
            lane.ask = None
        for ask in asks:
            self.source.link.cancel(ask.ticket)

    # Positions.

    def seek(self, partition: int, offset: Offset) -> Steps[None]:
        """Go on elsewhere in a partition."""
        self.agent.check()
        cursor = self._cursor(partition)
        starts = Starts(None)
        if check_offset(offset).anchor is Anchor.NEWEST:
            (starts,) = (yield from _starts(self.agent, [partition])).values()
        with self._lock:
            self._lane_of[partition].queued -= len(cursor.queue)
            cursor.jump(*starts.of(offset, partition))
            self._start_anew()

    def position(self, partition: int) -> int | None:
        """The transaction that was handed out last."""
        self.agent.check()
        return self._cursor(partition).position

    def marks(self) -> list[Mark]:
        """What a checkpoint has to save: where the reader stands, where that is new.

        Whoever takes them has his turn in `saving`, until they are saved: a later look must not be
        overtaken by an earlier one.
        """
        with self._lock:
            moved = [cursor for cursor in self._cursors.values() if cursor.moved]
            return [(cursor, cursor.next_id, cursor.position) for cursor in moved]

    def positions_of(self, marks: list[Mark]) -> list[Moved]:
        """The same, for the server: the last id that is not wanted again."""
        ring = self.agent.ring
        return [
            Moved(ring[cursor.partition % len(ring)], cursor.partition, max(0, next_id - 1))
            for cursor, next_id, _ in marks
        ]

    def saved(self, marks: list[Mark]) -> None:
        """A checkpoint has worked."""
        with self._lock:
            for cursor, next_id, position in marks:
                cursor.saved(next_id, position)

    def checkpoint(self) -> Steps[None]:
        """Save durably where the reader stands."""
        self.agent.check()
        hold = Hold()
        try:
            yield from hold.enter(self.saving)
            marks = self.marks()
            ticket = yield from closing.send((), [self.agent], (), self.positions_of(marks))
            hold.until(ticket)
            yield from closing.conclude(ticket, (), partial(self.saved, marks))
        finally:
            hold.leave()

    def rewind(self) -> None:
        """Back to the last checkpoint in all partitions."""
        with self._lock:
            for cursor in self._cursors.values():
                cursor.rewind()
            for lane in self._lanes:
                lane.queued = 0
            self._start_anew()

    # The end.

    def close(self, until: float | None = None) -> Steps[None]:
        """Give the name back. What was read and not checkpointed will be read again."""
        if self.agent.closed:
            return
        self.agent.closed = True
        with self._lock:
            self._start_anew()
        yield from self.agent.leave(until or time.monotonic() + CLIENT_CLOSE_TIMEOUT_S)

    @property
    def partitions(self) -> list[int]:
        """The partitions that it reads."""
        return list(self._cursors)

    def source_of(self, partition: int) -> Source:
        """For looking at a partition: it need not be one that this reader reads."""
        self.agent.check()
        check_partition(self.agent.stream, partition)
        return self.source

    def _cursor(self, partition: int) -> Cursor:
        cursor = self._cursors.get(partition)
        if cursor is None or type(partition) is not int:
            check_partition(self.agent.stream, partition)
            raise BadRequest(f"partition {partition} is none that this consumer reads")
        return cursor
