"""Where a subscriber stands, in each of its partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from ...protocol import Want
from .cursor import Start
from .delivery import Delivery
from .handling import Handling

if TYPE_CHECKING:
    from .inflow import Inflow

_NOTHING: deque[Any] = deque()
"""Stands for a queue where there is none: of many partitions few have one, and a deque is large."""


class Place:
    """One partition of a subscriber.

    Invariants: `queue` holds, in order and without a gap, what is visible from after the transaction at
    hand (or from `next_id`) to before `fetch_id`, each with the credit that it takes. One callback of a
    partition runs at a time: that of `at_hand`. A place that has failed has no queue.
    """

    __slots__ = (
        "at_hand",
        "failure",
        "fetch_id",
        "inflow",
        "lagging",
        "next_id",
        "partition",
        "position",
        "queue",
        "ready",
        "rewind_id",
        "rewind_position",
        "unsaved",
    )

    def __init__(
        self, partition: int, next_id: int, position: int | None, unsaved: bool = False
    ) -> None:
        self.partition = partition
        self.inflow: Inflow
        """Where it gets its transactions from; its subscriber sets it."""
        self.next_id = next_id
        """Callbacks have returned for all before this id."""
        self.position = position
        """The transaction whose callback returned last, or where a saved offset says it was."""
        self.fetch_id = next_id
        """What is asked for next."""
        self.queue: deque[tuple[Delivery, int]] = _NOTHING
        self.at_hand: Handling | None = None
        self.ready = False
        """Whether it stands in the line of those that have something for an engine."""
        self.failure: BaseException | None = None
        """What its callback raised."""
        self.lagging = False
        """Whether the server sends nothing for it at present, because its callback is slow."""
        self.rewind_id = next_id
        self.rewind_position = position
        self.unsaved = unsaved
        """Whether not even where it began has been saved."""

    @property
    def is_moved(self) -> bool:
        """Whether there is something to checkpoint."""
        return self.unsaved or self.next_id != self.rewind_id

    def clear(self, fetch_id: int) -> int:
        """Forget what is queued; the credit that it took."""
        cost = sum(cost for _, cost in self.queue)
        self.queue = _NOTHING
        self.fetch_id = fetch_id
        return cost

    def lag(self, bytes_max: int) -> int:
        """Keep what is queued, up to this much of it, and let it take no credit; what it took."""
        taken = sum(cost for _, cost in self.queue)
        kept: deque[tuple[Delivery, int]] = deque()
        size = 0
        for delivery, _ in self.queue:
            size += len(delivery.data)
            if kept and size > bytes_max:
                break
            kept.append((delivery, 0))
        self.queue = kept
        self.fetch_id = kept[-1][0].id + 1
        self.lagging = True
        return taken

    def advance(self, transaction_id: int) -> None:
        """The callback for this transaction has returned."""
        if transaction_id >= self.next_id:
            self.next_id = transaction_id + 1
            self.position = transaction_id

    def saved(self, next_id: int, position: int | None) -> None:
        """A checkpoint of this has worked."""
        self.rewind_id, self.rewind_position = next_id, position
        self.unsaved = False
        if next_id > self.next_id:  # a group covered a call that has not returned, and may fail
            self.next_id, self.position = next_id, position

    def rewind(self) -> int:
        """Back to the last checkpoint, or to where it began; the credit that was queued."""
        self.next_id, self.position = self.rewind_id, self.rewind_position
        return self.clear(self.next_id)


def wants_of(places: Iterable[Place]) -> list[Want]:
    """What comes next in each partition that takes something."""
    return [
        Want(place.partition, place.fetch_id)
        for place in places
        if place.failure is None and not place.lagging
    ]


Mark: TypeAlias = tuple[Place, int, int | None]
"""A partition, and how far it is done: the next id, and the position."""


class Places:
    """All partitions of a subscriber, and the line of those that have something for an engine.

    Invariant: a place stands in the line exactly if it is `ready`: it has a queue, and nothing at hand.
    """

    def __init__(self, starts: list[Start]) -> None:
        self.by_partition = {start[0]: Place(*start) for start in starts}
        self.line: deque[Place] = deque()

    def __iter__(self) -> Iterator[Place]:
        return iter(self.by_partition.values())

    def __getitem__(self, partition: int) -> Place:
        return self.by_partition[partition]

    def __contains__(self, partition: object) -> bool:
        return partition in self.by_partition

    def put(self, place: Place, delivery: Delivery, cost: int) -> None:
        """Queue what came next in a place, which has something for an engine then."""
        if place.queue is _NOTHING:
            place.queue = deque()
        place.queue.append((delivery, cost))
        place.fetch_id = delivery.id + 1
        if place.at_hand is None and not place.ready:
            place.ready = True
            self.line.append(place)

    def line_up(self, place: Place) -> None:
        """Put a place at the end of the line, if it has something."""
        if place.queue and place.at_hand is None and not place.ready:
            place.ready = True
            self.line.append(place)

    def step_out(self, place: Place) -> None:
        """Take a place out of the line."""
        if place.ready:
            place.ready = False
            self.line.remove(place)

    def restart(self) -> None:
        """Forget what is queued, and what has failed."""
        self.line.clear()
        for place in self:
            place.clear(place.next_id)
            place.ready = place.lagging = False
            place.failure = None

    def rewind(self) -> None:
        """Back to the last checkpoint. What was queued takes no credit any more."""
        self.line.clear()
        for place in self:
            place.inflow.forget(place.rewind())
            place.inflow.stale = True
            place.ready = place.lagging = False

    def marks(self, at_hand: Handling | None) -> list[Mark]:
        """How far each is done, where that is new. What is at hand counts as done, if it is given."""
        here = None if at_hand is None else at_hand.place
        marks: list[Mark] = [
            (place, place.next_id, place.position)
            for place in self
            if place.is_moved and place is not here
        ]
        if at_hand is not None and not at_hand.dropped and self._owns(at_hand.place):
            done = at_hand.id
            marks.append((at_hand.place, done + 1, done))
        return marks

    def _owns(self, place: Place) -> bool:
        return self.by_partition.get(place.partition) is place
