"""What operators want of a cluster: kept by the coordination service, changed by compare-and-set, heeded by the director."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..limits import REMOVED_NODES_MAX
from .coordination import Node


class Intentions(msgspec.Struct, frozen=True, kw_only=True):
    """What operators want. A node may be named that is not there at this moment, or never comes back."""

    draining: tuple[str, ...] = ()
    """Nodes that should lead nothing and hold nothing."""
    leaders: dict[int, str] = {}
    """Shards whose leader an operator has chosen. Who is gone or drains does not lead all the same."""
    removed: tuple[str, ...] = ()
    """Nodes that will not come back: nobody waits for them. The newest last; those that do come back are nodes as
    any other."""
    rebalances: int = 0
    """How often everything was to be made even in one go."""

    def drain(self, node: str, draining: bool) -> Intentions:
        """Let a node drain, or let it drain no longer."""
        others = tuple(it for it in self.draining if it != node)
        return msgspec.structs.replace(self, draining=(*others, node) if draining else others)

    def lead(self, leaders: Mapping[int, str]) -> Intentions:
        """Choose leaders, beside those that were chosen before."""
        return msgspec.structs.replace(self, leaders={**self.leaders, **leaders})

    def remove(self, node: str) -> Intentions:
        """Forget a node, and all that was wanted of it."""
        return Intentions(
            draining=tuple(it for it in self.draining if it != node),
            leaders={shard: it for shard, it in self.leaders.items() if it != node},
            removed=(*(it for it in self.removed if it != node), node)[-REMOVED_NODES_MAX:],
            rebalances=self.rebalances,
        )

    def rebalance(self) -> Intentions:
        """Make everything even, and choose no leaders any more."""
        return msgspec.structs.replace(self, leaders={}, rebalances=self.rebalances + 1)

    def heeded(self, node: Node) -> Node:
        """A node, as operators want it."""
        if node.id not in self.draining:
            return node
        return msgspec.structs.replace(node, draining=True)
