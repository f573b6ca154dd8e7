"""Items that say where they belong: whoever reads one knows who wrote it, and what must be beside it."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

_HEAD = struct.Struct("<IIII")
_CHECKSUM = struct.Struct("<I")
PADDING_BYTES_MAX = 300


@dataclass(frozen=True, slots=True)
class Batch:
    """What a transaction holds: the `number`th of a writer, with so many items."""

    writer: int
    number: int
    items: int


def make_items(batch: Batch, rng: random.Random) -> list[bytes]:
    """The items of a transaction."""
    made = []
    for index in range(batch.items):
        head = _HEAD.pack(batch.writer, batch.number, index, batch.items)
        body = head + rng.randbytes(rng.randrange(PADDING_BYTES_MAX))
        made.append(body + _CHECKSUM.pack(zlib.crc32(body)))
    return made


def read_items(items: Iterable[bytes]) -> Batch | None:
    """What a transaction is; None if it is torn: not exactly the items of one batch, in order."""
    found: Batch | None = None
    count = 0
    for item in items:
        body, checksum = item[: -_CHECKSUM.size], item[-_CHECKSUM.size :]
        if len(body) < _HEAD.size or _CHECKSUM.unpack(checksum)[0] != zlib.crc32(body):
            return None
        writer, number, index, total = _HEAD.unpack_from(body)
        batch = Batch(writer, number, total)
        if index != count or found not in (None, batch):
            return None
        found = batch
        count += 1
    return found if found is not None and found.items == count else None
