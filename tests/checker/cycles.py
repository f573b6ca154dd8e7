"""Cycles between checkpoints: of what they wrote, what they read, and what they missed.

A node is a checkpoint that took effect. Its edges, each only where the order is beyond doubt:

- write-write: its transaction was opened and checkpointed at once (an instant), and the other's has a greater
  id, so was opened later. Ids of transactions that stay open say who *opened* first; nothing follows from
  them for checkpoints, and none is claimed.
- write-read: the other read one of its transactions, and saved that it had, in the same checkpoint.
- read-write: it found nothing after its last read, where the other then wrote.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable
from math import inf

from tests.checker.entities import Node, Transaction
from tests.checker.findings import Findings
from tests.checker.history import OK, Commit, Empty, Instant, Read
from tests.checker.knowledge import Knowledge

Edges = dict[int, set[int]]


class Graph:
    """Nodes by number; edges by what they say."""

    def __init__(self, known: Knowledge) -> None:
        self.known = known
        self.nodes = [it for it in known.nodes if known.effective[id(it)] < inf]
        self._numbers = {id(it): number for number, it in enumerate(self.nodes)}
        self.writes: Edges = defaultdict(set)
        self.flows: Edges = defaultdict(set)
        self.misses: Edges = defaultdict(set)
        for partition in known.partitions.values():
            self._order(partition.visible)
        self._follow()

    def number_of(self, transaction: Transaction | None) -> int | None:
        """The checkpoint that made it visible."""
        for node in transaction.commits if transaction is not None else ():
            if id(node) in self._numbers:
                return self._numbers[id(node)]
        return None

    def _order(self, visible: list[Transaction]) -> None:
        before: int | None = None
        for transaction in visible:
            number = self.number_of(transaction)
            if number is None:
                continue
            if before is not None and before != number:
                self.writes[before].add(number)
            node = self.nodes[number]
            if isinstance(node, Instant) or node.at_once:
                before = number

    def _follow(self) -> None:
        """Who read whose transactions."""
        places: dict[tuple[str, str, int], list[Read | Empty]] = defaultdict(list)
        for (agent, _, stream, partition), turns in self.known.turns.items():
            places[agent, stream, partition] += [
                it for it in turns if isinstance(it, Read | Empty) and it.outcome == OK
            ]
        last_read: dict[int, int] = defaultdict(int)
        polls: list[tuple[int, Empty]] = []
        for place, saves in self.known.saves.items():
            looks = sorted(places[place], key=lambda it: it.start)
            at = 0
            for commit, last_id in saves:
                number = self._numbers.get(id(commit))
                empty: Empty | None = None
                while at < len(looks) and looks[at].start < commit.start:
                    look = looks[at]
                    at += 1
                    if isinstance(look, Empty):
                        empty = look
                    elif number is not None and look.id <= last_id:
                        self._flow(place, look, number)
                        last_read[number] = max(last_read[number], look.end)
                if number is not None and empty is not None:
                    polls.append((number, empty))
        for number, empty in polls:
            if empty.start > last_read[number]:
                self._miss(number, empty)

    def _flow(self, place: tuple[str, str, int], read: Read, number: int) -> None:
        writer = self.number_of(self.known.transactions.get((place[1], place[2], read.id)))
        if writer is not None and writer != number:
            self.flows[writer].add(number)

    def _miss(self, number: int, empty: Empty) -> None:
        """It missed the first that came after, unless that was held back or is gone."""
        partition = self.known.partitions[empty.stream, empty.partition]
        after = max(empty.after, self.known.dead_below(empty.stream, empty.end) - 1)
        at = bisect_right(partition.visible_ids, after)
        if at < len(partition.visible):
            it = partition.visible[at]
            writer = self.number_of(it)
            if writer is None or writer == number or self.nodes[writer].start >= empty.start:
                return
            # As in `order`: by one that was purged while it was open, too.
            if not self.known.may_be_held_back(it, empty.after, empty):
                self.misses[number].add(writer)


def check(known: Knowledge, findings: Findings) -> None:
    """All of them, the plainest name first."""
    graph = Graph(known)
    for kind, edges in (
        ("write-cycle", [graph.writes]),
        ("information-cycle", [graph.writes, graph.flows]),
    ):
        for part in _knots(len(graph.nodes), edges):
            findings.add(kind, _story(graph, _circle(part, edges)))
        if kind in findings.kinds:
            return
    for reader, writers in graph.misses.items():
        for writer in writers:
            path = _path(writer, reader, [graph.flows], None)
            if path:
                findings.add("skew-cycle", _story(graph, [*path]))


def _knots(count: int, edges: list[Edges]) -> Iterable[list[int]]:
    """Strongly connected parts with more than one node: what is left when all that has no way in, or no
    way out, is taken away, until nothing more goes. Then Tarjan's algorithm, on what is left."""
    left = _core(edges)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in sorted(left):
        if root in index:
            continue
        work = [(root, iter(_next(root, edges, left)))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            for it in following:
                if it not in index:
                    index[it] = low[it] = len(index)
                    stack.append(it)
                    on_stack.add(it)
                    work.append((it, iter(_next(it, edges, left))))
                    break
                if it in on_stack:
                    low[node] = min(low[node], index[it])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    if len(part) > 1:
                        yield part


def _core(edges: list[Edges]) -> set[int]:
    """Nodes that may lie on a cycle: most histories have none, and this says so quickly."""
    ways_in: dict[int, int] = defaultdict(int)
    for some in edges:
        for targets in some.values():
            for it in targets:
                ways_in[it] += 1
    left = {it for some in edges for it in some} | set(ways_in)
    free = [it for it in left if not ways_in[it]]
    while free:
        node = free.pop()
        left.discard(node)
        for it in _next(node, edges, None):
            ways_in[it] -= 1
            if not ways_in[it]:
                free.append(it)
    return left


def _next(node: int, edges: list[Edges], within: set[int] | None) -> list[int]:
    return [it for some in edges for it in some.get(node, ()) if within is None or it in within]


def _circle(part: list[int], edges: list[Edges]) -> list[int]:
    """A shortest cycle through the first node of a part."""
    within = set(part)
    first = min(part)
    paths = [_path(it, first, edges, within) for it in _next(first, edges, within)]
    return [first, *min(filter(None, paths), key=len)][:-1]


def _path(start: int, end: int, edges: list[Edges], within: set[int] | None) -> list[int] | None:
    came: dict[int, int] = {start: start}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == end:
            path = [node]
            while path[-1] != start:
                path.append(came[path[-1]])
            return path[::-1]
        for it in _next(node, edges, within):
            if it not in came:
                came[it] = node
                waiting.append(it)
    return None


def _story(graph: Graph, circle: list[int]) -> str:
    steps = []
    for at, number in enumerate(circle):
        after = circle[(at + 1) % len(circle)]
        how = "wrote before" if after in graph.writes[number] else "missed what was written by"
        if after in graph.flows[number]:
            how = "was read by"
        steps.append(f"{_name(graph.nodes[number])} {how}")
    return f"{', '.join(steps)} the first again"


def _name(node: Node) -> str:
    if isinstance(node, Commit):
        written = [key[2] for key in node.transactions]
        return f"the checkpoint of {node.agent or 'a group'} at {node.start} (wrote {written[:4]})"
    return f"the instant {node.id} of {node.agent}"
