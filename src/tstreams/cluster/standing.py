"""How a node stands with its coordination service, and who is told when that changes."""

from __future__ import annotations

import logging

from .coordination import NEXT_SESSION_STATES, SessionCallback, SessionState
from .view import Changes, Watches

log = logging.getLogger("tstreams.cluster")


class Standing:
    """The state of the session. Callbacks hear of a new one first and at once, then the watches."""

    def __init__(self, watches: Watches) -> None:
        self.state = SessionState.NEW
        self._watches = watches
        self._callbacks: list[SessionCallback] = []

    def tell(self, callback: SessionCallback) -> None:
        """Call this with every new state."""
        self._callbacks.append(callback)

    def become(self, state: SessionState) -> None:
        """The state is another now. It must be one that can follow."""
        assert state in NEXT_SESSION_STATES[self.state], (self.state, state)
        self.state = state
        for callback in self._callbacks:
            try:
                callback(state)
            except Exception:  # the others must hear of it nevertheless
                log.exception("a callback failed that was told that the session is %s", state.value)
        self._watches.tell(Changes(session=True))
