"""When a turn goes to a log that others keep: at once, or a moment later, together with what is about to come.

A group costs such a log far more than what is in it: every copy is synced, and every node takes it. Clients that have just
been answered ask again, all at about the same time. Whoever of them is first would go alone, and all others would wait until
that is confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..limits import GROUP_PATIENCE_S_MAX
from .turns import Turns

SHARE_MIN, SHARE_MAX = 1 / 16, 1.0
"""How long a turn waits, as a share of the time that the last group took to be confirmed: a client that waits for that does
not mind as long again at the most, if others come meanwhile."""


class Patience:
    """Ends turns. `confirmed` says how many are likely to come next: if as many have come, or the time is over, the turn
    ends with the present turn of the loop, as it does if at most one is expected.

    It waits twice as long each time that those who were expected have come, be it later, and half as long if they have not.
    """

    turns: Turns
    """Whose turns these are."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._expected = 0
        self._share = SHARE_MAX / 4
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def confirmed(self, requests: int, took_s: float) -> None:
        """A group was confirmed, which took so long: so many were answered, or came meanwhile."""
        if self._expected > 1:
            share = self._share * 2 if 2 * requests >= self._expected else self._share / 2
            self._share = min(max(share, SHARE_MIN), SHARE_MAX)
        self._expected = requests
        self._until = self._loop.time() + min(self._share * took_s, GROUP_PATIENCE_S_MAX)

    def schedule(self, commit: Callable[[], None]) -> None:
        """See `turns.Schedule`."""
        self._loop.call_soon(self._look, commit)

    def _look(self, commit: Callable[[], None]) -> None:
        if len(self.turns) >= self._expected or self._loop.time() >= self._until:
            commit()
            return
        self.turns.postpone()
        if self._timer is None:
            self._timer = self._loop.call_at(self._until, self._time_is_over, commit)

    def _time_is_over(self, commit: Callable[[], None]) -> None:
        self._timer = None
        if self.turns.pending:  # else it has ended before
            commit()
