"""Agents of all kinds at work on one client, while nodes come and go. Each transaction has its number in it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tstreams import Client, Offset

WINDOW = 32
LEAD = 200
"""By how many transactions the writer may be ahead of the others."""
DEADLINE_S = 90.0


class Traffic:
    """A writer with a window of futures, a group that copies, a consumer, a subscriber and scans.

    `finish` lets the writer stop, waits until everyone has everything, and says what each has seen. An error of any of
    them is an error of the test.
    """

    def __init__(self, ts: Client, source: str = "source", copy: str = "copy") -> None:
        self._ts = ts
        self._source, self._copy = source, copy
        for stream in (source, copy):
            ts.create_stream(stream)
        self.written = self.copied = self._last_id = 0
        self.seen: dict[str, list[int]] = {"consumer": [], "subscriber": [], "scan": []}
        self._errors: list[BaseException] = []
        self._stop = threading.Event()
        self._done = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True)
            for work in (self._write, self._group, self._consume, self._subscribe, self._scan)
        ]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._done.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def go_on(self, transactions: int = 200) -> None:
        """Wait until so many more were acknowledged."""
        until, end = self.written + transactions, time.monotonic() + DEADLINE_S
        while self.written < until:
            self._check(end)

    def finish(self) -> None:
        """All that was acknowledged is there once, in its order, whoever looks."""
        self._stop.set()
        end = time.monotonic() + DEADLINE_S
        self._threads[0].join(DEADLINE_S)
        while any(len(seen) < self.written for seen in self.seen.values()):
            self._check(end)
        self._threads[1].join(DEADLINE_S)
        self._done.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), thread
        self._raise()
        everything = list(range(self.written))
        for who, seen in self.seen.items():
            assert seen == everything, who
        copied = [int(it.items[0]) for it in self._ts.scan(self._copy, 0)]
        assert copied == everything

    def _check(self, end: float) -> None:
        self._raise()
        assert time.monotonic() < end, (self.written, {k: len(v) for k, v in self.seen.items()})
        time.sleep(0.005)

    def _raise(self) -> None:
        for error in self._errors:
            raise error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._errors.append(error)

    # What they do.

    def _write(self) -> None:
        under_way: deque[Future[int]] = deque()
        number = 0
        with self._ts.producer(self._source, name="writer") as producer:
            while under_way or not self._stop.is_set():
                if self._is_ahead() and not under_way:
                    self._stop.wait(0.005)
                elif len(under_way) < WINDOW and not self._stop.is_set() and not self._is_ahead():
                    sent: Any = producer.instant([b"%d" % number], partition=0, wait=False)
                    under_way.append(sent)
                    number += 1
                elif under_way:
                    self._answered(under_way.popleft())

    def _is_ahead(self) -> bool:
        """Whether others have to catch up first."""
        return self.written > LEAD + min(self.copied, *map(len, self.seen.values()))

    def _answered(self, future: Future[int]) -> None:
        found = future.result(DEADLINE_S)
        assert found > self._last_id
        self._last_id = found
        self.written += 1

    def _group(self) -> None:
        ts = self._ts
        with (
            ts.consumer(self._source, name="copier", start=Offset.oldest()) as consumer,
            ts.producer(self._copy, name="copier") as producer,
        ):
            group = ts.checkpoint_group()
            group.add(consumer)
            group.add(producer)
            while not self._stop.is_set() or self.copied < self.written:
                txn = consumer.get(0, timeout=0.2)
                if txn is None:
                    continue
                opened = producer.open(partition=0)
                opened.send(txn.items[0])
                group.checkpoint()
                self.copied += 1

    def _consume(self) -> None:
        with self._ts.consumer(self._source, name="reader", start=Offset.oldest()) as consumer:
            while not self._done.is_set():
                for txn in consumer.read(max_wait=0.2):
                    self.seen["consumer"].append(int(txn.items[0]))
                    if len(self.seen["consumer"]) % 50 == 0:
                        consumer.checkpoint()

    def _subscribe(self) -> None:
        seen = self.seen["subscriber"]
        failures: list[BaseException] = []
        with self._ts.subscriber(
            self._source,
            name="subscriber",
            start=Offset.oldest(),
            on_transaction=lambda _, txn: seen.append(int(txn.items[0])),
            on_failure=failures.append,
        ) as subscriber:
            while not self._done.wait(0.1):
                subscriber.checkpoint()
                for failure in failures:
                    raise failure

    def _scan(self) -> None:
        last = 0
        while not self._done.wait(0.02):
            for txn in self._ts.scan(self._source, 0, after=last):
                last = txn.id
                self.seen["scan"].append(int(txn.items[0]))
