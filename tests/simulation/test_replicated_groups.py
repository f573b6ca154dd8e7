"""Groups that span replicated shards, while the leaders of participants and deciders change between any two steps of a
group, and some that were shut out do not know it: a group is there everywhere or nowhere, nothing stays in doubt, and all
nodes hold the same facts to the byte."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.simulation.replicated import NODES, SHARDS, World
from tstreams.server import errands, upkeep

ATTEMPTS = 12
AT_A_TIME = 3


@pytest.mark.parametrize("seed", range(6))
def test_a_group_is_there_everywhere_or_nowhere_whoever_leads(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errands, "KIN_RETRY_S_MIN", 0.002)
    monkeypatch.setattr(errands, "KIN_RETRY_S_MAX", 0.05)
    monkeypatch.setattr(errands, "TOLD_AFTER_S", 0.005)
    monkeypatch.setattr(upkeep, "TICK_S", 0.01)

    async def main() -> None:
        world = World(tmp_path, seed)
        await world.start()
        made = await world.create()
        for first in range(0, ATTEMPTS, AT_A_TIME):
            numbers = range(first, first + AT_A_TIME)
            await asyncio.gather(*(world.attempt(number) for number in numbers))
        await world.come_to_rest()
        shown = [await world.items(node, made.id) for node in range(NODES)]
        assert shown[0] == shown[1] == shown[2]
        for it in world.attempts:
            there = [shown[0][shard].count(it.item) for shard in it.shards]
            assert there in ([0] * len(there), [1] * len(there)), f"{it} is there in part: {there}"
            if it.outcome is not None:
                assert bool(there[0]) == it.outcome, f"{it}: not what was said"
        for shard in range(SHARDS):
            facts = [world.facts(node, shard) for node in range(NODES)]
            assert facts[0] == facts[1] == facts[2]
        assert world.changes > ATTEMPTS
        await world.close()

    asyncio.run(asyncio.wait_for(main(), 110))
