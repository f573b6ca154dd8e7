"""Counting what cannot be counted at once: sizes and lags, from milestones that are kept.

What is visible in a partition changes at its two ends only: new transactions at the one, and old ones go at
the other. So the sum of all transactions up to a visible one is a fact for ever, relative to where counting
began. Such facts are kept (`Marks`); to count a range is to subtract two of them, and to count by hand no
more than what lies between a milestone and the end of the range. A first count of a long history takes many
requests: each goes on where the last one stopped, as far as its budget reaches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..limits import INSPECT_MAX
from ..protocol import StretchInfo, SurveyWant
from .amounts import Amount, Budget
from .limits import MARKS_MAX, MARKS_PER_PARTITION_MAX, STRIDE_TRANSACTIONS
from .whole import WholeStream


@dataclass(slots=True)
class Marks:
    """Sums up to transactions of one partition.

    Invariants: `ids` go up, and so do `sums`, which have the same length, and at least one each: the first
    is just before the oldest transaction, as of when it was looked at last.
    """

    ids: list[int]
    sums: list[Amount] = field(default_factory=lambda: [Amount()])

    @property
    def tip(self) -> int:
        """How far it is counted."""
        return self.ids[-1]

    def advance(self, last_id: int, amount: Amount) -> None:
        """So much lies between the tip and this transaction."""
        total = self.sums[-1].plus(amount)
        close = len(self.ids) > 1 and (
            total.transactions - self.sums[-2].transactions < STRIDE_TRANSACTIONS
        )
        if close:  # the tip was no milestone: it moves
            self.ids[-1], self.sums[-1] = last_id, total
        else:
            self.ids.append(last_id)
            self.sums.append(total)
        if len(self.ids) > MARKS_PER_PARTITION_MAX:
            del self.ids[1:-1:2], self.sums[1:-1:2]

    def forget_before(self, oldest_id: int) -> None:
        """What is before the oldest transaction is gone, and nothing can be counted from there."""
        gone = bisect_left(self.ids, oldest_id - 1)
        if gone == len(self.ids):
            self.ids, self.sums = [max(oldest_id - 1, self.tip)], [self.sums[-1]]
        else:
            del self.ids[:gone], self.sums[:gone]


@dataclass(frozen=True, slots=True)
class Counted:
    """What is after a position in a partition. `last_id`: the last visible transaction that was counted; 0: none."""

    amount: Amount
    exact: bool
    oldest_id: int
    last_id: int


Key = tuple[int, int]
"""Number of the stream, partition."""


class Milestones:
    """The marks of all partitions that were counted; those that were not asked for longest go first."""

    def __init__(self) -> None:
        self._marks: OrderedDict[Key, Marks] = OrderedDict()
        self._total = 0

    def __len__(self) -> int:
        return self._total

    async def count(
        self,
        whole: WholeStream,
        partitions: Iterable[int],
        budget: Budget,
    ) -> dict[int, Counted]:
        """All that is visible in these partitions."""
        wanted = list(partitions)
        oldest = await self._oldest(whole, wanted)
        complete = await self._extend(whole, oldest, budget)
        found = {}
        for partition in wanted:
            key = (whole.info.id, partition)
            if partition not in oldest or key not in self._marks:
                found[partition] = Counted(Amount(), partition not in oldest, 0, 0)
                continue
            first = oldest[partition] - 1
            before, exact = await self._up_to(whole, partition, first, budget)
            marks = self._marks.get(key)
            if marks is None:  # dropped meanwhile, because there are too many
                found[partition] = Counted(Amount(), False, oldest[partition], 0)
                continue
            if exact and first < marks.ids[0]:
                marks.ids.insert(0, first)
                marks.sums.insert(0, before)
                self._total += 1
            amount = marks.sums[-1].minus(before)
            exact = exact and partition in complete
            found[partition] = Counted(amount, exact, oldest[partition], marks.tip)
        return found

    async def behind(
        self,
        whole: WholeStream,
        positions: Mapping[int, int],
        counted: Mapping[int, Counted],
        budget: Budget,
    ) -> dict[int, Counted]:
        """What is visible after these positions (partition to id, 0 for the beginning), of what was `counted` there.

        `oldest_id` is that of the first transaction behind the position, if it is known.
        """
        found = {}
        for partition, position in positions.items():
            all_of_it = counted[partition]
            if position < all_of_it.oldest_id or not all_of_it.last_id:
                found[partition] = all_of_it
                continue
            key = (whole.info.id, partition)
            before, exact = await self._up_to(whole, partition, position, budget)
            marks = self._marks.get(key)
            if marks is None:  # dropped meanwhile, because there are too many
                found[partition] = Counted(Amount(), False, 0, all_of_it.last_id)
                continue
            amount = marks.sums[-1].minus(before)
            found[partition] = Counted(amount, exact and all_of_it.exact, 0, marks.tip)
        return found

    async def between(
        self,
        whole: WholeStream,
        partition: int,
        ends: tuple[int, int],
        budget: Budget,
    ) -> tuple[Amount, bool]:
        """What is visible after the first of two ids, up to and with the second, and whether that is all."""
        low, high = sorted(ends)
        counted = (await self.count(whole, [partition], budget))[partition]
        if not counted.last_id:
            return Amount(), True
        before, exact = await self._up_to(whole, partition, max(low, counted.oldest_id - 1), budget)
        until, also = await self._up_to(whole, partition, max(high, counted.oldest_id - 1), budget)
        return until.minus(before), exact and also

    async def _oldest(self, whole: WholeStream, partitions: list[int]) -> dict[int, int]:
        """The oldest transaction of each partition that has any; marks before them are dropped."""
        wants = [SurveyWant(partition, 0, 1) for partition in partitions]
        found = {}
        for stretch in await whole.survey(wants):
            if not stretch.last_id:
                continue
            found[stretch.partition] = stretch.last_id
            key = (whole.info.id, stretch.partition)
            marks = self._marks.get(key)
            if marks is None:
                self._keep(key, Marks([stretch.last_id - 1]))
            else:
                before = len(marks.ids)
                marks.forget_before(stretch.last_id)
                self._total += len(marks.ids) - before
                self._marks.move_to_end(key)
        return found

    async def _extend(
        self,
        whole: WholeStream,
        partitions: Iterable[int],
        budget: Budget,
    ) -> set[int]:
        """Count on from the tips, all partitions together a stride at a time; those whose ends were reached."""
        waiting = {it for it in partitions if (whole.info.id, it) in self._marks}
        complete: set[int] = set()
        while waiting and budget.take():
            share = max(1, STRIDE_TRANSACTIONS // len(waiting))
            tips = {it: self._marks[whole.info.id, it].tip for it in waiting}
            wants = [SurveyWant(partition, tip + 1, share) for partition, tip in tips.items()]
            for stretch in await whole.survey(wants):
                key = (whole.info.id, stretch.partition)
                if key not in self._marks:  # dropped meanwhile, because there are too many
                    waiting.discard(stretch.partition)
                elif self._marks[key].tip == tips[stretch.partition]:  # nobody else was here
                    self._advance(key, stretch)
                    if not stretch.more:
                        complete.add(stretch.partition)
                        waiting.discard(stretch.partition)
        return complete

    def _advance(self, key: Key, stretch: StretchInfo) -> None:
        if stretch.last_id:
            marks = self._marks[key]
            before = len(marks.ids)
            amount = Amount(stretch.transactions, stretch.items, stretch.bytes)
            marks.advance(stretch.last_id, amount)
            self._total += len(marks.ids) - before

    async def _up_to(
        self, whole: WholeStream, partition: int, position: int, budget: Budget
    ) -> tuple[Amount, bool]:
        """The sum up to a position: that of the next milestone, less what lies in between."""
        marks = self._marks.get((whole.info.id, partition))
        if marks is None or position >= marks.tip:
            return (marks.sums[-1] if marks else Amount()), True
        at = bisect_left(marks.ids, position)
        total, end = marks.sums[at], marks.ids[at]
        if end == position:
            return total, True
        from_id = position + 1
        while budget.take():
            browsed = await whole.browse(partition, from_id, end, INSPECT_MAX)
            rows = browsed.transactions
            total = total.minus(
                Amount(len(rows), sum(it.items for it in rows), sum(it.bytes for it in rows))
            )
            if not browsed.more or not rows:
                return total, True
            from_id = rows[-1].id + 1
        return total, False

    def _keep(self, key: Key, marks: Marks) -> None:
        self._marks[key] = marks
        self._total += len(marks.ids)
        while self._total > MARKS_MAX and len(self._marks) > 1:
            _, dropped = self._marks.popitem(last=False)
            self._total -= len(dropped.ids)
