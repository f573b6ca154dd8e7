"""When a turn ends that goes to a log which others keep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tstreams.core.records import Told
from tstreams.limits import GROUP_PATIENCE_S_MAX
from tstreams.protocol import Done
from tstreams.server.patience import SHARE_MAX, SHARE_MIN, Patience
from tstreams.server.turn import Turn
from tstreams.server.turns import Turns

LONG_S = 60.0
"""A group that took so long: the limit is what counts."""


class Log:
    """Keeps how large the groups are that come, and is done with them at once."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.patience = Patience()
        self.turns = self.patience.turns = Turns(self, lambda: None, self.patience.schedule)

    def write(self, turn: Turn) -> None:
        self.groups.append(len(turn.answers))

    def take_back(self) -> None:
        raise AssertionError("nothing fails here")

    def stopped(self, error: Exception) -> None:
        raise AssertionError("nothing fails here")

    def ask(self, count: int = 1) -> None:
        for _ in range(count):
            self.turns.add(Told(0, 0, [], []))
            request: Any = object()
            self.turns.answer(request, Done())

    async def group(self, count: int) -> None:
        """A group of so many, sent whatever is expected."""
        self.ask(count)
        self.turns.commit()
        await turn()


async def turn() -> None:
    """The present turn of the loop, and what it has scheduled."""
    for _ in range(3):
        await asyncio.sleep(0)


def run(play: Callable[[Log], Awaitable[None]]) -> list[int]:
    async def main() -> list[int]:
        log = Log()
        await play(log)
        return log.groups

    return asyncio.run(main())


def test_who_comes_alone_does_not_wait() -> None:
    async def play(log: Log) -> None:
        for _ in range(3):
            log.ask()
            await turn()
            log.patience.confirmed(1, LONG_S)

    assert run(play) == [1, 1, 1]


def test_those_who_were_answered_are_waited_for_and_no_longer() -> None:
    async def play(log: Log) -> None:
        await log.group(3)
        log.patience.confirmed(3, LONG_S)
        for _ in range(2):
            log.ask()
            await turn()
        assert log.groups == [3]
        log.ask()
        await turn()

    assert run(play) == [3, 3]


def test_those_who_do_not_come_are_not_waited_for_long() -> None:
    async def play(log: Log) -> None:
        await log.group(3)
        log.patience.confirmed(3, LONG_S)
        log.ask()
        await turn()
        assert log.groups == [3]
        await asyncio.sleep(GROUP_PATIENCE_S_MAX * 2)
        assert log.groups == [3, 1]
        log.ask()  # later than anybody was expected
        await turn()

    assert run(play) == [3, 1, 1]


def test_a_turn_that_ended_by_itself_does_not_end_again() -> None:
    async def play(log: Log) -> None:
        await log.group(5)
        log.patience.confirmed(5, LONG_S)
        log.ask(2)
        await turn()
        log.turns.commit()  # it had grown large
        await asyncio.sleep(GROUP_PATIENCE_S_MAX * 2)

    assert run(play) == [5, 2]


def test_it_learns_whether_waiting_is_of_use() -> None:
    async def play(log: Log) -> None:
        patience = log.patience
        for _ in range(9):
            patience.confirmed(10, LONG_S)
        assert patience._share == SHARE_MAX
        patience.confirmed(4, LONG_S)  # more than half of ten did not come
        assert patience._share == SHARE_MAX / 2
        for count in (1, 10, 4, 10, 4, 10, 4, 10, 4, 10, 4):
            patience.confirmed(count, LONG_S)
        assert SHARE_MIN <= patience._share < SHARE_MAX
        for _ in range(9):  # nobody is expected: nothing is learned
            share = patience._share
            patience.confirmed(1, LONG_S)
        assert patience._share == share

    assert run(play) == []
