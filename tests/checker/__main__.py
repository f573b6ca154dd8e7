"""Check histories: python -m tests.checker FILE...     one JSON line per operation, in any order

Ends with status 1 if anything is wrong. `--generate N` makes a history of N operations of the reference
system (with `--seed`, `--fault`), writes it to FILE if one is given, and checks it.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path

from tests.checker.check import SLACK_MS, check
from tests.checker.faults import FAULTS
from tests.checker.findings import KINDS, Findings
from tests.checker.history import AnyOperation, BadHistory, read, write
from tests.checker.reference import Reference


def main() -> int:
    """Do it."""
    parser = argparse.ArgumentParser("python -m tests.checker", description=__doc__.split(":")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument(
        "--slack-ms", type=int, default=SLACK_MS, help="how far clocks may be apart"
    )
    parser.add_argument("--generate", type=int, metavar="N", help="make a history of N operations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=sorted(FAULTS), metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--json", action="store_true", help="one object, for programs")
    given = parser.parse_args()
    if not given.files and given.generate is None:
        parser.error("give files, or --generate N")
    try:
        operations = _operations(given)
    except (OSError, BadHistory) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    gc.disable()  # nothing of this is garbage before the end
    began = time.perf_counter()
    findings = check(operations, given.slack_ms)
    seconds = time.perf_counter() - began
    _tell(findings, len(operations), seconds, given.json)
    return 1 if findings else 0


def _operations(given: argparse.Namespace) -> list[AnyOperation]:
    if given.generate is None:
        return list(read(given.files))
    operations = Reference(given.seed, given.fault).run(given.generate)
    if given.files:
        write(given.files[0], operations)
        return list(read(given.files[:1]))
    return operations


def _tell(findings: Findings, count: int, seconds: float, as_json: bool) -> None:
    if as_json:
        shown = [{"kind": it.kind, "text": it.text} for it in findings.shown]
        found = {"operations": count, "seconds": round(seconds, 2), "findings": findings.counts}
        print(json.dumps({**found, "shown": shown}))
        return
    for kind, number in findings.counts.items():
        print(f"{kind}: {number} ({KINDS[kind]})")
        some = [it for it in findings.shown if it.kind == kind]
        for it in some:
            print(f"    {it.text}")
        if number > len(some):
            print(f"    and {number - len(some)} more")
    verdict = "nothing is wrong" if not findings else f"{findings.counts.total()} findings"
    print(f"{count} operations in {seconds:.1f} s: {verdict}")


if __name__ == "__main__":
    sys.exit(main())
