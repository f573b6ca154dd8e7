"""One after the other, without blocking a thread."""

from __future__ import annotations

import threading
from collections import deque

from .ticket import Steps, Ticket


class Turns:
    """Lets operations through one by one, in the order in which they came.

    Invariant: while `taken`, exactly one operation is between `enter` and `leave`; others wait.
    """

    __slots__ = ("_lock", "_waiting", "taken")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self.taken = False

    def enter(self) -> Steps[None]:
        """Wait for one's turn. Whoever came back from here must `leave`."""
        with self._lock:
            if not self.taken:
                self.taken = True
                return
            ticket = Ticket()
            self._waiting.append(ticket)
        try:
            yield ticket
        except BaseException:
            with self._lock:
                mine = ticket not in self._waiting
                if not mine:
                    self._waiting.remove(ticket)
            if mine:
                self.leave()
            raise

    def leave(self) -> None:
        """The next one, please."""
        with self._lock:
            if not self._waiting:
                self.taken = False
                return
            ticket = self._waiting.popleft()
        ticket.end()
