"""What a node knows of the cluster, and how its parts are told that it has changed."""

from __future__ import annotations

import asyncio

import msgspec

from .coordination import Leader, Node, Placement
from .intentions import Intentions


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What is different since the last time. The view says how it is now."""

    session: bool = False
    cluster: bool = False
    nodes: bool = False
    placement: bool = False
    director: bool = False
    intentions: bool = False
    leaders: frozenset[int] = frozenset()
    """The shards whose leader changed."""

    def and_also(self, other: Changes) -> Changes:
        """Both in one."""
        return Changes(
            session=self.session or other.session,
            cluster=self.cluster or other.cluster,
            nodes=self.nodes or other.nodes,
            placement=self.placement or other.placement,
            director=self.director or other.director,
            intentions=self.intentions or other.intentions,
            leaders=self.leaders | other.leaders,
        )


class View:
    """The cluster as this node sees it. Only the coordination of the node changes it.

    - The epoch of a shard's leader never goes back here, even if a server that lags behind says so.
    - While the session is suspended or lost it stays as it was last seen.
    """

    def __init__(self, shards: int) -> None:
        self.cluster_version = 0
        self.nodes: dict[str, Node] = {}
        self.leaders: dict[int, Leader] = {}
        self.placement = Placement(0, ((),) * shards)
        self.director: str | None = None
        self.intentions = Intentions()
        self.intentions_version = 0
        self.epochs: dict[int, int] = {}
        """The greatest epoch of each shard that was ever seen here."""

    def led_by(self, shard: int, leader: Leader | None) -> bool:
        """Note who leads a shard. Whether that is news; what is older than what was seen is none."""
        if leader is None:
            return self.leaders.pop(shard, None) is not None
        if leader.epoch < self.epochs.get(shard, 0) or self.leaders.get(shard) == leader:
            return False
        self.epochs[shard] = leader.epoch
        self.leaders[shard] = leader
        return True


class Watch:
    """Tells of changes, as an asynchronous iterator. One reader.

    A reader that is slow gets what has come together meanwhile as one: so nothing piles up, and nothing is missed.
    It ends when the coordination is closed, or the watch is.
    """

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self._pending: Changes | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> Changes:
        while self._pending is None:
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        changes, self._pending = self._pending, None
        return changes

    def close(self) -> None:
        """Be told no more."""
        self._watches.forget(self)
        self.end()

    def tell(self, changes: Changes) -> None:
        """Something has changed."""
        self._pending = changes if self._pending is None else self._pending.and_also(changes)
        self._wake()

    def end(self) -> None:
        """There will be nothing more. What is pending is still told."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Watches:
    """All watches of one coordination."""

    def __init__(self) -> None:
        self._watches: list[Watch] = []
        self._ended = False

    def add(self) -> Watch:
        """One more. It has ended already if the coordination is closed."""
        watch = Watch(self)
        if self._ended:
            watch.end()
        else:
            self._watches.append(watch)
        return watch

    def forget(self, watch: Watch) -> None:
        """Tell it no more."""
        if watch in self._watches:
            self._watches.remove(watch)

    def tell(self, changes: Changes) -> None:
        """Tell all of them that something has changed."""
        for watch in self._watches:
            watch.tell(changes)

    def end(self) -> None:
        """Nothing will change any more."""
        self._ended = True
        for watch in self._watches:
            watch.end()
        self._watches.clear()
