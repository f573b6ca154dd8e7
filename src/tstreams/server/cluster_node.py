"""A node of a cluster: replicas of the shards that it should have, of which it leads those that it should lead."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from moebius import Router

from ..cluster.coordination import Cluster, Coordination, Outdated, leader_among
from ..cluster.coordination import Node as NodeEntry
from ..cluster.director import Director
from ..cluster.view import Watch
from ..config import Config
from ..errors import Error, InvalidState, NotLeader, Unavailable
from ..ledger.engine import Engine
from ..logs import fields
from ..protocol import ClusterInfo, Measured, NodeInfo, ReplicaInfo, ShardInfo
from ..version import __version__
from .cluster_desk import ClusterDesk, register
from .engines import Logs
from .errands import Errands
from .gate import Authorise
from .identity import check_cluster
from .kin import Kin
from .load import LoadMeter, work_of
from .measuring import measure
from .near_kin import NearKin
from .node import Node
from .remote_kin import RemoteKin
from .replica import Replica
from .seal import Seal
from .shard import Clock, system_clock
from .storage import LocalStorage
from .upkeep import SNAPSHOT_BYTES_MIN
from .wire import wire_error

log = logging.getLogger("tstreams.server")

Coordinate = Callable[[NodeEntry], Coordination]
"""Makes the coordination of a node, as it describes itself."""

LOOK_EVERY_S = 1.0
"""How often a node looks whether all is as it should be if nothing has changed: what has failed is tried again."""

LEAVE_S = 5.0
"""How long a node that ends waits until others lead what it led."""


REPORT_EVERY_S = 1.0
"""How often a node looks how busy it is. It is told only if that has changed."""


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
        self._director = Director()
        self._desk: ClusterDesk | None = None
        self._told: tuple[int, ...] = ()
        """The shards that it told the others to have."""

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
        self._seats = [
            Seat(self.id, replica, self.coordination) for replica in self.replicas.values()
        ]
        for seat in self._seats:
            self._begin(seat.run())
        self._begin(self._watch(self.coordination))
        self._begin(self._arrange(self.coordination))
        self._begin(self._report(self.coordination))

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

    async def _watch(self, coordination: Coordination) -> None:
        """Wake the seats with every change. It waits for nothing else: whoever is to lead should know at once."""
        watch = coordination.watch()
        while True:
            for seat in self._seats:
                seat.look()
            await _changed(watch)

    async def _arrange(self, coordination: Coordination) -> None:
        """Tell the others what this node has, and direct them, if it is the one that does."""
        watch = coordination.watch()
        while True:
            await self._tell_what_it_holds(coordination)
            if coordination.directing:
                await self._direct(coordination)
            else:
                self._director.rest(coordination.view)
            await _changed(watch)

    async def _tell_what_it_holds(self, coordination: Coordination) -> None:
        """So that others let it lead when it can, and not before."""
        holds = tuple(it.number for it in self.replicas.values() if it.is_open)
        if holds == self._told:
            return
        try:
            await coordination.update(holds=holds)
            self._told = holds
        except Error as error:
            log.warning("what this node has could not be told: %s", error)

    async def _direct(self, coordination: Coordination) -> None:
        """Say where shards should be, if that is another place than before. Who leads meanwhile what a node led that is
        gone needs no word: the next in the list does."""
        before = coordination.view.placement
        now_s = asyncio.get_running_loop().time()
        after = self._director.decide(coordination.cluster, coordination.view, now_s)
        if after != before.shards:
            try:
                await coordination.place(after, version=before.version)
            except Outdated:
                pass  # somebody else did
            except Error as error:
                log.warning("where shards should be could not be said: %s", error)

    def _not_leader(self, number: int) -> NotLeader:
        coordination = self.coordination
        leader = None if coordination is None else coordination.view.leaders.get(number)
        epoch = self.replicas[number].shard.epoch if leader is None else leader.epoch
        return NotLeader(number, epoch, self._locate(number))

    async def _report(self, coordination: Coordination) -> None:
        """Tell the others how busy this node is."""
        meter = LoadMeter()
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            led = [it.shard for it in self.replicas.values() if it.leading]
            work = {it.number: work_of(it.metrics) for it in led}
            load = meter.look(asyncio.get_running_loop().time(), time.thread_time(), work)
            if load is not None and coordination.alive():
                try:
                    await coordination.update(load=load.node, shard_loads=load.shards)
                    meter.told(load)
                except Error as error:
                    log.warning("how busy this node is could not be told: %s", error)

    # What it tells of itself.

    def _add_commands(self, router: Router) -> None:
        register(router, self._gate, self._opened_desk)

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


async def _changed(watch: Watch) -> None:
    """Wait until something changes; but now and then look all the same."""
    with contextlib.suppress(TimeoutError, StopAsyncIteration):
        async with asyncio.timeout(LOOK_EVERY_S):
            await anext(watch)


class Seat:
    """The place of one shard on this node: sees to it that the replica does what coordination says.

    Invariant: it leads only in the epoch that coordination gave it in the present session. A leadership that is lost
    in the log is given back there, so that others may have it.
    """

    def __init__(self, node: str, replica: Replica, coordination: Coordination) -> None:
        self._node = node
        self._replica = replica
        self._coordination = coordination
        self._changed = asyncio.Event()
        self._started = False
        self.settled = False
        """Whether all was as it should be when it was looked at last."""
        replica.on_lost = self.look
        replica.shared.alive = coordination.alive

    def look(self) -> None:
        """Something may have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            self._changed.clear()
            try:
                await self._arrange()
                self.settled = True
            except Error as error:
                self.settled = False
                log.warning("shard %d: %s; trying again", self._replica.number, error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):  # `wait_for` may lose a cancel
                    await self._changed.wait()

    async def _arrange(self) -> None:
        replica, coordination, number = self._replica, self._coordination, self._replica.number
        places = coordination.view.placement.of(number)
        if self._node in places and not self._started:
            await self._start()
        leads = coordination.leads(number)
        view = coordination.view
        leader = view.leaders.get(number)
        led_by = None if leader is None else leader.node
        first = leader_among(places, view.nodes, number, led_by)
        should = first == self._node and coordination.alive()
        replica.shared.expect(should)
        if replica.leading and (not should or replica.shard.epoch != leads):
            epoch = replica.shard.epoch
            await replica.step_down()
            log.info("leads shard %d no longer", number, extra=fields(epoch=epoch, heir=first))
        if leads is not None and not replica.leading:
            await coordination.release(number)
        if should and not replica.leading:
            await self._lead()
        elif self._started and self._node not in places:
            self._started = False
            await replica.close()

    async def _start(self) -> None:
        try:
            await self._replica.start()
        except BaseException:
            await self._replica.close()
            raise
        self._started = True

    async def _lead(self) -> None:
        replica, number = self._replica, self._replica.number
        epoch = await self._coordination.lead(number, above=replica.shard.epoch)
        if epoch is None:
            return
        begun_at = asyncio.get_running_loop().time()
        try:
            await replica.lead(epoch)
            took_ms = round(1000 * (asyncio.get_running_loop().time() - begun_at))
            log.info("leads shard %d", number, extra=fields(epoch=epoch, took_ms=took_ms))
        except BaseException:
            with contextlib.suppress(Error):
                await self._coordination.release(number)
            raise
