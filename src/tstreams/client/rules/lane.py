"""Partitions that a reader asks about together."""

from __future__ import annotations

from ...limits import FETCH_TRANSACTIONS_MAX
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

    __slots__ = ("ask", "bytes_max", "cursors", "queued", "turn")

    def __init__(self, cursors: list[Cursor], bytes_max: int) -> None:
        self.cursors = cursors
        self.bytes_max = bytes_max
        self.queued = 0
        self.ask: Ask | None = None
        self.turn = 0

    def wants(self) -> list[Want]:
        """What comes next in each partition. Each time another one is the first to be served."""
        self.turn = (self.turn + 1) % len(self.cursors)
        order = self.cursors[self.turn :] + self.cursors[: self.turn]
        return [Want(cursor.partition, cursor.fetch_id) for cursor in order]
