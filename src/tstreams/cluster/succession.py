"""What a node has to do for a shard: a function of who should lead it, who does, and for how long that has been so.

A shard that moves is handed over. Whoever should lead it reads all that the log has, and asks the node that leads whether
it sees it in the same way. If so, it takes that node's place in the coordination service, in one transaction, while that
one still leads; then it tells it to stop, and takes the log over when it hears that it has. So nobody leads for as long as
two messages and the log take, and no longer; and there are never two who answer.
"""

from __future__ import annotations

from enum import Enum

import msgspec

HANDOVER_S = 2.0
"""How long a leader waits for its heir. After that it gives the shard up, and whoever finds it free takes it: an heir that
cannot reach this node, or has died."""


class Duty(Enum):
    """What a node has to do for a shard."""

    FOLLOW = "follow"
    TAKE = "take"
    """It should lead, and does not."""
    LEAD = "lead"
    """Go on leading, also if another should: that one has not come yet."""
    GIVE_UP = "give up"
    """Stop, if it leads, and give the leader's entry back, if it has it."""


class Standpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How a shard looks from a node."""

    node: str
    first: str | None
    """Who should lead: see `leader_among`."""
    alive: bool
    """Whether the session of the node surely lasts."""
    granted: int | None
    """The epoch in which it leads by what the coordination service says; None if it does not."""
    leading: int | None
    """The epoch in which it leads in the log; None if it does not."""
    wanted_s: float = 0.0
    """For how long another should have led."""


def duty_of(it: Standpoint) -> Duty:
    """What to do next."""
    if it.leading is not None:
        if not it.alive or it.leading != it.granted:
            return Duty.GIVE_UP
        return Duty.LEAD if it.first == it.node or it.wanted_s < HANDOVER_S else Duty.GIVE_UP
    if it.granted is not None:
        return Duty.GIVE_UP
    return Duty.TAKE if it.alive and it.first == it.node else Duty.FOLLOW
