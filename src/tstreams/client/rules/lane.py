"""Partitions that a reader asks about together."""

from __future__ import annotations

from ...limits import FETCH_BYTES_FIRST, FETCH_TRANSACTIONS_MAX
from ...protocol import Want
from .cursor import Cursor
from .delivery import Delivery
from .ticket import Ticket


class Ask:
    """A `Fetch` under way, or its answer that nobody has taken in."""

    __slots__ = ("bytes_max", "epoch", "ticket")

    def __init__(self, ticket: Ticket, epoch: int, bytes_max: int) -> None:
        self.ticket = ticket
        self.epoch = epoch
        """Of the reader when it asked."""
        self.bytes_max = bytes_max

    def was_full(self, found: list[Delivery]) -> bool:
        """Whether an answer was as large as allowed, so that there is more where it came from."""
        size = sum(len(delivery.data) for delivery in found)
        return size * 2 >= self.bytes_max or len(found) >= FETCH_TRANSACTIONS_MAX


class Lane:
    """Partitions that are asked about together.

    Invariant: `queued` is the number of transactions in the queues of its cursors.
    """

    __slots__ = ("_bytes_max", "ask", "cursors", "fetch_bytes", "queued", "turn")

    def __init__(self, cursors: list[Cursor], bytes_max: int) -> None:
        self.cursors = cursors
        self._bytes_max = bytes_max
        self.fetch_bytes = min(FETCH_BYTES_FIRST, bytes_max)
        """What to ask for next."""
        self.queued = 0
        self.ask: Ask | None = None
        self.turn = 0

    def learn(self, ask: Ask, found: list[Delivery]) -> None:
        """An answer came: if it was full, ask for more the next time."""
        if ask.was_full(found):
            self.fetch_bytes = min(4 * self.fetch_bytes, self._bytes_max)

    def wants(self) -> list[Want]:
        """What comes next in each partition. Each time another one is the first to be served."""
        self.turn = (self.turn + 1) % len(self.cursors)
        order = self.cursors[self.turn :] + self.cursors[: self.turn]
        return [Want(cursor.partition, cursor.fetch_id) for cursor in order]
