"""A cluster of nodes that are scripts: a test answers what comes to each, and says who leads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import moebius
from moebius import State
from tstreams.client.rules.link import Link
from tstreams.client.rules.stations import Station
from tstreams.errors import NotLeader
from tstreams.protocol import NodeInfo, ReplicaInfo, ShardInfo, encode

from .client_wires import Asked, Script

NODES = "abc"


def address_of(node: str) -> str:
    return f"tcp://{node}:1"


class NodeScript(Script):
    """A connection to a node, on which nothing is answered until a test does."""

    def __init__(self, station: Station) -> None:
        super().__init__()
        self.station = station
        self.kept: list[Asked] = []
        self.closed = False

    def begin(self, sink: Any, command: str, parts: Any, **options: Any) -> Any:
        if command == "Describe" or ":any:" in command:  # another node is asked if it fails
            options["repeat"] = True
        return super().begin(sink, command, parts, **options)

    def refuse(self, name: str, error: NotLeader) -> None:
        """As a node does that does not lead."""
        asked = self.take(name)
        failure = moebius.Error.from_wire(error.code, error.message)
        self.kept.append(asked)  # before: what follows from it happens at once here
        if not self.station.refused(asked.command, failure):
            self.kept.remove(asked)
            asked.sink.fail(failure)

    def withdraw(self, is_wanted: Callable[[str], bool]) -> list[Any]:
        kept = sorted(self.kept, key=lambda it: it.number)
        taken = [it for it in kept + self.asked if is_wanted(it.command)]
        self.kept = [it for it in self.kept if it not in taken]
        self.asked = [it for it in self.asked if it not in taken]
        return taken

    def begin_again(self, pending: Any) -> None:
        self.asked.append(pending)


class Nodes:
    """The network of a client, and what the nodes say of the shards."""

    def __init__(self, shards: int = 1, leaders: str = "a") -> None:
        self.seeds: Sequence[str] = [address_of("a")]
        self.shards = shards
        self.epochs = [1] * shards
        self.leaders: list[str | None] = list(leaders.ljust(shards, leaders[-1]))
        self.dialled: list[str] = []
        self.wires: dict[str, NodeScript] = {}
        self.pauses: list[tuple[float, Callable[[], None]]] = []
        seed = Station(address_of("a"))
        seed.wire = self.wires["a"] = NodeScript(seed)
        seed.connected = True
        self.link = Link(seed.wire, 30.0)
        self.link.route(self, seed)
        self.link.shards.learn(self.info("a"))

    @property
    def routing(self) -> Any:
        return self.link.shards.routing

    # What a client needs of a network.

    def dial(self, station: Station) -> Any:
        name = station.address[6]
        self.dialled.append(name)
        wire = self.wires[name] = NodeScript(station)
        return wire

    def drop(self, wire: Any) -> None:
        wire.closed = True

    def choose(self, addresses: Sequence[str]) -> str | None:
        return next(iter(addresses), None)

    def post(self, action: Callable[[], None]) -> None:
        action()

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.pauses.append((delay_s, action))

    # For tests.

    def connect(self, name: str) -> None:
        self.wires[name].station.changed(State.CONNECTED)

    def lose(self, name: str) -> None:
        self.wires[name].station.changed(State.RECONNECTING)

    def pass_time(self) -> float:
        """Let the pause end that began first: how long it was."""
        delay_s, action = self.pauses.pop(0)
        action()
        return delay_s

    def wait(self, delay_s: float) -> None:
        """Let all end that were as long as this."""
        due = [it for it in self.pauses if it[0] == delay_s]
        self.pauses = [it for it in self.pauses if it[0] != delay_s]
        for _, action in due:
            action()

    def lead(self, shard: int, name: str | None) -> None:
        self.leaders[shard] = name
        if name is not None:
            self.epochs[shard] += 1

    def info(self, name: str) -> NodeInfo:
        """What a node says."""
        replicas = {it: ReplicaInfo(f"node-{it}", [address_of(it)]) for it in NODES}
        found = []
        for shard, leader in enumerate(self.leaders):
            others = [it for it in NODES if it != leader]
            found.append(
                ShardInfo(
                    shard,
                    self.epochs[shard],
                    None if leader is None else replicas[leader],
                    [replicas[it] for it in others],
                )
            )
        return NodeInfo(
            "test", [], f"node-{name}", [address_of(name)], total=self.shards, map=found
        )

    def tell(self, name: str, info: NodeInfo | None = None) -> None:
        """A node answers when it is asked where shards are."""
        asked = self.wires[name].take("Describe")
        asked.sink.done((encode(info or self.info(name)),))

    def fall_silent(self, name: str, silent: bool = True) -> None:
        self.wires[name].station.fell_silent(silent)

    def not_leader(self, shard: int = 0, *, named: bool = False) -> NotLeader:
        """The refusal of a node that does not know who leads, or does."""
        leader = self.leaders[shard] if named else None
        return NotLeader(shard, self.epochs[shard], [] if leader is None else [address_of(leader)])
