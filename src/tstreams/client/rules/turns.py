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


class Hold:
    """The turns of one operation, which it leaves together.

    If it was interrupted with a request under way they are left when that has been answered: whoever comes
    next must find what the answer says.
    """

    __slots__ = ("_entered", "_request")

    def __init__(self) -> None:
        self._entered: list[Turns] = []
        self._request: Ticket | None = None

    def enter(self, turns: Turns) -> Steps[None]:
        """Wait for one's turn."""
        yield from turns.enter()
        self._entered.append(turns)

    def until(self, request: Ticket) -> None:
        """This has been sent."""
        self._request = request

    def leave(self) -> None:
        """The next ones, please; after what an interrupted operation wants to be done with the answer."""
        if self._request is None:
            self._leave()
        else:
            self._request.add_callback(self._leave)

    def _leave(self, _: Ticket | None = None) -> None:
        entered, self._entered = self._entered, []
        for turns in entered:
            turns.leave()
