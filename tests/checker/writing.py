"""Checks of what writers were told: ids, fencing, and ends that contradict each other."""

from __future__ import annotations

from heapq import heappop, heappush

from tests.checker.entities import Node, says_expired, show
from tests.checker.findings import Findings
from tests.checker.history import OK, Commit, Instant, Open
from tests.checker.knowledge import Knowledge


def check(known: Knowledge, findings: Findings) -> None:
    """All of them."""
    for first, second in known.written_twice:
        key = (second.stream, second.partition, second.id)
        findings.add("id-reused", f"{show(key)} was given to {first.agent} and to {second.agent}")
    _ids_increase(known, findings)
    _fenced_are_refused(known, findings)
    _ends_once(known, findings)


def _ids_increase(known: Knowledge, findings: Findings) -> None:
    """Whoever opened after somebody had been given an id was given a greater one."""
    for (stream, number), partition in known.partitions.items():
        opens = [it.opened for it in partition.members if it.opened and it.opened.outcome == OK]
        opens.sort(key=lambda it: it.start)
        under_way: list[tuple[int, int]] = []
        greatest = 0
        for it in opens:
            while under_way and under_way[0][0] < it.start:
                greatest = max(greatest, heappop(under_way)[1])
            if it.id < greatest:
                key = (stream, number, it.id)
                findings.add("id-went-back", f"{show(key)} was opened after {greatest} was given")
            heappush(under_way, (it.end, it.id))


def _fenced_are_refused(known: Knowledge, findings: Findings) -> None:
    done: list[Open | Node] = [it for it in known.nodes if it.outcome == OK]
    done += [it.opened for it in known.transactions.values() if isinstance(it.opened, Open)]
    for it in done:
        members = it.members if isinstance(it, Commit) and it.members else [(it.agent, it.epoch)]
        for agent, epoch in members:
            if known.fenced_at(agent, epoch) < it.start:
                findings.add(
                    "fenced-acknowledged",
                    f"{agent} (epoch {epoch}) was told ok for {_what(it)}, begun at {it.start}, after a "
                    f"newer one had its name at {known.fenced_at(agent, epoch):.0f}",
                )


def _what(it: Open | Node) -> str:
    if isinstance(it, Commit):
        return f"a checkpoint of {len(it.transactions)} transactions and {len(it.offsets)} offsets"
    what = "an instant" if isinstance(it, Instant) else "opening a transaction"
    return f"{what} ({show((it.stream, it.partition, it.id))})"


def _ends_once(known: Knowledge, findings: Findings) -> None:
    for it in known.transactions.values():
        told = [node for node in it.commits if node.outcome == OK]
        if len(told) > 1:
            findings.add("contradiction", f"{it} was checkpointed {len(told)} times")
        if not told:
            continue
        if it.cancel is not None:
            findings.add("contradiction", f"{it} was told to be checkpointed, and to be cancelled")
        expired = [op for op in it.refusals if says_expired(op) and op.end < told[0].start]
        if expired:
            findings.add("contradiction", f"{it} was checkpointed after it had expired")
