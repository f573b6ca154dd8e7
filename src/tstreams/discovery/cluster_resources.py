"""What travels as JSON about a cluster: itself, the health of what it stands on, its nodes and its shards.

See `resources` for what all of them have in common.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec

from ..limits import SHARDS_MAX
from .resources import Body, Resource, Shard, Whole

NodeId: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
ShardNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=SHARDS_MAX)]


class Cluster(Resource, frozen=True):
    """A cluster, as the node that answers knows it. A server that stands alone is one of one node, without a name."""

    name: str
    """Empty: the server stands alone."""
    id: str
    engine: str
    """What keeps the logs; `local`: files of the server itself."""
    engine_settings: dict[str, str]
    replicas: int
    """On how many nodes each shard should be, leader included."""
    shards: int
    shards_led: int
    """How many of them have a leader at this moment."""
    chosen_leaders: int
    """How many have a leader whom operators have chosen."""
    nodes: int
    nodes_live: int
    node: str
    """The node that answers."""
    director: str | None
    """The node that decides where shards should be; null: nobody at this moment."""
    session: str
    """How the node that answers stands with the coordination service: `connected`, `suspended`, `lost` or `closed`."""
    placement_version: int
    """Counted up whenever it is decided anew where shards should be."""
    settled: bool
    """Whether every shard is where it should be, and led by whom it should be."""


class ServerHealth(Resource, frozen=True):
    """A server that the cluster stands on."""

    address: str
    name: str
    """What it calls itself; of a server of ZooKeeper whether it leads or follows."""
    version: str
    problem: str | None
    """null: it is well."""


class ClusterHealth(Resource, frozen=True):
    """How a cluster is. `degraded`: everything works, but less may go wrong from now on than should be possible.
    `failing`: something does not work."""

    status: Literal["ok", "degraded", "failing"]
    problems: list[str]
    """What is wrong, in words."""
    engine: list[ServerHealth]
    coordination: list[ServerHealth]


class Node(Resource, frozen=True):
    """A node: a storage server, and where it is reached."""

    id: str
    version: str
    """Empty: it could not be asked."""
    addresses: list[str]
    """For clients: tcp://host:port, and what else it listens on."""
    http: str
    started: datetime | None
    """null: it could not be asked."""
    shards: list[Shard]
    """Those that it leads or follows at this moment."""
    live: bool
    """Whether it is there. One that is not has shards that it should have, or was drained."""
    load: float
    """How busy it is, of 1.0."""
    draining: bool
    """Whether it should lead nothing and hold nothing."""
    leaving: bool
    """Whether it is about to end."""
    leads: Whole
    follows: Whole
    placed: Whole
    """How many shards should be on it. A node that has drained has none."""


class NodePage(Resource, frozen=True):
    """All nodes, in the order of their ids."""

    items: list[Node]
    next: str | None


class NodeChange(Body, frozen=True):
    """What is to be changed of a node."""

    draining: bool
    """Whether it should give all its shards to others, and get none."""


class Follower(Resource, frozen=True):
    """A node that should have a copy of a shard, and does not lead it."""

    node: str
    live: bool
    in_sync: bool
    """Whether it could lead at once: it has the shard open, and lacks next to nothing of its log."""
    behind_bytes: int | None
    """How much of the log it has not applied; null: it could not be asked, or is too far behind to tell."""


class ShardDetail(Resource, frozen=True):
    """A shard: who leads it, who follows, and who should."""

    shard: int
    epoch: int
    """Rises whenever another node, or another life of the same, has taken the shard over."""
    leader: str | None
    """null: nobody at this moment."""
    addresses: list[str]
    """Of the leader."""
    followers: list[Follower]
    chosen: str | None
    """Whom operators have chosen to lead it; null: whoever the load makes."""
    load: float
    """How much it has to do, as its leader tells; 0: it does not."""


class ShardPage(Resource, frozen=True):
    """Shards, in the order of their numbers."""

    items: list[ShardDetail]
    next: str | None


class ShardChange(Body, frozen=True):
    """What is to be changed of a shard."""

    leader: NodeId | None
    """The node that should lead it, from now on; null: whoever the load makes."""
