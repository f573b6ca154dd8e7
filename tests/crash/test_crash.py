"""The short version of `python -m tests.crash`, and that its judge would notice."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from tests.crash.account import (
    Outcome,
    ReaderAccount,
    Seen,
    Verdict,
    WriterAccount,
    Written,
    judge,
)
from tests.crash.items import Batch, make_items, read_items


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "shards"), [(5, 1), (3, 3)])
def test_nothing_is_lost_when_the_server_is_killed(kills: int, shards: int) -> None:
    command = [sys.executable, "-m", "tests.crash", "--json"]
    command += ["--kills", str(kills), "--shards", str(shards)]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    assert found.returncode == 0, found.stdout + found.stderr
    report = json.loads(found.stdout)
    assert report["kills"] == kills
    assert report["acknowledged"] > 100
    wrong = ("lost", "torn", "duplicated", "out_of_order", "wrongly_there")
    assert {name: report[name] for name in wrong} == dict.fromkeys(wrong, 0)


def test_items_know_where_they_belong() -> None:
    batch = Batch(3, 17, 5)
    items = make_items(batch, random.Random(1))
    assert read_items(items) == batch
    assert read_items(items[:-1]) is None
    assert read_items(items[1:]) is None
    assert read_items([*items, items[-1]]) is None
    assert read_items([items[1], items[0], *items[2:]]) is None
    other = make_items(Batch(3, 18, 5), random.Random(1))
    assert read_items([*items[:2], *other[2:]]) is None
    assert read_items([items[0][:-1] + b"!", *items[1:]]) is None
    assert read_items([]) is None


def verdict(
    *seen: Seen, outcome: Outcome = Outcome.ACKNOWLEDGED, read: list[Seen] | None = None
) -> Verdict:
    """Two transactions of one writer, checkpointed together; then this was seen."""
    written = [Written(Batch(0, n, 1), 0, outcome, 100 + n, together=1) for n in range(2)]
    readers = [] if read is None else [ReaderAccount("r", read)]
    return judge([WriterAccount(written)], seen, readers)


FIRST, SECOND = Seen(0, 100, Batch(0, 0, 1)), Seen(0, 101, Batch(0, 1, 1))


def test_the_judge_is_content_when_all_is_well() -> None:
    assert verdict(FIRST, SECOND, read=[FIRST]).is_good
    assert verdict(outcome=Outcome.UNKNOWN).is_good
    assert verdict(FIRST, SECOND, outcome=Outcome.UNKNOWN).is_good
    assert verdict(outcome=Outcome.DROPPED).is_good


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (verdict(FIRST), "lost"),
        (verdict(FIRST, outcome=Outcome.UNKNOWN), "torn"),
        (verdict(FIRST, Seen(0, 101, None)), "torn"),
        (verdict(FIRST, Seen(0, 101, Batch(0, 1, 2))), "torn"),
        (verdict(FIRST, SECOND, Seen(0, 102, Batch(0, 1, 1))), "duplicated"),
        (verdict(SECOND, FIRST), "out_of_order"),
        (verdict(FIRST, SECOND, outcome=Outcome.DROPPED), "wrongly_there"),
        (verdict(FIRST, SECOND, Seen(0, 102, Batch(9, 9, 1))), "wrongly_there"),
        (verdict(FIRST, SECOND, read=[SECOND]), "lost"),
        (verdict(FIRST, SECOND, read=[FIRST, FIRST, SECOND]), "duplicated"),
        (verdict(FIRST, SECOND, read=[SECOND, FIRST]), "out_of_order"),
        (verdict(FIRST, SECOND, read=[Seen(0, 99, Batch(0, 7, 1)), FIRST]), "wrongly_there"),
    ],
)
def test_the_judge_notices(found: Verdict, kind: str) -> None:
    assert getattr(found, kind) > 0
    assert not found.is_good
