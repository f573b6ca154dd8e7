"""What came of a campaign: the histories of all clients, what is there in the end, and what the server logged."""

from __future__ import annotations

import gc
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import tstreams
from tests.checker.check import check
from tests.checker.history import OK, UNKNOWN, AnyOperation, Commit, Instant, Read, read
from tests.torture.scene import Incident, Scene
from tests.torture.work import LOOP, PRODUCERS, RECORDED, STREAMS, passed_on

STILL_S_MAX = 90.0
"""Longer than this must never pass without a write or without a read of anybody: no fault lasts so long."""
PROGRESS: dict[str, tuple[type[AnyOperation], ...]] = {
    "writing": (Instant, Commit),
    "reading": (Read,),
}
FINDINGS_MAX = 50
DRAIN_WAIT_S = 3.0
_MISTAKES = re.compile(rb"Traceback|mistake in the program|never retrieved|was never awaited")
_CONTEXT_BYTES = 1500


@dataclass(slots=True)
class Verdict:
    """What is wrong."""

    operations: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    longest_standstill: dict[str, Any] = field(default_factory=dict)
    exactly_once: dict[str, int] = field(default_factory=dict)
    """Items that were passed on, and should have been, by the loop and the query."""
    findings: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Something is wrong."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(text)


def conclude(scene: Scene, url: str, also: Sequence[str] = ()) -> None:
    """Read all that is there, for the record: nobody writes any more. `also`: streams that are not in every campaign."""
    with tstreams.connect(url) as ts:
        names = [(post.kind, post.name) for post in scene.posts if post.kind in PRODUCERS]
        names += [("orphan", name) for name in scene.orphans]
        for kind, name in names:
            scene.recorder.fence(ts, PRODUCERS[kind], name)
        _drain_loop(ts)
        for stream in (*RECORDED, *also):
            scene.recorder.audit(ts, stream)


def _drain_loop(ts: tstreams.Client) -> None:
    ts.process("a", LOOP, "d", passed_on, max_wait=DRAIN_WAIT_S, stop=threading.Event())


def judge(scene: Scene, url: str, verdict: Verdict) -> None:
    """What all clients did and were told, while somebody still serves."""
    verdict.findings += scene.complaints
    verdict.findings += [it for post in scene.posts for it in post.complaints]
    histories = sorted(scene.folder.glob("*.jsonl"))
    judge_histories(histories, verdict, scene.incidents, scene.told_to_end_s)
    _judge_loop(url, verdict)


def judge_histories(
    paths: Sequence[Path],
    verdict: Verdict,
    incidents: Sequence[Incident] = (),
    until_s: float = inf,
) -> None:
    """The checker's word on them, and how long nothing happened until then."""
    operations = list(read(paths))
    verdict.operations = len(operations)
    told = Counter(it.outcome for it in operations)
    verdict.outcomes = {
        "ok": told.pop(OK, 0), "unknown": told.pop(UNKNOWN, 0), "refused": told.total(),
    }  # fmt: skip
    for what, kinds in PROGRESS.items():
        done = (it.end for it in operations if it.outcome == OK and isinstance(it, kinds))
        found = standstill(sorted(it / 1e6 for it in done if it / 1e6 < until_s), incidents)
        verdict.longest_standstill[what] = found
        if found.get("seconds", 0.0) > STILL_S_MAX:
            verdict.add(f"no-progress: nothing was done of {what} for {found['seconds']} s")
    gc.disable()  # nothing of this is garbage before the end
    try:
        findings = check(operations)
    finally:
        gc.enable()
    for it in findings.shown:
        verdict.add(str(it))
    hidden = findings.counts.total() - len(findings.shown)
    if hidden > 0:
        verdict.add(f"and {hidden} more of these")


def standstill(done_s: Sequence[float], incidents: Sequence[Incident]) -> dict[str, Any]:
    """The longest time between two of these moments, and what was wrong then."""
    if len(done_s) < 2:
        return {}
    begin_s, end_s = max(pairwise(done_s), key=lambda it: it[1] - it[0])
    during = [it for it in incidents if it.begin_s < end_s and it.end_s > begin_s]
    return {
        "seconds": round(end_s - begin_s, 2),
        "after_s": round(begin_s - done_s[0], 1),
        "faults": sorted({it.kind for it in during}),
    }


def compare(what: str, wanted: Counter[bytes], there: Counter[bytes], verdict: Verdict) -> None:
    """Item by item."""
    verdict.exactly_once[what] = there.total()
    verdict.exactly_once[f"{what}_wanted"] = wanted.total()
    for name, difference in (("missing", wanted - there), ("too many", there - wanted)):
        if difference:
            some = b", ".join(list(difference)[:3]).decode(errors="replace")
            verdict.add(f"{what}: {difference.total()} {name}: {some}")


def _judge_loop(url: str, verdict: Verdict) -> None:
    """What is in the sink of the loop is what is in its source, each item once."""
    with tstreams.connect(url) as ts:
        wanted: Counter[bytes] = Counter()
        there: Counter[bytes] = Counter()
        for partition in range(STREAMS["a"]):
            for transaction in ts.scan("a", partition):
                wanted.update(passed_on(transaction))
        for partition in range(STREAMS["d"]):
            for transaction in ts.scan("d", partition):
                there.update(map(bytes, transaction.items))
    compare("loop", wanted, there, verdict)


def judge_query(url: str, verdict: Verdict) -> None:
    """What the query on Spark has made is what is in its source, each item once."""
    from tests.crash.spark.judge import expected, found_in_the_end

    with tstreams.connect(url) as ts:
        wanted = expected(ts)
        compare("query", wanted, found_in_the_end(ts, wanted.total()), verdict)


def judge_log(path: Path, verdict: Verdict) -> None:
    """A server has met nothing that it was not written for."""
    text = path.read_bytes()
    for found in list(_MISTAKES.finditer(text))[:3]:
        around = text[max(0, found.start() - 300) : found.start() + _CONTEXT_BYTES]
        verdict.add(f"the log {path.parent.name}/{path.name}: {around.decode(errors='replace')}")
