"""The clients of `failover`: one that writes without a pause, one that reads behind it, and what they notice."""

from __future__ import annotations

import statistics
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

import tstreams
from tstreams import Offset

HOST = "127.0.0.1"
ITEM_BYTES = 100
WITHIN_S = 60.0
"""Nothing that is waited for takes longer, unless it never comes."""
_LOOK_EVERY_S = 0.01
_USUAL_S = 2.0
"""How long before an event is looked at for what is usual."""
_ERRORS_MAX = 100
"""What goes wrong that often will not get better."""
_NOTHING_CAME_S = 0.2


class Moments:
    """When something came of what was asked for, and what went wrong instead."""

    def __init__(self) -> None:
        self.all: list[float] = []
        self.errors: list[str] = []

    def came(self) -> None:
        """Now."""
        self.all.append(time.monotonic())

    def failed(self, error: tstreams.Error) -> None:
        """What a user would have got to see."""
        self.errors.append(f"{type(error).__name__}: {error}")

    def gap(self, since: float) -> tuple[float, float]:
        """The longest pause that ended after this moment, and what a pause usually was before it, in seconds."""
        moments = list(self.all)
        at = bisect_right(moments, since)
        before = moments[bisect_right(moments, since - _USUAL_S) : at]
        usual = statistics.median(_pauses(before)) if len(before) > 2 else 0.0
        return max(_pauses(moments[max(0, at - 1) :]), default=0.0), usual


def _pauses(moments: Sequence[float]) -> list[float]:
    return [later - sooner for sooner, later in pairwise(moments)]


class Writer:
    """Writes one transaction after the other, each with the next number."""

    def __init__(self, client: tstreams.Client, stream: str) -> None:
        client.create_stream(stream, partitions=1, ttl="1h")
        self._producer = client.producer(stream, name="writer")
        self.moments = Moments()
        self.numbers: list[int] = []
        """Those that were acknowledged."""

    def work(self, is_over: Callable[[], bool]) -> None:
        """Until it is over, or too much went wrong."""
        number = 0
        while not is_over() and len(self.moments.errors) < _ERRORS_MAX:
            number += 1
            try:
                self._producer.instant([number.to_bytes(ITEM_BYTES, "big")], partition=0)
            except tstreams.Error as error:
                self.moments.failed(error)
            else:
                self.moments.came()
                self.numbers.append(number)


class Reader:
    """Reads what is written, as it comes."""

    def __init__(self, client: tstreams.Client, stream: str) -> None:
        self._consumer = client.consumer(stream, name="reader", start=Offset.oldest())
        self.moments = Moments()
        self.numbers: list[int] = []

    def work(self, is_over: Callable[[], bool]) -> None:
        """Until it is over, or too much went wrong."""
        while not is_over() and len(self.moments.errors) < _ERRORS_MAX:
            try:
                for transaction in self._consumer.read(max_wait=_NOTHING_CAME_S):
                    self.moments.came()
                    self.numbers += [int.from_bytes(item, "big") for item in transaction.items]
            except tstreams.Error as error:
                self.moments.failed(error)


ROLES: dict[str, type[Writer] | type[Reader]] = {"writer": Writer, "reader": Reader}


class Steady:
    """What a client process holds: a writer or a reader at work in a thread."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._client: tstreams.Client | None = None
        self._thread: threading.Thread | None = None

    def begin(self, role: str, port: int, stream: str) -> None:
        """Set to work."""
        self._client = tstreams.connect(f"tcp://{HOST}:{port}")
        self._worker = ROLES[role](self._client, stream)
        self._thread = threading.Thread(
            target=self._worker.work, args=(self._over.is_set,), daemon=True
        )
        self._thread.start()

    def wait(self, since: float, count: int) -> None:
        """Until something came of it so many times after this moment."""
        moments = self._worker.moments
        deadline = time.monotonic() + WITHIN_S
        while len(moments.all) < count or moments.all[-count] <= since:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing came for {WITHIN_S:g} s: {moments.errors[-3:]}")
            time.sleep(_LOOK_EVERY_S)

    def wait_for(self, number: int) -> None:
        """Until this number has come."""
        deadline = time.monotonic() + WITHIN_S
        while number and (not self._worker.numbers or self._worker.numbers[-1] < number):
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"number {number} did not come in {WITHIN_S:g} s: {self._worker.moments.errors[-3:]}"
                )
            time.sleep(_LOOK_EVERY_S)

    def gap(self, since: float) -> tuple[float, float]:
        """See `Moments.gap`."""
        return self._worker.moments.gap(since)

    def errors(self) -> list[str]:
        """What users would have got to see so far."""
        return list(self._worker.moments.errors)

    def end(self) -> None:
        """Work no more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(WITHIN_S)

    def numbers(self) -> list[int]:
        """What was acknowledged, or read, in this order."""
        return list(self._worker.numbers)

    def close(self) -> None:
        """Disconnect."""
        self.end()
        if self._client is not None:
            self._client.close()
