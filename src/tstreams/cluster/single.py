"""Coordination of a cluster that is one process: it leads everything, and nobody else does.

A lock keeps a second process off the folder, and the cluster's identity is a file in it. Epochs come from the log:
`lead` counts on from the one that the caller has seen there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ..errors import AlreadyExists, Corrupt, InvalidState, NotFound
from ..lock import DirectoryLock
from .coordination import (
    Cluster,
    Leader,
    Node,
    Outdated,
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

FILE = "cluster"


class _Kept(msgspec.Struct, frozen=True):
    """What the file holds."""

    version: int
    cluster: Cluster


def create_cluster(folder: Path, cluster: Cluster) -> None:
    """Make the cluster of a folder. `AlreadyExists` if it has one."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{FILE}.{os.getpid()}"
    _write(fresh, _Kept(0, cluster))
    try:
        os.link(fresh, folder / FILE)  # unlike a rename, this fails if there is one
    except FileExistsError:
        raise AlreadyExists(
            f"{folder} has a cluster already: {_read(folder).cluster.name}"
        ) from None
    finally:
        fresh.unlink()
    _sync(folder)


class SingleCoordination:
    """Coordination of one process. Its session lasts from `start` to `close`.

    `locked` says that the caller holds the lock of the folder already. Placement is not kept: it says each time
    that everything is here, until something else is said.
    """

    def __init__(self, folder: Path, node: Node, *, locked: bool = False) -> None:
        self._folder = folder
        self._node = node
        self._locked = locked
        self._lock: DirectoryLock | None = None
        self._kept: _Kept | None = None
        self._view = View(0)
        self._watches = Watches()
        self._standing = Standing(self._watches)
        self._directing = False

    @property
    def cluster(self) -> Cluster:
        """The cluster that this node is."""
        return self._open().cluster

    @property
    def view(self) -> View:
        """Who is there (this node), who leads (this node), and where shards should be."""
        return self._view

    @property
    def session(self) -> SessionState:
        """NEW, CONNECTED or CLOSED: nothing can be lost here."""
        return self._standing.state

    @property
    def directing(self) -> bool:
        """Whether it stands for it."""
        return self._directing

    def alive(self) -> bool:
        """Whether it is started and not closed."""
        return self._standing.state is SessionState.CONNECTED

    def leads(self, shard: int) -> int | None:
        """The epoch in which this node leads a shard; None if it does not."""
        leader = self._view.leaders.get(shard)
        return leader.epoch if leader is not None else None

    def on_session(self, callback: SessionCallback) -> None:
        """Be called with every new state."""
        self._standing.tell(callback)

    def watch(self) -> Watch:
        """Be told of changes from now on."""
        return self._watches.add()

    async def start(self) -> None:
        """Lock the folder and read the cluster. `InvalidState` if another process has it, `NotFound` if there is
        no cluster."""
        if self._standing.state is not SessionState.NEW:
            raise InvalidState("this coordination was started before")
        lock = None if self._locked else DirectoryLock(self._folder)
        try:
            kept = _read(self._folder)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        self._lock = lock
        self._kept = kept
        view = self._view
        view.cluster_version = kept.version
        view.nodes[self._node.id] = self._node
        view.placement = Placement(0, ((self._node.id,),) * kept.cluster.shards)
        self._standing.become(SessionState.CONNECTED)
        self._watches.tell(Changes(nodes=True, placement=True, cluster=True))

    async def reconfigure(self, cluster: Cluster, *, version: int) -> int:
        """Change the settings, durably, if they still have this version. The new one, or `Outdated`."""
        kept = self._open()
        check_settings(kept.cluster, cluster)
        if kept.version != version:
            raise Outdated(f"the settings have version {kept.version}, not {version}")
        fresh = self._folder / f".{FILE}.{os.getpid()}"
        kept = _Kept(version + 1, cluster)
        _write(fresh, kept)
        fresh.replace(self._folder / FILE)
        _sync(self._folder)
        self._kept = kept
        self._view.cluster_version = kept.version
        self._watches.tell(Changes(cluster=True))
        return kept.version

    async def update(
        self,
        *,
        load: float | None = None,
        shard_loads: Mapping[int, float] | None = None,
        draining: bool | None = None,
        leaving: bool | None = None,
        holds: Sequence[int] | None = None,
    ) -> None:
        """Change this node's entry. What is not named stays."""
        self._open()
        self._node = changed_node(self._node, load, shard_loads, draining, leaving, holds)
        self._view.nodes[self._node.id] = self._node
        self._watches.tell(Changes(nodes=True))

    async def lead(
        self, shard: int, *, above: int = 0, instead_of: Leader | None = None
    ) -> int | None:
        """Lead a shard, in an epoch above `above`, or in the one in which it is led already. Nobody else ever does."""
        check_shard(self._open().cluster, shard)
        led = self._view.leaders.get(shard)
        if led is not None:
            return led.epoch
        epoch = max(self._view.epochs.get(shard, 0), above) + 1
        self._view.led_by(shard, Leader(self._node.id, epoch))
        self._watches.tell(Changes(leaders=frozenset((shard,))))
        return epoch

    def note_leader(self, shard: int, leader: Leader) -> None:
        """There is nobody who could say so."""

    async def release(self, shard: int) -> None:
        """Lead it no longer."""
        check_shard(self._open().cluster, shard)
        if self._view.led_by(shard, None):
            self._watches.tell(Changes(leaders=frozenset((shard,))))

    async def stand(self) -> None:
        """Direct."""
        self._open()
        self._direct(True)

    async def withdraw(self) -> None:
        """Direct no longer."""
        self._open()
        self._direct(False)

    async def place(self, shards: Sequence[Sequence[str]], *, version: int) -> int:
        """Say where shards should be, if the placement still has this version. The new one, or `Outdated`."""
        cluster = self._open().cluster
        if not self._directing:
            raise InvalidState("this node does not direct, so it cannot say where shards should be")
        wanted = check_placement(shards, cluster.shards)
        if self._view.placement.version != version:
            raise Outdated(
                f"the placement has version {self._view.placement.version}, not {version}"
            )
        self._view.placement = Placement(version + 1, wanted)
        self._watches.tell(Changes(placement=True))
        return version + 1

    async def intend(self, intentions: Intentions, *, version: int) -> int:
        """Say what operators want. It is not kept: there is nowhere else to go."""
        self._open()
        if self._view.intentions_version != version:
            raise Outdated(
                f"what operators want has version {self._view.intentions_version}, not {version}"
            )
        self._view.intentions = intentions
        self._view.intentions_version = version + 1
        self._watches.tell(Changes(intentions=True))
        return version + 1

    async def close(self) -> None:
        """Give the folder back."""
        if self._standing.state is SessionState.CLOSED:
            return
        self._directing = False
        self._view.leaders.clear()
        self._standing.become(SessionState.CLOSED)
        self._watches.end()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _open(self) -> _Kept:
        if self._kept is None or self._standing.state is SessionState.CLOSED:
            raise InvalidState(f"this coordination is {self._standing.state.value}")
        return self._kept

    def _direct(self, directing: bool) -> None:
        if self._directing == directing:
            return
        self._directing = directing
        self._view.director = self._node.id if directing else None
        self._watches.tell(Changes(director=True))


def _read(folder: Path) -> _Kept:
    path = folder / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Kept)
    except FileNotFoundError:
        raise NotFound(f"there is no cluster in {folder}: create one") from None
    except msgspec.DecodeError as error:
        raise Corrupt(f"{path} does not describe a cluster: {error}") from None


def _write(path: Path, kept: _Kept) -> None:
    with path.open("wb") as file:
        file.write(msgspec.json.encode(kept))
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
