"""The clients of `profile`: they do what the benchmarks do, over and over, until a file says that it is over."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import tstreams

from .durable_clients import TstreamsWriter, make_items
from .pipeline_workers import TstreamsWorker, transform

ITEMS, ITEM_BYTES = 100, 100
WINDOW = 16
_SPELL_S = 0.5
"""How long a client works before it looks whether it is over."""
_NO_LIMIT = 1_000_000_000
_FILLED = 2000
"""Transactions in each partition that is read."""
_STREAM = "profiled"


class Writer:
    """`write`: instant transactions with a window, as in `durable`."""

    def __init__(self, port: int) -> None:
        self._writer = TstreamsWriter(port)

    def create(self, partitions: int) -> None:
        """The stream; one client does it for all."""
        self._writer.create(_STREAM, partitions)

    def prepare(self, partition: int) -> None:
        """A producer, and a first spell."""
        self._writer.open(_STREAM, partition)
        self._write(_SPELL_S, _NO_LIMIT)

    def work(self, partition: int, over: Path) -> int:
        """Write; how many transactions."""
        done = 0
        while not over.exists():
            done += self._write(_SPELL_S, _NO_LIMIT)
        return done

    def pid(self) -> int:
        """Which process this is."""
        return os.getpid()

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()

    def _write(self, seconds: float, count_max: int) -> int:
        return self._writer.write(make_items(ITEMS, ITEM_BYTES), WINDOW, seconds, count_max)


class Reader(Writer):
    """`read`: what was written, from the oldest on, again and again, as in `durable`'s drain."""

    def prepare(self, partition: int) -> None:
        """What is to be read."""
        self._writer.open(_STREAM, partition)
        self._write(600.0, _FILLED)

    def work(self, partition: int, over: Path) -> int:
        """Read; how many transactions."""
        done = 0
        while not over.exists():
            self._writer.drain(_STREAM, partition, _FILLED)
            done += _FILLED
        return done


class Processor:
    """`pipeline`: `ts.process`, one commit for each transaction, as in `pipeline`.

    When it has come to the end of its input it begins again under another name.
    """

    def __init__(self, port: int) -> None:
        self._worker = TstreamsWorker(port)
        self._client = tstreams.connect(f"tcp://127.0.0.1:{port}")

    def create(self, partitions: int) -> None:
        """Input and output; one client does it for all."""
        self._worker.create(_STREAM, partitions)

    def prepare(self, partition: int) -> None:
        """The input."""
        self._worker.fill(_STREAM, partition, _FILLED, make_items(ITEMS, ITEM_BYTES))

    def work(self, partition: int, over: Path) -> int:
        """Process; how many transactions."""
        done = 0
        while not over.exists():
            done += self._pass(f"pass-{partition}-{done}", partition)
        return done

    def pid(self) -> int:
        """Which process this is."""
        return os.getpid()

    def close(self) -> None:
        """Disconnect."""
        self._client.close()
        self._worker.close()

    def _pass(self, name: str, partition: int) -> int:
        """The input once, or as much of it as a few seconds allow."""
        stop, handled = threading.Event(), 0
        deadline = time.monotonic() + 4 * _SPELL_S

        def handle(transaction: tstreams.ReadTransaction) -> list[bytes]:
            nonlocal handled
            handled += 1
            if handled == _FILLED or time.monotonic() > deadline:
                stop.set()
            return transform(transaction.items)

        names = (f"{_STREAM}-in", name, f"{_STREAM}-out")
        done = self._client.process(*names, handle, partitions=[partition], batch=1, stop=stop)
        return done.commits
