"""Where operators ask a node about its cluster, and say what they want of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from moebius import Request, Router, Strategy

from ..cluster.coordination import Cluster, Coordination
from ..cluster.intentions import Intentions
from ..cluster.placement import loads_of
from ..cluster.view import View
from ..errors import BadRequest, Error, InvalidState
from ..ledger.port import split_position
from ..protocol import (
    CheckCluster,
    ClusterChecked,
    ClusterInfo,
    Intend,
    Intended,
    MemberInfo,
    PlacedShard,
    ReplicaState,
    ServerState,
    encode,
)
from .engines import Logs
from .gate import Gate
from .replica import Replica
from .wire import wire_error

LEDGERS_TOLD = 8
"""Of the log of a shard so many ledgers are named: a node that is further behind is far behind."""
LOOK_S = 2.0
"""How long a server of ZooKeeper may take to say how it is."""
ANSWER_BYTES_MAX = 4096


class ClusterDesk:
    """Answers `DescribeCluster`, `Intend` and `CheckCluster` on a node of a cluster."""

    def __init__(
        self, node: str, coordination: Coordination, logs: Logs | None, zookeeper: str
    ) -> None:
        self._node = node
        self._coordination = coordination
        self._logs = logs
        self._zookeeper = [it for it in zookeeper.partition("/")[0].split(",") if it]

    def describe(self, replicas: Iterable[Replica]) -> ClusterInfo:
        """What the node knows."""
        coordination, view = self._coordination, self._coordination.view
        cluster, wanted = coordination.cluster, view.intentions
        return ClusterInfo(
            cluster.name,
            cluster.id,
            cluster.engine,
            {name: str(value) for name, value in cluster.engine_settings.items()},
            cluster.replicas,
            self._node,
            coordination.session.value,
            view.director or "",
            view.intentions_version,
            list(wanted.removed),
            wanted.rebalances,
            view.placement.version,
            _members(view),
            _shards(cluster, view),
            [state_of(it) for it in replicas if it.is_open],
        )

    async def intend(self, message: Intend) -> Intended:
        """Change what operators want. `InvalidState` if it was changed meanwhile."""
        wanted = Intentions(
            draining=tuple(message.draining),
            leaders=dict(message.leaders),
            removed=tuple(message.removed),
            rebalances=message.rebalances,
        )
        self._check(wanted)
        return Intended(await self._coordination.intend(wanted, version=message.version))

    def _check(self, wanted: Intentions) -> None:
        view, shards = self._coordination.view, self._coordination.cluster.shards
        before = view.intentions
        for shard in wanted.leaders:
            if shard >= shards:
                raise BadRequest(f"there is no shard {shard}: the cluster has 0 to {shards - 1}")
        added = set(wanted.draining) - set(before.draining)
        if added and not view.nodes.keys() - set(wanted.draining):
            raise InvalidState(
                f"{', '.join(sorted(added))} cannot drain: no other node is there to go to. Start another one first"
            )
        here = [it for it in set(wanted.removed) - set(before.removed) if it in view.nodes]
        if here:
            raise InvalidState(
                f"{', '.join(sorted(here))} is there: let it drain, end its process, and remove it then"
            )

    async def check(self) -> ClusterChecked:
        """How the servers are that the cluster stands on."""
        found = [] if self._logs is None else await self._logs.servers()
        engine = [ServerState(it.address, it.name, it.version, it.problem) for it in found]
        zookeeper = await asyncio.gather(*map(_look_at_zookeeper, self._zookeeper))
        return ClusterChecked(engine, list(zookeeper))


def register(router: Router, gate: Gate, desk: Callable[[], ClusterDesk]) -> None:
    """Add what waits for others. It holds up nothing else of the client who asks."""
    read_intend, read_check = gate.reader(Intend), gate.reader(CheckCluster)

    async def intend(request: Request) -> bytes:
        message = read_intend(request)
        try:
            return encode(await desk().intend(message))
        except Error as error:
            raise wire_error(error) from None

    async def check(request: Request) -> bytes:
        read_check(request)
        try:
            return encode(await desk().check())
        except Error as error:
            raise wire_error(error) from None

    router.command(Intend.__name__, strategy=Strategy.PARALLEL)(intend)
    router.command(CheckCluster.__name__, strategy=Strategy.PARALLEL)(check)


def _members(view: View) -> list[MemberInfo]:
    """All nodes that are there, or should be."""
    placed = {it for places in view.placement.shards for it in places}
    found = []
    for id_ in sorted(view.nodes.keys() | placed | set(view.intentions.draining)):
        node = view.nodes.get(id_)
        draining = id_ in view.intentions.draining or (node is not None and node.draining)
        if node is None:
            found.append(MemberInfo(id_, False, [], "", 0.0, draining, False, []))
            continue
        addresses, http = list(node.addresses), node.http or ""
        found.append(
            MemberInfo(
                id_, True, addresses, http, node.load, draining, node.leaving, list(node.holds)
            )
        )
    return found


def _shards(cluster: Cluster, view: View) -> list[PlacedShard]:
    loads = loads_of(view.nodes.values(), cluster.shards)
    told = any(it.shard_loads for it in view.nodes.values())
    found = []
    for number in range(cluster.shards):
        leader = view.leaders.get(number)
        found.append(
            PlacedShard(
                number,
                view.epochs.get(number, 0) if leader is None else leader.epoch,
                "" if leader is None else leader.node,
                list(view.placement.of(number)),
                view.intentions.leaders.get(number, ""),
                loads[number] if told else 0.0,
            )
        )
    return found


def state_of(replica: Replica) -> ReplicaState:
    """How far a shard has come on this node."""
    shard = replica.shard
    ledger, offset = split_position(shard.index.applied)
    last = shard.log.ledgers()[-LEDGERS_TOLD:]
    return ReplicaState(
        shard.number, replica.leading, ledger, offset, [(it.id, it.size_bytes) for it in last]
    )


async def _look_at_zookeeper(address: str) -> ServerState:
    """Ask a server of ZooKeeper whether it leads or follows."""
    host, _, port = address.rpartition(":")
    said = b""
    try:
        async with asyncio.timeout(LOOK_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            with contextlib.closing(writer):
                writer.write(b"srvr")
                said = await reader.read(ANSWER_BYTES_MAX)
    except (OSError, TimeoutError, ValueError) as error:
        return ServerState(address, "", "", f"does not answer: {error or 'no word in time'}")
    facts = dict(
        line.split(": ", 1) for line in said.decode(errors="replace").splitlines() if ": " in line
    )
    version = facts.get("Zookeeper version", "").partition("-")[0]
    mode = facts.get("Mode", "")
    problem = "" if mode else "serves nobody: it has no majority, or `srvr` is not allowed"
    return ServerState(address, mode, version, problem)
