"""Running a handler to its end, whatever kind it is: the one place that knows what `yield` means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from typing import Any, TypeAlias

from .messages import Parts, as_parts

Emit: TypeAlias = Callable[[Parts], Awaitable[None]]
"""Takes one response of many; comes back when there is room for the next."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """What `sleep` returns; yield it from a handler."""

    seconds: float


def sleep(seconds: float) -> Sleep:
    """Yield the result in a generator handler to wait without blocking anyone else."""
    return Sleep(seconds)


def is_unfinished(produced: Any) -> bool:
    """Whether a handler's product has to be driven to its end."""
    return isgenerator(produced) or isasyncgen(produced) or isawaitable(produced)


def dispose(produced: Any) -> None:
    """Close a product that was never started, so that Python does not warn about it."""
    if iscoroutine(produced) or isgenerator(produced):
        produced.close()


async def drive(produced: Any, emit: Emit) -> Any:
    """Run a generator, an async generator or an awaitable; what it yields goes to `emit`.

    Returns its result. If it is cancelled, the handler's `finally` blocks run before this ends.
    """
    while True:
        if isgenerator(produced):
            produced = await _drive_generator(produced, emit)
        elif isasyncgen(produced):
            try:
                async for value in produced:
                    await _accept(value, emit)
            finally:
                await produced.aclose()
            return None
        elif isawaitable(produced):
            produced = await produced
        else:
            return produced


async def _drive_generator(generator: Generator[Any, Any, Any], emit: Emit) -> Any:
    step: Callable[[Any], Any] = generator.send
    argument: Any = None
    try:
        while True:
            try:
                value = step(argument)
            except StopIteration as stop:
                return stop.value
            try:
                argument = await _accept(value, emit)
                step = generator.send
            except Exception as error:  # the handler may want to deal with it at its `yield`
                argument = error
                step = generator.throw
    finally:
        generator.close()


async def _accept(value: Any, emit: Emit) -> Any:
    """Do what a yielded value asks for; what the `yield` evaluates to."""
    if type(value) is bytes:
        return await emit((value,))
    if value is None:
        return await asyncio.sleep(0)
    if isinstance(value, Sleep):
        return await asyncio.sleep(value.seconds)
    if is_unfinished(value):
        return await drive(value, emit)
    return await emit(as_parts(value))


async def discard(_: Parts) -> None:
    """An `Emit` that lets others run and sends nothing: for background tasks."""
    await asyncio.sleep(0)
