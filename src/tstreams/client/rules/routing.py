"""Finding out who leads which shard, and moving there what was not answered.

    settled --refused with `NotLeader`, the connection is lost, or the node is silent--> doubtful
    doubtful --a map says that another node leads, in a higher epoch--> what was not answered is moved --> settled
             --a map says that the same node leads--> it is sent there again --> settled

As long as a shard is doubtful somebody is asked for the map (see `Inquiry`). What was asked for waits meanwhile where it
was sent, up to its deadline. Whoever refuses and names its successor, in a later epoch, saves the question.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import moebius
from moebius.chance import luck

from ...errors import NotLeader, Unavailable
from ...limits import FOLLOWER_RETRY_S, MAP_DIAL_S
from ...protocol import NodeInfo, ReplicaInfo, ShardInfo
from .inquiry import Inquiry
from .shards import Route
from .stations import Network, Station, Stations
from .ticket import Ticket

if TYPE_CHECKING:
    from .link import Wire
    from .session import Session

log = logging.getLogger("tstreams.client")

ANY = "any:"
"""What reads begin with that any node of a cluster may answer (`0:any:Fetch`)."""

UNUSED_S = 60.0
"""A connection that leads to no shard any more is closed after so long."""


class Routing:
    """Keeps the routes of a client right.

    Everything here belongs to the loop of the connections, but for `refused`, `reach`, `follower` and `avoid`. Invariant: a shard is in `_doubtful` while requests may wait for its leader; what it holds
    is whether some were refused, and have to be sent again.
    """

    def __init__(
        self, network: Network, seed: Station, session_of: Callable[[int], Session | None]
    ) -> None:
        self._network = network
        self.stations = Stations(network, seed)
        self._session_of = session_of
        self._routes: list[Route] = []
        self._doubtful: dict[int, bool] = {}
        self._inquiry = Inquiry(network, self.stations, lambda: bool(self._doubtful), self._told)
        self._lock = threading.Lock()
        self._refusals: deque[tuple[Station, NotLeader]] = deque()
        self._posted = False
        self._sweeping = False
        self._closed = False
        self._luck = luck.random()
        """So that not all clients read from the same follower."""
        seed.routing = self

    @property
    def maps(self) -> int:
        """How often a map was asked for."""
        return self._inquiry.maps

    def begin(self, routes: list[Route], node: NodeInfo) -> None:
        """What the first node says."""
        self._routes = routes
        seed = self.stations.seed
        self.stations.identify(seed, node)
        for route in routes:
            route.station = seed
            route.reached = False
        self._take(node)
        for route in routes:
            if route.leader is None or route.leader.node == seed.node:
                route.reached = True

    # From any thread.

    def refused(self, station: Station, command: str, error: moebius.Error) -> bool:
        """A request failed: whether it is to be kept, and sent to another node."""
        if error.code != Unavailable.code or ANY in command:
            return False
        found = NotLeader.read(error.message)
        if found is None or found.shard >= len(self._routes):
            return False
        with self._lock:
            self._refusals.append((station, found))
            if self._posted:
                return True
            self._posted = True
        self._network.post(self._take_refusals)
        return True

    def reach(self, route: Route) -> Wire:
        """The connection to the leader of a shard, which is begun if there is none."""
        with self._lock:
            if not route.reached and route.leader is not None:
                station = self._station_of(route.leader)
                if station is not None:
                    route.station, route.wire = station, station.wire
                    if not station.connected:
                        self._network.post(partial(self._expect, route, station))
                route.reached = True
            return route.wire

    def follower(self, route: Route) -> Wire | None:
        """A connection to a node that follows; None if there is none that works. Then one is begun."""
        now = time.monotonic()
        for node in route.followers:
            station = self._station_of(node)
            if station is None or station.avoided_until > now:
                continue
            if station.answers:
                return station.wire
            if not station.tried:  # it is being connected; until then the leader is asked
                station.tried = True
                return None
        return None

    def follow(self, route: Route, wire: Wire) -> None:
        """Something was begun on a connection from which a shard has just moved away: it goes after it."""

        def carry() -> None:
            for station in self.stations:
                if station.wire is wire and station is not route.station:
                    self._carry(route, station)

        self._network.post(carry)

    def doubt(self, shard: int) -> None:
        """Something that cannot be kept was refused: ask for the map."""
        self._network.post(lambda: self._doubt([shard]))

    def avoid(self, wire: Wire) -> None:
        """Somebody who follows did not answer."""
        for station in self.stations:
            if station.wire is wire:
                station.avoided_until = time.monotonic() + FOLLOWER_RETRY_S

    def contact(self) -> Wire:
        """A connection to any node, for what concerns no shard."""
        seed = self.stations.seed
        if not seed.answers:
            for station in self.stations:
                if station.answers:
                    return station.wire
        return seed.wire

    # What happens to connections.

    def lost(self, station: Station) -> None:
        """A connection is gone. It is tried again; meanwhile another node may lead."""
        if not station.address:
            station.node = ""  # it may come back as another one
        self._inquiry.lost(station)
        self._doubt([it.shard for it in self._routes if it.station is station and it.reached])

    def silent(self, station: Station) -> None:
        """A node does not answer. It may stand still, and another lead by now: if so, what was asked moves there. Else it
        stays where it is."""
        self._inquiry.lost(station)
        self._doubt([it.shard for it in self._routes if it.station is station and it.reached])

    def connected(self, station: Station) -> None:
        """It is there again. What was under way has been sent again; whether that was right a map will say."""
        if self._doubtful:
            self.stations.ask_anew(station)
            self._inquiry.prefer(station)
            self._inquiry.ask()

    def _take_refusals(self) -> None:
        with self._lock:
            self._posted = False
            refusals, self._refusals = self._refusals, deque()
        told = {(station, error.shard): error for station, error in refusals}
        doubtful = []
        for (station, shard), error in told.items():
            route = self._routes[shard]
            if route.station is not station:  # it was begun there when it had just moved
                self._carry(route, station)
                continue
            if error.addresses and error.epoch > route.epoch and self._believe(route, error):
                continue
            doubtful.append(shard)
            if error.addresses:
                self._inquiry.prefer(station)
        self._doubt(doubtful, refused=True)

    # Asking.

    def _doubt(self, shards: list[int], *, refused: bool = False) -> None:
        if not shards:
            return
        self._inquiry.begin()
        for shard in shards:
            self._doubtful[shard] = refused or self._doubtful.get(shard, False)
        self._inquiry.go_on()

    def close(self) -> None:
        """Ask for nothing any more; from any thread."""
        self._closed = True
        self._inquiry.close()

    def _told(self, station: Station, node: NodeInfo) -> None:
        self.stations.identify(station, node)
        for info in self._take(node):
            self._settle(self._routes[info.number])

    def _believe(self, route: Route, error: NotLeader) -> bool:
        """Who refused has named its successor, in a later epoch: nobody has to be asked. Whether there is a way to it."""
        leader = ReplicaInfo("", list(error.addresses))
        if self._station_of(leader) is None:
            return False
        self._doubtful.setdefault(route.shard, True)
        route.epoch, route.leader = error.epoch, leader
        self._settle(route)
        return route.shard not in self._doubtful

    # What a map says.

    def _take(self, node: NodeInfo) -> list[ShardInfo]:
        """Learn from a map: what it says of leaders that is not older than what we know."""
        if [info.number for info in node.map] != list(range(len(self._routes))):
            return []
        believed = []
        leaders = [info.leader for info in node.map if info.leader is not None]
        self.stations.know(chain(leaders, *(info.followers for info in node.map)))
        for info in node.map:
            route = self._routes[info.number]
            if not route.accepts(info):
                continue
            if info.followers or info.leader is not None:
                at = int(self._luck * len(info.followers))
                route.followers = (*info.followers[at:], *info.followers[:at])
            if info.leader is None:
                continue
            route.epoch, route.leader = info.epoch, info.leader
            believed.append(info)
        return believed

    def _station_of(self, node: ReplicaInfo) -> Station | None:
        return self.stations.of(node)

    def _settle(self, route: Route) -> None:
        """It is known who leads this shard: what waits for it goes there."""
        if not route.reached or route.leader is None:
            self._doubtful.pop(route.shard, None)
            return
        station = self._station_of(route.leader)
        if station is None:
            return
        if station is not route.station:
            old = route.station
            assert old is not None
            log.info("shard %d is led by %s now", route.shard, station.address or station.node)
            with self._held(route):
                route.station, route.wire = station, station.wire
                self._carry(route, old)
            self._doubtful.pop(route.shard, None)
            self._inquiry.calm()  # epochs rise: this cannot go round in a circle
            self._sweep()
            if not station.connected:
                self._expect(route, station)
        elif station.answers and self._doubtful.pop(route.shard, False):
            with self._held(route):
                self._carry(route, station)

    def _expect(self, route: Route, station: Station) -> None:
        """A node that should lead is being connected to: now, whenever the next attempt was due. If that takes long, it may
        have gone meanwhile."""
        station.wire.hurry()

        def look() -> None:
            if route.station is station and not station.answers:
                self._doubt([route.shard])

        self._network.later(MAP_DIAL_S, look)

    def _held(self, route: Route) -> contextlib.AbstractContextManager[object]:
        """Within it nobody sends a change to this shard."""
        session = self._session_of(route.shard)
        return contextlib.nullcontext() if session is None else session.sending

    def _carry(self, route: Route, old: Station) -> None:
        """Send again what was sent to a node that does not lead the shard, or did not, in its order."""
        prefix, moves = f"{route.shard}:", old is not route.station

        def is_wanted(command: str) -> bool:
            if not command.startswith(prefix) or command.startswith(ANY, len(prefix)):
                return False
            return moves or not command.endswith("Subscribe")

        requests = old.wire.withdraw(is_wanted)
        session = self._session_of(route.shard)
        if session is not None and requests:
            session.resume()
        # If some came here by a detour, they stand behind later ones. Those without a number go first.
        requests.sort(key=lambda it: getattr(it.sink, "number", 0))
        for request in requests:
            if isinstance(request.sink, Ticket):
                request.sink.wire = route.wire
            route.wire.begin_again(request)

    # Connections that nobody needs.

    def _sweep(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._network.later(UNUSED_S, self._sweep_now)

    def _sweep_now(self) -> None:
        self._sweeping = False
        if self._closed:
            return
        if self._doubtful:
            self._sweep()
            return
        used = {it.station for it in self._routes if it.reached and it.station is not None}
        for route in self._routes:
            used |= {it for it in map(self._existing, route.followers) if it is not None}
        self.stations.close_unused(used)

    def _existing(self, node: ReplicaInfo) -> Station | None:
        return next((it for it in self.stations if it.node == node.node), None)
