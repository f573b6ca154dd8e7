"""Who leads meanwhile, what is said on the way to another placement, and what operators want."""

from __future__ import annotations

import msgspec

from tstreams.cluster.coordination import Node, Placement, leader_among, new_cluster
from tstreams.cluster.director import GONE_AFTER_S, Director
from tstreams.cluster.intentions import Intentions
from tstreams.cluster.placement import in_steps, place
from tstreams.cluster.view import View
from tstreams.limits import REMOVED_NODES_MAX

SHARDS = 6
ALL = tuple(range(SHARDS))


def holding(*ids: str, holds: tuple[int, ...] = ALL) -> dict[str, Node]:
    return {it: Node(id=it, holds=holds) for it in ids}


# Who leads.


def test_the_first_that_is_there_leads() -> None:
    nodes = holding("a", "b", "c")
    assert leader_among(("a", "b", "c"), nodes, 0, None) == "a"
    assert leader_among(("a", "b", "c"), nodes, 0, "b") == "a"
    del nodes["a"]
    assert leader_among(("a", "b", "c"), nodes, 0, None) == "b"
    assert leader_among(("a", "b", "c"), {}, 0, None) is None


def test_whoever_leads_goes_on_until_the_first_has_opened_the_shard() -> None:
    nodes = holding("b", "c") | holding("a", holds=())
    assert leader_among(("a", "b", "c"), nodes, 0, "b") == "b"
    assert leader_among(("a", "b", "c"), nodes, 0, "c") == "c"
    nodes["a"] = Node(id="a", holds=(0,))
    assert leader_among(("a", "b", "c"), nodes, 0, "b") == "a"
    assert leader_among(("a", "b", "c"), nodes, 1, "b") == "b"


def test_without_a_leader_one_that_has_the_shard_is_preferred() -> None:
    nodes = holding("a", "b", holds=()) | holding("c")
    assert leader_among(("a", "b", "c"), nodes, 0, None) == "c"
    assert leader_among(("a", "b"), nodes, 0, None) == "a"  # somebody must begin


def test_who_leaves_leads_only_if_nobody_else_is_there() -> None:
    nodes = holding("a", "b")
    nodes["a"] = msgspec.structs.replace(nodes["a"], leaving=True)
    assert leader_among(("a", "b"), nodes, 0, "a") == "b"
    del nodes["b"]
    assert leader_among(("a", "b"), nodes, 0, "a") == "a"


# What is said on the way.


def test_whoever_has_a_shard_keeps_it_until_the_others_have_it_too() -> None:
    nodes = holding("a", "b", "c") | holding("d", holds=())
    before, after = (("a", "b", "c"),), (("d", "a", "b"),)
    assert in_steps(before, after, nodes) == (("d", "a", "b", "c"),)
    nodes["d"] = Node(id="d", holds=(0,))
    assert in_steps(before, after, nodes) == after
    assert in_steps((("d", "a", "b", "c"),), after, nodes) == after


def test_nobody_waits_for_a_node_that_is_not_there() -> None:
    nodes = holding("a", "b", "c")
    assert in_steps((("a", "c"),), (("a", "gone"),), nodes) == (("a", "gone"),)
    assert in_steps((("gone",),), (("a",),), nodes | holding("a", holds=())) == (("a",),)


# What operators want.


def test_chosen_leaders_lead_however_uneven_it_is() -> None:
    nodes = list(holding("a", "b", "c").values())
    present = place(nodes, [()] * SHARDS, [1.0] * SHARDS, replicas=2)
    chosen = dict.fromkeys(range(SHARDS), "b")
    for _ in range(5):
        present = place(nodes, present, [1.0] * SHARDS, replicas=2, leaders=chosen)
        assert [it[0] for it in present] == ["b"] * SHARDS
        assert all(len(set(it)) == 2 for it in present)
    alone = place(nodes, present, [1.0] * SHARDS, replicas=1, leaders={0: "c"})
    assert alone[0] == ("c",)
    without = place(nodes, present, [1.0] * SHARDS, replicas=2, leaders={0: "gone", 99: "a"})
    assert {it[0] for it in without} == {"a", "b", "c"}


