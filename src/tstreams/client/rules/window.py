"""How much a client has under way at a time."""

from __future__ import annotations

import threading
from collections import deque

from ...errors import Timeout
from ...limits import CLIENT_WINDOW_BYTES, CLIENT_WINDOW_REQUESTS
from .ticket import AnyOf, Steps, Ticket


class Window:
    """Room for requests that have not been answered, first come, first served.

    Invariants: over the limit there is one request at most, or what was let in without waiting. While
    someone waits, nobody else gets in.
    """

    def __init__(
        self,
        bytes_max: int = CLIENT_WINDOW_BYTES,
        requests_max: int = CLIENT_WINDOW_REQUESTS,
    ) -> None:
        self._bytes_max = bytes_max
        self._requests_max = requests_max
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Ticket, int]] = deque()
        self.bytes = 0
        self.requests = 0

    def enter(self, size: int) -> bool:
        """Take room if there is some."""
        with self._lock:
            # `_fits` and `_take`, without the calls: this is done for each transaction.
            requests, total = self.requests, self.bytes + size
            if self._waiting or (
                requests and (requests >= self._requests_max or total > self._bytes_max)
            ):
                return False
            self.bytes = total
            self.requests = requests + 1
            return True

    def push_in(self, size: int) -> None:
        """Take room, whether there is some or not: for what is small, and must not wait."""
        with self._lock:
            self._take(size)

    def split(self, count: int) -> None:
        """What has taken room as one are so many, each of which leaves by itself."""
        with self._lock:
            self.requests += count - 1

    def join(self, count: int) -> None:
        """So many that have taken room leave as one request."""
        with self._lock:
            self.requests -= count - 1

    def wait(self, size: int, timeout_s: float) -> Steps[None]:
        """Take room, as soon as there is some."""
        ticket = Ticket()
        with self._lock:
            self._waiting.append((ticket, size))
            granted = self._grant()
        self._tell(granted)
        try:
            if not ticket.ended:
                yield AnyOf((ticket,), timeout_s)
            if not ticket.ended:
                raise Timeout(
                    f"{self.requests} requests of {self.bytes} bytes wait for their answers for "
                    f"{timeout_s:g} s already; this one was not sent"
                )
        except BaseException:
            self._withdraw(ticket, size)
            raise

    def leave(self, size: int) -> None:
        """A request has been answered."""
        with self._lock:
            self.bytes -= size
            self.requests -= 1
            granted = self._grant() if self._waiting else None
        if granted:
            self._tell(granted)

    def _fits(self, size: int) -> bool:
        return self.requests == 0 or (
            self.requests < self._requests_max and self.bytes + size <= self._bytes_max
        )

    def _take(self, size: int) -> None:
        self.bytes += size
        self.requests += 1

    def _grant(self) -> list[Ticket]:
        granted = []
        while self._waiting and self._fits(self._waiting[0][1]):
            ticket, size = self._waiting.popleft()
            self._take(size)
            granted.append(ticket)
        return granted

    def _tell(self, granted: list[Ticket]) -> None:
        for ticket in granted:
            ticket.end()

    def _withdraw(self, ticket: Ticket, size: int) -> None:
        with self._lock:
            if (ticket, size) in self._waiting:
                self._waiting.remove((ticket, size))
                return
        self.leave(size)
