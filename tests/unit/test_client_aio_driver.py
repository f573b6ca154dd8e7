"""The driver for asyncio: runs any operation, and ends it where its task was cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from tstreams.client.asynchronous.driver import Driver
from tstreams.client.rules.session import Session
from tstreams.client.rules.ticket import PAUSE, AnyOf, Steps, Ticket
from tstreams.errors import InvalidState
from tstreams.protocol import SessionOpened

from .client_wires import Script, Waiting, link_to


def on_loop(body: Callable[[Driver, Script], Awaitable[Any]]) -> Any:
    """Run a test with a driver whose connection is a script."""

    async def main() -> Any:
        script = Script()
        driver = Driver(link_to(script))
        try:
            return await asyncio.wait_for(body(driver, script), 30)
        finally:
            driver.close()

    return asyncio.run(main())


def waits_for(target: Ticket | AnyOf, log: list[str]) -> Steps[str]:
    try:
        log.append("begun")
        yield target
        log.append("went on")
    except BaseException as error:
        log.append(type(error).__name__)
        raise
    return "done"


def test_an_operation_goes_on_when_its_ticket_has_ended() -> None:
    async def body(driver: Driver, script: Script) -> str:
        ticket, log = Ticket(), list[str]()
        asyncio.get_running_loop().call_soon(ticket.end)
        return await driver.run(waits_for(ticket, log))

    assert on_loop(body) == "done"


def test_a_cancelled_task_ends_its_operation_where_it_waits() -> None:
    async def body(driver: Driver, script: Script) -> list[str]:
        ticket, log = Ticket(), list[str]()
        task = asyncio.create_task(driver.run(waits_for(ticket, log)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ticket._callbacks == [], "nobody waits for it any more"
        ticket.end()
        return log

    assert on_loop(body) == ["begun", "CancelledError"]


@pytest.mark.parametrize("how", ["run", "spawn"])
def test_any_of_many_or_the_time(how: str) -> None:
    def steps(tickets: list[Ticket]) -> Steps[list[bool]]:
        yield AnyOf(tickets, 0.01)
        seen = [ticket.ended for ticket in tickets]
        tickets[1].add_callback(lambda _: None)
        asyncio.get_running_loop().call_soon(tickets[1].end)
        yield AnyOf(tickets, None)
        return [*seen, *(ticket.ended for ticket in tickets)]

    async def body(driver: Driver, script: Script) -> list[bool]:
        tickets = [Ticket(), Ticket()]
        work = steps(tickets)
        found = await (driver.run(work) if how == "run" else driver.spawn(work))
        assert tickets[0]._callbacks == []
        return found

    assert on_loop(body) == [False, False, False, True]


def test_what_was_spawned_goes_on_if_its_future_is_cancelled() -> None:
    async def body(driver: Driver, script: Script) -> list[str]:
        ticket, log = Ticket(), list[str]()
        future = driver.spawn(waits_for(ticket, log))
        assert log == ["begun"], "it begins at once"
        assert future.cancel()
        ticket.end()
        await asyncio.sleep(0)
        return log

    assert on_loop(body) == ["begun", "went on"]


def test_what_must_be_finished_goes_on_if_the_task_is_cancelled() -> None:
    async def body(driver: Driver, script: Script) -> list[str]:
        ticket, log = Ticket(), list[str]()
        task = asyncio.create_task(driver.finish(waits_for(ticket, log)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ticket.end()
        await asyncio.sleep(0)
        return log

    assert on_loop(body) == ["begun", "went on"]


def test_ten_thousand_that_wait_for_each_other_need_no_deep_stack() -> None:
    def after(before: Ticket, mine: Ticket) -> Steps[None]:
        yield before
        mine.end()

    async def body(driver: Driver, script: Script) -> int:
        tickets = [Ticket() for _ in range(10_001)]
        futures = [driver.spawn(after(*pair)) for pair in pairwise(tickets)]
        tickets[0].end()
        await asyncio.gather(*futures)
        return sum(ticket.ended for ticket in tickets)

    assert on_loop(body) == 10_001


def test_a_pause_lets_others_go() -> None:
    def busy() -> Steps[None]:
        for _ in range(100):
            until = time.perf_counter() + 0.001
            while time.perf_counter() < until:
                pass
            yield PAUSE

    async def body(driver: Driver, script: Script) -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counter = asyncio.create_task(count())
        await driver.run(busy())
        counter.cancel()
        return turns

    assert 10 <= on_loop(body) <= 110


def test_keepalives_come_from_a_task() -> None:
    async def body(driver: Driver, script: Script) -> list[str]:
        making = Waiting(driver._link.session(0))
        script.take("OpenSession").answer(SessionOpened(1, 900_000))
        making.go_on()
        session: Session = making.result
        session.hold_lease(500)
        for _ in range(1000):
            await asyncio.sleep(0.01)
            if script.names:
                break
        return script.names

    assert on_loop(body) == ["KeepAlive"]


def test_another_loop_is_refused() -> None:
    async def body(driver: Driver, script: Script) -> None:
        async def elsewhere() -> None:
            with pytest.raises(InvalidState, match="loop"):
                await driver.run(waits_for(Ticket(), []))
            with pytest.raises(InvalidState, match="loop"):
                driver.spawn(waits_for(Ticket(), []))

        await asyncio.to_thread(asyncio.run, elsewhere())

    on_loop(body)
