"""Where shards should be: a function of what nodes there are, how busy shards are, and where shards should be now.

No clock, no chance, no state: the same input gives the same placement on every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from ..errors import BadRequest
from .coordination import Node

Places: TypeAlias = tuple[tuple[str, ...], ...]
"""The nodes of each shard, the leader first."""

MOVES_MAX = 16
"""Moves that balance, in one go: each lets a client wait, or a node read a shard's log. The next go does more."""

SLACK = 0.1
"""Two nodes whose loads differ by less than this part of the mean load of a node are even."""

_USEFUL = 0.9
"""A leader does not move if its load is more than this part of the difference: that would only turn it round."""

_LOAD_MIN = 0.05
"""A quiet shard counts as this part of the mean: many quiet shards on one node are a risk of their own."""


def loads_of(nodes: Iterable[Node], shards: int) -> list[float]:
    """How much each shard has to do, as its leader says. One that nobody speaks of counts as the mean of the others."""
    told: dict[int, float] = {}
    for node in nodes:
        for shard, load in node.shard_loads.items():
            if 0 <= shard < shards and 0.0 <= load < float("inf"):
                told[shard] = max(told.get(shard, 0.0), load)
    mean = sum(told.values()) / len(told) if told else 1.0
    return [told.get(shard, mean) for shard in range(shards)]


def place(
    nodes: Iterable[Node],
    present: Sequence[Sequence[str]],
    loads: Sequence[float],
    *,
    replicas: int,
    moves_max: int = MOVES_MAX,
    leaders: Mapping[int, str] | None = None,
) -> Places:
    """The next placement.

    - A shard is on `replicas` nodes, all different, or on as many as there are that do not drain. Only if there is
      none it is nowhere.
    - Nodes that are gone or drain are replaced, however many moves that takes. Another leader is one that had the
      shard before, if there is any.
    - Besides that at most `moves_max` moves make it more even: followers by their number, leaders by their load.
      A leader moves only to a node that has the shard already (unless shards are on one node only).
    - `leaders` are those that operators have chosen: they lead, unless they are gone or drain, however uneven it is.
    - If nothing is left to improve, the present placement comes back as it is.
    """
    if len(present) != len(loads):
        raise BadRequest(f"{len(present)} shards, and the loads of {len(loads)}")
    if replicas < 1:
        raise BadRequest(f"a shard is on one node at least, not on {replicas}")
    able = sorted({node.id for node in nodes if not node.draining})
    if not able:
        return tuple(() for _ in present)
    plan = _Plan(able, present, _weights(loads), min(replicas, len(able)))
    plan.fill()
    plan.appoint()
    plan.obey({shard: node for shard, node in (leaders or {}).items() if node in able})
    plan.level_followers(plan.level_leaders(moves_max))
    return tuple(tuple(places) for places in plan.places)


