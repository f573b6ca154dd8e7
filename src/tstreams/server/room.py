"""How much room there is on the disk. Writing stops before the last of it is used: the index needs some."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ..limits import MIB

RESERVE_BYTES_MAX = 64 * MIB
"""What is kept free on a large disk: enough for the index to be flushed and compacted a few times."""

_RESERVE_SHARE = 16
"""On a small disk a sixteenth is kept free."""


_AMPLE_BYTES = 1024 * MIB
_TRUST_S = 0.02
"""While so much is free beyond the reserve nobody fills it in this time: one look serves many writes."""


class Room:
    """The free bytes of a file system."""

    def __init__(self, path: Path, reserve_bytes: int) -> None:
        self._path = path
        self._reserve_bytes = reserve_bytes
        self._ample_until = 0.0

    def look(self) -> tuple[int, int]:
        """Bytes that are free, as far as the file system says, and bytes that are kept free."""
        found = os.statvfs(self._path)
        share_bytes = found.f_blocks * found.f_frsize // _RESERVE_SHARE
        reserve_bytes = self._reserve_bytes or min(RESERVE_BYTES_MAX, share_bytes)
        return found.f_bavail * found.f_frsize, reserve_bytes

    def fits(self, size: int) -> bool:
        """Whether so much can be written without touching the reserve."""
        if size < _AMPLE_BYTES // 2 and time.monotonic() < self._ample_until:
            return True
        free_bytes, reserve_bytes = self.look()
        if free_bytes >= reserve_bytes + _AMPLE_BYTES:
            self._ample_until = time.monotonic() + _TRUST_S
        return free_bytes >= reserve_bytes + size

    def has(self, size: int) -> bool:
        """Whether so much can be written, if need be out of the reserve."""
        return self.look()[0] >= size

    def is_ample(self) -> bool:
        """Whether there is so much room that writing can go on for a while."""
        free_bytes, reserve_bytes = self.look()
        return free_bytes >= reserve_bytes * 5 // 4

    def text(self) -> str:
        """What to tell those who want to write."""
        free_bytes, reserve_bytes = self.look()
        return (
            f"the disk is full: {free_bytes // MIB} MiB are free, "
            f"and {reserve_bytes // MIB} MiB are kept in reserve"
        )
