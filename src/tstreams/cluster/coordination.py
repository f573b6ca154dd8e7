"""The coordination port: what nodes agree on, and all that a coordination service has to provide.

It knows the cluster, its nodes, who leads which shard in which epoch, where shards should be, and what operators
want. It does not know streams. The rules that every implementation keeps:
- a cluster is created once; its id and its number of shards never change;
- the epochs of a shard only rise, whoever leads it, whatever is restarted or lost in between;
- of one shard there is at most one leader entry, and it is gone soon after the session of its node;
- placement, settings and what operators want change by compare-and-set only: nobody undoes what they have not seen;
- a node learns that its session is lost no later than others may take over, as far as its own clock runs evenly.
  Nothing depends on that: a leader that does not notice is refused by the log.

All of it belongs to one event loop. What has to wait is a coroutine; nothing else blocks.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from ..cluster_settings import cluster_name_problems
from ..errors import BadRequest, InvalidState
from ..limits import SHARDS_MAX

if TYPE_CHECKING:
    from .intentions import Intentions
    from .view import View, Watch

Setting: TypeAlias = str | int | float | bool


class Outdated(InvalidState):
    """What was to be changed has changed meanwhile. Nothing was done: look again, then decide again."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster's identity and settings. `id` and `shards` never change."""

    name: str
    id: str
    """Made with the cluster. Nodes keep it with their data, and refuse a cluster of another id."""
    shards: int
    replicas: int = 3
    """How many nodes a shard should be on, leader included."""
    engine: str = "local"
    """What keeps the log."""
    engine_settings: dict[str, Setting] = {}
    secret: str = ""
    """By which its nodes know each other: 32 bytes in hex, made with the cluster. It is shown to nobody."""


def new_cluster(
    name: str,
    *,
    shards: int = 32,
    replicas: int = 3,
    engine: str = "local",
    engine_settings: Mapping[str, Setting] | None = None,
) -> Cluster:
    """A cluster with an id of its own, not yet known to anyone. `BadRequest` for what makes no sense."""
    if problems := cluster_name_problems(name):
        raise BadRequest(problems[0])
    if not 1 <= shards <= SHARDS_MAX:
        raise BadRequest(f"a cluster has 1 to {SHARDS_MAX} shards, not {shards}")
    if replicas < 1:
        raise BadRequest(f"a shard is on one node at least, not on {replicas}")
    return Cluster(
        name=name,
        id=secrets.token_hex(8),
        shards=shards,
        replicas=replicas,
        engine=engine,
        engine_settings=dict(engine_settings or {}),
        secret=secrets.token_hex(32),
    )


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as it tells the others of itself. Its entry is gone soon after its session."""

    id: str
    addresses: tuple[str, ...] = ()
    """Where clients connect to, such as `tcp://10.0.0.7:7070`."""
    http: str | None = None
    """The front door, if it has one."""
    load: float = 0.0
    """How busy it is, of 1.0."""
    shard_loads: dict[int, float] = {}
    """How much each shard that it leads has to do, in any unit that all nodes share."""
    draining: bool = False
    """It is about to go: it should lead nothing, and hold nothing."""
    leaving: bool = False
    """It is about to end, and may be back soon: it leads nothing if another can."""
    holds: tuple[int, ...] = ()
    """The shards that it has open and follows or leads, in order: it can lead them at once."""


class Leader(msgspec.Struct, frozen=True):
    """Who leads a shard, and in which epoch."""

    node: str
    epoch: int


class Placement(msgspec.Struct, frozen=True):
    """Where shards should be. `shards[n]` are the nodes of shard n, the leader first; empty: nowhere yet."""

    version: int
    """Counted up with every change. Whoever changes a placement names the version that they have seen."""
    shards: tuple[tuple[str, ...], ...]

    def of(self, shard: int) -> tuple[str, ...]:
        """The nodes of a shard; none while nothing is known of the cluster yet."""
        return self.shards[shard] if shard < len(self.shards) else ()


class SessionState(Enum):
    """How a node stands with the coordination service."""

    NEW = "new"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is gone, the session is not, as far as is known: go on."""
    LOST = "lost"
    """Others may lead by now: stop acknowledging at once. All leaderships are over. A new session is sought."""
    CLOSED = "closed"
    """Closed by its owner, or it cannot go on: then every call says why."""


NEXT_SESSION_STATES: dict[SessionState, frozenset[SessionState]] = {
    SessionState.NEW: frozenset({SessionState.CONNECTED, SessionState.CLOSED}),
    SessionState.CONNECTED: frozenset(
        {SessionState.SUSPENDED, SessionState.LOST, SessionState.CLOSED}
    ),
    SessionState.SUSPENDED: frozenset(
        {SessionState.CONNECTED, SessionState.LOST, SessionState.CLOSED}
    ),
    SessionState.LOST: frozenset({SessionState.CONNECTED, SessionState.CLOSED}),
    SessionState.CLOSED: frozenset(),
}

SessionCallback: TypeAlias = Callable[[SessionState], None]


