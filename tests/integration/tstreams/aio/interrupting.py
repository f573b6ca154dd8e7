"""Cancels a coroutine where it waits for the first, second, third... time."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any

ENOUGH = 400
"""No operation of a test waits more often."""


@types.coroutine
def interrupted(
    coroutine: Coroutine[Any, Any, Any], point: int, late: bool
) -> Generator[Any, Any, bool]:
    """Run a coroutine, and cancel it where it waits for the time after `point` others.

    At once, or `late`: when what it waits for has come, but it has not gone on yet. False if it ended
    before that, of itself.
    """
    passed = 0
    error: BaseException | None = None
    while True:
        try:
            waits_for = coroutine.send(None) if error is None else coroutine.throw(error)
        except StopIteration:
            return False
        except asyncio.CancelledError:
            if passed > point:
                return True
            raise
        error = None
        if passed == point and not late and waits_for is not None:
            waits_for.cancel()  # as a task does that is cancelled
        try:
            yield waits_for
        except BaseException as failure:
            error = failure
        if passed == point:
            error = asyncio.CancelledError()
        passed += 1
