"""What the server takes of the machine, looked at all the time, and whether it takes more and more."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import psutil

EVERY_S = 0.5
WARM_UP = 1 / 3
"""This part of a life does not count: caches fill up."""
LEAVE_S_MAX = 60.0
LIFE_S_MIN = 60.0
"""Of a shorter life nothing can be said."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the server's process."""

    at_s: float
    pid: int
    memory_mb: float
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Bound:
    """How much more is a leak: by how much it grows after the warm-up, at least, and by which part of itself."""

    amount: float
    part: float


BOUNDS = {
    "memory_mb": Bound(48, 0.25),
    "descriptors": Bound(48, 0.25),
    "threads": Bound(4, 0.25),
}
"""Some growth is right: sessions are remembered for 15 minutes, and up to 64 ledgers and 128 files of the index are
open at a time."""


class Sampler:
    """Looks at whichever process is the server's, from a thread of its own."""

    def __init__(self, pid: Callable[[], int]) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)
        self.samples: list[Sample] = []

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                process = psutil.Process(self._pid())
                memory_mb = process.memory_info().rss / 2**20
                counts = (process.num_fds(), process.num_threads())
                at_s, pid = time.monotonic(), process.pid
            except psutil.Error:  # it has just died, and nobody has buried it
                continue
            self.samples.append(Sample(at_s, pid, memory_mb, *counts))


def connections_left(pid: int, timeout_s: float = LEAVE_S_MAX) -> int:
    """How many connections the server still has, when nobody is there any more: none, at the latest by then."""
    until = time.monotonic() + timeout_s
    while True:
        found = psutil.Process(pid).net_connections(kind="tcp")
        left = sum(it.status == psutil.CONN_ESTABLISHED for it in found)
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.2)


def report(samples: Sequence[Sample], until_s: float = inf) -> dict[str, Any]:
    """The extremes, and the verdict on the longest life. What came later does not count: when all is read in the
    end, caches fill up that were small as long as the index was opened anew every few seconds."""
    lives: dict[int, list[Sample]] = {}
    samples = [it for it in samples if it.at_s < until_s]
    for it in samples:
        lives.setdefault(it.pid, []).append(it)
    longest = max(lives.values(), key=lambda it: it[-1].at_s - it[0].at_s, default=[])
    length_s = longest[-1].at_s - longest[0].at_s if longest else 0.0
    after = longest[int(len(longest) * WARM_UP) :]
    found: dict[str, Any] = {
        "samples": len(samples), "lives": len(lives), "longest_life_s": round(length_s, 1),
    }  # fmt: skip
    leaks = []
    for name, bound in BOUNDS.items():
        values = [asdict(it)[name] for it in after]
        found[name] = _describe(values, [it.at_s for it in after])
        if length_s >= LIFE_S_MIN and is_leak(found[name], bound):
            leaks.append(name)
    too_short = length_s < LIFE_S_MIN
    found["verdict"] = "too short to tell" if too_short else "leaks" if leaks else "no leak"
    found["leaks"] = leaks
    return found


def _describe(values: Sequence[float], at_s: Sequence[float]) -> dict[str, float]:
    if len(values) < 3:
        return {}
    slope = statistics.linear_regression(at_s, values).slope
    return {
        "min": round(min(values), 1),
        "median": round(statistics.median(values), 1),
        "max": round(max(values), 1),
        "last": round(values[-1], 1),
        "slope_per_minute": round(slope * 60, 3),
        "growth": round(slope * (at_s[-1] - at_s[0]), 1),
    }


def is_leak(found: dict[str, float], bound: Bound) -> bool:
    """Whether it grows by more than it may."""
    return bool(found) and found["growth"] > max(bound.amount, bound.part * found["median"])
