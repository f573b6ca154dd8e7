"""How a message lies on a byte stream: frames, their encoder and their decoder. No I/O here.

A frame is a prefix of 8 bytes (body length: u32, header length: u16, number of parts: u16, all
big-endian) and a body: the lengths of all parts but the last (u32 each, only if there are two or
more), the header, the parts.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from .buffers import Buffers
from .errors import Error, ProtocolError, TooLarge
from .limits import KIB, Limits
from .messages import Buffer, Parts

PREFIX = struct.Struct(">IHH")
PREFIX_BYTES = PREFIX.size

LARGE_BYTES = 64 * KIB
"""From this size on a frame is received in place and its parts are views, not copies. Below it a
copy is cheaper than a view, and does not pin the read buffer."""

STEP_BYTES = 256 * KIB
"""What a frame that says to be large gets, if little of it has come. The rest follows when that is full: eight
bytes of a prefix should not cost what a whole frame may hold."""

SMALL_BYTES = 4 * KIB
"""Below this a frame is sent as one buffer: copying it is cheaper than handing on two."""

_pack = PREFIX.pack
_pack_two = struct.Struct(">IHHI").pack
_LENGTH_BYTES = 4
_unpack_from = PREFIX.unpack_from
_unpack_length = struct.Struct(">I").unpack_from


def encode_frame(header: bytes, parts: Parts) -> list[Buffer]:
    """The buffers that make one frame, in order. Payload is passed on, not copied, unless small."""
    count = len(parts)
    if count == 1:
        part = parts[0]
        size = len(header)
        head = _pack(size + len(part), size, 1) + header
        return [head + part] if len(part) < SMALL_BYTES else [head, part]
    if count == 2:
        first, last = parts
        size = len(header)
        first_bytes, last_bytes = len(first), len(last)
        body = _LENGTH_BYTES + size + first_bytes + last_bytes
        head = _pack_two(body, size, 2, first_bytes) + header
        if first_bytes + last_bytes < SMALL_BYTES:
            return [b"".join((head, first, last))]
        return [head, first, last]
    if count == 0:
        return [_pack(len(header), len(header), 0) + header]
    sizes = [len(part) for part in parts]
    table = struct.pack(f">{count - 1}I", *sizes[:-1])
    body = len(table) + len(header) + sum(sizes)
    return [_pack(body, len(header), count) + table + header, *parts]


def encode_pieces(header: bytes, first: Buffer, pieces: Sequence[Buffer]) -> list[Buffer]:
    """The same for two parts, the second of which lies in several buffers: they are not copied together."""
    size, first_bytes = len(header), len(first)
    body = _LENGTH_BYTES + size + first_bytes + sum(map(len, pieces))
    return [_pack_two(body, size, 2, first_bytes) + header, first, *pieces]


class FrameDecoder:
    """Turns the bytes of a stream into frames.

    The owner reads into `room` and then calls `advance(n)`, which returns the frames that are complete.
    After a malformed or oversized frame `error` is set and nothing more is decoded; the frames before it
    are still returned.

    Invariant: `_large` is None, or holds the first `_filled` bytes of one incomplete frame of `_total`, is
    longer than those, and then `_tail` is empty. `_tail` is shorter than one frame. `room` is the rest of
    `_large`, else the loop's shared buffer.
    """

    __slots__ = (
        "_buffers",
        "_filled",
        "_large",
        "_limits",
        "_plain_bytes_max",
        "_shared",
        "_tail",
        "_total",
        "error",
        "partial",
        "room",
    )

    def __init__(self, limits: Limits, buffers: Buffers) -> None:
        self._limits = limits
        self._buffers = buffers
        self._shared = buffers.shared
        self.room = self._shared
        """Where the next bytes go."""
        self._plain_bytes_max = min(LARGE_BYTES - 1, limits.frame_bytes_max)
        self._tail = b""
        self._large: memoryview | None = None
        self._filled = 0
        self._total = 0
        self.error: Error | None = None
        self.partial = False
        """Whether a frame has begun to arrive and is not complete."""

    def advance(self, count: int) -> list[tuple[bytes, Parts]]:
        """Take `count` bytes that were written to `room`."""
        if self.error is not None:
            return []
        if self._large is not None:
            return self._advance_large(self._large, count)
        data = self._shared[:count].tobytes()
        if self.partial:
            data = self._tail + data
            self._tail = b""
            self.partial = False
        frames: list[tuple[bytes, Parts]] = []
        plain_max, header_max = self._plain_bytes_max, self._limits.header_bytes_max
        pairs = self._limits.parts_max >= 2
        size = len(data)
        at = 0
        while size - at >= PREFIX_BYTES:
            body, header_bytes, part_count = _unpack_from(data, at)
            start = at + PREFIX_BYTES
            end = start + body
            if header_bytes <= body <= plain_max and header_bytes <= header_max:
                # By far the most frequent: one or two parts, none of them large.
                if part_count == 1:
                    if end > size:
                        break
                    middle = start + header_bytes
                    frames.append((data[start:middle], (data[middle:end],)))
                    at = end
                    continue
                if part_count == 2 and pairs and end <= size and body >= 4:
                    middle = start + 4 + header_bytes
                    split = middle + _unpack_length(data, start)[0]
                    if split <= end:
                        parts = (data[middle:split], data[split:end])
                        frames.append((data[start + 4 : middle], parts))
                        at = end
                        continue
            try:
                self._check(body, header_bytes, part_count)
                if end > size:
                    break
                if body < LARGE_BYTES:
                    frames.append(_cut(data, at, body, header_bytes, part_count))
                else:
                    frames.append(_cut(memoryview(data), at, body, header_bytes, part_count))
            except Error as error:
                self.error = error
                return frames
            at = end
        if at < size:
            self._keep(data, at)
        return frames

    def _advance_large(self, large: memoryview, count: int) -> list[tuple[bytes, Parts]]:
        self._filled += count
        if self._filled < len(large):
            self.room = large[self._filled :]
            return []
        if self._filled < self._total:
            self._large = whole = self._buffers.large(self._total)
            whole[: self._filled] = large
            self.room = whole[self._filled :]
            return []
        self._large = None
        self.room = self._shared
        self.partial = False
        frames: list[tuple[bytes, Parts]] = []
        try:
            body, header_bytes, part_count = _unpack_from(large)
            frames.append(_cut(large.toreadonly(), 0, body, header_bytes, part_count))
        except Error as error:
            self.error = error
        return frames

    def _keep(self, data: bytes, at: int) -> None:
        """Hold on to the beginning of a frame; a large one gets a buffer of its own."""
        self.partial = True
        if len(data) - at >= PREFIX_BYTES:
            total = PREFIX_BYTES + _unpack_from(data, at)[0]
            if total >= LARGE_BYTES:
                self._filled = len(data) - at
                self._total = total
                size = total if self._filled >= LARGE_BYTES else min(total, STEP_BYTES)
                large = self._buffers.large(size)
                large[: self._filled] = memoryview(data)[at:]
                self._large = large
                self.room = large[self._filled :]
                return
        self._tail = data[at:]

    def _check(self, body: int, header_bytes: int, part_count: int) -> None:
        limits = self._limits
        if body > limits.frame_bytes_max:
            raise TooLarge(f"a frame of {body} bytes is over the limit of {limits.frame_bytes_max}")
        if header_bytes > limits.header_bytes_max:
            raise TooLarge(
                f"a header of {header_bytes} bytes is over the limit of {limits.header_bytes_max}"
            )
        if part_count > limits.parts_max:
            raise TooLarge(f"{part_count} parts are over the limit of {limits.parts_max}")


def _cut(
    data: bytes | memoryview, at: int, body: int, header_bytes: int, part_count: int
) -> tuple[bytes, Parts]:
    """The header and the parts of the frame that lies at `at`."""
    at += PREFIX_BYTES
    end = at + body
    sizes: tuple[int, ...] = ()
    if part_count > 1:
        table_bytes = 4 * (part_count - 1)
        if table_bytes > body:
            raise ProtocolError("a frame is shorter than its table of part lengths")
        sizes = struct.unpack_from(f">{part_count - 1}I", data, at)
        at += table_bytes
    header = bytes(data[at : at + header_bytes])
    at += header_bytes
    last = end - at - sum(sizes)
    if last < 0 or (part_count == 0 and last > 0):
        raise ProtocolError("the lengths of a frame's header and parts do not add up to its body")
    if part_count == 0:
        return header, ()
    parts = []
    for size in (*sizes, last):
        parts.append(data[at : at + size])
        at += size
    return header, tuple(parts)
