"""Questions that nodes answer which follow a shard."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import moebius

from ...errors import Error
from .ticket import Ticket

if TYPE_CHECKING:
    from ...protocol import Message
    from .link import Link


class Roaming(Ticket):
    """A question to a node that follows. Whatever goes wrong there, the leader has the last word: a node that is behind
    does not know a new stream, and one that fails knows nothing."""

    __slots__ = ("_expires_at", "_link", "_message", "_shard", "astray")

    def __init__(self, link: Link, message: Message, shard: int, timeout_s: float) -> None:
        super().__init__()
        self._link = link
        self._message = message
        self._shard = shard
        self._expires_at = time.monotonic() + timeout_s
        self.astray = True
        """Whether a node was asked that may be behind."""

    def fail(self, error: moebius.Error) -> None:
        """It failed: ask the leader, in the time that is left."""
        if not self.astray or self.ended:
            super().fail(error)
            return
        self.astray = False
        self._link.shards.avoid(self.wire)
        left_s = self._expires_at - time.monotonic()
        try:
            if left_s <= 0:
                super().fail(error)
            else:
                self._link.ask_leader(self, self._message, self._shard, left_s)
        except Error:  # the client was closed
            super().fail(error)


def is_astray(ticket: Ticket) -> bool:
    """Whether a node has answered that may be behind: if it has nothing, the leader may have something."""
    return isinstance(ticket, Roaming) and ticket.astray
