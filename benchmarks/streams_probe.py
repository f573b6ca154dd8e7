"""Single writes and reads, timed one at a time. The same code for one stream and for a million."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import tstreams
from tstreams import Offset

from .rounds import rotated
from .streams_clients import item_of, stream_name


class Probe:
    """A client that picks a stream at random among the first `streams`."""

    def __init__(self, url: str, streams: int) -> None:
        self._client = tstreams.connect(url)
        self._streams = streams
        self._random = random.Random(streams)
        self._written: list[tuple[int, int]] = []

    def open_and_write(self) -> tuple[float, float]:
        """Seconds to open a producer on some stream, and seconds of one instant transaction."""
        number = self._random.randrange(self._streams)
        begun = time.perf_counter()
        producer = self._client.producer(stream_name(number), name="probe")
        opened = time.perf_counter()
        transaction_id = producer.instant([item_of(number)], partition=0)
        done = time.perf_counter()
        producer.close()
        self._written.append((number, transaction_id))
        return opened - begun, done - opened

    def open_and_read(self) -> tuple[float, float]:
        """Seconds to open a consumer on a stream, and to read one of its transactions by its id."""
        number, transaction_id = self._random.choice(self._written)
        begun = time.perf_counter()
        consumer = self._client.consumer(stream_name(number), name="probe", start=Offset.oldest())
        opened = time.perf_counter()
        transaction = consumer.by_id(0, transaction_id)
        done = time.perf_counter()
        consumer.close()
        if transaction is None or list(transaction.items) != [item_of(number)]:
            raise ValueError(f"{transaction!r} was read from {stream_name(number)}")
        return opened - begun, done - opened

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


def side_by_side(
    probes: dict[str, Callable[[], tuple[float, float]]], samples: int
) -> dict[str, tuple[list[float], list[float]]]:
    """So many samples of each, taking turns: (opening, doing) in seconds."""
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in probes}
    for turn in range(samples):
        for name in rotated(list(probes), turn):
            opening_s, doing_s = probes[name]()
            found[name][0].append(opening_s)
            found[name][1].append(doing_s)
    return found
