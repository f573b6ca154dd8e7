"""Coordination by ZooKeeper.

A node has one session at a time. When it is lost, all that the node led is over, and the next session is sought at
once: in it the node is registered again, but leads nothing until it asks to.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from ..errors import Error, Fenced, InvalidState, NotFound, Unavailable
from ..limits import COORDINATION_DEADLINE_S
from . import zookeeper_entries as entries
from .coordination import (
    Cluster,
    Node,
    Placement,
    SessionCallback,
    SessionState,
    changed_node,
    check_placement,
    check_settings,
    check_shard,
)
from .intentions import Intentions
from .standing import Standing
from .view import Changes, View, Watch, Watches
from .zookeeper_entries import create_cluster, read_cluster
from .zookeeper_layout import (
    Layout,
    ZooKeeperSettings,
    pack,
    pack_node,
    pack_placement,
    split_hosts,
    unpack_cluster,
)
from .zookeeper_reader import Reader, Round
from .zookeeper_session import Session, SessionLost

log = logging.getLogger("tstreams.cluster")

__all__ = ["ZooKeeperCoordination", "ZooKeeperSettings", "create_cluster", "read_cluster"]

_PAUSE_S = 0.05


class ZooKeeperCoordination:
    """Coordination by ZooKeeper; see `Coordination` for what its methods promise.

    Without a node it only watches, and can lead nothing: for those who look at a cluster from outside.

    - `_led` are the leaderships of the present session. It is emptied the moment the session is lost.
    - An entry of our own session that is not in `_led`, while nobody asks for it, came from a request whose caller
      gave up. It is removed.
    - One task reads, reconciles and makes new sessions. Whatever it cannot go on from closes all of it.
    """

    def __init__(self, settings: ZooKeeperSettings, node: Node | None = None) -> None:
        self._settings = settings
        self._servers, root = split_hosts(settings.hosts)
        self._layout = Layout(root, settings.cluster)
        self._node = node
        self._cluster: Cluster | None = None
        self._view = View(0)
        self._watches = Watches()
        self._standing = Standing(self._watches)
        self._failure: Error | None = None
        self._session: Session | None = None
        self._reader: Reader | None = None
        self._led: dict[int, int] = {}
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._updating = asyncio.Lock()
        self._candidate = False
        self._directing = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        if self._cluster is None:
            raise InvalidState("this coordination is not started")
        return self._cluster

    @property
    def view(self) -> View:
        """The cluster as it was last seen."""
        return self._view

    @property
    def session(self) -> SessionState:
        """How this node stands with ZooKeeper."""
        return self._standing.state

    @property
    def directing(self) -> bool:
        """Whether this node is the one that decides on placement."""
        return self._directing

    def alive(self) -> bool:
        """Whether the session surely lasts at this moment."""
        return self._session is not None and self._session.alive()

    def leads(self, shard: int) -> int | None:
        """The epoch in which this session leads a shard; None if it does not."""
        return self._led.get(shard)

    def on_session(self, callback: SessionCallback) -> None:
        """Be called with every new state of the session, at once."""
        self._standing.tell(callback)

    def watch(self) -> Watch:
        """Be told of changes from now on."""
        return self._watches.add()

    async def start(self) -> None:
        """Connect, register and read everything. If it fails, it is closed."""
        if self._standing.state is not SessionState.NEW or self._session is not None:
            raise InvalidState("this coordination was started before")
        try:
            session = await self._connect()
            found = await session.read(self._layout.cluster, _deadline())
            if found is None:
                raise NotFound(
                    f"ZooKeeper has no cluster in {self._layout.base}: create one, or look at the name and the path"
                )
            self._cluster = unpack_cluster(found[0])
            self._view = View(self._cluster.shards)
            self._view.placement = Placement(-1, self._view.placement.shards)
            self._view.cluster_version = found[1].version
            self._view.intentions_version = -1
            await self._settle(session)
        except BaseException:
            await self.close()
            raise
        self._spawn(self._keep())

    async def reconfigure(self, cluster: Cluster, *, version: int) -> int:
        """Change the settings if they still have this version."""
        session = self._ready()
        check_settings(self.cluster, cluster)
        made = await entries.replace(
            session, self._layout.cluster, pack(cluster), version, _deadline()
        )
        self._stale(self._layout.cluster)
        return made

    async def update(
        self,
        *,
        load: float | None = None,
        shard_loads: Mapping[int, float] | None = None,
        draining: bool | None = None,
        leaving: bool | None = None,
        holds: Sequence[int] | None = None,
    ) -> None:
        """Change this node's entry. If it fails, what was said is told with the next one, or in the next session."""
        session = self._ready()
        node = changed_node(self._myself(), load, shard_loads, draining, leaving, holds)
        pack_node(node)  # refused before anything depends on it
        self._node = node
        async with self._updating:  # or an older entry might come after a newer one
            await entries.claim_node(session, self._layout, self._node, _deadline())

    async def lead(self, shard: int, *, above: int = 0) -> int | None:
        """Lead a shard if no other node does."""
        session, node = self._ready(), self._myself()
        check_shard(self.cluster, shard)
        async with self._turns[shard]:
            if self._led.get(shard, 0) > above:
                return self._led[shard]
            try:
                leader = await entries.claim_leader(
                    session, self._layout, shard, node.id, above, _deadline()
                )
            except BaseException:
                self._stale(
                    self._layout.leader(shard)
                )  # it may be ours later, and is not wanted then
                raise
            if session.lost:
                raise SessionLost("the session with ZooKeeper was lost while a shard was taken")
            self._led.pop(shard, None)
            if leader.node == node.id:
                self._led[shard] = leader.epoch
            if self._view.led_by(shard, leader):
                self._watches.tell(Changes(leaders=frozenset((shard,))))
            return self._led.get(shard)

    async def release(self, shard: int) -> None:
        """Lead a shard no longer."""
        session = self._ready()
        check_shard(self.cluster, shard)
        self._led.pop(shard, None)
        async with self._turns[shard]:
            self._led.pop(shard, None)
            await entries.drop_leader(session, self._layout, shard, _deadline())

    async def stand(self) -> None:
        """Be ready to direct."""
        session, node = self._ready(), self._myself()
        self._candidate = True
        await entries.claim_director(session, self._layout, node.id, _deadline())
        self._stale(self._layout.director)

    async def withdraw(self) -> None:
        """Direct no longer."""
        session = self._ready()
        self._candidate = False
        self._directing = False
        await entries.drop_director(session, self._layout, _deadline())

    async def place(self, shards: Sequence[Sequence[str]], *, version: int) -> int:
        """Say where shards should be, if the placement still has this version."""
        session = self._ready()
        wanted = check_placement(shards, self.cluster.shards)
        if not self._directing:
            raise InvalidState(
                f"this node does not direct, {self._view.director or 'nobody'} does: "
                "only that one says where shards should be"
            )
        made = await entries.replace(
            session, self._layout.placement, pack_placement(wanted), version, _deadline()
        )
        if made > self._view.placement.version:
            self._view.placement = Placement(made, wanted)
            self._watches.tell(Changes(placement=True))
        return made

    async def intend(self, intentions: Intentions, *, version: int) -> int:
        """Say what operators want, if that still has this version."""
        session = self._ready()
        made = await entries.replace(
            session, self._layout.intentions, pack(intentions), version, _deadline()
        )
        if made > self._view.intentions_version:
            self._view.intentions, self._view.intentions_version = intentions, made
            self._watches.tell(Changes(intentions=True))
        return made

    async def close(self) -> None:
        """Leave. Entries are gone at once if there is a connection, else when ZooKeeper ends the session."""
        if self._standing.state is not SessionState.CLOSED:
            self._shut()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _connect(self) -> Session:
        """A new session, and that of this coordination from now on."""
        session = Session(
            self._servers,
            self._settings.session_timeout_s,
            on_connection=self._connection,
            on_lost=self._lost,
            on_change=self._stale,
        )
        self._session = session
        self._reader = None
        await session.open(_deadline())
        return session

    async def _settle(self, session: Session) -> None:
        """Be there in a new session, and know how things are."""
        reader = self._reader = Reader(session, self._layout, self.cluster, self._view)
        await self._read(session, reader, registered=False)  # is it still the same cluster?
        if self._node is not None:
            await entries.claim_node(session, self._layout, self._node, _deadline())
            reader.mark(self._layout.node(self._node.id))
        await self._read(session, reader, registered=True)
        if session.lost:
            raise SessionLost("the session with ZooKeeper was lost at once")
        self._standing.become(SessionState.CONNECTED)
        if not session.is_connected:
            self._standing.become(SessionState.SUSPENDED)

    async def _keep(self) -> None:
        """Read what has changed, for ever; make a new session when the old one is lost."""
        settled = self._session
        while True:
            try:
                session = self._session
                if session is None or session.lost:
                    session = await self._connect()
                if session is not settled:
                    await self._settle(session)
                    settled = session
                reader = self._reader
                assert reader is not None
                await reader.stirred()
                await self._read(session, reader, registered=True)
            except Unavailable as error:
                log.info("ZooKeeper: %s", error)
                await asyncio.sleep(_PAUSE_S)
            except Error as error:
                self._fail(error)
                return

    async def _read(self, session: Session, reader: Reader, *, registered: bool) -> None:
        """Bring the view up to date, and act on what it shows of ourselves."""
        led = dict(self._led)
        found = await reader.read()
        self._cluster = reader.cluster
        self._check_leaders(session, found, led)
        self._check_director(session, found)
        if registered and self._node is not None:
            self._check_node(session, found, self._node)
        if found.changes != Changes():
            self._watches.tell(found.changes)

    def _check_leaders(self, session: Session, found: Round, led: dict[int, int]) -> None:
        """`led` is what this session led before the entries were read: what is not ours then was taken from us. What
        it came to lead meanwhile may have been read too early, and is looked at again."""
        for shard, own in found.own_leaders.items():
            if own and shard not in self._led:
                self._spawn(self._drop_stray(session, shard))
            elif own or shard not in self._led:
                continue
            elif self._led[shard] != led.get(shard):
                self._stale(self._layout.leader(shard))
            else:
                log.warning("the leadership of shard %d was taken from this node", shard)
                del self._led[shard]
                found.add(Changes(leaders=frozenset((shard,))))

    def _check_director(self, session: Session, found: Round) -> None:
        if found.own_director is None:
            return
        directing = found.own_director and self._candidate
        if directing != self._directing:
            self._directing = directing
            found.add(Changes(director=True))
        if found.own_director and not self._candidate:
            self._spawn(entries.drop_director(session, self._layout, _deadline()))
        elif self._view.director is None and self._candidate and self._node is not None:
            self._spawn(entries.claim_director(session, self._layout, self._node.id, _deadline()))

    def _check_node(self, session: Session, found: Round, node: Node) -> None:
        owner = found.owners.get(node.id, session.id)
        if owner == 0:
            self._spawn(entries.claim_node(session, self._layout, node, _deadline()))
        elif owner != session.id:
            raise Fenced(
                f"another process has registered as node {node.id}: each node needs a data folder of its own, and "
                "one that was copied must not be started as well"
            )

    async def _drop_stray(self, session: Session, shard: int) -> None:
        """Remove an entry of ours that nobody waits for."""
        async with self._turns[shard]:
            if shard not in self._led:
                await entries.drop_leader(session, self._layout, shard, _deadline())

    def _connection(self, up: bool) -> None:
        if up and self._reader is not None:
            self._reader.mark_all()
        if up and self._standing.state is SessionState.SUSPENDED:
            self._standing.become(SessionState.CONNECTED)
        elif not up and self._standing.state is SessionState.CONNECTED:
            self._standing.become(SessionState.SUSPENDED)

    def _lost(self, reason: str) -> None:
        log.warning("the session with ZooKeeper is lost: %s", reason)
        self._led.clear()
        self._directing = False
        if self._standing.state in (SessionState.CONNECTED, SessionState.SUSPENDED):
            self._standing.become(SessionState.LOST)
        if self._reader is not None:
            self._reader.mark_all()

    def _stale(self, path: str) -> None:
        if self._reader is not None:
            self._reader.mark(path)

    def _fail(self, error: Error) -> None:
        log.error("coordination ends: %s", error)
        self._failure = error
        self._shut()
        if self._session is not None:
            self._session.end()

    def _shut(self) -> None:
        self._led.clear()
        self._directing = False
        self._candidate = False
        self._standing.become(SessionState.CLOSED)
        self._watches.end()

    def _ready(self) -> Session:
        if self._failure is not None:
            raise type(self._failure)(self._failure.message)
        if self._standing.state in (SessionState.NEW, SessionState.CLOSED):
            raise InvalidState(f"this coordination is {self._standing.state.value}")
        if self._session is None or self._session.lost or self._standing.state is SessionState.LOST:
            raise SessionLost("the session with ZooKeeper is lost; a new one is sought")
        return self._session

    def _myself(self) -> Node:
        if self._node is None:
            raise InvalidState("this coordination only watches: it is of no node")
        return self._node

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may not have begun

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Unavailable as error:  # the next reading shows what is still to be done
            log.info("ZooKeeper: %s", error)
            if self._reader is not None:
                self._reader.mark_all()
        except Error as error:
            if self._standing.state is not SessionState.CLOSED:
                self._fail(error)


def _deadline() -> float:
    return asyncio.get_running_loop().time() + COORDINATION_DEADLINE_S
