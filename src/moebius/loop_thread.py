"""Threads that run an event loop, and end before the interpreter does.

A daemon thread is simply left alone when the interpreter ends. One that runs a uvloop must not be: something on
its sockets, or a timer, wakes it once more, it asks for an interpreter that is gone, and takes the process down.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

_END_WITHIN_S = 5.0
"""How long the end of the interpreter waits for one of them."""

_stops: dict[threading.Thread, Callable[[], None]] = {}


def start(name: str, body: Callable[[], None], stop: Callable[[], None]) -> threading.Thread:
    """Run `body` in a thread of its own. If it still runs when the interpreter ends, `stop` is called there
    and has to make it return."""

    def run() -> None:
        try:
            body()
        finally:
            _stops.pop(thread, None)

    thread = threading.Thread(target=run, name=name, daemon=True)
    _stops[thread] = stop
    thread.start()
    return thread


@atexit.register
def _end_all() -> None:
    for thread, stop in reversed(list(_stops.items())):
        if thread.is_alive():  # those of a parent process are not
            stop()
            thread.join(_END_WITHIN_S)
