"""Which shard holds a stream."""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c


def shard_of(stream: str, shards: Sequence[int]) -> int:
    """The shard that a stream of this name lives in, given all shards there are."""
    return shards[crc32c(stream.encode()) % len(shards)]
