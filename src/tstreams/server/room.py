"""How much room there is on the disk. Writing stops before the last of it is used: the index needs some."""

from __future__ import annotations

import os
from pathlib import Path

from ..limits import MIB

RESERVE_BYTES_MAX = 64 * MIB
"""What is kept free on a large disk: enough for the index to be flushed and compacted a few times."""

_RESERVE_SHARE = 16
"""On a small disk a sixteenth is kept free."""


class Room:
    """The free bytes of a file system."""

    def __init__(self, path: Path, reserve_bytes: int) -> None:
        self._path = path
        self._reserve_bytes = reserve_bytes

    def free_bytes(self) -> int:
        """What we may still use, as far as the file system says."""
        found = os.statvfs(self._path)
        return found.f_bavail * found.f_frsize

    def reserve_bytes(self) -> int:
        """What is kept free."""
        if self._reserve_bytes:
            return self._reserve_bytes
        found = os.statvfs(self._path)
        return min(RESERVE_BYTES_MAX, found.f_blocks * found.f_frsize // _RESERVE_SHARE)

    def fits(self, size: int) -> bool:
        """Whether so much can be written without touching the reserve."""
        return self.free_bytes() >= self.reserve_bytes() + size

    def is_ample(self) -> bool:
        """Whether there is so much room that writing can go on for a while."""
        return self.free_bytes() >= self.reserve_bytes() * 5 // 4

    def text(self) -> str:
        """What to tell those who want to write."""
        free, reserve = self.free_bytes() // MIB, self.reserve_bytes() // MIB
        return f"the disk is full: {free} MiB are free, and {reserve} MiB are kept in reserve"
