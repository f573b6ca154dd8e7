"""What a shard sends to a subscriber, as far as there is room for it."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import moebius
from moebius.messages import ITEM_OVERHEAD_BYTES

from ...errors import Error, NotLeader, Unavailable
from ...limits import (
    FOLLOWER_TRIES,
    SUBSCRIBER_ANSWER_BYTES,
    SUBSCRIBER_RETRY_S_MAX,
    SUBSCRIBER_RETRY_S_MIN,
)
from ...protocol import Subscribe, Want
from .agent import Agent, Seat
from .delivery import Delivery, Source, unpack_parts
from .failures import translated
from .routing import ANY

if TYPE_CHECKING:
    from moebius.messages import Parts

    from .place import Place

log = logging.getLogger("tstreams.client")

_STEADY_S = 10.0
"""A subscription that lived so long was a good one: if it breaks, a new one is begun at once."""


class Feed:
    """The answers to one `Subscribe`, until somebody takes them. A moebius sink."""

    __slots__ = ("_on_event", "arrived", "astray", "begun_at", "failure", "handle")

    def __init__(self, on_event: Callable[[], None], astray: bool = False) -> None:
        self._on_event = on_event
        self.astray = astray
        """Whether it comes from a node that follows."""
        self.arrived: deque[Parts] = deque()
        self.failure: Error | None = None
        self.handle: Any = None
        self.begun_at = time.monotonic()

    def item(self, parts: Parts) -> None:
        """Some transactions."""
        self.arrived.append(parts)
        self._on_event()

    def done(self, parts: Parts | None) -> None:
        """No server ends a subscription without a word, but it would not be the end of the world."""
        self.failure = Unavailable("the server has ended the subscription")
        self._on_event()

    def fail(self, error: moebius.Error) -> None:
        """The subscription broke."""
        self.failure = translated(error)
        self._on_event()


class Inflow:
    """One subscription at a time, in one shard, begun anew where it broke.

    Invariants: `places` are the partitions of the shard. `held` is what was received and not released; together with what was released and not
    granted yet it is what the server has used of the window. Only `Feed` is touched by the connection;
    all the rest is its subscriber's, under that one's lock.
    """

    def __init__(
        self,
        source: Source,
        agent: Agent,
        seat: Seat,
        places: list[Place],
        window_bytes: int,
        on_event: Callable[[], None],
    ) -> None:
        self._source = source
        self._agent = agent
        self._seat = seat
        self._wire = seat.session.route.wire
        self._on_event = on_event
        self.places = places
        self.window_bytes = window_bytes
        """How much the shard may send ahead."""
        self._answer_bytes = min(SUBSCRIBER_ANSWER_BYTES, window_bytes // 2)
        self.stale = False
        """Whether other things are wanted than were asked for."""
        self.wasted = 0
        """What came, and nobody wanted any more."""
        self.feed: Feed | None = None
        """What comes, if there is a subscription."""
        self._owed = 0
        self._strays = 0
        """How often followers have failed since the last time that something came."""
        self._pause_s = 0.0
        self.held = 0
        self.begins_at = 0.0
        """When the next subscription should be begun, if there is none."""

    # Asking.

    def begin(self, wants: list[Want]) -> None:
        """Ask for all that comes, in place of what was asked for before."""
        self.cancel()
        seat = self._seat
        session = seat.session
        message = Subscribe(
            self._source.stream_id, wants, self._answer_bytes, seat.number, session.id
        )
        self._owed = 0
        credit = max(1, self.window_bytes - self.held)
        link, follower = self._source.link, None
        if self._source.roams and self._strays < FOLLOWER_TRIES:
            follower = link.shards.follower(seat.shard)
        feed = Feed(self._on_event, follower is not None)
        self._wire = session.route.wire if follower is None else follower
        kind = "" if follower is None else ANY
        feed.handle = link.subscribe(
            self._wire, feed, message, shard=seat.shard, credit=credit, kind=kind
        )
        self.feed = feed

    def cancel(self) -> None:
        """Ask for nothing. What has arrived and was not taken is dropped."""
        feed, self.feed = self.feed, None
        if feed is not None and feed.failure is None:
            self._wire.cancel(feed.handle)

    # What came.

    @property
    def has_news(self) -> bool:
        """Whether something came that was not taken."""
        feed = self.feed
        return feed is not None and (bool(feed.arrived) or feed.failure is not None)

    def receive(self) -> list[tuple[Delivery, int]]:
        """All that has arrived, each with the credit that it takes until it is released."""
        feed = self.feed
        received: list[tuple[Delivery, int]] = []
        while feed is not None and feed.arrived:
            parts = feed.arrived.popleft()
            try:
                found = unpack_parts(self._source, parts)
            except Exception as error:
                self._wire.cancel(feed.handle)
                feed.arrived.clear()
                feed.failure = Error(f"what the server sent cannot be read: {error}")
                break
            used = sum(map(len, parts)) + ITEM_OVERHEAD_BYTES
            self.held += used
            self._pause_s = 0.0
            self._strays = 0
            if len(found) == 1:
                received.append((found[0], used))
                continue
            share = (used - sum([len(it.data) for it in found])) // max(1, len(found))
            spread = 0
            for delivery in found:
                cost = len(delivery.data) + share
                spread += cost
                received.append((delivery, cost))
            self.release(used - spread)
        return received

    def release(self, cost: int) -> None:
        """There is room for so much more."""
        self.held -= cost
        self._owed += cost
        if self._owed * 4 >= self.window_bytes:
            self.grant()

    def grant(self) -> None:
        """Tell the server of the room."""
        feed = self.feed
        if feed is not None and self._owed:
            self._wire.grant(feed.handle, self._owed)
            self._owed = 0

    def forget(self, cost: int) -> None:
        """So much need not be counted any more; the next subscription gets the room."""
        self.held -= cost

    @property
    def is_full(self) -> bool:
        """Whether the server can send nothing more. If it only does not know of the room, it is told."""
        if self.held + self._owed >= self.window_bytes:
            self.grant()
        return self.feed is not None and self.held >= self.window_bytes

    # When it breaks.

    def failure(self) -> Error | None:
        """Why the subscription broke, if it is for good; else a new one is due, after a while."""
        feed = self.feed
        if feed is None or feed.failure is None or feed.arrived:
            return None
        self.feed = None
        error = self._seat.session.named(feed.failure)
        shards = self._source.link.shards
        if feed.astray:
            self._strays += 1
            if isinstance(error, Unavailable):
                shards.avoid(self._wire)
        elif not isinstance(error, Unavailable):
            return error  # only the leader knows for sure
        else:
            self._strays = 0
            if isinstance(error, NotLeader):
                shards.doubt(error.shard)
        now = time.monotonic()
        if now - feed.begun_at >= _STEADY_S:
            self._pause_s = 0.0
        self.begins_at = now + self._pause_s
        log.info("%s: %s; subscribing again", self._agent.title, error)
        self._pause_s = min(max(SUBSCRIBER_RETRY_S_MIN, 2 * self._pause_s), SUBSCRIBER_RETRY_S_MAX)
        return None
