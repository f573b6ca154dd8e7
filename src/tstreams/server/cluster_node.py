"""A node of a cluster: replicas of the shards that it should have, of which it leads those that it should lead."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from ..cluster.coordination import Coordination, Outdated
from ..cluster.coordination import Node as NodeEntry
from ..cluster.placement import loads_of, place
from ..config import Config
from ..errors import Error, InvalidState, NotLeader
from ..ledger.engine import Engine
from ..protocol import Measured, NodeInfo, ReplicaInfo, ShardInfo
from ..version import __version__
from .gate import Authorise
from .measuring import measure
from .node import Node
from .replica import Replica
from .shard import Clock, system_clock
from .storage import LocalStorage
from .upkeep import SNAPSHOT_BYTES_MIN

log = logging.getLogger("tstreams.server")

Coordinate = Callable[[NodeEntry], Coordination]
"""Makes the coordination of a node, as it describes itself."""

LOOK_EVERY_S = 1.0
"""How often a node looks whether all is as it should be if nothing has changed: what has failed is tried again."""

GONE_AFTER_S = 30.0
"""A node that was not seen for so long gets its shards replaced. One that only restarts comes back to its own."""


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
        clock: Clock = system_clock,
        storage: Callable[[Path, int], LocalStorage] = LocalStorage,
        authorise: Authorise | None = None,
        snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN,
    ) -> None:
        """`shards` is how many the cluster has; `engine` connects to what keeps the log of one of them."""
        super().__init__(config, listen, clock=clock, authorise=authorise)
        self._local_storage = storage
        self._total = shards
        self._engine_of = engine
        self._coordinate = coordinate
        self._snapshot_bytes_min = snapshot_bytes_min
        self.replicas: dict[int, Replica] = {}
        self.coordination: Coordination | None = None
        self._seats: list[Seat] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._seen: dict[str, tuple[float, NodeEntry]] = {}
        """The nodes that were there, and when they were seen last."""

    @property
    def ready(self) -> bool:
        """Whether it serves: it knows the others, and has what it should have."""
        known = self.coordination is None or self.coordination.alive()
        return bool(self.addresses) and known and all(it.settled for it in self._seats)

    # Life.

    async def start(self) -> None:
        """Listen, join the others, and open what should be here."""
        await super().start()
        if self._coordinate is None:
            return
        try:
            entry = NodeEntry(id=self.id, addresses=tuple(self._outside()), http=self.http or None)
            self.coordination = self._coordinate(entry)
            await self.coordination.start()
            if self.coordination.cluster.shards != self._total:
                raise InvalidState(
                    f"the cluster has {self.coordination.cluster.shards} shards, not {self._total}"
                )
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

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

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
            )
            replica.shard.leader = lambda number=number: self._not_leader(number)  # type: ignore[misc]
            replica.shard.expect(self._coordinate is not None)  # until it is known who leads
            self.shards[number] = replica.shard

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        await asyncio.gather(*(replica.close() for replica in self.replicas.values()))
        self.replicas = {}
        self.shards = {}
        if self.coordination is not None:
            with contextlib.suppress(Error):
                await self.coordination.close()
        await super()._close()

    # Who leads what.

    async def _watch(self, coordination: Coordination) -> None:
        watch = coordination.watch()
        while True:
            for seat in self._seats:
                seat.look()
            if coordination.directing:
                await self._direct(coordination)
            with contextlib.suppress(TimeoutError, StopAsyncIteration):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await anext(watch)

    async def _direct(self, coordination: Coordination) -> None:
        """Say where shards should be, if that is another place than before. Who leads meanwhile what a node led that is
        gone needs no word: the next in the list does."""
        view = coordination.view
        before = view.placement
        now_s = asyncio.get_running_loop().time()
        self._seen |= {it.id: (now_s, it) for it in view.nodes.values()}
        nodes = [it for seen_s, it in self._seen.values() if now_s - seen_s <= GONE_AFTER_S]
        after = place(
            nodes,
            before.shards,
            loads_of(nodes, self._total),
            replicas=coordination.cluster.replicas,
        )
        if after != before.shards:
            try:
                await coordination.place(after, version=before.version)
            except Outdated:
                pass  # somebody else did
            except Error as error:
                log.warning("where shards should be could not be said: %s", error)

    def _not_leader(self, number: int) -> NotLeader:
        coordination, shard = self.coordination, self.shards[number]
        leader = None if coordination is None else coordination.view.leaders.get(number)
        if coordination is None or leader is None or leader.node == self.id:
            return NotLeader(number, shard.epoch)
        node = coordination.view.nodes.get(leader.node)
        return NotLeader(number, leader.epoch, () if node is None else node.addresses)

    # What it tells of itself.

    def _outside(self) -> list[str]:
        return [it for it in self.addresses if not it.startswith("inproc:")]

    def _describe(self) -> NodeInfo:
        here = [it for it in self.replicas.values() if it.is_open or it.shard.expecting]
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
        coordination, shard = self.coordination, self.replicas[number].shard
        if coordination is None:
            me = ReplicaInfo(self.id, self._outside())
            return ShardInfo(number, shard.epoch, me if shard.leading else None)
        view = coordination.view

        def found(node: str) -> ReplicaInfo | None:
            entry = view.nodes.get(node)
            return None if entry is None else ReplicaInfo(node, list(entry.addresses))

        leader = view.leaders.get(number)
        led_by = "" if leader is None else leader.node
        others = [found(it) for it in view.placement.shards[number] if it != led_by]
        return ShardInfo(
            number,
            shard.epoch if leader is None else leader.epoch,
            found(led_by),
            [it for it in others if it is not None],
        )

    def _measure(self) -> Measured:
        assert self._server is not None
        opened = [it.shard for it in self.replicas.values() if it.is_open]
        return measure(self._clock(), opened, self._server)


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
        replica.shard.alive = coordination.alive

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
        places = coordination.view.placement.shards[number]
        if self._node in places and not self._started:
            await self._start()
        leads = coordination.leads(number)
        present = coordination.view.nodes
        first = next((it for it in places if it in present), None)  # of those that are there
        should = first == self._node and coordination.alive()
        replica.shard.expect(should)
        if replica.shard.leading and (not should or replica.shard.epoch != leads):
            await replica.step_down()
        if leads is not None and not replica.shard.leading:
            await coordination.release(number)
        if should and not replica.shard.leading:
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
        try:
            await replica.lead(epoch)
        except BaseException:
            with contextlib.suppress(Error):
                await self._coordination.release(number)
            raise
