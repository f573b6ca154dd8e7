"""The nodes that a client knows, and its connections to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from moebius import State

from ...limits import CLIENT_NODES_MAX
from ...protocol import NodeInfo, ReplicaInfo

if TYPE_CHECKING:
    import moebius

    from .link import Wire
    from .routing import Routing


class Network(Protocol):
    """What connections are made with. Either client has one."""

    seeds: Sequence[str]
    """The addresses that its user has named."""

    def dial(self, station: Station) -> Wire:
        """Begin to connect to the address of a station, without waiting; from any thread."""

    def drop(self, wire: Wire) -> None:
        """Close a connection without waiting, on the loop."""

    def choose(self, addresses: Sequence[str]) -> str | None:
        """The best of the addresses of a node; None if none can be used from here."""

    def post(self, action: Callable[[], None]) -> None:
        """Call this on the loop, soon; from any thread."""

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call this on the loop, after a while; from there."""


class Station:
    """A connection to a node, and what it hears. It belongs to the loop, but for `refused`."""

    __slots__ = (
        "address",
        "alias",
        "avoided_until",
        "connected",
        "node",
        "routing",
        "silent",
        "tried",
        "wire",
    )

    def __init__(self, address: str) -> None:
        self.address = address
        """"" if that is found out before each attempt to connect."""
        self.wire: Wire
        self.node = ""
        """Which node it is connected to, if that is known."""
        self.alias: str | None = None
        """The address under which others would name that node."""
        self.connected = False
        self.silent = False
        """Whether it does not answer, though it is connected: the node may stand still."""
        self.tried = False
        """Whether somebody wanted to read from it before it was connected."""
        self.avoided_until = 0.0
        """Nobody reads from it before this time, unless it leads."""
        self.routing: Routing | None = None

    def refused(self, command: str, error: moebius.Error) -> bool:
        """A request failed that may be repeated: whether it belongs elsewhere. On whatever thread reads."""
        return self.routing is not None and self.routing.refused(self, command, error)

    def changed(self, state: State) -> None:
        """The connection was made, or lost."""
        self.connected = state is State.CONNECTED
        self.silent = False
        if self.routing is not None:
            if self.connected:
                self.routing.connected(self)
            elif state is State.RECONNECTING:
                self.routing.lost(self)

    def fell_silent(self, silent: bool) -> None:
        """It does not answer any more, or does again."""
        self.silent = silent
        if self.routing is not None:
            if silent:
                self.routing.silent(self)
            else:
                self.routing.connected(self)

    @property
    def answers(self) -> bool:
        """Whether it is connected, and not silent."""
        return self.connected and not self.silent


class Stations:
    """All connections of a client, one for each node that it needs, and the addresses of other nodes.

    Invariant: there is one station at most for each address.
    """

    def __init__(self, network: Network, seed: Station) -> None:
        self.network = network
        self.seed = seed
        """The one that was connected first. It is never closed before the client is."""
        self._lock = threading.Lock()
        self._all: dict[str, Station] = {seed.address: seed}
        self._known: dict[str, None] = dict.fromkeys(network.seeds)
        self._asked: set[str] = set()

    def __iter__(self) -> Iterator[Station]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def know(self, nodes: Iterable[ReplicaInfo]) -> None:
        """These are there, in place of those that were known before. The addresses of those without a connection are
        remembered, as far as there is room."""
        here = {station.node for station in self._all.values() if station.connected}
        known = dict.fromkeys(self.network.seeds)
        for node in nodes:
            address = None if node.node in here else self.network.choose(node.addresses)
            if address is not None and len(known) < CLIENT_NODES_MAX:
                known[address] = None
        self._known = known

    def identify(self, station: Station, node: NodeInfo) -> None:
        """A station has said which node it is."""
        station.node, station.alias = node.id, self.network.choose(node.addresses)

    def at(self, address: str) -> Station:
        """The one with this address; from any thread."""
        with self._lock:
            station = self._all.get(address)
            if station is None:
                station = Station(address)
                station.routing = self.seed.routing
                station.wire = self.network.dial(station)
                self._all[address] = station
            return station

    def of(self, node: ReplicaInfo) -> Station | None:
        """The one of a node, which may be known by its addresses only; None if there is no way to it."""
        address = self.network.choose(node.addresses)
        for station in list(self._all.values()):
            same = station.node == node.node if node.node else station.alias == address
            if same and (station.connected or station.address == address):
                return station
        if address is not None:
            return self.at(address)
        return self.seed if node.node and self.seed.node == node.node else None

    def next_to_ask(self, first: Station | None) -> Station:
        """Somebody who may know where shards are: each once, those that are connected first, then nodes that nobody has
        talked to; when all were asked, from the beginning. Those without a connection only if there is nobody else."""
        if first is not None and first.answers and first.address not in self._asked:
            self._asked.add(first.address)
            return first
        stations = list(self._all.values())
        names = [it.address for it in stations if it.answers]
        here = {it.alias for it in stations if it.connected}
        names += [it for it in self._known if it not in self._all and it not in here]
        names = names or [it.address for it in stations]
        name = next((it for it in names if it not in self._asked), None)
        if name is None:
            self._asked.clear()
            name = names[0]
        self._asked.add(name)
        return self.at(name)

    def ask_anew(self, station: Station | None = None) -> None:
        """This one may know more than it did; all of them, if none is named."""
        if station is None:
            self._asked.clear()
        else:
            self._asked.discard(station.address)

    def close_unused(self, used: set[Station]) -> None:
        """Close the connections that lead to nothing."""
        with self._lock:
            for address, station in list(self._all.items()):
                if station not in used and station is not self.seed:
                    del self._all[address]
                    self.network.drop(station.wire)
