"""How much of the storage is covered by quick tests, in lines and branches: python -m tests.covered

The exit code is 1 if a test fails, or if any of the four packages is below `PERCENT_MIN`. What is measured and
what is left out is in `pyproject.toml`, under `tool.coverage`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from coverage import Coverage

PACKAGES = ("core", "ledger", "index", "items")
PERCENT_MIN = 95
TESTS = (
    "tests/fuzz",
    "tests/integration/log",
    "tests/integration/replicas/test_following.py",
    "tests/integration/replicas/test_snapshots.py",
    "tests/scenarios",
    "tests/simulation",
    "tests/unit/test_budget.py",
    "tests/unit/test_core.py",
    "tests/unit/test_core_copies.py",
    "tests/unit/test_core_format.py",
    "tests/unit/test_core_group_records.py",
    "tests/unit/test_core_groups.py",
    "tests/unit/test_core_limits.py",
    "tests/unit/test_core_memory.py",
    "tests/unit/test_core_overruling.py",
    "tests/unit/test_core_records.py",
    "tests/unit/test_core_sessions.py",
    "tests/unit/test_housekeeping.py",
    "tests/unit/test_index.py",
    "tests/unit/test_index_groups.py",
    "tests/unit/test_index_listing.py",
    "tests/unit/test_index_sweep.py",
    "tests/unit/test_index_swept.py",
    "tests/unit/test_items.py",
    "tests/unit/test_items_arrow.py",
    "tests/unit/test_items_headers.py",
    "tests/unit/test_jetstream_answers.py",
    "tests/unit/test_jetstream_news.py",
    "tests/unit/test_ledger.py",
    "tests/unit/test_ledger_failures.py",
    "tests/unit/test_replicated.py",
)
"""In one process, without Spark, and without servers but those of the log's engine: a few minutes."""

ELSEWHERE = ("tests/simulation/test_seeds.py", "tests/simulation/test_soak.py")
"""They run in processes of their own, where nothing is measured."""


def main() -> int:
    """Run the tests, print a table for each package, and judge."""
    Path("build").mkdir(exist_ok=True)
    tests = [*TESTS, *(f"--ignore={it}" for it in ELSEWHERE), "--bookkeeper=all"]
    run = [sys.executable, "-m", "coverage", "run", "-m", "pytest", *tests, *sys.argv[1:]]
    if subprocess.run(run, check=False).returncode:
        print("a test failed: nothing is said about coverage")
        return 1
    covered = Coverage()
    covered.load()
    percents = {}
    for package in PACKAGES:
        print(f"\n== {package}", flush=True)
        percents[package] = covered.report(include=[f"src/tstreams/{package}/*"])
    print()
    for package, percent in percents.items():
        verdict = "" if percent >= PERCENT_MIN else f": less than {PERCENT_MIN} %"
        print(f"{package:<6} {percent:6.2f} %{verdict}")
    return 1 if min(percents.values()) < PERCENT_MIN else 0


if __name__ == "__main__":
    sys.exit(main())
