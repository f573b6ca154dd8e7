"""What bytes are read into."""

from __future__ import annotations

from collections import deque

from .limits import KIB, MIB

_KEPT = 4
_KEPT_BYTES_MIN = 64 * KIB
_KEPT_BYTES_MAX = 2 * MIB
"""So many buffers of such sizes are kept, to be used again."""


class Buffers:
    """The buffers of one thread: a shared one for whatever is used up at once, and others for large frames.

    A buffer is used again when nobody looks at it any more: a fresh one would have to be filled with zeros
    first, and its pages found by the system, which takes longer than to read into it.
    """

    __slots__ = ("_kept", "shared")

    def __init__(self, shared_bytes: int) -> None:
        self.shared = memoryview(bytearray(shared_bytes))
        self._kept: deque[bytearray] = deque(maxlen=_KEPT)

    def large(self, size: int) -> memoryview:
        """A buffer of so many bytes, whatever they hold. It is the caller's as long as there is a view of it."""
        for kept in self._kept:
            if size <= len(kept) <= 2 * size and _is_free(kept):
                return memoryview(kept)[:size]
        made = bytearray(size)
        if _KEPT_BYTES_MIN <= size <= _KEPT_BYTES_MAX:
            self._kept.append(made)
        return memoryview(made)


def _is_free(buffer: bytearray) -> bool:
    """Whether there is no view of it: only then it can change its size."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
