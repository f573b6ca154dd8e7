"""Checks of what readers were handed: in order, without gap or repeat, and all that had to be there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf

from tests.checker.entities import Partition, Transaction, show
from tests.checker.findings import Findings
from tests.checker.history import OK, Commit, Empty, Instant, Read, Stand
from tests.checker.knowledge import Knowledge


def check(known: Knowledge, findings: Findings) -> None:
    """All of them."""
    missing = Missing(known, findings)
    for (agent, _, stream, number), turns in known.turns.items():
        _walk(known, missing, agent, known.partitions[stream, number], turns)
    for (stream, _), partition in known.partitions.items():
        for empty in partition.empties:
            if empty.outcome == OK:
                _nothing_was_there(known, missing, stream, partition, empty)
        for read in partition.reads:
            if not read.moves:
                _nothing_open_before(findings, partition, 0, read)


class Missing:
    """Says of a transaction that was not there what that means."""

    def __init__(self, known: Knowledge, findings: Findings) -> None:
        self._known = known
        self.findings = findings
        self._told: set[tuple[str, object]] = set()

    def add(self, it: Transaction, who: str, kind: str, text: str) -> None:
        """Somebody had to see it and did not. `kind`: what it is if others did see it."""
        partners = [
            self._known.transaction(key)
            for node in it.commits
            if isinstance(node, Commit)
            for key in node.transactions
            if key != it.key
        ]
        seen = [other for other in partners if other.read_at < inf]
        if it.read_at == inf:
            kind = "group-torn" if seen or self._is_saved(it) else "lost-write"
        if (kind, it.key) in self._told:
            return
        self._told.add((kind, it.key))
        if kind == "group-torn":
            with_it = str(seen[0]) if seen else "the offsets that were saved with it"
            text += f"; {with_it}, of the same checkpoint, took effect"
        self.findings.add(kind, f"{it}: {who} {text}")

    def _is_saved(self, it: Transaction) -> bool:
        """Nobody was told of its checkpoint, but the offsets in it were found saved."""
        return all(node.outcome != OK for node in it.commits)


def _walk(
    known: Knowledge,
    missing: Missing,
    agent: str,
    partition: Partition,
    turns: list[Read | Empty | Stand],
) -> None:
    """Follow a reader through a partition."""
    at = -1
    findings = missing.findings
    for turn in turns:
        if isinstance(turn, Stand):
            at = turn.after
        elif isinstance(turn, Read):
            key = (turn.stream, turn.partition, turn.id)
            if turn.id == at:
                findings.add("repeated-read", f"{agent} was handed {show(key)} again")
            elif turn.id < at:
                findings.add("order-violation", f"{agent} was handed {show(key)} after {at}")
            elif at >= 0:
                _nothing_left_out(known, missing, partition, at, turn)
            if at < turn.id:
                _nothing_open_before(findings, partition, max(at, 0), turn)
            at = max(at, turn.id)


def _nothing_left_out(
    known: Knowledge, missing: Missing, partition: Partition, after: int, read: Read
) -> None:
    ids = partition.visible_ids
    first = bisect_right(ids, after)
    if first >= len(ids) or ids[first] >= read.id:
        return
    first = max(first, bisect_left(ids, known.dead_below(read.stream, read.end)))
    for it in partition.visible[first : bisect_left(ids, read.id)]:
        told = [node for node in it.commits if node.outcome == OK]
        if told and min(node.start for node in it.commits) > read.end:
            continue  # it was open, which is another matter
        missing.add(it, read.agent, "gap", f"went from {after} to {read.id} without it")


def _nothing_open_before(findings: Findings, partition: Partition, after: int, read: Read) -> None:
    """What is read was visible: nothing before it was open."""
    it = partition.first_surely_open(after, read.end)
    if it is None or it.id >= read.id or isinstance(it.opened, Instant):
        return
    assert it.opened is not None
    if it.opened.start < read.end:
        findings.add(
            "read-past-open",
            f"{it} was open until {it.open_until:.0f}, and {read.agent} had read {read.id} behind it "
            f"at {read.end}",
        )


def _nothing_was_there(
    known: Knowledge, missing: Missing, stream: str, partition: Partition, empty: Empty
) -> None:
    """What readers had to see by then is dead, behind something open, or not asked for."""
    after = max(empty.after, known.dead_below(stream, empty.end) - 1)
    it = partition.first_due(after, empty.start)
    if it is None or (empty.up_to and it.id > empty.up_to):
        return
    # Also one that was purged while it was open, or may have died, holds others back until it is closed.
    if known.may_be_held_back(it, 0 if empty.up_to else empty.after, empty):
        return
    told = any(node.outcome == OK and node.end < empty.start for node in it.commits)
    kind = "stale-read" if told or it.read_at < empty.start else "group-torn"
    missing.add(
        it, empty.agent, kind, f"found nothing after {empty.after}, long after it was there"
    )
