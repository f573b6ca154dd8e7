"""Where things lie in ZooKeeper, and what the entries hold.

```text
/tstreams/NAME/cluster          the cluster, as JSON; made last, so what is there is whole
/tstreams/NAME/nodes/ID         ephemeral: a node, as JSON
/tstreams/NAME/shards/N/epoch   the greatest epoch, as decimal digits; never deleted
/tstreams/NAME/shards/N/leader  ephemeral: node and epoch, as JSON; made and raised in one transaction
/tstreams/NAME/placement        where shards should be, as JSON; its version is ZooKeeper's
/tstreams/NAME/director         ephemeral: the id of the node that decides on placement
/tstreams/NAME/intentions       what operators want, as JSON; its version is ZooKeeper's
```
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ..errors import BadRequest, Corrupt, TooLarge
from ..limits import NODE_ENTRY_BYTES_MAX
from .coordination import Cluster, Leader, Node, Placement
from .intentions import Intentions

T = TypeVar("T")


class ZooKeeperSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a cluster."""

    hosts: str = "127.0.0.1:2181"
    """Servers of ZooKeeper, `host:port` with commas between them; a path behind them is where it all begins."""
    cluster: str = "main"
    session_timeout_s: float = 4.0
    """After so long without a word from a node others may lead what it led. ZooKeeper allows 2 to 20 of its ticks."""


class Layout:
    """The paths of one cluster. `root` is where in ZooKeeper it all begins: empty, or a path."""

    def __init__(self, root: str, name: str) -> None:
        if root and (not root.startswith("/") or root.endswith("/") or "//" in root):
            raise BadRequest(f"{root!r} is no path in ZooKeeper")
        self.base = f"{root}/tstreams/{name}"
        self.cluster = f"{self.base}/cluster"
        self.nodes = f"{self.base}/nodes"
        self.shards = f"{self.base}/shards"
        self.placement = f"{self.base}/placement"
        self.director = f"{self.base}/director"
        self.intentions = f"{self.base}/intentions"

    def node(self, node_id: str) -> str:
        """The entry of a node."""
        return f"{self.nodes}/{node_id}"

    def shard(self, shard: int) -> str:
        """What a shard's entries are under."""
        return f"{self.shards}/{shard}"

    def epoch(self, shard: int) -> str:
        """The greatest epoch of a shard."""
        return f"{self.shards}/{shard}/epoch"

    def leader(self, shard: int) -> str:
        """The leader of a shard."""
        return f"{self.shards}/{shard}/leader"

    def node_in(self, path: str) -> str | None:
        """The node whose entry this is; None if it is none of a node."""
        return path[len(self.nodes) + 1 :] if path.startswith(f"{self.nodes}/") else None

    def led_shard_in(self, path: str) -> int | None:
        """The shard whose leader's entry this is; None if it is none of a leader."""
        if not path.startswith(f"{self.shards}/") or not path.endswith("/leader"):
            return None
        return int(path[len(self.shards) + 1 : -len("/leader")])


def split_hosts(hosts: str) -> tuple[str, str]:
    """Take `host:port,host:port/some/path` apart: the servers, and where in ZooKeeper to begin."""
    servers, slash, path = hosts.partition("/")
    if not servers or any(not server for server in servers.split(",")):
        raise BadRequest(f"{hosts!r} names no servers: host:port, with commas between them")
    return servers, (slash + path).rstrip("/")


class _Packed(msgspec.Struct, frozen=True):
    """A placement, with each node's id written once: 1024 shards on three nodes each are 15 KB."""

    nodes: list[str]
    shards: list[list[int]]


def pack_placement(shards: Sequence[Sequence[str]]) -> bytes:
    """A placement as bytes; the same for the same placement."""
    nodes = sorted({node for shard in shards for node in shard})
    number = {node: at for at, node in enumerate(nodes)}
    return msgspec.json.encode(
        _Packed(nodes, [[number[node] for node in shard] for shard in shards])
    )


def unpack_placement(data: bytes, version: int, shards: int) -> Placement:
    """A placement from its bytes. `Corrupt` if they are none, or one of another number of shards."""
    packed = _decode(data, _Packed, "placement")
    try:
        placed = tuple(tuple(packed.nodes[at] for at in shard) for shard in packed.shards)
    except IndexError:
        raise Corrupt(
            "ZooKeeper's entry for the placement names nodes that it does not list"
        ) from None
    if len(placed) != shards:
        raise Corrupt(f"ZooKeeper's entry for the placement has {len(placed)} shards, not {shards}")
    return Placement(version, placed)


def pack_node(node: Node) -> bytes:
    """A node as bytes. `TooLarge` if it says too much of itself."""
    data = msgspec.json.encode(node)
    if len(data) > NODE_ENTRY_BYTES_MAX:
        raise TooLarge(
            f"what node {node.id} tells of itself has {len(data)} bytes, {NODE_ENTRY_BYTES_MAX} at most fit"
        )
    return data


def unpack_node(data: bytes) -> Node:
    """A node from its bytes, or `Corrupt`."""
    return _decode(data, Node, "a node")


def unpack_leader(data: bytes) -> Leader:
    """A leader from its bytes, or `Corrupt`."""
    return _decode(data, Leader, "a leader")


def unpack_cluster(data: bytes) -> Cluster:
    """A cluster from its bytes, or `Corrupt`."""
    return _decode(data, Cluster, "the cluster")


def unpack_epoch(data: bytes) -> int:
    """An epoch from its bytes, or `Corrupt`."""
    if not data.isdigit():
        raise Corrupt(f"ZooKeeper's entry for an epoch holds {data[:40]!r}")
    return int(data)


def unpack_intentions(data: bytes) -> Intentions:
    """What operators want from its bytes, or `Corrupt`."""
    return _decode(data, Intentions, "what operators want")


def pack(value: Cluster | Leader | Intentions) -> bytes:
    """A cluster, a leader or what operators want as bytes."""
    return msgspec.json.encode(value)


def _decode(data: bytes, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise Corrupt(f"ZooKeeper's entry for {what} cannot be read: {error}") from None
