"""Which partition a transaction goes to."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from crc32c import crc32c

from ...errors import BadRequest
from ...items import Buffer
from ...model import Stream


def check_partition(stream: Stream, partition: int) -> int:
    """A partition that the stream has."""
    if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
        raise BadRequest(f"a partition is a number from 0 on, not {partition!r}")
    if partition >= stream.partitions:
        raise BadRequest(
            f"stream {stream.name!r} has the partitions 0 to {stream.partitions - 1}, not {partition}"
        )
    return partition


def listed(partitions: Iterable[int] | None) -> list[int] | None:
    """The partitions that a user names, if any."""
    if partitions is None:
        return None
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise BadRequest(f"partitions are a set of numbers, not {partitions!r}")
    return list(partitions)


def chosen_partitions(stream: Stream, partitions: list[int] | None) -> list[int]:
    """The partitions that an agent works on, in order: all, if the user names none."""
    if partitions is None:
        return list(range(stream.partitions))
    chosen = sorted({check_partition(stream, partition) for partition in partitions})
    if not chosen:
        raise BadRequest("an agent works on one partition at least")
    return chosen


def place_of(key: Buffer, places: int) -> int:
    """One of so many places, the same for the same key."""
    # By the upper bits: the lower ones of numbers that follow each other take every other value.
    return crc32c(key) * places >> 32


class Partitioner:
    """Picks one of a producer's partitions: the one asked for, by a key's hash, or the next in turn."""

    def __init__(self, stream: Stream, partitions: list[int] | None, name: str) -> None:
        self._stream = stream
        self.partitions = chosen_partitions(stream, partitions)
        self._mine = frozenset(self.partitions)
        # Each name begins elsewhere: many producers of one transaction each must not meet in one place.
        self._next = itertools.count(crc32c(name.encode()))

    def pick(self, partition: int | None, key: Buffer | None) -> int:
        """A partition for one transaction."""
        if key is None and type(partition) is int and partition in self._mine:
            return partition
        if partition is not None:
            if key is not None:
                raise BadRequest("name a partition or a key, not both")
            return self.check(partition)
        if key is not None:
            if not isinstance(key, Buffer):
                raise TypeError(f"a key is bytes-like, this is {type(key).__name__}")
            return self.partitions[place_of(key, len(self.partitions))]
        return self.partitions[next(self._next) % len(self.partitions)]

    def check(self, partition: int) -> int:
        """A partition that the producer writes to."""
        if partition not in self._mine or type(partition) is not int:
            check_partition(self._stream, partition)
            raise BadRequest(
                f"partition {partition} is none of this producer's: {self.partitions[:20]}"
            )
        return partition