def in_steps(
    before: Sequence[Sequence[str]], after: Sequence[Sequence[str]], nodes: Mapping[str, Node]
) -> Places:
    """What to say on the way from one placement to the next: as long as some of those who get a shard do not have it yet,
    those who have it keep it, behind the others. `nodes` are those that are there."""

    def step(shard: int, old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
        having = {it.id for it in nodes.values() if shard in it.holds}
        if all(it in having for it in new if it in nodes):
            return tuple(new)
        return (*new, *(it for it in old if it in having and it not in new))

    return tuple(
        step(shard, old, new) for shard, (old, new) in enumerate(zip(before, after, strict=True))
    )


class Difference(msgspec.Struct, frozen=True):
    """What lies between two placements."""

    leaders: int
    """Shards that get another leader."""
    arrivals: int
    """Nodes that get a shard which they did not have: each of them reads a log."""


def difference(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> Difference:
    """How much has to move from one placement to the other."""
    return Difference(
        leaders=sum(
            tuple(old[:1]) != tuple(new[:1]) for old, new in zip(before, after, strict=True)
        ),
        arrivals=sum(len(set(new) - set(old)) for old, new in zip(before, after, strict=True)),
    )


class _Plan:
    """A placement under way. `places[n]` has its leader first once `appoint` is done.

    - `held[node]` is how many shards it has, `led[node]` the load of those that it leads.
    """

    def __init__(
        self,
        able: Sequence[str],
        present: Sequence[Sequence[str]],
        weights: Sequence[float],
        replicas: int,
    ) -> None:
        allowed = set(able)
        self.able = able
        self._rank = {node: rank for rank, node in enumerate(able)}
        self.weights = weights
        self.replicas = replicas
        self.mean = sum(weights) / len(able)
        self.before = [[node for node in dict.fromkeys(old) if node in allowed] for old in present]
        self.places = [kept[:replicas] for kept in self.before]
        self.leaderless = [
            not kept or kept[0] != old[0] for kept, old in zip(self.places, present, strict=True)
        ]
        self.fixed: set[int] = set()
        """Shards whose leader was chosen."""
        self.held = dict.fromkeys(able, 0)
        for places in self.places:
            for node in places:
                self.held[node] += 1
        self.led: dict[str, float] = dict.fromkeys(able, 0.0)
        for shard, places in enumerate(self.places):
            if not self.leaderless[shard]:
                self.led[places[0]] += weights[shard]

    def fill(self) -> None:
        """Give every shard as many nodes as it should have: those that have the fewest."""
        for shard, places in enumerate(self.places):
            while len(places) < self.replicas:
                node = min(
                    (node for node in self.able if node not in places),
                    key=lambda node: (self.held[node], self._turn(node, shard)),
                )
                places.append(node)
                self.held[node] += 1

    def appoint(self) -> None:
        """Give leaders to shards that have none, the busiest first, each to the least busy of those who may."""
        waiting = [shard for shard, leaderless in enumerate(self.leaderless) if leaderless]
        for shard in sorted(waiting, key=lambda shard: (-self.weights[shard], shard)):
            places = self.places[shard]
            known = [node for node in places if node in self.before[shard]]
            leader = min(known or places, key=lambda node: (self.led[node], places.index(node)))
            places.remove(leader)
            places.insert(0, leader)
            self.led[leader] += self.weights[shard]

    def obey(self, leaders: Mapping[int, str]) -> None:
        """Let those lead who were chosen to. One that does not have the shard takes the place of the last."""
        for shard, node in leaders.items():
            if not 0 <= shard < len(self.places):
                continue
            places = self.places[shard]
            self.fixed.add(shard)
            if places[0] == node:
                continue
            self.led[places[0]] -= self.weights[shard]
            if node not in places:
                self.held[places.pop()] -= 1
                self.held[node] += 1
            else:
                places.remove(node)
            places.insert(0, node)
            self.led[node] += self.weights[shard]

    def level_followers(self, moves: int) -> None:
        """Move followers from nodes with many shards to nodes with few."""
        if self.replicas == 1:
            return
        followed: dict[str, set[int]] = {node: set() for node in self.able}
        for shard, places in enumerate(self.places):
            for node in places[1:]:
                followed[node].add(shard)
        while moves > 0:
            found = self._uneven_follower(followed)
            if found is None:
                return
            shard, full, empty = found
            self.places[shard][self.places[shard].index(full)] = empty
            followed[full].remove(shard)
            followed[empty].add(shard)
            self.held[full] -= 1
            self.held[empty] += 1
            moves -= 1

    def level_leaders(self, moves: int) -> int:
        """Move leaders from busy nodes to less busy ones, the most useful move first. How many moves are left."""
        while moves > 0:
            best = max(self._leader_moves(), default=None)
            if best is None:
                return moves
            _, negative_shard, at = best
            shard = -negative_shard
            places = self.places[shard]
            old = places[0]
            self.led[old] -= self.weights[shard]
            if self.replicas == 1:
                places[0] = self.able[at]
                self.held[old] -= 1
                self.held[places[0]] += 1
            else:
                places[0], places[at] = places[at], places[0]
            self.led[places[0]] += self.weights[shard]
            moves -= 1
        return moves

    def _uneven_follower(self, followed: Mapping[str, set[int]]) -> tuple[int, str, str] | None:
        """A follower that makes it more even if it moves: shard, from where, to where."""
        by_number = sorted(self.able, key=lambda node: (self.held[node], node))
        for empty in by_number:
            for full in reversed(by_number):
                if self.held[full] - self.held[empty] < 2:
                    break
                for shard in sorted(followed[full]):
                    if empty not in self.places[shard]:
                        return shard, full, empty
        return None

    def _leader_moves(self) -> Iterable[tuple[float, int, int]]:
        """All changes of a leader that are worth it: what it is worth, the shard (negative, so that the lowest is the
        greatest), and which of its places, or which node, is to lead."""
        for shard, places in enumerate(self.places):
            if shard in self.fixed:
                continue
            weight = self.weights[shard]
            load = self.led[places[0]]
            candidates = self.able if self.replicas == 1 else places
            for at, node in enumerate(candidates):
                if node == places[0] or (self.replicas > 1 and node not in self.before[shard]):
                    continue
                gap = load - self.led[node]
                if gap > SLACK * self.mean and weight <= _USEFUL * gap:
                    yield weight * (gap - weight), -shard, at

    def _turn(self, node: str, shard: int) -> int:
        """Among equals each shard begins with another node."""
        return (self._rank[node] - shard) % len(self.able)


def _weights(loads: Sequence[float]) -> list[float]:
    mean = sum(loads) / len(loads) if loads else 0.0
    if mean <= 0.0:
        return [1.0] * len(loads)
    return [max(load, _LOAD_MIN * mean) for load in loads]
