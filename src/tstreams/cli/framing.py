"""How items lie in a file or a pipe: as lines, or each behind its length.

Length-prefixed: 4 bytes, the item's length as a little-endian unsigned number, then the item.
"""

from __future__ import annotations

import os
import select
import struct
from collections.abc import Iterable, Iterator
from typing import Protocol

from ..errors import BadRequest
from ..limits import ITEM_BYTES_MAX

BLOCK_BYTES = 1024 * 1024
"""One read from the input: large enough that splitting it costs more than reading it."""

PAUSE_S = 0.1
"""An input that gives nothing for this long is pausing: what it gave so far should be sent."""

_LENGTH = struct.Struct("<I")


def blocks(descriptor: int) -> Iterator[bytes]:
    """What can be read, in large blocks. An empty block means that the input pauses."""
    paused = False
    while True:
        if not paused and not select.select([descriptor], [], [], PAUSE_S)[0]:
            paused = True
            yield b""
            continue
        paused = False
        block = os.read(descriptor, BLOCK_BYTES)
        if not block:
            return
        yield block


class Splitter(Protocol):
    """Cuts blocks into items."""

    def split(self, block: bytes) -> list[bytes]:
        """The items that are complete with this block."""

    def rest(self) -> list[bytes]:
        """What is left when the input has ended; `BadRequest` if it was cut short."""


class Lines:
    """Items end with a newline, which is not part of them. The last one may lack it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def split(self, block: bytes) -> list[bytes]:
        """The lines that are complete with this block."""
        if b"\n" not in block:
            self._keep(block)
            return []
        items = block.split(b"\n")
        items[0] = b"".join((*self._pieces, items[0]))
        self._pieces, self._size = [], 0
        self._keep(items.pop())
        return items

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > ITEM_BYTES_MAX:
            raise BadRequest(
                f"a line is longer than an item can be ({ITEM_BYTES_MAX} bytes): is the input text?"
            )
        self._pieces.append(piece)

    def rest(self) -> list[bytes]:
        """The last line, if no newline ends it."""
        last = b"".join(self._pieces)
        return [last] if last else []


class LengthPrefixed:
    """Each item behind its length."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._taken = 0

    def split(self, block: bytes) -> list[bytes]:
        """The items that are complete with this block."""
        buffer = self._buffer
        buffer += block
        items = []
        at, end = 0, len(buffer)
        while end - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if length > ITEM_BYTES_MAX:
                raise BadRequest(
                    f"the item at byte {self._taken + at} is said to have {length} bytes, "
                    f"{ITEM_BYTES_MAX} are allowed: is the input length-prefixed?"
                )
            after = at + _LENGTH.size + length
            if after > end:
                break
            items.append(bytes(buffer[at + _LENGTH.size : after]))
            at = after
        del buffer[:at]
        self._taken += at
        return items

    def rest(self) -> list[bytes]:
        """Nothing; `BadRequest` if the last item is not whole."""
        if self._buffer:
            raise BadRequest(
                f"the input ends within the item at byte {self._taken}: it was cut short"
            )
        return []


SPLITTERS: dict[str, type[Lines] | type[LengthPrefixed]] = {
    "lines": Lines,
    "length-prefixed": LengthPrefixed,
}


def join_lines(items: Iterable[bytes]) -> bytes:
    """Items as lines."""
    return b"".join([item + b"\n" for item in items])


def join_length_prefixed(items: Iterable[bytes]) -> bytes:
    """Items, each behind its length."""
    return b"".join([part for item in items for part in (_LENGTH.pack(len(item)), item)])
