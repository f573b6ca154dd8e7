"""Checks of what was read: that it was written, whole, checkpointed, and alive."""

from __future__ import annotations

from tests.checker.digest import Content
from tests.checker.entities import Transaction, show
from tests.checker.findings import Findings
from tests.checker.history import Key, Read, Stand
from tests.checker.knowledge import Knowledge


def place_the_unknown(known: Knowledge, findings: Findings) -> None:
    """Find the writes of ids that no writer was told, by what was read there."""
    homes: dict[Content, Key] = {}
    for key, transaction in known.transactions.items():
        for content in transaction.contents or ():
            homes.setdefault(content, key)
    placed: dict[Key, Content] = {}
    for (stream, partition), of in list(known.partitions.items()):
        for read in of.reads:
            key = (stream, partition, read.id)
            if key in known.transactions or key in placed:
                continue
            content = (read.count, read.digest)
            placed[key] = content
            home = homes.get(content)
            if home is not None and home[:2] == key[:2]:
                findings.add("duplicate-write", f"{show(key)} holds what {show(home)} holds")
            elif home is not None:
                findings.add("misplaced-read", f"{show(key)} holds what {show(home)} should")
            elif known.place(read) is not None:
                homes[content] = key
            else:
                findings.add("phantom-read", f"{show(key)}, {read.count} items, of nobody")


def check(known: Knowledge, findings: Findings) -> None:
    """All of them."""
    began = _beginnings(known)
    for (stream, number), partition in known.partitions.items():
        seen: dict[int, Read] = {}
        for read in partition.reads:
            transaction = known.transactions.get((stream, number, read.id))
            if transaction is None:
                continue
            _was_checkpointed(transaction, read, findings)
            _is_alive(known, transaction, read, began, findings)
            first = seen.setdefault(read.id, read)
            if first is read:
                _is_whole(transaction, read, findings)
            elif (first.count, first.digest) != (read.count, read.digest):
                findings.add(
                    "disagreement",
                    f"{transaction}: {first.agent} read {first.count} items, {read.agent} read "
                    f"{read.count}, and they are not the same",
                )


def _was_checkpointed(it: Transaction, read: Read, findings: Findings) -> None:
    if it.cancel is not None:
        findings.add("aborted-read", f"{it} was cancelled, and {read.agent} read it")
    elif not it.commits and it.refusals:
        why = it.refusals[0].outcome
        findings.add("aborted-read", f"{it} was refused ({why}), and {read.agent} read it")
    elif not it.commits:
        findings.add(
            "precommitted-read", f"{it}: {read.agent} read it, and nobody has checkpointed it"
        )
    elif read.end < min(node.start for node in it.commits):
        findings.add(
            "precommitted-read",
            f"{it}: {read.agent} had read it at {read.end}, its checkpoint began only at "
            f"{min(node.start for node in it.commits)}",
        )


def _is_whole(it: Transaction, read: Read, findings: Findings) -> None:
    content = (read.count, read.digest)
    if it.contents is None or content in it.contents:
        return
    wanted = " or ".join(str(count) for count, _ in sorted(it.contents))
    text = f"{it}: {read.agent} read {read.count} items, written were {wanted}"
    if content in it.prefixes:
        findings.add("intermediate-read", text)
    else:
        findings.add(
            "torn-read", text + ("" if read.count != int(wanted.split()[0]) else ", others")
        )


def _beginnings(known: Knowledge) -> dict[int, int]:
    """For each read, by identity: what it shows was fetched at this time or later."""
    began: dict[int, int] = {}
    for turns in known.turns.values():
        since = turns[0].start
        for turn in turns:
            if isinstance(turn, Stand):
                since = turn.start
            elif isinstance(turn, Read):
                began[id(turn)] = since
    return began


def _is_alive(
    known: Knowledge, it: Transaction, read: Read, began: dict[int, int], findings: Findings
) -> None:
    """A reader may hand out what it fetched before, but not before it began."""
    why = known.surely_dead(it.key, began.get(id(read), read.start))
    if why is not None:
        findings.add("dead-read", f"{it}: {read.agent} read it after {why}")
