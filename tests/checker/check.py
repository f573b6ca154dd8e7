"""The verdict on a history."""

from __future__ import annotations

from collections.abc import Iterable

from tests.checker import cycles, offsets, order, reading, writing
from tests.checker.findings import Findings
from tests.checker.history import AnyOperation
from tests.checker.knowledge import Knowledge

SLACK_MS = 1000
"""How far clocks of clients and server may be apart, where a ttl is judged."""


def check(operations: Iterable[AnyOperation], slack_ms: int = SLACK_MS) -> Findings:
    """All that is wrong with these operations of all clients, in any order."""
    findings = Findings()
    known = Knowledge(operations, slack_ms)
    reading.place_the_unknown(known, findings)
    known.conclude()
    writing.check(known, findings)
    reading.check(known, findings)
    order.check(known, findings)
    offsets.check(known, findings)
    cycles.check(known, findings)
    return findings
