"""A window of things under way: no more than so many are sent ahead of what was acknowledged."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future


def keep_window(
    send: Callable[[], None],
    receive: Callable[[], None],
    window: int,
    seconds: float,
    count_max: int,
) -> int:
    """Send until time is up, never more than `window` ahead of what was received; how many."""
    deadline = time.perf_counter() + seconds
    sent = in_flight = 0
    while sent < count_max and time.perf_counter() < deadline:
        if in_flight == window:
            receive()
            in_flight -= 1
        send()
        in_flight += 1
        sent += 1
    for _ in range(in_flight):
        receive()
    return sent


def keep_futures(
    submit: Callable[[], Future[int]], window: int, seconds: float, count_max: int
) -> int:
    """The same, where sending gives a future of what is to be received."""
    waiting: deque[Future[int]] = deque()
    return keep_window(
        lambda: waiting.append(submit()),
        lambda: void(waiting.popleft().result()),
        window,
        seconds,
        count_max,
    )


def void(_: object) -> None:
    """Take an answer and forget it."""
