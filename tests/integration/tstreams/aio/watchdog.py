"""Watches an event loop: whoever works on it must let others go."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback

BUSY_S_MAX = 0.5
STUCK_S_MAX = 5.0


class Watchdog:
    """Looks, from a thread, whether a loop turns.

    What counts is how long the loop's own thread has computed since it turned last, because other
    processes may take the machine away from it for any time. A thread that waits computes nothing: for
    that there is a second, longer limit, by the clock on the wall.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._cpu_clock = time.pthread_getcpuclockid(self._thread_id)
        self._turned = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.complaints: list[str] = []

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._turned.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self._turned.clear()
            busy_from, stuck_from = time.clock_gettime(self._cpu_clock), time.monotonic()
            self._loop.call_soon_threadsafe(self._turned.set)
            while not (self._turned.wait(0.02) or self._ended.is_set()):
                busy_s = time.clock_gettime(self._cpu_clock) - busy_from
                stuck_s = time.monotonic() - stuck_from
                if busy_s > BUSY_S_MAX or stuck_s > STUCK_S_MAX:
                    frame = sys._current_frames().get(self._thread_id)
                    where = "".join(traceback.format_stack(frame))
                    self.complaints.append(f"busy {busy_s:.2f} s, stuck {stuck_s:.2f} s:\n{where}")
                    break
