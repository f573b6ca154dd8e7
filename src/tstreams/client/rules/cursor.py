"""Where a reader stands in one partition."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from ...limits import FETCH_BYTES_SINGLE
from ...model import ID_MAX, IDS_PER_MS, Anchor, Offset
from ...protocol import Positions

if TYPE_CHECKING:
    from .delivery import Delivery
    from .lane import Ask


_NOTHING: deque[Any] = deque()
"""Stands for a queue where there is none: of many partitions few have one, and a deque is large."""


Start: TypeAlias = tuple[int, int, int | None, bool]
"""Where a reader begins: a partition, the first id to read, what its position is there, and whether that is
for the first checkpoint to save."""

NEVER = -1
"""For `Cursor.refill_at`: the last answer was not full, so there is nothing to ask for ahead."""


class Cursor:
    """One partition of a reader.

    Invariants: `queue` holds, in order and without a gap, what is visible from `next_id` to before
    `fetch_id`. `position` is less than `next_id`.
    """

    __slots__ = (
        "fetch_bytes",
        "fetch_id",
        "moved",
        "next_id",
        "partition",
        "position",
        "prefetch",
        "queue",
        "ready",
        "refill_at",
        "rewind_id",
        "rewind_position",
        "unsaved",
    )

    def __init__(
        self, partition: int, next_id: int, position: int | None, unsaved: bool = False
    ) -> None:
        self.partition = partition
        self.next_id = next_id
        """What is handed out next has this id, or a greater one."""
        self.position = position
        """The transaction that was handed out last, or where a saved offset or a seek says it was."""
        self.fetch_id = next_id
        """What is asked for next."""
        self.queue: deque[Delivery] = _NOTHING
        self.moved = unsaved
        """Whether there is something to checkpoint."""
        self.unsaved = unsaved
        """Whether not even where it began has been saved."""
        self.fetch_bytes = FETCH_BYTES_SINGLE
        """What to ask for next, if it is asked for alone."""
        self.refill_at = NEVER
        """How short the queue is when the next part should be asked for."""
        self.prefetch: Ask | None = None
        self.ready = False
        """Whether it stands in the line of those that have something to hand out."""
        self.rewind_id = next_id
        self.rewind_position = position

    def put(self, delivery: Delivery) -> None:
        """Queue what came next."""
        if self.queue is _NOTHING:
            self.queue = deque()
        self.queue.append(delivery)
        self.fetch_id = delivery.id + 1

    def take(self) -> Delivery:
        """Hand out the next transaction."""
        delivery = self.queue.popleft()
        self.position = delivery.id
        self.next_id = delivery.id + 1
        self.moved = True
        return delivery

    def jump(self, next_id: int, position: int | None) -> None:
        """Go on elsewhere. What was fetched is dropped."""
        self.next_id = self.fetch_id = next_id
        self.position = position
        self.queue = _NOTHING
        self.moved = True
        self.prefetch = None
        self.refill_at = NEVER
        self.fetch_bytes = FETCH_BYTES_SINGLE

    def saved(self, next_id: int, position: int | None) -> None:
        """A checkpoint of where it stood has worked."""
        self.rewind_id, self.rewind_position = next_id, position
        self.unsaved = False
        if self.next_id == next_id:
            self.moved = False

    def rewind(self) -> None:
        """Back to the last checkpoint, or to where it began."""
        self.jump(self.rewind_id, self.rewind_position)
        self.moved = self.unsaved


class Starts:
    """Where offsets are in the partitions of a shard, once that has said what is newest."""

    def __init__(self, positions: Positions | None) -> None:
        self._next_id = positions.next_id if positions else 0
        self._heads = dict(positions.heads) if positions else {}
        self.saved = dict(positions.saved) if positions else {}
        """What the reader has checkpointed, by partition."""

    def of(self, offset: Offset, partition: int) -> tuple[int, int | None]:
        """The first id to read, and what `position` is there."""
        if offset.anchor is Anchor.OLDEST:
            return 0, None
        if offset.anchor is Anchor.NEWEST:
            return self._heads.get(partition, self._next_id), None
        # An offset that begins with a millisecond was made of a time: nothing has been read there.
        is_time = offset.id % IDS_PER_MS == 0 or offset.id == ID_MAX
        return offset.id, None if is_time else offset.id - 1
