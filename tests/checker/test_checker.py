"""The checker finds every planted fault, calls it by its name, and finds nothing where nothing is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.checker.check import check
from tests.checker.faults import FAULTS
from tests.checker.findings import KINDS
from tests.checker.history import (
    OK,
    UNKNOWN,
    AnyOperation,
    Begin,
    Cancel,
    Commit,
    Empty,
    Instant,
    Key,
    Open,
    Purged,
    Read,
    Send,
    Stand,
    read,
    write,
)
from tests.checker.reference import Reference

SEEDS_MAX = 8
"""A fault strikes by chance: so many histories are tried before it counts as not found."""


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_right_histories_are_clean(first: int) -> None:
    for seed in range(first, first + 50):
        findings = check(Reference(seed).run(500), slack_ms=0)
        assert not findings, (seed, findings.shown)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_and_named(fault: str) -> None:
    struck = 0
    for seed in range(SEEDS_MAX):
        reference = Reference(seed, fault)
        findings = check(reference.run(2000), slack_ms=0)
        struck += reference.server.strikes
        if findings.kinds & FAULTS[fault][1]:
            assert struck, "found, and it did not even strike"
            return
    pytest.fail(f"{fault} struck {struck} times, and was not found by its name")


def test_every_kind_of_finding_is_the_only_name_of_some_fault() -> None:
    only = [kinds for _, kinds in FAULTS.values() if len(kinds) == 1]
    assert set().union(*only) == set(KINDS)


def test_a_fault_that_does_not_strike_is_no_finding() -> None:
    reference = Reference(1, "read-deleted")
    findings = check(reference.run(60), slack_ms=0)
    assert not reference.server.strikes
    assert not findings


def test_a_reader_that_only_stood_in_a_partition_is_judged_too() -> None:
    """Nothing else was done there: no transaction, and no look at it."""
    begin = Begin(0, 1, agent="reader:s#1:r", epoch=1)
    for after, kinds in ((0, set()), (7, {"offset-ahead"})):
        stand = Stand(2, 3, OK, begin.agent, 1, "s#1", after=after, resumed=True)
        assert check([begin, stand]).kinds == kinds


def test_an_open_of_which_nobody_was_told_excuses_readers_while_its_producer_lives() -> None:
    lost = Open(0, 10, UNKNOWN, "producer:s#1:p", 1, stream="s#1")
    there = Instant(20, 30, agent="producer:s#1:q", epoch=1, stream="s#1", id=5, count=1)
    nothing = Empty(60, 70, agent="reader:s#1:r", epoch=1, stream="s#1", after=0)
    assert not check([lost, there, nothing]).shown
    fencing = Begin(40, 50, agent="producer:s#1:p", epoch=2)
    assert check([lost, there, fencing, nothing]).kinds == {"lost-write"}
    too_late = Open(80, 90, UNKNOWN, "producer:s#1:p", 1, stream="s#1")
    assert check([there, nothing, too_late]).kinds == {"lost-write"}


def test_histories_are_the_same_for_a_seed() -> None:
    assert Reference(5).run(500) == Reference(5).run(500)
    assert Reference(5).run(500) != Reference(6).run(500)


def test_a_file_says_what_was_written_to_it(tmp_path: Path) -> None:
    operations = Reference(3).run(400)
    path = tmp_path / "history.jsonl"
    write(path, operations)
    assert list(read([path])) == operations
    with path.open("ab") as file:
        file.write(b'{"type":"read","sta')  # a client that was killed while it wrote
    assert list(read([path])) == operations


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.checker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_the_command_tells_what_is_wrong(tmp_path: Path) -> None:
    path = str(tmp_path / "history.jsonl")
    made = run("--generate", "2000", "--fault", "read-cancelled", path)
    assert made.returncode == 1
    again = run(path)
    assert again.returncode == 1
    assert "aborted-read: " in again.stdout
    assert "was cancelled, and reader:" in again.stdout
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"type":"nonsense"}\n')
    assert run(str(bad)).returncode == 2
    assert run(str(tmp_path / "missing.jsonl")).returncode == 2
    assert run("--generate", "300").returncode == 0


WHO = ("producer:a#1/p", 1)
READER = ("reader:a#1/r", 2)
FIRST, SECOND = 10**9, 10**9 + 1


def looked_behind_an_open_one(*more: AnyOperation) -> list[AnyOperation]:
    """One is open from 10 on; one behind it was written at 20."""
    return [
        Open(10, 11, OK, *WHO, "a#1", 0, FIRST),
        Instant(20, 21, OK, *WHO, "a#1", 0, SECOND, 1, 7),
        *more,
    ]


def test_one_that_was_purged_while_it_was_open_holds_others_back() -> None:
    purged = Purged(30, 31, stream="a#1", before=SECOND)
    nothing = Empty(40, 41, OK, *READER, "a#1", 0, 0)
    assert not check(looked_behind_an_open_one(purged, nothing))
    ended = Cancel(32, 33, OK, *WHO, [("a#1", 0, FIRST)])
    assert check(looked_behind_an_open_one(purged, ended, nothing)).kinds == {"lost-write"}


@pytest.mark.parametrize("is_open", [True, False])
def test_half_of_a_group_may_wait_behind_one_that_was_purged_while_it_was_open(
    is_open: bool,
) -> None:
    writer, third = ("producer:a#1/w", 3), SECOND + 1
    group: list[Key] = [("a#1", 0, SECOND), ("a#1", 1, third)]
    ended = [] if is_open else [Cancel(32, 33, OK, *WHO, [("a#1", 1, FIRST)])]
    found = check(
        [
            Open(10, 11, OK, *WHO, "a#1", 1, FIRST),
            *(Open(12, 13, OK, *writer, stream, number, it) for stream, number, it in group),
            *(Send(14, 15, OK, *writer, stream, number, it, 1, 7) for stream, number, it in group),
            Commit(20, 21, OK, *writer, group),
            Purged(30, 31, stream="a#1", before=SECOND),
            *ended,
            Stand(34, 35, OK, *READER, "a#1", 0, 0),
            Stand(34, 35, OK, *READER, "a#1", 1, 0),
            Read(40, 41, OK, *READER, "a#1", 0, SECOND, 1, 7),
            Empty(42, 43, OK, *READER, "a#1", 1, 0),
            Commit(
                50, 51, OK, *READER, [],
                [(READER[0], "a#1", 0, SECOND), (READER[0], "a#1", 1, 0)], [READER],
            ),
        ]
    )  # fmt: skip
    assert ("skew-cycle" in found.kinds) != is_open


def test_what_a_group_cancels_may_have_expired() -> None:
    read = Read(40, 41, OK, *READER, "a#1", 0, SECOND, 1, 7)
    cancel = Cancel(50, 51, OK, *WHO, [("a#1", 0, FIRST)], by_name=False)
    assert not check(looked_behind_an_open_one(read, cancel))
    named = Cancel(50, 51, OK, *WHO, [("a#1", 0, FIRST)])
    assert check(looked_behind_an_open_one(read, named)).kinds == {"read-past-open"}


def test_somebody_may_stand_where_nobody_looks() -> None:
    assert not check([Stand(1, 2, OK, *READER, "a#1", 0, 0)])
