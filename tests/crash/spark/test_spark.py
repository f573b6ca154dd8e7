"""The short version of `python -m tests.crash --spark`, and that its judge would notice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from tests.crash.spark.judge import Verdict, judge


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("demo")
def test_a_query_that_is_killed_is_exactly_once() -> None:
    command = [sys.executable, "-m", "tests.crash", "--spark", "--kills", "2", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=580)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["findings"] == []
    assert done.returncode == 0
    assert (report["driver_kills"], report["server_kills"]) == (1, 1)
    assert report["input_items"] == report["output_items"] > 100
    wrong = ("missing", "duplicated", "strange")
    assert {name: report[name] for name in wrong} == dict.fromkeys(wrong, 0)


def test_the_judge_is_content_when_all_is_well() -> None:
    items = Counter([b"a", b"b", b"b"])
    assert judge(items, Counter(items)) == Verdict(3, 3)


@pytest.mark.parametrize(
    ("there", "kind", "count"),
    [
        (Counter({b"a": 1, b"b": 1}), "missing", 1),
        (Counter({b"b": 2}), "missing", 1),
        (Counter({b"a": 3, b"b": 2}), "duplicated", 2),
        (Counter({b"a": 1, b"b": 2, b"c": 4}), "strange", 4),
    ],
)
def test_the_judge_notices(there: Counter[bytes], kind: str, count: int) -> None:
    verdict = judge(Counter([b"a", b"b", b"b"]), there)
    assert {it: getattr(verdict, it) for it in ("missing", "duplicated", "strange")} == {
        **dict.fromkeys(("missing", "duplicated", "strange"), 0),
        kind: count,
    }
    assert verdict.findings
