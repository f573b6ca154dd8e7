"""What a history says about each transaction, partition, stream and agent: gathered once, for all checks."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import inf

from tests.checker.digest import NOTHING
from tests.checker.entities import (
    ID_END,
    IDS_PER_MS,
    Node,
    Partition,
    StreamFacts,
    Transaction,
    says_expired,
)
from tests.checker.history import (
    OK,
    UNKNOWN,
    Altered,
    AnyOperation,
    Begin,
    Cancel,
    Clock,
    Close,
    Commit,
    Created,
    Deleted,
    Empty,
    Instant,
    Key,
    Open,
    Purged,
    Read,
    Send,
    Stand,
)


class Knowledge:
    """All that a history says."""

    def __init__(self, operations: Iterable[AnyOperation], slack_ms: int) -> None:
        self.slack_ms = slack_ms
        self.transactions: dict[Key, Transaction] = {}
        self.partitions: dict[tuple[str, int], Partition] = defaultdict(Partition)
        self.streams: dict[str, StreamFacts] = defaultdict(StreamFacts)
        self.begins: dict[str, list[Begin]] = defaultdict(list)
        self.closes: dict[tuple[str, int], float] = {}
        self.turns: dict[tuple[str, int, str, int], list[Read | Empty | Stand]] = defaultdict(list)
        """What a reader (agent, epoch) did in a partition, in its order."""
        self.nodes: list[Node] = []
        self.saves: dict[tuple[str, str, int], list[tuple[Commit, int]]] = defaultdict(list)
        """By reader, stream and partition: what was saved, by which commit."""
        self.resumes: dict[tuple[str, str, int], list[Stand]] = defaultdict(list)
        self.written_twice: list[tuple[Open | Instant, Open | Instant]] = []
        self._offset_ms = (-inf, inf)
        """The time of day less our time, at least and at most."""
        self.effective: dict[int, float] = {}
        """From when on a commit (by identity) must be seen."""
        self._fences: dict[str, tuple[list[int], list[int]]] = {}
        """By agent: its epochs, and when the first of them or of later ones had begun."""
        self.count = 0
        for operation in sorted(operations, key=lambda it: it.start):
            self.count += 1
            self._take(operation)

    # Gathering.

    def _take(self, it: AnyOperation) -> None:
        match it:
            case Read():
                self.partitions[it.stream, it.partition].reads.append(it)
                if it.moves:
                    self.turns[it.agent, it.epoch, it.stream, it.partition].append(it)
            case Empty():
                self.partitions[it.stream, it.partition].empties.append(it)
                if it.moves:
                    self.turns[it.agent, it.epoch, it.stream, it.partition].append(it)
            case Instant():
                self._take_instant(it)
            case Send():
                self.transaction((it.stream, it.partition, it.id)).add(it)
            case Open():
                self._take_open(it)
            case Commit():
                self._take_commit(it)
            case Cancel():
                for key in it.transactions:
                    transaction = self.transaction(key)
                    if it.outcome == OK:
                        transaction.cancel = transaction.cancel or it
                    elif it.outcome != UNKNOWN:
                        transaction.refusals.append(it)
            case Stand():
                self.partitions[it.stream, it.partition]  # it exists, also if nothing is done there
                self.turns[it.agent, it.epoch, it.stream, it.partition].append(it)
                if it.resumed and it.outcome == OK:
                    self.resumes[it.agent, it.stream, it.partition].append(it)
            case Begin():
                if it.outcome == OK:
                    self.begins[it.agent].append(it)
            case Close():
                if it.outcome == OK:
                    self.closes.setdefault((it.agent, it.epoch), it.end)
            case Clock():
                offset, (low, high) = it.wall_ms - it.start / 1000, self._offset_ms
                first = low == -inf
                self._offset_ms = (
                    offset if first else min(low, offset),
                    offset if first else max(high, offset),
                )
            case _:
                self._take_stream(it)

    def _take_stream(self, it: Created | Altered | Purged | Deleted) -> None:
        facts = self.streams[it.stream]
        if it.outcome not in (OK, UNKNOWN):
            return
        match it:
            case Purged():
                facts.purges.append(it)
            case Deleted():
                facts.gone_from = min(facts.gone_from, it.start)
                if it.outcome == OK:
                    facts.gone_since = min(facts.gone_since, it.end)
            case _ if it.ttl_ms:
                facts.ttl_ms_min = min(facts.ttl_ms_min, it.ttl_ms)
                facts.ttl_ms_max = max(facts.ttl_ms_max, it.ttl_ms)

    def transaction(self, key: Key) -> Transaction:
        """A transaction by its key, known before or not."""
        found = self.transactions.get(key)
        if found is None:
            found = self.transactions[key] = Transaction(key, None)
            self.partitions[key[0], key[1]].members.append(found)
        return found

    def _opened(self, it: Open | Instant) -> Transaction:
        transaction = self.transaction((it.stream, it.partition, it.id))
        if transaction.opened is not None:
            self.written_twice.append((transaction.opened, it))
        else:
            transaction.opened = it
        return transaction

    def _take_open(self, it: Open) -> None:
        if it.outcome == OK:
            self._opened(it)
        elif it.outcome == UNKNOWN:
            self.partitions[it.stream, it.partition].lost_opens.append(it)

    def _take_instant(self, it: Instant) -> None:
        if it.outcome == OK:
            transaction = self._opened(it)
            if transaction.opened is it:
                transaction.add(it)
                transaction.commits.append(it)
                self.nodes.append(it)
        else:
            self.partitions[it.stream, it.partition].unplaced.append(it)

    def _take_commit(self, it: Commit) -> None:
        may_be = it.outcome in (OK, UNKNOWN)
        for key in it.transactions:
            transaction = self.transaction(key)
            (transaction.commits if may_be else transaction.refusals).append(it)
        if may_be:
            self.nodes.append(it)
            for reader, stream, partition, last_id in it.offsets:
                self.saves[reader, stream, partition].append((it, last_id))

    def place(self, read: Read) -> Transaction | None:
        """The instant that this read shows to have taken effect, under an id that nobody was told."""
        partition = self.partitions[read.stream, read.partition]
        for at, instant in enumerate(partition.unplaced):
            if (instant.count, instant.digest) == (read.count, read.digest):
                transaction = self.transaction((read.stream, read.partition, read.id))
                transaction.opened = instant
                transaction.add(instant)
                if instant.outcome == UNKNOWN:
                    transaction.commits.append(instant)
                    self.nodes.append(instant)
                else:
                    transaction.refusals.append(instant)
                del partition.unplaced[at]
                return transaction
        return None

    # When things were so.

    def ended_at(self, agent: str, epoch: int) -> float:
        """When an agent had surely lost its name."""
        return min(self.fenced_at(agent, epoch), self.closes.get((agent, epoch), inf))

    def fenced_at(self, agent: str, epoch: int) -> float:
        """When a newer agent surely had its name."""
        found = self._fences.get(agent)
        if found is None:
            begins = sorted(self.begins[agent], key=lambda it: it.epoch)
            ends = list(accumulate((it.end for it in reversed(begins)), min))[::-1]
            found = self._fences[agent] = ([it.epoch for it in begins], ends)
        epochs, ends = found
        at = bisect_right(epochs, epoch)
        return ends[at] if at < len(ends) else inf

    def wall_ms(self, at: float) -> tuple[float, float]:
        """The time of day, at least and at most."""
        low, high = self._offset_ms
        return at / 1000 + low - self.slack_ms, at / 1000 + high + self.slack_ms

    def dead_below(self, stream: str, at: float) -> int:
        """What has a smaller id may be gone at this time."""
        facts = self.streams[stream]
        if facts.gone_from <= at:
            return ID_END
        cut = int(facts.maybe_purged_below(at))
        gone_ms = self.wall_ms(at)[1] - facts.ttl_ms_min
        if gone_ms > 0:
            cut = max(cut, ID_END if gone_ms == inf else int(gone_ms + 1) * IDS_PER_MS)
        return cut

    def surely_dead(self, key: Key, at: float) -> str | None:
        """Why a transaction had to be gone at this time; None if it had not."""
        facts = self.streams[key[0]]
        if facts.gone_since < at:
            return "its stream had been deleted"
        if key[2] < facts.surely_purged_below(at - 1):
            return f"its stream had been purged before {facts.surely_purged_below(at - 1)}"
        if facts.ttl_ms_max and self.wall_ms(at)[0] - key[2] // IDS_PER_MS > facts.ttl_ms_max:
            return f"its ttl of {facts.ttl_ms_max} ms had ended"
        return None

    def may_be_held_back(self, it: Transaction, after: int, empty: Empty) -> bool:
        """Whether something after this id, and before the transaction, may have been open then."""
        partition = self.partitions[empty.stream, empty.partition]
        lost_until = partition.lost_opens_until(empty.end)
        return lost_until > empty.start or partition.first_possibly_open(after, empty.start) < it.id

    # Putting it together.

    def conclude(self) -> None:
        """Say of each transaction when it was open and from when on it must be seen."""
        for _, _, stream, number in self.turns:
            self.partitions[stream, number]  # somebody stood there, and nobody looked
        for stream, _ in self.partitions:
            self.streams[stream]
        for facts in self.streams.values():
            facts.finish()
        for node in self.nodes:
            self.effective[id(node)] = node.end if node.outcome == OK else inf
        for partition in self.partitions.values():
            for read in partition.reads:
                transaction = self.transactions.get((read.stream, read.partition, read.id))
                if transaction is not None:
                    transaction.read_at = min(transaction.read_at, read.end)
                    for node in transaction.commits[-1:]:
                        self.evidence(node, read.end)
        for stand, commit in self._saved_by_unknown():
            self.evidence(commit, stand.end)
        for transaction in self.transactions.values():
            self._conclude(transaction)
        for partition in self.partitions.values():
            partition.finish(self.ended_at)

    def evidence(self, node: Node, at: float) -> None:
        """At this time somebody saw that it had taken effect."""
        self.effective[id(node)] = min(self.effective[id(node)], at)

    def _saved_by_unknown(self) -> Iterator[tuple[Stand, Commit]]:
        """Resumes that show that a commit of which nobody was told has taken effect."""
        for place, stands in self.resumes.items():
            unknown = {last: it for it, last in self.saves[place] if it.outcome == UNKNOWN}
            told = {last for it, last in self.saves[place] if it.outcome == OK}
            for stand in stands:
                commit = unknown.get(stand.after)
                if commit is not None and stand.after not in told and commit.start < stand.end:
                    yield stand, commit

    def _conclude(self, it: Transaction) -> None:
        told = [node for node in it.commits if node.outcome == OK]
        if it.contents != {NOTHING}:  # an empty one ends as if it were cancelled
            it.effective = min((self.effective[id(node)] for node in it.commits), default=inf)
        opened = it.opened
        ends = [node.end for node in told] + [it.effective, it.read_at]
        ends += [refusal.end for refusal in it.refusals if says_expired(refusal)]
        if it.cancel is not None:
            ends.append(it.cancel.end)
        if isinstance(opened, Open):
            ends.append(self.ended_at(opened.agent, opened.epoch))
            starts = [node.start for node in it.commits]
            starts += [it.cancel.start] if it.cancel is not None else []
            if told or (it.cancel is not None and it.cancel.by_name):
                it.open_until = min(starts)
        else:
            ends.append(-inf)
        it.closed_at = min(ends)
