from __future__ import annotations

import asyncio

import pytest

from tstreams.ledger.budget import Budget

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_who_comes_first_is_first_and_nobody_is_beyond_the_limit() -> None:
    budget = Budget(100)
    order: list[str] = []
    ends = {name: asyncio.Event() for name in "abcd"}

    async def hold(name: str, size_bytes: int) -> None:
        async with budget.hold(size_bytes):
            order.append(name)
            await ends[name].wait()

    sizes = {"a": 60, "b": 70, "c": 10, "d": 500}
    tasks = {name: asyncio.ensure_future(hold(name, size)) for name, size in sizes.items()}
    await turns()
    assert (order, budget.held_bytes, budget.waiting) == (["a"], 60, 3)
    ends["a"].set()
    await turns()
    assert (order, budget.held_bytes, budget.waiting) == (["a", "b", "c"], 80, 1)
    ends["b"].set()
    await turns()
    assert order == ["a", "b", "c"], "one that is larger than all waits until it is alone"
    ends["c"].set()
    await turns()
    assert (order, budget.held_bytes) == (["a", "b", "c", "d"], 100)
    ends["d"].set()
    await asyncio.gather(*tasks.values())
    assert (budget.held_bytes, budget.waiting) == (0, 0)


async def test_those_behind_one_that_gives_up_need_not_wait_for_its_turn() -> None:
    budget = Budget(100)

    async def hold(size_bytes: int) -> None:
        async with budget.hold(size_bytes):
            await asyncio.sleep(3600)

    tasks = [asyncio.ensure_future(hold(size_bytes)) for size_bytes in (60, 80, 30)]
    await turns()
    assert (budget.held_bytes, budget.waiting) == (60, 2)
    tasks[1].cancel()
    await turns()
    assert (budget.held_bytes, budget.waiting) == (90, 0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert budget.held_bytes == 0


@pytest.mark.parametrize("turned", [False, True])
async def test_who_is_cancelled_while_waiting_holds_nothing(turned: bool) -> None:
    budget = Budget(100)

    async def hold() -> None:
        async with budget.hold(80):
            await asyncio.sleep(3600)

    first, second = asyncio.ensure_future(hold()), asyncio.ensure_future(hold())
    await turns()
    third = asyncio.ensure_future(hold())
    await turns()
    if turned:  # its turn has come, and it does not know yet
        first.cancel()
        await asyncio.sleep(0)
    second.cancel()
    await turns()
    assert budget.waiting == (0 if turned else 1)
    first.cancel()
    await turns()
    assert (budget.held_bytes, budget.waiting) == (80, 0)
    third.cancel()
    await turns()
    assert budget.held_bytes == 0
    await asyncio.gather(first, second, third, return_exceptions=True)
