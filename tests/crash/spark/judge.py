"""What is in the results in the end, compared with what should be: the function of what is in the source."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import tstreams
from tests.crash.chain.items import ORDERS

SOURCE = ORDERS
RESULTS = "results"
STAGING_TTL_S = 30
"""What an orphan has staged holds up readers for so long, at most."""
FINDINGS_MAX = 50


@dataclass(slots=True)
class Verdict:
    """What went wrong, counted. `findings` has the first of it in words."""

    input_items: int = 0
    output_items: int = 0
    missing: int = 0
    duplicated: int = 0
    strange: int = 0
    """Items that no input accounts for."""
    findings: list[str] = field(default_factory=list)

    def add(self, kind: str, text: str, times: int = 1) -> None:
        """Something is wrong."""
        setattr(self, kind, getattr(self, kind) + times)
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(f"{kind}: {text}")


def expected(ts: tstreams.Client) -> Counter[bytes]:
    """What the query must make of its source."""
    return Counter(
        b"%d/%d/%d/%s" % (partition, txn.id, index, bytes(item).upper())
        for partition in range(ts.stream(SOURCE).partitions)
        for txn in ts.scan(SOURCE, partition)
        for index, item in enumerate(txn.items)
    )


def found(ts: tstreams.Client) -> Counter[bytes]:
    """What it has made."""
    return Counter(
        bytes(item)
        for partition in range(ts.stream(RESULTS).partitions)
        for txn in ts.scan(RESULTS, partition)
        for item in txn.items
    )


def found_in_the_end(ts: tstreams.Client, count: int) -> Counter[bytes]:
    """What it has made, when nothing holds readers up any more."""
    until = time.monotonic() + 2 * STAGING_TTL_S
    there = found(ts)
    while there.total() < count and time.monotonic() < until:
        time.sleep(1.0)
        there = found(ts)
    return there


def judge(wanted: Counter[bytes], there: Counter[bytes]) -> Verdict:
    """Item by item."""
    verdict = Verdict(wanted.total(), there.total())
    for item, times in (wanted - there).items():
        verdict.add("missing", item.decode(), times)
    for item, times in (there - wanted).items():
        verdict.add("duplicated" if item in wanted else "strange", item.decode(), times)
    return verdict
