"""Where shards should be: what holds for every cluster that Hypothesis can think of."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.placement import run
from tstreams.cluster import Node
from tstreams.cluster.placement import MOVES_MAX, Places, difference, loads_of, place
from tstreams.errors import BadRequest

Drawn: TypeAlias = tuple[list[Node], list[list[str]], list[float], int]
NAMES = [f"n{number}" for number in range(8)]
node_lists = st.lists(
    st.builds(Node, id=st.sampled_from(NAMES), draining=st.booleans()),
    max_size=8,
    unique_by=lambda node: node.id,
)
loads = st.floats(min_value=0, max_value=1e9, allow_nan=False)


@st.composite
def clusters(draw: st.DrawFn) -> Drawn:
    """Nodes, a present placement of any kind (also on nodes that are gone), loads, replicas."""
    shards = draw(st.integers(1, 24))
    places = st.lists(st.sampled_from(NAMES), max_size=4, unique=True)
    return (
        draw(node_lists),
        draw(st.lists(places, min_size=shards, max_size=shards)),
        draw(st.lists(loads, min_size=shards, max_size=shards)),
        draw(st.integers(1, 4)),
    )


def settled(
    nodes: Sequence[Node],
    present: Sequence[Sequence[str]],
    weights: Sequence[float],
    replicas: int,
) -> Places:
    """Place until nothing changes."""
    for _ in range(200):
        after = place(nodes, present, weights, replicas=replicas)
        if [tuple(places) for places in present] == list(after):
            return after
        present = after
    raise AssertionError("it never comes to rest")


@given(clusters())
def test_every_shard_is_on_as_many_different_nodes_as_it_can_be(cluster: Drawn) -> None:
    nodes, present, weights, replicas = cluster
    able = {node.id for node in nodes if not node.draining}
    for places in place(nodes, present, weights, replicas=replicas):
        assert len(places) == len(set(places)) == min(replicas, len(able))
        assert set(places) <= able


@given(clusters())
def test_whoever_leads_had_the_shard_before_if_anyone_did(cluster: Drawn) -> None:
    nodes, present, weights, replicas = cluster
    able = {node.id for node in nodes if not node.draining}
    if min(replicas, len(able)) == 1:
        return
    for old, new in zip(present, place(nodes, present, weights, replicas=replicas), strict=True):
        if able & set(old):
            assert new[0] in old


@given(clusters(), st.integers(0, 5))
def test_what_moves_is_what_had_to_and_a_few_more(cluster: Drawn, moves_max: int) -> None:
    nodes, present, weights, replicas = cluster
    able = {node.id for node in nodes if not node.draining}
    wanted = min(replicas, len(able))
    after = place(nodes, present, weights, replicas=replicas, moves_max=moves_max)
    moved = difference(present, after)
    vacant = sum(max(0, wanted - len(able & set(old))) for old in present)
    leaderless = sum(not old or old[0] not in able for old in present)
    assert moved.arrivals <= vacant + moves_max
    assert moved.leaders <= leaderless + moves_max


@given(clusters())
def test_it_comes_to_rest_and_stays(cluster: Drawn) -> None:
    nodes, present, weights, replicas = cluster
    rest = settled(nodes, present, weights, replicas)
    assert place(nodes, rest, weights, replicas=replicas) == rest


@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(cluster: Drawn, chance: random.Random) -> None:
    nodes, present, weights, replicas = cluster
    shuffled = list(nodes)
    chance.shuffle(shuffled)
    assert place(nodes, present, weights, replicas=replicas) == place(
        shuffled, present, weights, replicas=replicas
    )


@given(st.integers(1, 8), st.integers(1, 40), st.integers(1, 3))
def test_equal_shards_end_up_evenly(size: int, shards: int, replicas: int) -> None:
    nodes = [Node(id=name) for name in NAMES[:size]]
    rest = settled(nodes, [()] * shards, [1.0] * shards, replicas)
    held = Counter({node.id: 0 for node in nodes})
    held.update(node for places in rest for node in places)
    assert max(held.values()) - min(held.values()) <= 1
    led = Counter({node.id: 0 for node in nodes})
    led.update(places[0] for places in rest)
    assert max(led.values()) - min(led.values()) <= 2


def test_nobody_is_left() -> None:
    assert place([], [("n1", "n2")], [1.0], replicas=3) == ((),)
    assert place([Node(id="n1", draining=True)], [("n1",)], [1.0], replicas=3) == ((),)


def test_a_drained_node_hands_over_to_those_that_follow() -> None:
    nodes = [Node(id=name) for name in NAMES[:4]]
    before = settled(nodes, [()] * 12, [1.0] * 12, 3)
    drained = [Node(id=node.id, draining=node.id == "n0") for node in nodes]
    after = place(drained, before, [1.0] * 12, replicas=3, moves_max=0)
    for old, new in zip(before, after, strict=True):
        assert "n0" not in new
        assert new[0] == old[0] or (old[0] == "n0" and new[0] in old)


def test_a_busy_shard_gets_a_node_for_itself() -> None:
    nodes = [Node(id=name) for name in NAMES[:3]]
    weights = [100.0] + [1.0] * 8
    rest = settled(nodes, [("n0", "n1", "n2")] * 9, weights, 3)
    leaders = [places[0] for places in rest]
    assert leaders.count(leaders[0]) == 1


def test_a_new_node_gets_its_share_in_small_steps() -> None:
    nodes = [Node(id=name) for name in NAMES[:3]]
    before: Places = settled(nodes, [()] * 64, [1.0] * 64, 2)
    nodes.append(Node(id="n3"))
    present = before
    for _ in range(200):
        after = place(nodes, present, [1.0] * 64, replicas=2)
        moved = difference(present, after)
        assert moved.leaders + moved.arrivals <= 2 * MOVES_MAX
        if after == present:
            break
        present = after
    assert sum("n3" in places for places in present) == 32
    assert sum(places[0] == "n3" for places in present) >= 14


def test_loads_come_from_those_who_lead() -> None:
    nodes = [
        Node(id="a", shard_loads={0: 4.0, 7: 9.0}),
        Node(id="b", shard_loads={1: 2.0, 0: 1.0, 2: float("nan")}),
    ]
    assert loads_of(nodes, 3) == [4.0, 2.0, 3.0]
    assert loads_of([], 2) == [1.0, 1.0]


def test_nonsense_is_refused() -> None:
    with pytest.raises(BadRequest, match="3 shards"):
        place([], [()] * 3, [1.0], replicas=3)
    with pytest.raises(BadRequest, match="one node at least"):
        place([], [()], [1.0], replicas=0)


def test_a_large_cluster_goes_through_losses_and_joins() -> None:
    report = run(nodes=20, shards=128, steps=30, seed=7)
    assert report.rounds == 30
    assert report.forced_arrivals > 0
    assert report.excess_arrivals_max <= MOVES_MAX
    assert report.load_over_best_mean < 1.3