class Coordination(Protocol):
    """What a node needs of a coordination service.

    Calls that wait raise `Timeout` when their time is up (whether they took effect is not known), `Unavailable` when
    the session was lost under them, `InvalidState` before `start` and after `close`, and `Fenced` when another
    process has come as the same node. Cancelling one leaves its effect unknown too.
    """

    @property
    def cluster(self) -> Cluster:
        """The cluster that this node is part of."""

    @property
    def view(self) -> View:
        """Who is there, who leads, and where shards should be, as far as it is known here."""

    @property
    def session(self) -> SessionState:
        """How this node stands with the service."""

    @property
    def directing(self) -> bool:
        """Whether this node is the one that decides on placement."""

    def alive(self) -> bool:
        """Whether the session surely lasts at this moment. Costs next to nothing: ask before acknowledging."""

    def leads(self, shard: int) -> int | None:
        """The epoch in which this node leads a shard in its present session; None if it does not."""

    def on_session(self, callback: SessionCallback) -> None:
        """Be called in the loop with every new state of the session, at once, before anything else is told."""

    def watch(self) -> Watch:
        """Be told of changes from now on: `async for changes in coordination.watch()`."""

    async def start(self) -> None:
        """Connect, register the node and learn how things are. `NotFound` if there is no such cluster."""

    async def reconfigure(self, cluster: Cluster, *, version: int) -> int:
        """Change the cluster's settings, if `view.cluster_version` still is this. The new version, or `Outdated`."""

    async def update(
        self,
        *,
        load: float | None = None,
        shard_loads: Mapping[int, float] | None = None,
        draining: bool | None = None,
        leaving: bool | None = None,
        holds: Sequence[int] | None = None,
    ) -> None:
        """Tell the others something new of this node. What is not named stays."""

    async def lead(
        self, shard: int, *, above: int = 0, instead_of: Leader | None = None
    ) -> int | None:
        """Become the leader of a shard if nobody else is, or only `instead_of`, who has agreed, and leads in no other epoch
        by now: the epoch, or None if another leads. `instead_of` may go on until it hears of it.

        The epoch is greater than all before it, and than `above`, which the caller has seen in the log. Asking
        again for what this session leads already gives the same epoch.
        """

    def note_leader(self, shard: int, leader: Leader) -> None:
        """Another node has said that it leads a shard, by what the service says: known here before the service tells.
        If this node led it in an earlier epoch it does no longer."""

    async def release(self, shard: int) -> None:
        """Lead a shard no longer. Others may at once. Without effect if this session does not lead it."""

    async def stand(self) -> None:
        """Be ready to direct: now, or whenever the place becomes free, until `withdraw`, in later sessions too."""

    async def withdraw(self) -> None:
        """Direct no longer, and stand no longer."""

    async def place(self, shards: Sequence[Sequence[str]], *, version: int) -> int:
        """Say where shards should be, if the placement still has this version. The new one, or `Outdated`.
        `InvalidState` on a node that does not direct."""

    async def intend(self, intentions: Intentions, *, version: int) -> int:
        """Say what operators want, if `view.intentions_version` still is this. The new version, or `Outdated`."""

    async def close(self) -> None:
        """Leave: the node's entry and all that it leads are given up. Closing twice does nothing."""


def changed_node(
    node: Node,
    load: float | None,
    shard_loads: Mapping[int, float] | None,
    draining: bool | None,
    leaving: bool | None,
    holds: Sequence[int] | None,
) -> Node:
    """What `update` makes of a node's entry."""
    given: dict[str, object] = {"load": load, "draining": draining, "leaving": leaving}
    given["shard_loads"] = None if shard_loads is None else dict(shard_loads)
    given["holds"] = None if holds is None else tuple(holds)
    changes = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(node, **changes)


def leader_among(
    places: Sequence[str], nodes: Mapping[str, Node], shard: int, leader: str | None
) -> str | None:
    """Who should lead a shard at this moment: the first of its places that is there and does not leave. `leader` leads
    it now, and goes on until that one has it open: nobody waits for a node that is still starting."""
    present = [nodes[it] for it in places if it in nodes]
    able = [it for it in present if not it.leaving] or present
    if not able:
        return None
    ready = [it.id for it in able if shard in it.holds]
    if able[0].id in ready or (not ready and leader is None):
        return able[0].id
    if leader is not None and any(it.id == leader for it in able):
        return leader
    return ready[0] if ready else able[0].id


def check_placement(shards: Sequence[Sequence[str]], expected: int) -> tuple[tuple[str, ...], ...]:
    """A placement in its lasting form. `BadRequest` if it is none."""
    if len(shards) != expected:
        raise BadRequest(f"a placement of {len(shards)} shards, in a cluster that has {expected}")
    for shard, nodes in enumerate(shards):
        if len(set(nodes)) != len(nodes):
            raise BadRequest(f"shard {shard} would be on one node twice: {', '.join(nodes)}")
    return tuple(tuple(nodes) for nodes in shards)


def check_settings(present: Cluster, wanted: Cluster) -> None:
    """`BadRequest` if this would change what never changes."""
    if (present.name, present.id, present.shards) != (wanted.name, wanted.id, wanted.shards):
        raise BadRequest(
            f"the name, the id and the number of shards of a cluster never change: it is {present.name} "
            f"({present.id}) with {present.shards} shards"
        )


def check_shard(cluster: Cluster, shard: int) -> None:
    """`BadRequest` if the cluster has no such shard."""
    if not 0 <= shard < cluster.shards:
        raise BadRequest(f"there is no shard {shard}: the cluster has 0 to {cluster.shards - 1}")
