"""Which shards there are, and which connection leads to each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import sharding
from ...errors import BadRequest, Unavailable
from ...protocol import NodeInfo

if TYPE_CHECKING:
    from .link import Wire


class Route:
    """The way to a shard. Whoever talks to the shard keeps it, and looks at `wire` each time: that is another
    one when another node leads."""

    __slots__ = ("epoch", "shard", "wire")

    def __init__(self, shard: int, wire: Wire, epoch: int) -> None:
        self.shard = shard
        self.wire = wire
        """The connection to the node that leads the shard."""
        self.epoch = epoch
        """Of its leader, as far as we know."""


class ShardMap:
    """All shards of a server, and the way to each. One node leads them all, so there is one connection.

    Invariant: shard `k` is the one at `_routes[k]`: where things are follows from their names and the number of
    shards alone.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._routes: list[Route] = []
        self.is_one = False
        """Whether there is a single shard: then all that is asked for goes there."""

    def learn(self, node: NodeInfo) -> None:
        """What a node says of its shards. `Unavailable` if it has none yet, or not all."""
        if not node.shards:
            raise Unavailable("the server has no shards yet: try again later")
        if missing := sorted(set(range(node.total)) - set(node.shards)):
            raise Unavailable(f"nobody serves the shards {missing}: try again later")
        epochs = dict(zip(node.shards, node.epochs, strict=False))
        self._routes = [Route(it, self._wire, epochs.get(it, 0)) for it in range(node.total)]
        self.is_one = node.total == 1

    @property
    def numbers(self) -> list[int]:
        """All of them."""
        return list(range(len(self._routes)))

    def __len__(self) -> int:
        return len(self._routes)

    def __getitem__(self, shard: int) -> Route:
        try:
            return self._routes[shard]
        except IndexError:
            raise BadRequest(f"there is no shard {shard}") from None

    # Where things are.

    def home_of(self, stream: str) -> int:
        """The shard that knows a stream, and holds its partition 0."""
        return sharding.home_of(stream, len(self._routes))

    def shard_of(self, stream: str, partition: int) -> int:
        """The shard of a partition."""
        return sharding.shard_of(stream, partition, len(self._routes))

    def ring_of(self, stream: str, partitions: int) -> list[int]:
        """The shards of a stream: that of partition `p` is the one at `p % len(ring)`."""
        return sharding.shards_of(stream, partitions, len(self._routes))

    def home_of_job(self, job: str) -> int:
        """The shard that decides on the steps of a job."""
        return sharding.job_home(job, len(self._routes))
