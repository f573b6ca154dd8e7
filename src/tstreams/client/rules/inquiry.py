"""Asking nodes where shards are, for as long as somebody wants to know."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import moebius
from moebius.chance import luck

from ...errors import Corrupt
from ...limits import (
    MAP_CALM_S,
    MAP_DIAL_S,
    MAP_PAUSE_S_MAX,
    MAP_PAUSE_S_MIN,
    MAP_TIMEOUT_S_MAX,
    MAP_TIMEOUT_S_MIN,
)
from ...protocol import Describe, NodeInfo, decode_reply, encode
from .stations import Network, Station, Stations

if TYPE_CHECKING:
    from moebius.messages import Parts

log = logging.getLogger("tstreams.client")

_DESCRIBE = encode(Describe())


class Inquiry:
    """Asks one node at a time, each once before any is asked again, with pauses that grow as long as that does not help, and
    differ from client to client. It belongs to the loop of the connections.

    Invariant: `_number` is that of the last question; an answer to an earlier one is no answer.
    """

    def __init__(
        self,
        network: Network,
        stations: Stations,
        is_wanted: Callable[[], bool],
        tell: Callable[[Station, NodeInfo], None],
    ) -> None:
        """`is_wanted`: whether anything is unclear. `tell` is called with each answer."""
        self._network = network
        self._stations = stations
        self._is_wanted = is_wanted
        self._tell = tell
        self._hint: Station | None = None
        self._number = 0
        self._asked: tuple[Station, Any] | None = None
        """Whom, and what the connection calls the request."""
        self._pausing = False
        self._pause_s = 0.0
        self._patience_s = MAP_TIMEOUT_S_MIN
        self._wanted_at = 0.0
        self._closed = False
        self.maps = 0
        """How often a map was asked for."""

    def begin(self) -> None:
        """Something is unclear. If all was clear for long, there is no pause before the first question."""
        now = time.monotonic()
        if not self._is_wanted():
            self._stations.ask_anew()
            if now - self._wanted_at > MAP_CALM_S:
                self.calm()
        self._wanted_at = now

    def calm(self) -> None:
        """Something has become clear: the next question needs no pause."""
        self._pause_s, self._patience_s = 0.0, MAP_TIMEOUT_S_MIN

    def prefer(self, station: Station) -> None:
        """This one may know more than the others: ask it next."""
        self._hint = station

    def go_on(self) -> None:
        """Ask, after a pause."""
        if self._asked is not None or self._pausing:
            return
        pause_s = self._pause_s
        self._pause_s = min(max(2 * pause_s, MAP_PAUSE_S_MIN), MAP_PAUSE_S_MAX)
        if not pause_s:
            self.ask()
            return
        self._pausing = True
        self._network.later(pause_s * luck.uniform(0.5, 1.0), self._paused)

    def _paused(self) -> None:
        self._pausing = False
        if self._is_wanted():
            self.ask()

    def ask(self) -> None:
        """Ask now, unless somebody is being asked."""
        if self._closed or self._asked is not None:
            return
        self._number += 1
        self.maps += 1
        hint, self._hint = self._hint, None
        station = self._stations.next_to_ask(hint)
        asked = MapAsked(partial(self._hear, self._number))
        self._asked = station, None
        timeout_s = self._patience_s if station.connected else MAP_DIAL_S
        self._patience_s = min(2 * self._patience_s, MAP_TIMEOUT_S_MAX)
        handle = station.wire.begin(asked, "Describe", (_DESCRIBE,), timeout=timeout_s)
        if self._asked is not None and self._asked[0] is station:
            self._asked = station, handle

    def _hear(self, number: int, node: NodeInfo | None) -> None:
        self._network.post(partial(self._answered, number, node))

    def _answered(self, number: int, node: NodeInfo | None) -> None:
        """An answer came, or will not."""
        if number != self._number or self._asked is None:
            return
        station, _ = self._asked
        self._asked = None
        if node is not None:
            self._tell(station, node)
        if self._is_wanted():
            self._wanted_at = time.monotonic()
            self.go_on()

    def lost(self, station: Station) -> None:
        """A connection is gone, or silent: what it was asked it will not answer."""
        if self._asked is not None and self._asked[0] is station:
            _, handle = self._asked
            if handle is not None:
                station.wire.cancel(handle)
            self._answered(self._number, None)

    def close(self) -> None:
        """Ask for nothing any more; from any thread."""
        self._closed = True


class MapAsked:
    """A moebius sink for the answer to `Describe`."""

    def __init__(self, tell: Callable[[NodeInfo | None], None]) -> None:
        self._tell = tell

    def item(self, parts: Parts) -> None:
        """One response of many: there are no such requests."""

    def done(self, parts: Parts | None) -> None:
        """It was answered."""
        try:
            reply = decode_reply(parts[0]) if parts else None
        except Corrupt as error:
            log.warning("a node's answer cannot be read: %s", error)
            reply = None
        self._tell(reply if isinstance(reply, NodeInfo) else None)

    def fail(self, error: moebius.Error) -> None:
        """Another node will be asked."""
        self._tell(None)
