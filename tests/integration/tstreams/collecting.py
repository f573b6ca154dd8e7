"""A callback that remembers what it was called with, and clients in processes of their own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tstreams import ReadTransaction

from .conftest import eventually
from .forked import Forked


class Collector:
    """Remembers transactions and failures. Its methods are what a subscriber is made with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.found: list[tuple[int, int, list[bytes]]] = []
        self.failures: list[BaseException] = []

    def on_transaction(self, subscriber: Any, txn: ReadTransaction) -> None:
        items = list(txn.items)
        with self._lock:
            self.found.append((txn.partition, txn.id, items))

    def on_failure(self, error: BaseException) -> None:
        self.failures.append(error)

    @property
    def callbacks(self) -> dict[str, Any]:
        return {"on_transaction": self.on_transaction, "on_failure": self.on_failure}

    @property
    def ids(self) -> list[int]:
        return [txn_id for _, txn_id, _ in self.found]

    @property
    def items(self) -> list[bytes]:
        return [item for _, _, items in self.found for item in items]

    def of(self, partition: int) -> list[int]:
        return [txn_id for where, txn_id, _ in self.found if where == partition]

    def wait_for(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until so many have come, and see that no more do before somebody looks."""
        eventually(lambda: len(self.found) >= count or self.failures, timeout_s)
        assert self.failures == []
        assert len(self.found) == count


@contextmanager
def client_process(code: str, *arguments: str) -> Iterator[Forked]:
    """Run a program that says something when it is so far. It is killed in the end."""
    process = Forked(code, arguments)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait(30)
        process.close()


def line_of(process: Forked) -> str:
    """The next line that a program prints."""
    return process.stdout.readline().strip()
