"""The bytes of a batch: a header with a checksum, and a body.

    version u8 | kind u8 | codec u8 | flags u8 | count u32 | body bytes u32 | crc32c u32 | body

All numbers are little-endian. There is one flag, 1: the headers of a transaction stand before the body, as
`headers.py` says. Most batches have none, and nothing of that. The body is compressed as the codec says; `body bytes` is its size before
that, and compression that does not shrink it is left out. A batch is at most `FRAME_BYTES_MAX`, compressed
or not, header included. The checksum covers the header before it and all that follows, as stored. It is made by the
producer and checked by the server and by the reader: nothing between them can change a bit unseen.

What the body holds depends on the kind, and `count` is the number of items that the batch completes:

- BYTES: `count + 1` offsets (i32, from 0), then all items end to end. That is the layout of an Arrow binary
  array, so a batch becomes an Arrow column without any work per item.
- ARROW: one Arrow record batch of `count` rows, an encapsulated IPC message without its schema, which the
  stream carries. No dictionaries, and no compression inside of it.
- PIECE: a slice of one item that is too large for a batch. `count` is 1 in its last piece and 0 before;
  the pieces of an item follow each other without anything between them.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, TypeAlias

from crc32c import crc32c

from ..errors import BadRequest, Corrupt, TooLarge
from ..limits import BATCH_ITEMS_MAX, FRAME_BYTES_MAX, HEADERS_BYTES_MAX
from .codec import Buffer, Codec, compress, decompress

VERSION = 1
_HEADER = struct.Struct("<IIII")
_CHECKED = struct.Struct("<III")
HEADER_BYTES: Final = _HEADER.size
_CHECKED_BYTES: Final = _CHECKED.size
BODY_BYTES_MAX = FRAME_BYTES_MAX - HEADER_BYTES
_HEADED: Final = 1 << 24
"""In the first four bytes: headers stand before the body."""
_SECTION = struct.Struct("<I")
SECTION_OVERHEAD_BYTES: Final = _SECTION.size
"""What headers take in a batch beside their own bytes."""


class Kind(IntEnum):
    """What the body holds."""

    BYTES = 0
    """Offsets and items."""
    ARROW = 1
    """One Arrow record batch, in IPC encapsulation without its schema."""
    PIECE = 2
    """A slice of one item."""


# The first four bytes are looked up as a whole: one step instead of a check for each of them.
_FORMS = [[VERSION | kind << 8 | codec << 16 for codec in Codec] for kind in Kind]
_Meaning: TypeAlias = tuple[Kind, Codec, int, int]
_COUNTS = {Kind.BYTES: (1, BATCH_ITEMS_MAX), Kind.ARROW: (1, BATCH_ITEMS_MAX), Kind.PIECE: (0, 1)}
_MEANINGS: dict[int, _Meaning] = {
    _FORMS[kind][codec]: (kind, codec, *_COUNTS[kind]) for kind in Kind for codec in Codec
}


def seal(kind: Kind, codec: Codec, count: int, first: Buffer, then: Buffer = b"") -> bytes:
    """A batch whose body is these two end to end. `TooLarge` if it is over the limit of a frame."""
    size = len(first) + len(then)
    if size > BODY_BYTES_MAX:
        raise TooLarge(f"a batch of {size} bytes is over the limit of {BODY_BYTES_MAX}")
    if codec != 0:
        stored = compress(codec, b"".join((first, then)) if then else first)
        if len(stored) < size:
            first, then = stored, b""
        else:
            codec = Codec.NONE
    head = _CHECKED.pack(_FORMS[kind][codec], count, size)
    checksum = crc32c(then, crc32c(first, crc32c(head)))
    return b"".join((head, checksum.to_bytes(4, "little"), first, then))


def headed(blob: Buffer, section: bytes) -> bytes:
    """A batch that has no headers, with these. `TooLarge` if there is no room for them in it."""
    size = len(blob) + SECTION_OVERHEAD_BYTES + len(section)
    if size > FRAME_BYTES_MAX:
        raise TooLarge(f"a batch of {size} bytes is over the limit of {FRAME_BYTES_MAX}")
    form, count, body_bytes = _CHECKED.unpack_from(blob)
    assert not form & _HEADED, "a batch has headers once"
    head = _CHECKED.pack(form | _HEADED, count, body_bytes)
    first = _SECTION.pack(len(section)) + section
    body = memoryview(blob)[HEADER_BYTES:]
    checksum = crc32c(body, crc32c(first, crc32c(head)))
    return b"".join((head, checksum.to_bytes(4, "little"), first, body))


def completed_by(blob: Buffer) -> int:
    """How many items a batch of our own completes: it need not be checked."""
    return int(_CHECKED.unpack_from(blob)[1])


def section_of(blob: Buffer) -> memoryview:
    """The headers in a batch, as they are stored; the batch is checked."""
    stored = opened(blob)[4]
    between = len(blob) - HEADER_BYTES - len(stored)
    start = HEADER_BYTES + SECTION_OVERHEAD_BYTES
    return memoryview(blob)[start : HEADER_BYTES + between] if between else memoryview(b"")


def check(blob: Buffer) -> int:
    """Check a batch as a server does, without decompressing it: the number of items that it completes."""
    return opened(blob)[2]


def unseal(blob: Buffer) -> tuple[Kind, int, memoryview]:
    """Check a batch as a reader does: its kind, its count, and its body."""
    kind, codec, count, size, stored = opened(blob)
    if codec == 0:
        return kind, count, stored
    return kind, count, memoryview(decompress(codec, stored, size))


def opened(blob: Buffer) -> tuple[Kind, Codec, int, int, memoryview]:
    """Check a batch: its kind, its codec, its count, the size of its body, and that as it is stored."""
    length = len(blob) - HEADER_BYTES
    if not 0 <= length <= BODY_BYTES_MAX:
        if length > 0:
            raise TooLarge(f"a batch of {len(blob)} bytes is over the limit of {FRAME_BYTES_MAX}")
        raise Corrupt(f"an item batch of {len(blob)} bytes is shorter than its header")
    form, count, size, checksum = _HEADER.unpack_from(blob)
    stored = memoryview(blob)[HEADER_BYTES:]
    if crc32c(stored, crc32c(blob[:_CHECKED_BYTES])) != checksum:
        raise Corrupt(f"the checksum of an item batch of {len(blob)} bytes does not match")
    meaning = _MEANINGS.get(form)
    if meaning is None:
        meaning, stored = _behind_headers(form, stored)
        length = len(stored)
    kind, codec, least, most = meaning
    if (
        not least <= count <= most
        or size > BODY_BYTES_MAX
        or (length != size if codec == 0 else length >= size)
        or length == 0
    ):
        raise BadRequest(
            f"an item batch of {count} items and {size} bytes, stored in {length}, is out of bounds"
        )
    return kind, codec, count, size, stored


def _behind_headers(form: int, stored: memoryview) -> tuple[_Meaning, memoryview]:
    """What a batch with headers is, and its body as it is stored. Not on the way of those without."""
    meaning = _MEANINGS.get(form ^ _HEADED)
    if meaning is None:
        raise BadRequest(
            f"an item batch of version {form & 255}, kind {form >> 8 & 255}, codec "
            f"{form >> 16 & 255}, flags {form >> 24} is not known: this is version {VERSION}"
        )
    size = _SECTION.unpack_from(stored)[0] if len(stored) >= SECTION_OVERHEAD_BYTES else 0
    end = SECTION_OVERHEAD_BYTES + size
    if not 0 < size <= HEADERS_BYTES_MAX or end > len(stored):
        raise BadRequest(
            f"an item batch has headers of {size} bytes in {len(stored)}: they are out of bounds"
        )
    return meaning, stored[end:]
