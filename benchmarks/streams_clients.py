"""Client processes of `streams`: many requests in flight at once, through the public client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import tstreams
from tstreams import Offset

IN_FLIGHT = 64
"""Requests of one client process: a thread for each."""
READ_WITHIN_S = 30.0


def stream_name(number: int) -> str:
    """The name of a stream."""
    return f"stream-{number:08d}"


def item_of(number: int) -> bytes:
    """What is written into a stream; it tells the stream it belongs to."""
    return f"item of {stream_name(number)}".encode().ljust(100, b".")


class Crowd:
    """A session that does the same with many streams."""

    def __init__(self, url: str) -> None:
        self._client = tstreams.connect(url)
        self._threads = ThreadPoolExecutor(IN_FLIGHT)

    def create(self, numbers: Sequence[int]) -> None:
        """Create streams with one partition each."""
        self._for_each(numbers, self._create)

    def write(self, numbers: Sequence[int]) -> None:
        """A transaction of one item into each."""
        self._for_each(numbers, self._write)

    def read(self, numbers: Sequence[int]) -> None:
        """Read it back from each, and see that it is the right one."""
        self._for_each(numbers, self._read)

    def close(self) -> None:
        """Disconnect."""
        self._threads.shutdown()
        self._client.close()

    def _create(self, number: int) -> None:
        self._client.create_stream(stream_name(number), partitions=1, ttl="1d")

    def _write(self, number: int) -> None:
        with self._client.producer(stream_name(number), name="crowd") as producer:
            producer.instant([item_of(number)], partition=0)

    def _read(self, number: int) -> None:
        name = stream_name(number)
        with self._client.consumer(name, name="crowd", start=Offset.oldest()) as consumer:
            transaction = consumer.get(partition=0, timeout=READ_WITHIN_S)
            items = None if transaction is None else list(transaction.items)
            if items != [item_of(number)]:
                raise ValueError(f"{items!r:.200} was read from {name}")

    def _for_each(self, numbers: Sequence[int], act: Callable[[int], None]) -> None:
        """All threads take numbers from one iterator."""
        left, lock = iter(numbers), threading.Lock()

        def mine() -> Iterator[int]:
            while True:
                with lock:
                    number = next(left, None)
                if number is None:
                    return
                yield number

        def work(_: int) -> None:
            for number in mine():
                act(number)

        for _ in self._threads.map(work, range(IN_FLIGHT)):
            pass
