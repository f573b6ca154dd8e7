"""Keeps a node's view of the cluster as new as ZooKeeper is.

Everything is read with a watch. A change marks its path as stale, and stale paths are read again, many at a time:
so however often something changes meanwhile, it is read once more, and the last state is never missed. After a
connection was lost no watch is left, and everything is stale.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from kazoo import exceptions as zk

from ..errors import Corrupt
from ..limits import COORDINATION_DEADLINE_S
from .coordination import Cluster
from .view import Changes, View
from .zookeeper_layout import (
    Layout,
    unpack_cluster,
    unpack_intentions,
    unpack_leader,
    unpack_node,
    unpack_placement,
)
from .zookeeper_session import Found, Session, together

log = logging.getLogger("tstreams.cluster")

T = TypeVar("T")


class Round(msgspec.Struct):
    """What reading stale paths once has shown."""

    changes: Changes = Changes()
    own_leaders: dict[int, bool] = {}
    """Of each shard that was looked at, whether its leader's entry belongs to our session."""
    own_director: bool | None = None
    """Whether we direct; None: not looked at."""
    owners: dict[str, int] = {}
    """The sessions of nodes that were looked at; 0: its entry is gone."""

    def add(self, changes: Changes) -> None:
        """Something is different."""
        self.changes = self.changes.and_also(changes)


class Reader:
    """Reads for one session, into a view."""

    def __init__(self, session: Session, layout: Layout, cluster: Cluster, view: View) -> None:
        self.cluster = cluster
        self._session = session
        self._layout = layout
        self._view = view
        self._stale: set[str] = set()
        self._all = True
        self._stirred = asyncio.Event()
        self._stirred.set()

    def mark(self, path: str) -> None:
        """This has changed."""
        self._stale.add(path)
        self._stirred.set()

    def mark_all(self) -> None:
        """Nothing is known for sure any more."""
        self._all = True
        self._stirred.set()

    async def stirred(self) -> None:
        """Wait until something is stale."""
        await self._stirred.wait()

    async def read(self) -> Round:
        """Read what is stale. If it raises, it stays stale. `Corrupt` if this is not the cluster any more
        that it was."""
        self._stirred.clear()
        stale, self._stale = self._stale, set()
        everything, self._all = self._all, False
        found = Round()
        try:
            await self._read(stale, everything, found)
        except BaseException:
            self._stale |= stale
            self._all = self._all or everything
            self._stirred.set()
            raise
        return found

    async def _read(self, stale: set[str], everything: bool, found: Round) -> None:
        layout = self._layout
        deadline_s = asyncio.get_running_loop().time() + COORDINATION_DEADLINE_S
        if everything:
            # A new session may come to a server that lags behind the one before.
            await self._session.sure(lambda c: c.sync_async("/"), deadline_s)
            stale = stale | {layout.cluster, layout.nodes, layout.placement}
            stale |= {layout.director, layout.intentions}
            stale |= {layout.leader(shard) for shard in range(self.cluster.shards)}
        if layout.nodes in stale:
            try:
                names = await self._session.children(layout.nodes, deadline_s)
            except zk.NoNodeError:
                raise self._other_cluster() from None
            gone = self._view.nodes.keys() - set(names)
            new = set(names) if everything else set(names) - self._view.nodes.keys()
            stale = stale | {layout.node(name) for name in new | gone}
        paths = stale - {layout.nodes}
        await together(self._read_one(path, found, deadline_s) for path in paths)

    def _read_one(self, path: str, found: Round, deadline_s: float) -> Coroutine[Any, Any, None]:
        shard = self._layout.led_shard_in(path)
        if shard is not None:
            return self._read_leader(shard, found, deadline_s)
        node = self._layout.node_in(path)
        if node is not None:
            return self._read_node(node, found, deadline_s)
        if path == self._layout.placement:
            return self._read_placement(found, deadline_s)
        if path == self._layout.director:
            return self._read_director(found, deadline_s)
        if path == self._layout.intentions:
            return self._read_intentions(found, deadline_s)
        return self._read_cluster(found, deadline_s)

    async def _read_leader(self, shard: int, found: Round, deadline_s: float) -> None:
        entry = await self._session.read(self._layout.leader(shard), deadline_s, watch=True)
        leader = _readable(unpack_leader, entry)
        found.own_leaders[shard] = entry is not None and entry[1].ephemeralOwner == self._session.id
        if self._view.led_by(shard, leader):
            found.add(Changes(leaders=frozenset((shard,))))

    async def _read_node(self, name: str, found: Round, deadline_s: float) -> None:
        entry = await self._session.read(self._layout.node(name), deadline_s, watch=True)
        found.owners[name] = entry[1].ephemeralOwner if entry is not None else 0
        node = _readable(unpack_node, entry)
        if self._view.nodes.get(name) == node:
            return
        if node is None:
            self._view.nodes.pop(name)
        else:
            self._view.nodes[name] = node
        found.add(Changes(nodes=True))

    async def _read_placement(self, found: Round, deadline_s: float) -> None:
        entry = await self._session.read(self._layout.placement, deadline_s, watch=True)
        if entry is None:
            raise self._other_cluster()
        version, shards = entry[1].version, self.cluster.shards
        placement = _readable(lambda data: unpack_placement(data, version, shards), entry)
        if placement is not None and version > self._view.placement.version:
            self._view.placement = placement
            found.add(Changes(placement=True))

    async def _read_director(self, found: Round, deadline_s: float) -> None:
        entry = await self._session.read(self._layout.director, deadline_s, watch=True)
        found.own_director = entry is not None and entry[1].ephemeralOwner == self._session.id
        director = entry[0].decode(errors="replace") if entry is not None else None
        if director != self._view.director:
            self._view.director = director
            found.add(Changes(director=True))

    async def _read_intentions(self, found: Round, deadline_s: float) -> None:
        entry = await self._session.read(self._layout.intentions, deadline_s, watch=True)
        if entry is None:
            raise self._other_cluster()
        version, intentions = entry[1].version, _readable(unpack_intentions, entry)
        if intentions is not None and version > self._view.intentions_version:
            self._view.intentions, self._view.intentions_version = intentions, version
            found.add(Changes(intentions=True))

    async def _read_cluster(self, found: Round, deadline_s: float) -> None:
        entry = await self._session.read(self._layout.cluster, deadline_s, watch=True)
        cluster = unpack_cluster(entry[0]) if entry is not None else None
        if entry is None or cluster is None or cluster.id != self.cluster.id:
            raise self._other_cluster()
        if entry[1].version > self._view.cluster_version:
            self._view.cluster_version = entry[1].version
            self.cluster = cluster
            found.add(Changes(cluster=True))

    def _other_cluster(self) -> Corrupt:
        return Corrupt(
            f"ZooKeeper does not have the cluster {self.cluster.name} with the id {self.cluster.id} any more: was "
            f"its data lost, or are these other servers? Look at {self._layout.base} before anything is started again"
        )


def _readable(unpack: Callable[[bytes], T], entry: Found | None) -> T | None:
    """What an entry holds; None if there is none, or none that makes sense: one bad entry must not end all nodes."""
    if entry is None:
        return None
    try:
        return unpack(entry[0])
    except Corrupt as error:
        log.error("%s", error)
        return None
