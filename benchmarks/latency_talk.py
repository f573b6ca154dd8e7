"""What all that `latency` sends and receives have in common.

A message begins with the time at which it was handed over to be sent, by the machine's monotonic clock,
which is the same in all processes. The receiver looks at that clock first of all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from .latency_plan import ITEM_BYTES

HOST = "127.0.0.1"
WITHIN_S = 60.0
_STAMP_BYTES = 8
_REST = bytes(ITEM_BYTES - _STAMP_BYTES)


def stamped() -> bytes:
    """A message that begins with the time."""
    return time.monotonic_ns().to_bytes(_STAMP_BYTES, "little") + _REST


class Pace:
    """Waits for the moment at which each message is due. Who is late goes on at once."""

    def __init__(self, rate: int) -> None:
        self._step_ns = 1_000_000_000 // rate
        self._due_ns = time.monotonic_ns()

    def left_s(self) -> float:
        """How long it is until the next one is due."""
        self._due_ns += self._step_ns
        return max(0, self._due_ns - time.monotonic_ns()) / 1e9


class Heard:
    """Notes how long each message took."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken_us: list[float] = []
        self._all = threading.Event()

    def note(self, message: Any) -> bool:
        """A message is here. Whether it was the last."""
        now_ns = time.monotonic_ns()
        sent_ns = int.from_bytes(message[:_STAMP_BYTES], "little")
        self._taken_us.append((now_ns - sent_ns) / 1000)
        if len(self._taken_us) < self._count:
            return False
        self._all.set()
        return True

    def wait(self) -> list[float]:
        """All of them."""
        if not self._all.wait(WITHIN_S):
            raise RuntimeError(f"{len(self._taken_us)} of {self._count} messages came")
        return self._taken_us


class Talker(Protocol):
    """One connection to a contestant: a sender or a receiver."""

    def create(self, job: str) -> None:
        """Make what is sent to."""

    def send(self, job: str, count: int, rate: int) -> float:
        """Send so many messages at this rate, each acknowledged; the seconds it took."""

    def listen(self, job: str, count: int) -> None:
        """Be ready to receive."""

    def heard(self) -> list[float]:
        """When all have come: the microseconds of each."""

    def close(self) -> None:
        """Disconnect."""


def send_paced(send: Callable[[bytes], object], count: int, rate: int) -> float:
    """Send with a function that comes back when it is acknowledged."""
    pace = Pace(rate)
    begun = time.perf_counter()
    for _ in range(count):
        time.sleep(pace.left_s())
        send(stamped())
    return time.perf_counter() - begun
