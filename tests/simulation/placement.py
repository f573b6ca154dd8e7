"""A large cluster on paper: nodes die, come back, join and drain, loads change, and each time shards are placed anew.

    python -m tests.simulation.placement --nodes 100 --shards 1024 --steps 500

Prints what moved, how even it stays, and how much processor time one placement takes. It checks in each step what must
always hold, and fails if it does not.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from tstreams.cluster import Node
from tstreams.cluster.placement import MOVES_MAX, Places, difference, place

REPLICAS = 3


class Report(msgspec.Struct):
    """What happened in all steps."""

    nodes: int
    shards: int
    rounds: int = 0
    placements: int = 0
    """How often something was placed: several times after each event, until it is at rest."""
    first_ms: float = 0.0
    placing_ms_mean: float = 0.0
    placing_ms_max: float = 0.0
    placements_to_rest_max: int = 0
    forced_arrivals: int = 0
    """Shards that a node had to get because another had gone."""
    balancing_arrivals: int = 0
    balancing_leaders: int = 0
    forced_leaders: int = 0
    excess_arrivals_max: int = 0
    """The most arrivals in one placement beyond those that had to be."""
    held_spread_max: int = 0
    """At rest: shards on the fullest node less those on the emptiest."""
    load_over_best_mean: float = 0.0
    """At rest: what the busiest node leads, of the least that could be (the mean of nodes, or the busiest shard)."""
    load_over_best_max: float = 0.0


class _World:
    """The nodes there are, and how busy shards are. A few shards have most to do, as in life."""

    def __init__(self, nodes: int, shards: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.size = nodes
        self.up = {f"node-{number:03}" for number in range(nodes)}
        self.down: set[str] = set()
        self.draining: set[str] = set()
        self.made = nodes
        self.loads = [self.chance.paretovariate(2.0) for _ in range(shards)]

    def happen(self) -> None:
        """One event."""
        kind = self.chance.choice(("loss", "loss", "return", "join", "drain", "remove", "load"))
        if kind == "loss" and len(self.up) > self.size * 3 // 4:
            gone = self.chance.choice(sorted(self.up))
            self.up.discard(gone)
            self.draining.discard(gone)
            self.down.add(gone)
        elif kind == "return" and self.down:
            back = self.chance.choice(sorted(self.down))
            self.down.discard(back)
            self.up.add(back)
        elif kind == "join" and len(self.up) < self.size * 5 // 4:
            self.up.add(f"node-{self.made:03}")
            self.made += 1
        elif kind == "drain" and len(self.up) > self.size * 3 // 4:
            self.draining.add(self.chance.choice(sorted(self.up)))
        elif kind == "remove" and self.draining:
            self.up -= self.draining
            self.draining.clear()
        else:
            for shard in self.chance.sample(range(len(self.loads)), len(self.loads) // 10):
                self.loads[shard] = self.chance.paretovariate(2.0)

    def nodes(self) -> list[Node]:
        return [Node(id=name, draining=name in self.draining) for name in sorted(self.up)]

    def able(self) -> set[str]:
        return self.up - self.draining


def run(*, nodes: int, shards: int, steps: int, seed: int) -> Report:
    """The whole simulation."""
    world = _World(nodes, shards, seed)
    report = Report(nodes=nodes, shards=shards)
    times_ms: list[float] = []
    present: Places = ((),) * shards
    present = _rest(world, present, report, times_ms)
    report.first_ms = times_ms[0]
    report.forced_arrivals = report.forced_leaders = 0
    report.balancing_arrivals = report.balancing_leaders = 0
    report.placements_to_rest_max = 0
    times_ms.clear()
    loads: list[float] = []
    for _ in range(steps):
        world.happen()
        present = _rest(world, present, report, times_ms)
        report.rounds += 1
        report.held_spread_max = max(report.held_spread_max, _held_spread(world, present))
        loads.append(_load_over_best(world, present))
    report.placements = len(times_ms)
    report.placing_ms_mean = sum(times_ms) / len(times_ms)
    report.placing_ms_max = max(times_ms)
    report.load_over_best_mean = sum(loads) / len(loads)
    report.load_over_best_max = max(loads)
    return report


def _rest(world: _World, present: Places, report: Report, times_ms: list[float]) -> Places:
    """Place until nothing changes, and check each placement."""
    for number in range(1, 1000):
        began = time.thread_time()
        after = place(world.nodes(), present, world.loads, replicas=REPLICAS)
        times_ms.append(1000 * (time.thread_time() - began))
        _check(world, present, after, report)
        if after == present:
            report.placements_to_rest_max = max(report.placements_to_rest_max, number)
            return after
        present = after
    raise AssertionError("it never comes to rest")


def _check(world: _World, before: Places, after: Places, report: Report) -> None:
    able = world.able()
    for places in after:
        assert len(places) == len(set(places)) == min(REPLICAS, len(able))
        assert set(places) <= able
    moved = difference(before, after)
    vacant = sum(REPLICAS - len(able & set(old)) for old in before)
    leaderless = sum(not old or old[0] not in able for old in before)
    assert moved.arrivals <= vacant + MOVES_MAX
    assert moved.leaders <= leaderless + MOVES_MAX
    report.forced_arrivals += vacant
    report.forced_leaders += leaderless
    report.balancing_arrivals += moved.arrivals - vacant
    report.balancing_leaders += max(0, moved.leaders - leaderless)
    report.excess_arrivals_max = max(report.excess_arrivals_max, moved.arrivals - vacant)


def _held_spread(world: _World, places: Places) -> int:
    held = Counter(dict.fromkeys(world.able(), 0))
    held.update(node for shard in places for node in shard)
    return max(held.values()) - min(held.values())


def _load_over_best(world: _World, places: Places) -> float:
    led = dict.fromkeys(world.able(), 0.0)
    for shard, nodes in enumerate(places):
        led[nodes[0]] += world.loads[shard]
    return max(led.values()) / max(sum(led.values()) / len(led), *world.loads)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description="A large cluster on paper.")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--shards", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    report = run(nodes=options.nodes, shards=options.shards, steps=options.steps, seed=options.seed)
    print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())


if __name__ == "__main__":
    main()
