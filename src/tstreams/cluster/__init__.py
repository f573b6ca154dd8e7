"""The cluster: who is there, who leads which shard, and where shards should be."""

from __future__ import annotations

from .coordination import (
    Cluster,
    Coordination,
    Leader,
    Node,
    Outdated,
    Placement,
    SessionState,
)
from .view import Changes, View

__all__ = [
    "Changes",
    "Cluster",
    "Coordination",
    "Leader",
    "Node",
    "Outdated",
    "Placement",
    "SessionState",
    "View",
]
