"""How a shard is: whether there is room for more, and whether it works at all."""

from __future__ import annotations

import logging

from ..errors import Error, Unavailable
from ..ledger.port import DiskFull
from ..limits import KIB
from .contents import Contents
from .room import Room
from .wire import wire_error

log = logging.getLogger("tstreams.server")

_INDEX_BYTES_PER_RECORD = 150
_FLUSH_BYTES_MIN = 256 * KIB
"""What a flush of the index takes of the disk, at most: some for each record, and some at all."""


class Condition:
    """The room of one shard, and what has become of it. `full` and `failed` are texts for those who are refused."""

    def __init__(self, number: int, room: Room, contents: Contents) -> None:
        self.room = room
        self.full: str | None = None
        self.failed: str | None = None
        self._number = number
        self._contents = contents

    def check(self) -> None:
        """Refuse everything once the shard has stopped."""
        if self.failed is not None:
            raise wire_error(Unavailable(self.failed))

    def fail(self, error: Error) -> Unavailable:
        """It has stopped, and why."""
        self.failed = f"shard {self._number} has stopped: {error.message}"
        log.critical(self.failed, extra={"tstreams": {"shard": self._number}})
        return Unavailable(self.failed)

    # Room.

    @property
    def _unflushed_bytes(self) -> int:
        return self._contents.records_since_flush * _INDEX_BYTES_PER_RECORD

    def check_room(self, pending_bytes: int) -> None:
        """`DiskFull` if there is no room for so much more."""
        if pending_bytes and not self.room.fits(pending_bytes + self._unflushed_bytes):
            raise DiskFull(self.room.text())

    def can_flush(self) -> bool:
        """Whether there is room for what the index holds in memory."""
        return self.room.has(self._unflushed_bytes + _FLUSH_BYTES_MIN)

    def note_full(self, text: str) -> None:
        """There is no room: refuse what adds to it."""
        if self.full is None:
            log.error(text, extra={"tstreams": {"shard": self._number}})
        self.full = f"{text}. Make room; writing goes on by itself then."

    def look_at_room(self) -> None:
        """Writing stops before the last of it is used, and goes on after."""
        if self.full is None and not self.room.fits(0):
            self.note_full(self.room.text())
        elif self.full is not None and self.room.is_ample():
            self.full = None
            log.info("there is room again", extra={"tstreams": {"shard": self._number}})