def test_what_is_wanted_of_a_node_ends_with_it() -> None:
    wanted = Intentions().drain("a", True).drain("b", True).lead({1: "a", 2: "b"})
    assert wanted.draining == ("a", "b")
    assert wanted.remove("a") == Intentions(draining=("b",), leaders={2: "b"}, removed=("a",))
    assert wanted.drain("b", False).draining == ("a",)
    assert wanted.rebalance() == Intentions(draining=("a", "b"), rebalances=1)
    for n in range(REMOVED_NODES_MAX + 5):
        wanted = wanted.remove(f"n{n}")
    assert len(wanted.removed) == REMOVED_NODES_MAX
    assert wanted.removed[-1] == f"n{REMOVED_NODES_MAX + 4}"


# The director.


class Stage:
    """A cluster of two nodes for each shard, whose director decides again and again."""

    def __init__(self, *ids: str) -> None:
        self.view = View(SHARDS)
        self.view.nodes = holding(*ids)
        self.cluster = new_cluster("c", shards=SHARDS, replicas=2)
        self.director = Director()
        self.now_s = 0.0

    def decide(self) -> set[str]:
        """The nodes that have anything in the end."""
        for _ in range(4):
            shards = self.director.decide(self.cluster, self.view, self.now_s)
            self.view.placement = Placement(self.view.placement.version + 1, shards)
        return {it for places in shards for it in places}


def test_a_node_that_is_away_for_a_moment_keeps_its_shards() -> None:
    stage = Stage("a", "b", "c")
    assert stage.decide() == {"a", "b", "c"}
    before = stage.view.placement.shards
    away = stage.view.nodes.pop("a")
    stage.now_s += GONE_AFTER_S
    assert stage.decide() == {"a", "b", "c"}
    assert stage.view.placement.shards == before
    stage.now_s += 0.1
    assert stage.decide() == {"b", "c"}
    stage.view.nodes["a"] = away
    assert stage.decide() == {"a", "b", "c"}


def test_a_new_director_waits_for_those_whom_it_has_not_seen() -> None:
    stage = Stage("a", "b", "c")
    stage.decide()
    stage.director = Director()
    stage.now_s = 1000.0
    del stage.view.nodes["a"]
    assert stage.decide() == {"a", "b", "c"}
    stage.director.rest(stage.view)  # another one directs, for long
    stage.now_s += 2 * GONE_AFTER_S
    assert stage.decide() == {"a", "b", "c"}
    stage.now_s += GONE_AFTER_S + 0.1
    assert stage.decide() == {"b", "c"}


def test_nobody_waits_for_a_node_that_was_removed() -> None:
    stage = Stage("a", "b", "c")
    stage.decide()
    away = stage.view.nodes.pop("a")
    stage.view.intentions = Intentions().remove("a")
    assert stage.decide() == {"b", "c"}
    stage.view.nodes["a"] = away  # it comes back all the same
    assert stage.decide() == {"a", "b", "c"}


def test_a_node_that_drains_holds_nothing_as_soon_as_others_do() -> None:
    stage = Stage("a", "b", "c")
    stage.decide()
    stage.view.nodes |= holding("d", holds=())
    stage.view.intentions = Intentions().drain("a", True)
    assert stage.decide() == {"a", "b", "c", "d"}
    stage.view.nodes |= holding("d")
    assert stage.decide() == {"b", "c", "d"}
    stage.view.intentions = Intentions()
    assert stage.decide() == {"a", "b", "c", "d"}


def test_all_that_is_uneven_moves_in_one_go_if_that_is_wanted() -> None:
    stage = Stage("a", "b")
    stage.cluster = new_cluster("c", shards=100, replicas=1)
    stage.view = View(100)
    stage.view.nodes = holding("a", "b", holds=tuple(range(100)))
    stage.view.placement = Placement(0, (("a",),) * 100)
    some = stage.director.decide(stage.cluster, stage.view, 0.0)
    assert sum(it == ("b",) for it in some) == 16
    stage.view.intentions = Intentions().rebalance()
    most = stage.director.decide(stage.cluster, stage.view, 0.0)
    assert sum(it == ("b",) for it in most) > 40
