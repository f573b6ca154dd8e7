"""Which shards there are, and which connection leads to each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ... import sharding
from ...errors import BadRequest, Corrupt, Unavailable
from ...limits import SHARDS_MAX
from ...protocol import NodeInfo, ReplicaInfo, ShardInfo

if TYPE_CHECKING:
    from .link import Wire
    from .routing import Routing
    from .stations import Station


class Route:
    """The way to a shard. Whoever talks to the shard keeps it, and looks at `wire` each time: that is another
    one when another node leads.

    Invariant: `epoch` only rises, and `leader` changes only when it does.
    """

    __slots__ = ("epoch", "followers", "leader", "reached", "shard", "station", "wire")

    def __init__(self, shard: int, wire: Wire, epoch: int) -> None:
        self.shard = shard
        self.wire = wire
        """The connection to the node that leads the shard, if it is `reached`; else any."""
        self.epoch = epoch
        """Of its leader, as far as we know."""
        self.leader: ReplicaInfo | None = None
        """The node that leads it, as far as we know. None: nobody has said. It is without a name if all that is known
        is what its predecessor called it."""
        self.followers: Sequence[ReplicaInfo] = ()
        """Other nodes that have it."""
        self.reached = True
        """Whether there is a connection to its leader: if nobody has asked for anything there is none yet."""
        self.station: Station | None = None
        """Whose wire it is, where there are several."""

    def accepts(self, info: ShardInfo) -> bool:
        """Whether this says something that is not older than what we know: a node that led once, and does not know
        that it does not any more, must not be believed."""
        if info.epoch != self.epoch or self.leader is None or info.leader is None:
            return info.epoch >= self.epoch
        return info.leader.node == self.leader.node or not self.leader.node


class ShardMap:
    """All shards of a server, or of a cluster, and the way to each.

    Invariant: shard `k` is the one at `_routes[k]`: where things are follows from their names and the number of
    shards alone, which never changes.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._routes: list[Route] = []
        self.is_one = False
        """Whether there is a single shard: then all that is asked for goes there."""
        self.routing: Routing | None = None
        """What finds the leaders of shards; None if there is one connection for all."""

    def learn(self, node: NodeInfo) -> None:
        """What a node says of the shards, for the first time. `Unavailable` if it is one of those that lead all they
        know of, and has none yet, or not all."""
        if len(node.map) != node.total:
            if not node.shards:
                raise Unavailable("the server has no shards yet: try again later")
            if missing := sorted(set(range(node.total)) - set(node.shards)):
                raise Unavailable(f"nobody serves the shards {missing}: try again later")
        if node.total > SHARDS_MAX:
            raise Corrupt(f"a server says that it has {node.total} shards: {SHARDS_MAX} at most")
        epochs = dict(zip(node.shards, node.epochs, strict=False))
        if self.routing is not None:
            epochs = {}  # the map has them, with who leads
        self._routes = [Route(it, self._wire, epochs.get(it, 0)) for it in range(node.total)]
        self.is_one = node.total == 1
        if self.routing is not None:
            self.routing.begin(self._routes, node)

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

    def reach(self, route: Route) -> Wire:
        """The connection to the leader of a shard, which is begun if there is none."""
        assert self.routing is not None, "one connection is enough for all others"
        return self.routing.reach(route)

    def follow(self, route: Route, wire: Wire) -> None:
        """Something was begun on a connection from which a shard has just moved away."""
        if self.routing is not None:
            self.routing.follow(route, wire)

    def follower(self, shard: int) -> Wire | None:
        """A connection to a node that follows a shard, if there is one that works."""
        return None if self.routing is None else self.routing.follower(self._routes[shard])

    def doubt(self, shard: int) -> None:
        """Who leads a shard has refused: find out who leads it now."""
        if self.routing is not None and shard < len(self._routes):
            self.routing.doubt(shard)

    def avoid(self, wire: Wire) -> None:
        """A follower has failed: ask others for a while."""
        if self.routing is not None:
            self.routing.avoid(wire)

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
