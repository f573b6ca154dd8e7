"""Turn-taking: how the requests of one client wait for, replace or refuse each other."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from .activity import Activity
from .drive import dispose, is_unfinished
from .errors import BadRequest, Busy, Error, Overloaded, Replaced, TooLarge
from .messages import NO_RESPONSE, Call, Parts
from .request import LATER, Request
from .router import Command, Strategy

if TYPE_CHECKING:
    from .peer import Peer


class Lane:
    """The requests of one client that run or wait.

    Invariants: `turn` is the one activity that holds the client's turn, or None, and then nothing
    waits; `activities` holds every activity that has not unwound, by its key; `live` counts those of
    them that have not ended, that is, whose client has not got its last word.
    """

    __slots__ = (
        "_advancing",
        "_next_key",
        "_peer",
        "_waiting",
        "activities",
        "live",
        "payload_bytes",
        "turn",
    )

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.turn: Activity | None = None
        self.activities: dict[int, Activity] = {}
        self.live = 0
        self.payload_bytes = 0
        self._waiting: deque[Activity] = deque()
        self._next_key = -1
        self._advancing = False

    def take(self, command: Command, call: Call, parts: Parts, strategy: Strategy) -> None:
        """A request came: begin it, let it wait, or refuse it."""
        if strategy is Strategy.IGNORE and self.turn and (self._waiting or not self.turn.ended):
            name = self.turn.command.name
            self._refuse(call, Busy(f"{name!r} is still running for this client"))
            return
        if self.refused(call, parts):
            return
        in_turn = strategy is not Strategy.PARALLEL
        if strategy is Strategy.REPLACE and self.turn is not None:
            for old in list(self.activities.values()):
                if old.in_turn:
                    text = (
                        f"a newer request ({call.command!r}) took the place of {old.command.name!r}"
                    )
                    old.cancel(Replaced(text))
        activity = self._admit(command, Request(self._peer, call, parts), call, in_turn)
        if not in_turn or self.turn is None:
            self._begin(activity)
        else:
            self._waiting.append(activity)

    def adopt(
        self, command: Command, request: Request, call: Call, produced: Any, in_turn: bool
    ) -> None:
        """A request that was begun at once did not finish at once: drive it, unless it is too much."""
        if self.refused(call, request.parts):
            dispose(produced)
            return
        activity = self._admit(command, request, call, in_turn)
        if in_turn:
            self.turn = activity
        activity.run(produced)

    def cancel(self, request_id: int, error: Error) -> None:
        """Cancel one request, if it has not ended."""
        activity = self.activities.get(request_id)
        if activity is not None:
            activity.cancel(error)

    def cancel_all(self, error: Error | None) -> int:
        """Cancel every request; how many there were. Without an error nobody is told."""
        running = [activity for activity in self.activities.values() if not activity.ended]
        for activity in running:
            activity.cancel(error)
        return len(running)

    def wake(self) -> None:
        """The link has room again: streams go on."""
        for activity in self.activities.values():
            activity.wake()

    def unwound(self, activity: Activity) -> None:
        """An activity is over for good; the next one in turn begins."""
        if self.activities.get(activity.key) is not activity:
            return  # it was let go before, and its id may be another request's by now
        del self.activities[activity.key]
        self.payload_bytes -= activity.payload_bytes
        if activity in self._waiting:
            self._waiting.remove(activity)
        if self.turn is activity:
            self.turn = None
            self._advance()

    def _advance(self) -> None:
        """Begin those in turn, until one does not finish at once."""
        if self._advancing:
            return  # a request that began here finished at once: the loop below goes on
        self._advancing = True
        while self.turn is None and self._waiting:
            following = self._waiting.popleft()
            if not following.ended:
                self._begin(following)
        self._advancing = False

    def refused(self, call: Call, parts: Parts) -> bool:
        """Refuse a request that is over a limit, or whose id is in use."""
        peer, limits = self._peer, self._peer.limits
        later = peer.later
        refusal: Error
        if (
            self.live + later >= limits.inflight_max
            or len(self.activities) + later >= 2 * limits.inflight_max
        ):
            text = f"{limits.inflight_max} requests of this client are in flight already"
            refusal = Overloaded(text)
        elif (
            self.payload_bytes + peer.later_bytes + sum(map(len, parts)) > limits.inflight_bytes_max
        ):
            text = f"requests in flight would be over {limits.inflight_bytes_max} bytes"
            refusal = TooLarge(text)
        elif call.id != NO_RESPONSE and call.id in self.activities:
            refusal = BadRequest(f"request id {call.id} is in use by a request that has not ended")
        else:
            return False
        self._refuse(call, refusal)
        return True

    def _refuse(self, call: Call, refusal: Error) -> None:
        self._peer.counts.refused += 1
        self._peer.fail(call.id, refusal)

    def _admit(self, command: Command, request: Request, call: Call, in_turn: bool) -> Activity:
        key = call.id
        if key == NO_RESPONSE:
            self._next_key -= 1
            key = self._next_key
        activity = Activity(self, key, command, request, call.credit, in_turn)
        self.activities[key] = activity
        self.live += 1
        self.payload_bytes += activity.payload_bytes
        return activity

    def _begin(self, activity: Activity) -> None:
        if activity.in_turn:
            self.turn = activity
        command, request = activity.command, activity.request
        if command.pool is not None:
            activity.run(command.pool.run(command.function, request, activity.emit))
            return
        try:
            produced = command.function(request)
        except (Exception, asyncio.CancelledError) as error:
            activity.finish(error=error)
            return
        if is_unfinished(produced):
            activity.run(produced)
        elif produced is LATER:
            activity.hand_over()
        else:
            activity.finish(produced)
