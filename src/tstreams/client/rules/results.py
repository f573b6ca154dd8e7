"""What the function of a loop gave since the last commit, and where it goes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...errors import TooLarge
from ...items import Buffer, Items, pack
from ...limits import COMMIT_BROUGHT_MAX, SEND_BATCH_BYTES
from .draft import Draft
from .heading import Heading, make_heading
from .outbox import ITEM_OVERHEAD_BYTES, is_arrow
from .producer import Producer
from .ticket import Steps


class Results:
    """Results that wait for a commit.

    Invariants: `_open` holds the transactions that the commit will checkpoint, by partition, and `_small` the
    items that it will bring along as new ones: so few that they need no transaction before. `_packed` holds
    the same as whole batches, where the function gave one list and no more. A partition is in one of the
    three at most, and `_small_bytes` is what is in the last two. `_brings`: whether commits bring anything.
    """

    def __init__(self, producer: Producer, brings: bool) -> None:
        self.items = 0
        """How many items there are."""
        self._producer = producer
        self._brings = brings
        self._open: dict[int, Draft] = {}
        self._small: dict[int, list[bytes]] = {}
        self._packed: dict[int, bytes] = {}
        self._small_bytes = 0
        self._headings: dict[int, Heading] | None = None if producer.tracing is None else {}
        """With tracing: of the transactions that the next commit will checkpoint, by partition."""

    def write(self, partition: int, results: Any) -> Steps[None]:
        """Add what the function gave for a transaction of a partition.

        Results are items, or pairs of a key or a partition and an item; or Arrow data. Items without
        either go to the partition of the same number, so that their order stays.
        """
        if results is None:
            return
        if is_arrow(results):
            yield from self._add(self._same_partition(partition), results)
            return
        if isinstance(results, str | bytes | bytearray | memoryview):
            raise TypeError(
                f"the function gives a list of items or the like, not one {type(results).__name__}"
            )
        here = self._same_partition(partition)
        if type(results) is list and set(map(type, results)) == {bytes}:
            if not self._keep(here, results):
                draft = yield from self._draft(here)
                yield from draft.add_many(results)
            self.items += len(results)
            return
        for result in results:
            yield from self.write_one(partition, result)

    def write_one(self, partition: int, result: Any) -> Steps[None]:
        """Add one result."""
        if isinstance(result, tuple):
            where, item = self._place(result)
            yield from self._add(where, item)
        else:
            yield from self._add(self._same_partition(partition), result)

    def _same_partition(self, partition: int) -> int:
        return partition % self._producer.agent.stream.partitions

    def _place(self, result: tuple[Any, ...]) -> tuple[int, Any]:
        if len(result) != 2:
            raise TypeError("a result is an item, or a key or a partition and an item")
        where, item = result
        partitioner = self._producer.partitioner
        if isinstance(where, int) and not isinstance(where, bool):
            return partitioner.check(where), item
        if isinstance(where, Buffer):
            return partitioner.pick(None, where), item
        raise TypeError(f"a key is bytes-like, a partition a number, not {type(where).__name__}")

    def keep_list(self, partition: int, items: list[Any]) -> bool:
        """Keep the first list for a partition as the batch that the next commit brings along, in one pass
        over it. Whether it was kept: it may hold other things than items, or too many."""
        partition = self._same_partition(partition)
        if partition in self._small or partition in self._packed or not items:
            return False
        if not self._may_keep(partition):
            return False
        try:
            batch = pack(items, self._producer.codec)
        except (TypeError, TooLarge):
            return False
        if self._small_bytes + len(batch) >= SEND_BATCH_BYTES:
            return False
        if self._headings is not None:
            self._heading(partition)
        self._packed[partition] = batch
        self._small_bytes += len(batch)
        self.items += len(items)
        return True

    def _keep(self, partition: int, items: list[bytes]) -> bool:
        """Keep items for the next commit to bring along, if they are few. Whether they were kept."""
        if partition in self._packed:
            self._unpack(partition)
        size = _room(items)
        held = self._small.get(partition)
        if self._small_bytes + size >= SEND_BATCH_BYTES:
            return False
        if held is None:
            if not self._may_keep(partition):
                return False
            held = self._small[partition] = []
        if self._headings is not None:
            self._heading(partition)
        held += items
        self._small_bytes += size
        return True

    def _may_keep(self, partition: int) -> bool:
        return (
            self._brings
            and partition not in self._open
            and self._producer.schema is None
            and len(self._small) + len(self._packed) < COMMIT_BROUGHT_MAX
        )

    def _unpack(self, partition: int) -> None:
        """More comes for a partition: its batch is items again."""
        batch = self._packed.pop(partition)
        items = self._small[partition] = list(Items(batch))
        self._small_bytes += _room(items) - len(batch)

    def _draft(self, partition: int) -> Steps[Draft]:
        """The transaction for a partition. What was kept for it goes before what comes now."""
        draft = self._open.get(partition)
        heading = None if self._headings is None else self._heading(partition)
        if draft is None:
            if partition in self._packed:
                self._unpack(partition)
            draft = self._open[partition] = self._producer.begin(partition, heading)
            if kept := self._small.pop(partition, None):
                self._small_bytes -= _room(kept)
                yield from draft.add_many(kept)
        return draft

    def _heading(self, partition: int) -> Heading:
        """That of the transaction for a partition; it is made in the span of the first who adds to it."""
        assert self._headings is not None
        heading = self._headings.get(partition)
        if heading is None:
            heading = make_heading(self._producer.agent, partition, None)
            self._headings[partition] = heading
        else:
            heading.link()
        return heading

    def _add(self, partition: int, item: Any) -> Steps[None]:
        if type(item) is bytes and self._keep(partition, [item]):
            self.items += 1
            return
        draft = yield from self._draft(partition)
        if is_arrow(item):
            yield from draft.add_many(item)
            self.items += getattr(item, "num_rows", 0) or len(item)
            return
        if draft.add(item):
            yield from draft.flush()
        self.items += 1

    # For a commit.

    def unite(self) -> Steps[None]:
        """If there are transactions, what was kept goes into such ones too: one kind is enough."""
        if self._open:
            for partition in [*self._small, *self._packed]:
                yield from self._draft(partition)

    def sealed(self) -> list[Draft]:
        """The transactions that were opened for them, closed to all else."""
        drafts = list(self._open.values())
        for draft in drafts:
            draft.seal()  # raises if it has ended: then what was read must not count either
        return drafts

    def batches(self) -> dict[int, bytes]:
        """What was kept, as batches by partition. It is kept no more."""
        packed, kept = self._packed, self._small
        self._packed, self._small, self._small_bytes = {}, {}, 0
        for partition, items in kept.items():
            packed[partition] = pack(items, self._producer.codec)
        if self._headings is not None:
            for partition, heading in self._headings.items():
                packed[partition] = heading.put_on(packed[partition])
        return packed

    def take_headings(self) -> Collection[Heading]:
        """The spans to end with the commit that is on its way, where no transaction does that."""
        if self._headings is None:
            return ()
        headings, self._headings = self._headings, {}
        return headings.values()

    def clear(self) -> int:
        """They are on their way: how many items it were."""
        self._open.clear()
        items, self.items = self.items, 0
        return items


def _room(items: list[bytes]) -> int:
    """What items take, about."""
    return sum(map(len, items)) + ITEM_OVERHEAD_BYTES * len(items)
