"""Counting with milestones gives what counting by hand gives, while history grows and goes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import tstreams
from tstreams.discovery import milestones
from tstreams.discovery.amounts import Amount, Budget
from tstreams.discovery.milestones import Milestones
from tstreams.discovery.whole import WholeStream

PLENTY = 10_000


def _amount(transactions: list[tuple[int, int]]) -> tuple[int, int]:
    return len(transactions), sum(items for _, items in transactions)


def _two(amount: Amount) -> tuple[int, int]:
    return amount.transactions, amount.items


@pytest.mark.parametrize(("seed", "shards"), [(0, 1), (1, 1), (2, 3), (3, 3)])
def test_counts_are_what_counting_by_hand_gives(
    seed: int, shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milestones, "STRIDE_TRANSACTIONS", 7)
    monkeypatch.setattr(milestones, "MARKS_PER_PARTITION_MAX", 12)
    monkeypatch.setattr(milestones, "INSPECT_MAX", 5)
    chance = random.Random(seed)

    async def main() -> None:
        async with tstreams.aio.embedded(tmp_path, shards=shards) as ts:
            await ts.create_stream("s", partitions=2)
            whole = await WholeStream.named(ts.inspection(), "s")
            history: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
            everything: list[int] = [0]
            kept = Milestones()
            async with ts.producer("s") as producer:
                for _ in range(60):
                    for _ in range(chance.choice([0, 1, 3, 20])):
                        partition, items = chance.randrange(2), chance.randrange(1, 4)
                        number = await producer.instant([b"x"] * items, partition=partition)
                        assert number is not None
                        history[partition].append((number, items))
                        everything.append(number)
                    if chance.random() < 0.15:
                        cut = chance.choice(everything) + chance.randrange(2)
                        await ts.purge_stream("s", cut)
                        history = {
                            partition: [it for it in found if it[0] >= cut]
                            for partition, found in history.items()
                        }
                    counted = await kept.count(whole, [0, 1], Budget(PLENTY))
                    for partition in (0, 1):
                        assert counted[partition].exact
                        assert _two(counted[partition].amount) == _amount(history[partition])
                    places = {it: chance.choice(everything) for it in (0, 1)}
                    behind = await kept.behind(whole, places, counted, Budget(PLENTY))
                    ends = (chance.choice(everything), chance.choice(everything))
                    between, exact = await kept.between(whole, 0, ends, Budget(PLENTY))
                    low, high = sorted(ends)
                    assert exact
                    assert _two(between) == _amount(
                        [it for it in history[0] if low < it[0] <= high]
                    )
                    for partition, place in places.items():
                        assert behind[partition].exact
                        assert _two(behind[partition].amount) == _amount(
                            [it for it in history[partition] if it[0] > place]
                        )
            assert len(kept) <= 2 * 13

    asyncio.run(main())


def test_a_count_that_must_stop_says_so_and_goes_on_next_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with tstreams.aio.embedded(tmp_path) as ts:
            await ts.create_stream("s")
            async with ts.producer("s") as producer:
                waits = [producer.instant([b"x"], partition=0, wait=False) for _ in range(5000)]
                await asyncio.gather(*waits)
            kept = Milestones()
            whole = await WholeStream.named(ts.inspection(), "s")
            seen = []
            for _ in range(3):
                counted = await kept.count(whole, [0], Budget(1))
                seen.append((counted[0].amount.transactions, counted[0].exact))
            assert seen == [(2000, False), (4000, False), (5000, True)]

    asyncio.run(main())
