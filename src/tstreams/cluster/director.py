"""The director: which placement follows from what a node sees of the cluster, while it is the one that decides on it."""

from __future__ import annotations

from .coordination import Cluster, Node
from .placement import MOVES_MAX, Places, in_steps, loads_of, place
from .view import View

GONE_AFTER_S = 30.0
"""A node that was not seen for so long gets its shards replaced. One that only restarts comes back to its own."""


class Director:
    """Remembers which nodes were there lately. Without I/O, and without a clock of its own."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, Node]] = {}
        """The nodes that were there, and when they were seen last."""
        self._rebalanced = 0
        """How often operators had asked for everything to be made even, when it was placed last."""

    def rest(self, view: View) -> None:
        """Another node directs. Whoever is gone when this one begins to may be about to come back."""
        self._seen.clear()
        self._rebalanced = view.intentions.rebalances

    def decide(self, cluster: Cluster, view: View, now_s: float) -> Places:
        """Where shards should be next. The same as before if nothing is to be done."""
        before, wanted = view.placement.shards, view.intentions
        nodes = [wanted.heeded(it) for it in self._nodes(view, now_s)]
        at_once = wanted.rebalances != self._rebalanced
        self._rebalanced = wanted.rebalances
        after = place(
            nodes,
            before,
            loads_of(nodes, cluster.shards),
            replicas=cluster.replicas,
            moves_max=cluster.replicas * cluster.shards if at_once else MOVES_MAX,
            leaders=wanted.leaders,
        )
        return in_steps(before, after, view.nodes)

    def _nodes(self, view: View, now_s: float) -> list[Node]:
        """Those that are there, and those that may come back."""
        placed = {it for places in view.placement.shards for it in places}
        self._seen |= {it: (now_s, Node(id=it)) for it in placed - self._seen.keys()}
        self._seen |= {it.id: (now_s, it) for it in view.nodes.values()}
        for node in view.intentions.removed:
            if node not in view.nodes:
                self._seen.pop(node, None)
        found = {
            id_: it for id_, (seen_s, it) in self._seen.items() if now_s - seen_s <= GONE_AFTER_S
        }
        # Who is gone for good is forgotten when it is placed nowhere: or it would count as new again.
        self._seen = {id_: it for id_, it in self._seen.items() if id_ in placed or id_ in found}
        return list(found.values())
