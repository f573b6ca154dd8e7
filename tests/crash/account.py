"""What writers and readers know when it is over, and the verdict on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from tests.crash.items import Batch


class Outcome(Enum):
    """What a writer was told of a transaction."""

    ACKNOWLEDGED = "acknowledged"
    DROPPED = "dropped"
    """It was cancelled, or refused: it must not be there."""
    UNKNOWN = "unknown"
    """Nobody said: it may be there once, or not at all."""


@dataclass(slots=True)
class Written:
    """One transaction, as its writer knows it."""

    batch: Batch
    partition: int
    outcome: Outcome
    transaction_id: int | None = None
    together: int = 0
    """Transactions of a writer with the same number here were checkpointed at once: all or none."""


@dataclass(slots=True)
class Seen:
    """One transaction, as a reader saw it. `batch` is None if its items do not belong together."""

    partition: int
    transaction_id: int
    batch: Batch | None


@dataclass(slots=True)
class WriterAccount:
    """What one writer has to say."""

    written: list[Written] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ReaderAccount:
    """What one reader has to say. Nothing but these may be missing before `seen` begins: it began there."""

    name: str = ""
    seen: list[Seen] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Verdict:
    """What went wrong, counted. `findings` has the first of each in words."""

    acknowledged: int = 0
    unknown: int = 0
    dropped: int = 0
    read: int = 0
    lost: int = 0
    torn: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    wrongly_there: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether every promise was kept."""
        return not self.findings

    def add(self, kind: str, text: str) -> None:
        """Something is wrong."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.findings) < 100:
            self.findings.append(f"{kind}: {text}")


def judge(
    writers: Sequence[WriterAccount], drained: Sequence[Seen], readers: Sequence[ReaderAccount]
) -> Verdict:
    """Compare what is there in the end with what the writers were told and the readers saw."""
    verdict = Verdict(read=len(drained))
    for told in (writers, readers):
        for it in told:
            verdict.findings += it.errors
    _judge_order(verdict, "the drain", drained)
    found = {(it.batch.writer, it.batch.number): it for it in drained if it.batch is not None}
    known = set()
    for account in writers:
        for written in account.written:
            key = (written.batch.writer, written.batch.number)
            known.add(key)
            _judge_one(verdict, written, found.get(key))
        _judge_together(verdict, account, found)
    for key in found.keys() - known:
        verdict.add("wrongly_there", f"nobody wrote {key}")
    for reader in readers:
        _judge_reader(verdict, reader, drained)
    return verdict


def _judge_order(verdict: Verdict, who: str, seen: Sequence[Seen]) -> None:
    """Each partition in the order of ids, each writer's in the order of opening, each once."""
    last_id: dict[int, int] = {}
    last_number: dict[tuple[int, int], int] = {}
    times: Counter[tuple[int, int]] = Counter()
    for it in seen:
        if it.transaction_id <= last_id.get(it.partition, 0):
            verdict.add("out_of_order", f"{who}: {it} after {last_id[it.partition]}")
        last_id[it.partition] = it.transaction_id
        if it.batch is None:
            verdict.add("torn", f"{who}: transaction {it.transaction_id} of {it.partition}")
            continue
        key = (it.batch.writer, it.batch.number)
        times[key] += 1
        if times[key] > 1:
            verdict.add("duplicated", f"{who}: {it}")
        elif it.batch.number < last_number.get((it.batch.writer, it.partition), -1):
            verdict.add("out_of_order", f"{who}: {it}")
        last_number[it.batch.writer, it.partition] = it.batch.number


def _judge_one(verdict: Verdict, written: Written, found: Seen | None) -> None:
    match written.outcome:
        case Outcome.ACKNOWLEDGED:
            verdict.acknowledged += 1
            if found is None:
                verdict.add("lost", f"{written}")
            elif written.transaction_id not in (None, found.transaction_id):
                verdict.add("lost", f"{written} is there as {found}")
        case Outcome.DROPPED:
            verdict.dropped += 1
            if found is not None:
                verdict.add("wrongly_there", f"{written} is there as {found}")
        case Outcome.UNKNOWN:
            verdict.unknown += 1
    if found is not None and (found.partition, found.batch) != (written.partition, written.batch):
        verdict.add("torn", f"{written} is there as {found}")


def _judge_together(
    verdict: Verdict, account: WriterAccount, found: dict[tuple[int, int], Seen]
) -> None:
    """What was checkpointed at once is there together or not at all."""
    sets: dict[int, list[bool]] = {}
    for written in account.written:
        if written.together:
            is_there = (written.batch.writer, written.batch.number) in found
            sets.setdefault(written.together, []).append(is_there)
    for number, there in sets.items():
        if any(there) and not all(there):
            verdict.add("torn", f"{sum(there)} of {len(there)} of a checkpoint ({number})")


def _judge_reader(verdict: Verdict, reader: ReaderAccount, drained: Sequence[Seen]) -> None:
    """A reader saw what the drain saw, up to where it came, with nothing left out."""
    _judge_order(verdict, reader.name, reader.seen)
    for partition in {it.partition for it in drained}:
        seen = [it.transaction_id for it in reader.seen if it.partition == partition]
        there = [it.transaction_id for it in drained if it.partition == partition]
        missing = set(there[: there.index(seen[-1]) + 1] if seen and seen[-1] in there else [])
        missing -= set(seen)
        for transaction_id in sorted(missing):
            verdict.add("lost", f"{reader.name} did not see {transaction_id} of {partition}")
        for transaction_id in sorted(set(seen) - set(there)):
            verdict.add("wrongly_there", f"{reader.name} saw {transaction_id} of {partition}")
