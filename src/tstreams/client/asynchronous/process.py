"""The loop of `client.process`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any

from ..rules.delivery import Delivery
from ..rules.processing import Processed, Processing
from .driver import Driver
from .received import ReadTransaction


async def process(
    driver: Driver,
    processing: Processing,
    fn: Callable[[ReadTransaction], Any],
    max_wait_s: float | None,
    stop: asyncio.Event | None,
    on_commit: Callable[[Processed], object] | None,
) -> Processed:
    """Read, call, write and commit, until it is over."""
    is_stopped = (lambda: False) if stop is None else stop.is_set
    tracing = processing.producer.tracing
    told = 0
    try:
        while True:
            await driver.breathe()
            delivery = await driver.run(processing.next(max_wait_s, is_stopped))
            if on_commit is not None and processing.done.commits > told:
                told = processing.done.commits
                if inspect.isawaitable(heard := on_commit(processing.done.copy())):
                    await heard
            if delivery is None:
                return processing.done
            try:
                transaction = ReadTransaction(driver, delivery)
                if tracing is None:
                    await _write(driver, processing, delivery, fn(transaction))
                else:
                    with tracing.handling(delivery):
                        await _write(driver, processing, delivery, fn(transaction))
            except Exception as error:
                where = f"{processing.reader.agent.stream.name!r}/{delivery.entry.partition}"
                error.add_note(f"while transaction {delivery.id} of {where} was processed")
                raise
    finally:
        # At once: whoever is cancelled may close the client before the first answer is here.
        processing.drop()
        agents = (processing.producer, processing.reader)
        await asyncio.wait([driver.spawn(agent.close()) for agent in agents])


async def _write(driver: Driver, processing: Processing, delivery: Delivery, results: Any) -> None:
    """Write what a function gave: results, an awaitable of them, or something for `async for`."""
    if inspect.isawaitable(results):
        results = await results
    if not hasattr(results, "__aiter__"):
        if processing.write_now(delivery, results):
            return
        await driver.run(processing.write(delivery, results))
        return
    async with AsyncExitStack() as stack:
        if inspect.isasyncgen(results):
            await stack.enter_async_context(aclosing(results))
        async for result in results:
            await driver.run(processing.write_one(delivery, result))
