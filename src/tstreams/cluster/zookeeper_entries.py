"""How entries in ZooKeeper are made, changed and removed, so that it is right also if an answer gets lost.

All of it follows one pattern: look, then try, on condition that nothing has changed. If no answer comes, look again:
an entry of our own session is our own doing. An attempt that takes effect late fails by its condition.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from kazoo import exceptions as zk
from kazoo.client import KazooClient, TransactionRequest

from ..errors import AlreadyExists, Corrupt, NotFound, Timeout
from ..limits import COORDINATION_DEADLINE_S
from .coordination import Cluster, Leader, Node, Outdated
from .intentions import Intentions
from .zookeeper_layout import (
    Layout,
    ZooKeeperSettings,
    pack,
    pack_node,
    pack_placement,
    split_hosts,
    unpack_cluster,
    unpack_epoch,
    unpack_leader,
)
from .zookeeper_session import Interrupted, Session, together

_CREATING_S = 60.0


async def claim_leader(
    session: Session,
    layout: Layout,
    shard: int,
    node: str,
    above: int,
    instead_of: Leader | None,
    deadline_s: float,
) -> Leader:
    """Lead a shard, unless another node does than `instead_of`. Who leads it now, and in which epoch.

    The epoch is raised and the entry made in one transaction, so there never is a leader whose epoch was not raised
    for it. An entry of an earlier session of the same node (it was restarted, or its session was lost) is replaced:
    whoever made another meanwhile has raised the epoch, and then this transaction fails.
    """
    while True:
        epoch, entry = await asyncio.gather(
            session.read(layout.epoch(shard), deadline_s),
            session.read(layout.leader(shard), deadline_s),
        )
        if epoch is None:
            raise Corrupt(f"ZooKeeper has no epoch of shard {shard}: {layout.epoch(shard)} is gone")
        if entry is not None:
            leader = unpack_leader(entry[0])
            own = entry[1].ephemeralOwner == session.id
            other = leader.node != node and leader != instead_of
            if other or (own and leader.epoch > above):
                return leader
        leader = Leader(node, max(unpack_epoch(epoch[0]), above) + 1)
        steps = TransactionSteps()
        steps.set(layout.epoch(shard), str(leader.epoch).encode(), epoch[1].version)
        if entry is not None:
            steps.delete(layout.leader(shard), entry[1].version)
        steps.create_ephemeral(layout.leader(shard), pack(leader))
        if await steps.took_effect(session, deadline_s):
            return leader


async def drop_leader(session: Session, layout: Layout, shard: int, deadline_s: float) -> None:
    """Lead a shard no longer, if this session does. Others need not wait for the session to end."""
    while True:
        epoch, entry = await asyncio.gather(
            session.read(layout.epoch(shard), deadline_s),
            session.read(layout.leader(shard), deadline_s),
        )
        if epoch is None or entry is None or entry[1].ephemeralOwner != session.id:
            return
        steps = TransactionSteps()
        steps.check(layout.epoch(shard), epoch[1].version)
        steps.delete(layout.leader(shard), entry[1].version)
        if await steps.took_effect(session, deadline_s):
            return


async def claim_node(session: Session, layout: Layout, node: Node, deadline_s: float) -> None:
    """Register a node. An entry of the same node from another session is replaced: it is of this node before it was
    restarted, or of a process that runs as the same node, which finds out."""
    path = layout.node(node.id)
    while True:
        entry = await session.read(path, deadline_s)
        steps = TransactionSteps()
        if entry is None:
            steps.create_ephemeral(path, pack_node(node))
        elif entry[1].ephemeralOwner == session.id:
            if entry[0] == pack_node(node):
                return
            steps.set(path, pack_node(node), entry[1].version)
        else:
            steps.delete(path, entry[1].version)
            steps.create_ephemeral(path, pack_node(node))
        if await steps.took_effect(session, deadline_s):
            return


async def claim_director(session: Session, layout: Layout, node: str, deadline_s: float) -> None:
    """Direct, if nobody does. An entry of an earlier session of the same node is waited for, as any other: nothing
    tells it for sure from one that another node made in its place a moment ago."""
    while await session.read(layout.director, deadline_s) is None:
        steps = TransactionSteps()
        steps.create_ephemeral(layout.director, node.encode())
        if await steps.took_effect(session, deadline_s):
            return


async def drop_director(session: Session, layout: Layout, deadline_s: float) -> None:
    """Direct no longer, if this session does."""
    while True:
        entry = await session.read(layout.director, deadline_s)
        if entry is None or entry[1].ephemeralOwner != session.id:
            return
        steps = TransactionSteps()
        steps.delete(layout.director, entry[1].version)
        if await steps.took_effect(session, deadline_s):
            return


async def replace(session: Session, path: str, data: bytes, version: int, deadline_s: float) -> int:
    """Change an entry if it still has this version. Its new version, or `Outdated`."""
    doubtful = False
    while True:
        try:
            stat = await session.call(lambda c: c.set_async(path, data, version), deadline_s)
        except Interrupted:
            doubtful = True
            await session.pause(deadline_s)
        except (zk.BadVersionError, zk.NoNodeError):
            found = await session.read(path, deadline_s)
            if (
                doubtful
                and found is not None
                and found[0] == data
                and found[1].version == version + 1
            ):
                return version + 1
            has = "is gone" if found is None else f"has version {found[1].version} by now"
            raise Outdated(f"{path} {has}, and was to be changed in version {version}") from None
        else:
            return int(stat.version)


async def create_cluster(settings: ZooKeeperSettings, cluster: Cluster) -> None:
    """Make a cluster. `AlreadyExists` if there is one of this name, `Timeout` if ZooKeeper cannot be reached."""
    async with _visiting(settings) as (session, root):
        deadline_s = asyncio.get_running_loop().time() + _CREATING_S
        await _create(session, Layout(root, cluster.name), cluster, deadline_s)


async def read_cluster(settings: ZooKeeperSettings) -> Cluster:
    """What ZooKeeper knows of a cluster. `NotFound` if there is none of this name, `Timeout` if ZooKeeper cannot be
    reached, `Corrupt` if its entry cannot be read."""
    async with _visiting(settings) as (session, root):
        layout = Layout(root, settings.cluster)
        deadline_s = asyncio.get_running_loop().time() + COORDINATION_DEADLINE_S
        found = await session.read(layout.cluster, deadline_s)
    if found is None:
        raise NotFound(
            f"ZooKeeper at {settings.hosts} has no cluster {settings.cluster}: make it with `tstreams cluster "
            f"create {settings.cluster}`, or look at the name and the addresses"
        )
    return unpack_cluster(found[0])


@contextlib.asynccontextmanager
async def _visiting(settings: ZooKeeperSettings) -> AsyncIterator[tuple[Session, str]]:
    """A session of no node, for a moment, and where in ZooKeeper everything begins."""
    servers, root = split_hosts(settings.hosts)
    session = Session(
        servers,
        settings.session_timeout_s,
        on_connection=lambda _: None,
        on_lost=lambda _: None,
        on_change=lambda _: None,
    )
    try:
        await session.open(asyncio.get_running_loop().time() + COORDINATION_DEADLINE_S)
    except Timeout:
        raise Timeout(
            f"no ZooKeeper answers at {servers} within {COORDINATION_DEADLINE_S:g} s: does it run, and are these "
            "its addresses?"
        ) from None
    try:
        yield session, root
    finally:
        await session.close()


async def _create(session: Session, layout: Layout, cluster: Cluster, deadline_s: float) -> None:
    """Make a cluster, or go on with it.

    Its own entry comes last: until then it is not there, and whoever tries again goes on from what there is. Epochs
    that are there already, of a cluster that was removed by hand, stay: they only rise.
    """
    await session.sure(lambda c: c.ensure_path_async(layout.nodes), deadline_s)
    await session.sure(lambda c: c.ensure_path_async(layout.shards), deadline_s)
    if await session.read(layout.cluster, deadline_s) is None:
        shards = range(cluster.shards)
        await together(_ensure(session, layout.shard(n), b"", deadline_s) for n in shards)
        await together(_ensure(session, layout.epoch(n), b"0", deadline_s) for n in shards)
        nowhere = pack_placement([()] * cluster.shards)
        await _ensure(session, layout.placement, nowhere, deadline_s)
        await session.sure(lambda c: c.set_async(layout.placement, nowhere), deadline_s)
        nothing = pack(Intentions())
        await _ensure(session, layout.intentions, nothing, deadline_s)
        await session.sure(lambda c: c.set_async(layout.intentions, nothing), deadline_s)
        await _ensure(session, layout.cluster, pack(cluster), deadline_s)
    found = await session.read(layout.cluster, deadline_s)
    if found is None or unpack_cluster(found[0]).id != cluster.id:
        raise AlreadyExists(f"ZooKeeper has a cluster {cluster.name} already, in {layout.base}")


async def _ensure(session: Session, path: str, data: bytes, deadline_s: float) -> None:
    with contextlib.suppress(zk.NodeExistsError):
        await session.sure(lambda c: c.create_async(path, data), deadline_s)


class TransactionSteps:
    """What is to happen at once, or not at all."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, tuple[Any, ...]]] = []

    def set(self, path: str, data: bytes, version: int) -> None:
        """Change an entry of this version."""
        self._steps.append(("set_data", (path, data, version)))

    def check(self, path: str, version: int) -> None:
        """Go on only if an entry has this version."""
        self._steps.append(("check", (path, version)))

    def delete(self, path: str, version: int) -> None:
        """Remove an entry of this version."""
        self._steps.append(("delete", (path, version)))

    def create_ephemeral(self, path: str, data: bytes) -> None:
        """Make an entry that lasts as long as the session."""
        self._steps.append(("create", (path, data, None, True)))

    async def took_effect(self, session: Session, deadline_s: float) -> bool:
        """Try. Whether it surely took effect; if not, the caller has to look anew, and will see what is true then."""
        try:
            results = await session.call(self._commit, deadline_s)
        except Interrupted:
            await session.pause(deadline_s)
            return False
        if not any(isinstance(result, Exception) for result in results):
            return True
        # The server that we read from may lag behind: without this, what refused us might not be seen for a while.
        await session.sure(lambda c: c.sync_async("/"), deadline_s)
        return False

    def _commit(self, client: KazooClient) -> Any:
        transaction = TransactionRequest(client)
        for name, arguments in self._steps:
            getattr(transaction, name)(*arguments)
        return transaction.commit_async()
