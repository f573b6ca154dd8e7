"""What a node has to do for a shard: a function of who should lead it, who does, and what was agreed between them.

A shard that moves is handed over. Whoever should lead it gets ready and asks the node that does; that one goes on until it
is asked, ends what is under way, and says so. Only then the other takes its place in the coordination service, in one
transaction, and in the log. So nobody leads for as long as that takes, and no longer; and there are never two who answer.
"""

from __future__ import annotations

from enum import Enum

import msgspec

HANDOVER_S = 2.0
"""How long a leader waits to be asked by its heir, and then until that one leads. After that it gives the shard up, and
whoever finds it free takes it: an heir that cannot reach this node, or has died."""


class Duty(Enum):
    """What a node has to do for a shard."""

    FOLLOW = "follow"
    TAKE = "take"
    """It should lead, and does not."""
    LEAD = "lead"
    """Go on leading, also if another should: that one has not asked yet."""
    HAND_OVER = "hand over"
    """The heir has asked: stop, but leave the leader's entry to it. Who asks for something waits meanwhile."""
    AWAIT_HEIR = "await heir"
    """It has stopped, and the heir is about to lead."""
    GIVE_UP = "give up"
    """Stop, if it leads, and give the leader's entry back."""


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
    asked_by: str | None = None
    """The node that has asked for the shard."""
    wanted_s: float = 0.0
    """For how long another should have led."""
    stopped_s: float | None = None
    """How long ago it has stopped for its heir; None if it has not."""


def duty_of(it: Standpoint) -> Duty:
    """What to do next."""
    if it.leading is not None:
        if not it.alive or it.leading != it.granted:
            return Duty.GIVE_UP
        if it.first == it.node:
            return Duty.LEAD
        if it.asked_by is not None and it.asked_by == it.first:
            return Duty.HAND_OVER
        return Duty.LEAD if it.wanted_s < HANDOVER_S else Duty.GIVE_UP
    if it.granted is not None:
        waits = it.stopped_s is not None and it.stopped_s < HANDOVER_S
        return Duty.AWAIT_HEIR if waits and it.alive and it.first != it.node else Duty.GIVE_UP
    return Duty.TAKE if it.alive and it.first == it.node else Duty.FOLLOW
