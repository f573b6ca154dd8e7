"""A node of a cluster: replicas of the shards that it should have, of which it leads those that it should lead."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from moebius import Router

from ..cluster.coordination import Cluster, Coordination, leader_among
from ..cluster.coordination import Node as NodeEntry
from ..config import Config
from ..errors import Error, InvalidState, NotLeader, Unavailable
from ..ledger.engine import Engine
from ..protocol import ClusterInfo, Measured, NodeInfo, ReplicaInfo, ShardInfo
from ..version import __version__
from .cluster_desk import ClusterDesk, register
from .engines import Logs
from .errands import Errands
from .gate import Authorise
from .handing_over import register as register_handover
from .identity import check_cluster
from .kin import Kin
from .measuring import measure
from .membership import Membership
from .near_kin import NearKin
from .node import Node
from .remote_kin import RemoteKin
from .replica import Replica
from .seal import Seal
from .seat import Handovers, Seat
from .shard import Clock, system_clock
from .storage import LocalStorage
from .upkeep import SNAPSHOT_BYTES_MIN
from .wire import wire_error

log = logging.getLogger("tstreams.server")

Coordinate = Callable[[NodeEntry], Coordination]
"""Makes the coordination of a node, as it describes itself."""

LEAVE_S = 5.0
"""How long a node that ends waits until others lead what it led."""


LEAVE_PAUSE_S = 0.1
"""How long it serves on after that: clients that ask in this moment hear from it who leads now, and need not look for it."""


class ClusterNode(Node):
    """Serves shards of a cluster, whose logs are kept by engines.

    It has a seat for each shard of the cluster: what it does not lead it refuses with `NotLeader`, which says who does.
    Without `coordinate` it leads nothing by itself: whoever has made it tells its `replicas` to.
    """

    def __init__(
        self,
        config: Config | Path | str,
        listen: Sequence[str] | None = None,
        *,
        shards: int,
        engine: Callable[[int], Awaitable[Engine]],
        coordinate: Coordinate | None = None,
        cluster: Cluster | None = None,
        logs: Logs | None = None,
        clock: Clock = system_clock,
        storage: Callable[[Path, int], LocalStorage] = LocalStorage,
        authorise: Authorise | None = None,
        snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN,
        kin: Kin | None = None,
    ) -> None:
        """`shards` is how many the cluster has; `engine` connects to what keeps the log of one of them. A data folder
        of another `cluster` is refused. `logs` are closed with the node. `kin` is the way to shards that other nodes
        lead, if there is no coordination that tells where they are."""
        super().__init__(config, listen, clock=clock, authorise=authorise)
        self._local_storage = storage
        self._total = shards
        self._engine_of = engine
        self._coordinate = coordinate
        self._cluster = cluster
        self._logs = logs
        self._snapshot_bytes_min = snapshot_bytes_min
        self.replicas: dict[int, Replica] = {}
        self._kin = NearKin(self.replicas)
        self._kin.far = kin
        self._remote: RemoteKin | None = None
        self.coordination: Coordination | None = None
        self._seats: list[Seat] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._desk: ClusterDesk | None = None

    @property
    def ready(self) -> bool:
        """Whether it serves: it knows the others, and has what it should have."""
        if self.coordination is None:
            return bool(self.addresses)
        places = [self.coordination.view.placement.of(it) for it in range(self._total)]
        here = [it for it in range(self._total) if self.id in places[it]]
        return (
            bool(self.addresses)
            and self.coordination.alive()
            and all(places)
            and all(it.settled for it in self._seats)
            and all(self._is_as_it_should_be(it) for it in here)
        )

    def _is_as_it_should_be(self, number: int) -> bool:
        """Whether a shard that should be here is, and is led here if it should be."""
        assert self.coordination is not None
        replica, view = self.replicas[number], self.coordination.view
        leader = view.leaders.get(number)
        led_by = None if leader is None else leader.node
        first = leader_among(view.placement.of(number), view.nodes, number, led_by)
        return replica.is_open and (replica.leading or first != self.id)

    # Life.

    async def start(self) -> None:
        """Listen, join the others, and open what should be here."""
        await super().start()
        if self._coordinate is None:
            return
        try:
            http = self.config.http_advertise or self.http or None
            entry = NodeEntry(id=self.id, addresses=tuple(self._outside()), http=http)
            self.coordination = self._coordinate(entry)
            await self.coordination.start()
            if self.coordination.cluster.shards != self._total:
                raise InvalidState(
                    f"the cluster has {self.coordination.cluster.shards} shards, not {self._total}"
                )
            self._reach_others(self.coordination)
            self._desk = ClusterDesk(self.id, self.coordination, self._logs, self.config.zookeeper)
            await self.coordination.stand()
        except BaseException:
            await self.stop()
            raise
        handovers = Handovers(None if self._remote is None else self._remote.ask_node)
        self._seats = [
            Seat(self.id, replica, self.coordination, handovers)
            for replica in self.replicas.values()
        ]
        member = Membership(self.coordination, self.replicas, self._seats)
        for seat in self._seats:
            self._begin(seat.run())
        for work in (member.watch(), member.arrange(), member.report()):
            self._begin(work)

    def _reach_others(self, coordination: Coordination) -> None:
        """Have shards reach those that other nodes lead, and be reached by them."""
        if coordination.cluster.secret and self._kin.far is None:
            self._gate.seal = seal = Seal(coordination.cluster.secret)
            self._remote = RemoteKin(self._locate, seal, token=self.config.token)
            self._kin.far = self._remote

    def _locate(self, shard: int) -> Sequence[str]:
        coordination = self.coordination
        leader = None if coordination is None else coordination.view.leaders.get(shard)
        if coordination is None or leader is None or leader.node == self.id:
            return ()
        node = coordination.view.nodes.get(leader.node)
        return () if node is None else node.addresses

    async def leave(self) -> None:
        """Let others lead what this node leads, and wait until they do, as long as `LEAVE_S`. Nobody has to wait for the
        end of its session then. If there are no others it leads on."""
        coordination = self.coordination
        if coordination is None:
            return
        led = {it for it in range(self._total) if coordination.leads(it) is not None}
        watch = coordination.watch()
        try:
            async with asyncio.timeout(LEAVE_S):
                await coordination.update(leaving=True)
                await coordination.withdraw()
                while any(map(self._is_waited_for, led)):
                    await anext(watch)
                await asyncio.sleep(LEAVE_PAUSE_S)
        except (TimeoutError, StopAsyncIteration):
            log.warning("this node ends before others lead what it led")
        except Error as error:
            log.warning("the others could not be told that this node ends: %s", error)
        finally:
            watch.close()

    def _is_waited_for(self, number: int) -> bool:
        """Whether another node can lead a shard, and does not yet."""
        assert self.coordination is not None
        view = self.coordination.view
        leader = view.leaders.get(number)
        heirs = [view.nodes[it] for it in view.placement.of(number) if it in view.nodes]
        others = [it.id for it in heirs if not it.leaving and it.id != self.id]
        return bool(others) and (leader is None or leader.node not in others)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    def _check_folder(self) -> None:
        cluster = self._cluster
        if cluster is not None:
            check_cluster(self.config.data, (cluster.id, cluster.name))

    def _open_shards(self) -> None:
        config = self.config
        for number in range(self._total):

            async def engine(number: int = number) -> Engine:
                return await self._engine_of(number)

            folder = config.data / f"shard-{number}"
            replica = self.replicas[number] = Replica(
                number,
                self._local_storage(folder, config.disk_reserve_bytes),
                engine,
                clock=self._clock,
                ledger_bytes=config.ledger_bytes,
                ledger_age_ms=round(config.ledger_age_s * 1000),
                cache_bytes=config.payload_cache_bytes // self._total,
                snapshot_bytes_min=self._snapshot_bytes_min,
                shards=self._total,
            )
            replica.shared.leader = lambda number=number: self._not_leader(number)  # type: ignore[misc]
            replica.shared.expect(self._coordinate is not None)  # until it is known who leads
            self.shards[number] = replica.shard
            if self._total > 1:
                replica.shard.errands = Errands(replica.shard, self._kin, resting=True)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        await asyncio.gather(*(replica.close() for replica in self.replicas.values()))
        for shard in self.shards.values():
            if shard.errands is not None:
                await shard.errands.stop()
        if self._remote is not None:
            await self._remote.close()
        self.replicas.clear()
        self.shards.clear()
        if self.coordination is not None:
            with contextlib.suppress(Error):
                await self.coordination.close()
        if self._logs is not None:
            await self._logs.close()
        await super()._close()

    # Who leads what.

    def _not_leader(self, number: int) -> NotLeader:
        coordination = self.coordination
        leader = None if coordination is None else coordination.view.leaders.get(number)
        epoch = self.replicas[number].shard.epoch if leader is None else leader.epoch
        return NotLeader(number, epoch, self._locate(number))

    # What it tells of itself.

    def _add_commands(self, router: Router) -> None:
        register(router, self._gate, self._opened_desk)
        register_handover(router, self._gate, self._total, self._seat)

    def _seat(self, number: int) -> Seat:
        if number >= len(self._seats):
            raise Unavailable("this node is about to join its cluster: ask again in a moment")
        return self._seats[number]

    def _opened_desk(self) -> ClusterDesk:
        if self._desk is None:
            raise Unavailable("this node is about to join its cluster: ask again in a moment")
        return self._desk

    def _describe_cluster(self) -> ClusterInfo:
        try:
            return self._opened_desk().describe(self.replicas.values())
        except Error as error:
            raise wire_error(error) from None

    def _outside(self) -> list[str]:
        if self.config.advertise:
            return list(self.config.advertise)
        return [it for it in self.addresses if not it.startswith("inproc:")]

    def _describe(self) -> NodeInfo:
        here = [it for it in self.replicas.values() if it.is_open or it.shared.expecting]
        return NodeInfo(
            __version__,
            [it.number for it in here],
            self.id,
            self._outside(),
            self.http,
            [it.shard.epoch for it in here],
            self._started_ms,
            self._total,
            [self._where(number) for number in range(self._total)],
        )

    def _where(self, number: int) -> ShardInfo:
        coordination, replica = self.coordination, self.replicas[number]
        if coordination is None:
            me = ReplicaInfo(self.id, self._outside())
            return ShardInfo(number, replica.shard.epoch, me if replica.leading else None)
        view = coordination.view

        def found(node: str) -> ReplicaInfo | None:
            entry = view.nodes.get(node)
            return None if entry is None else ReplicaInfo(node, list(entry.addresses))

        leader = view.leaders.get(number)
        led_by = "" if leader is None else leader.node
        others = [found(it) for it in view.placement.of(number) if it != led_by]
        return ShardInfo(
            number,
            replica.shard.epoch if leader is None else leader.epoch,
            found(led_by),
            [it for it in others if it is not None],
        )

    def _measure(self) -> Measured:
        assert self._server is not None
        opened = [it.shard for it in self.replicas.values() if it.is_open]
        return measure(self._clock(), opened, self._server)
