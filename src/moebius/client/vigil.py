"""How a client watches over a link: when to ping, and what it means if nothing comes. Without I/O, and without a clock."""

from __future__ import annotations

from dataclasses import dataclass

from ..limits import Limits


@dataclass(frozen=True, slots=True)
class Findings:
    """What one look has shown."""

    ping: bool = False
    """Whether to ping now."""
    dead: bool = False
    """Whether the server was silent for so long that the link is given up."""


class Vigil:
    """Looks every `pace_s`. There are two rhythms: a ping with every heartbeat, so that the server knows of us; and, if
    something is under way and nothing comes, one after a look, then after two, four and so on, so that a server which
    stands still is found out soon. Long waits for an answer are usual, so only a ping that is not answered says anything.

    `silent` is whether the server owed us the answer to a ping for a look or longer, while something was under way, and
    nothing has come since.
    """

    def __init__(self, limits: Limits, *, eager: bool) -> None:
        """`eager`: somebody wants to know of silence before the link is given up."""
        self._heartbeat_s = limits.heartbeat_s
        self._dead_s = limits.heartbeat_s * limits.heartbeats_missed_max
        self.pace_s = min(limits.silence_s, limits.heartbeat_s) if eager else limits.heartbeat_s
        self.silent = False
        self._eager = eager
        self._quiet_s = 0.0
        """For how long nothing came."""
        self._pinged_s = 0.0
        """How long ago the last ping was sent."""
        self._owed = False
        """Whether nothing has come since then."""
        self._patience_s = self.pace_s

    def look(self, elapsed_s: float, *, touched: bool, moved: bool, busy: bool) -> Findings:
        """`touched`: something came since the last look. `moved`: more than answers to pings. `busy`: something is under
        way. A look that comes late says little of the server: it is we who stood still."""
        late = elapsed_s > 2 * self.pace_s
        elapsed_s = min(elapsed_s, self.pace_s) if late else elapsed_s
        self._pinged_s += elapsed_s
        if moved:
            self._patience_s = self.pace_s
        if touched:
            self._quiet_s, self._owed, self.silent = 0.0, False, False
        else:
            self._quiet_s += elapsed_s
            if self._quiet_s >= self._dead_s:
                return Findings(dead=True)
            self.silent |= self._eager and busy and self._owed and not late
        anxious = self._eager and busy and not touched and self._pinged_s >= self._patience_s
        if not anxious and self._pinged_s < self._heartbeat_s - self.pace_s / 2:
            return Findings()
        if anxious:
            self._patience_s = min(2 * self._patience_s, self._heartbeat_s)
        self._pinged_s, self._owed = 0.0, True
        return Findings(ping=True)
