"""Which shard holds what: from names alone, so that nobody has to look anything up.

All clients and all servers of a cluster must agree on this for ever: the golden values in its test never change.
"""

from __future__ import annotations

from hashlib import blake2b

SHARD_BITS = 48
"""A number of a stream, a session or an agent is the shard that gave it out, above so many bits that count."""


def home_of(stream: str, shards: int) -> int:
    """The shard that holds the definition of a stream, and its partition 0."""
    return _hash(stream) % shards


def shard_of(stream: str, partition: int, shards: int) -> int:
    """The shard that holds a partition of a stream."""
    return (_hash(stream) + partition) % shards


def shards_of(stream: str, partitions: int, shards: int) -> list[int]:
    """All shards that hold something of a stream: each once, the home first."""
    first = _hash(stream)
    return [(first + partition) % shards for partition in range(min(partitions, shards))]


def partitions_in(stream: str, partitions: int, shard: int, shards: int) -> range:
    """The partitions of a stream that a shard holds."""
    return range((shard - _hash(stream)) % shards, partitions, shards)


def job_home(job: str, shards: int) -> int:
    """The shard that decides on the steps of a job."""
    return _hash(job) % shards


def giver_of(number: int) -> int:
    """The shard that gave out the number of a stream, a session or an agent. That of a stream is its home."""
    return number >> SHARD_BITS


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode()).digest()[:8], "little")
