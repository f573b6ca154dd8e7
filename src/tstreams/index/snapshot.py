"""The index as bytes: all keys and values as they were at one moment, in pieces that go through the log.

A piece is `key bytes u32 | value bytes u32 | key | value`, again and again, in the order of the keys.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from ..errors import Corrupt
from ..items import Buffer
from ..limits import KIB
from . import keys
from .store import Store

PIECE_BYTES = 256 * KIB
"""How much is read from the index at a time: a few milliseconds, in which nothing else is done."""

_SIZES = struct.Struct("<II")


class Pieces:
    """Reads the index as it is when this is made, however it changes meanwhile. Drop it before the index is closed.

    `keys` and `size_bytes` say what was read so far.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._iterator = store.iterator()  # it sees what is there now, and nothing that comes later
        self._iterator.seek_to_first()
        self.keys = 0
        self.size_bytes = 0

    def next(self) -> bytes:
        """The next piece; empty behind the last."""
        iterator = self._iterator
        parts: list[bytes] = []
        size = 0
        while size < PIECE_BYTES and iterator.valid():
            key, value = iterator.key(), iterator.value()
            parts += (_SIZES.pack(len(key), len(value)), key, value)
            size += _SIZES.size + len(key) + len(value)
            self.keys += 1
            iterator.next()
        self._store.check(iterator)
        self.size_bytes += size
        return b"".join(parts)


def load(store: Store, pieces: Iterable[Buffer]) -> int:
    """Put a snapshot into an empty index, durably; how many keys it had. The caller gives the index its place only
    after that, so that one that was loaded in part is never taken for a whole one."""
    count = 0
    for piece in pieces:
        batch = store.batch()
        for key, value in unpack(piece):
            batch.put(key, value)
            count += 1
        store.write(batch)
    if store.get(keys.POSITION) is None:
        raise Corrupt(
            "a snapshot in the log has no log position: it cannot have been written by us"
        )
    store.flush()
    return count


def unpack(piece: Buffer) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a piece."""
    data, at = memoryview(piece), 0
    while at < len(data):
        if at + _SIZES.size > len(data):
            raise Corrupt("a piece of a snapshot is cut off")
        key_bytes, value_bytes = _SIZES.unpack_from(data, at)
        at += _SIZES.size
        end = at + key_bytes + value_bytes
        if end > len(data):
            raise Corrupt("a piece of a snapshot is cut off")
        yield bytes(data[at : at + key_bytes]), bytes(data[at + key_bytes : end])
        at = end
