"""A soak: seeds in several processes, until the time is up or somebody says so, and its report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation import report as reports
from tests.simulation.conftest import Apart
from tests.simulation.report import Report
from tests.simulation.soak import Assignment, soak
from tests.simulation.system.plan import load
from tests.simulation.system.planning import make_plan
from tests.simulation.system.run import carry_out

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.simulation"]


def soaked(assignment: Assignment, path: Path) -> list[str]:
    """What it said. The report is at the path."""
    said: list[str] = []
    soak(assignment, path, "a test", said.append)
    return said


def figures(seeds: list[int]) -> tuple[Counter[str], Counter[str]]:
    """Faults and operations of seeds that are run one after the other."""
    faults: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    for seed in seeds:
        outcome = carry_out(make_plan(seed))
        faults.update(outcome.figures["faults_by_kind"])
        operations.update(type(it).__name__ for it in outcome.history)
    return faults, operations


def test_what_it_reports_is_what_happens_in_its_seeds(apart: Apart, tmp_path: Path) -> None:
    """However many processes there are; and the same seeds leave the same traces."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    apart(soaked, Assignment(first=11, count=6, workers=2), first)
    apart(soaked, Assignment(first=11, count=6, workers=1), second)
    found = reports.load(first)
    assert (found.ended, found.failures) == ("all seeds were run", [])
    assert (found.runs, found.seeds) == (6, [(11, 16)])
    faults, operations = apart(figures, list(range(11, 17)))
    assert found.faults == faults
    assert found.operations == operations
    assert found.totals["operations"] == operations.total() == sum(found.outcomes.values())
    assert found.trace == reports.load(second).trace
    assert found.wall_s > 0
    assert found.cpu_s > 0


def test_a_seed_that_goes_wrong_is_told_and_the_others_go_on(apart: Apart, tmp_path: Path) -> None:
    folder = tmp_path / "build" / "soaks"  # is made
    path = folder / "report.json"
    assignment = Assignment(count=3, workers=1, mistake="no-epoch-check", shrinking_runs=25)
    said = apart(soaked, assignment, path)
    found = reports.load(path)
    assert found.runs == 3
    failure = found.failures[0]
    assert "fenced-acknowledged" in failure.kinds
    assert failure.story in said
    plan = load(folder / f"report-seed-{failure.seed}.json")
    assert len(plan.deeds) < 120
    assert (folder / f"report-seed-{failure.seed}.txt").read_text() == failure.story + "\n"
    page = reports.render(found)
    assert f"### Seed {failure.seed}: " in page
    assert failure.story in page


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_its_report(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "report.json"
    process = subprocess.Popen(
        [*COMMAND, "--hours", "1", "--workers", "2", "--report", str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stderr is not None
        assert " 0 wrong" in process.stderr.readline()
        os.killpg(process.pid, number)  # as a terminal does, and timeout: all of them hear of it
        out, rest = process.communicate(timeout=100)
    assert process.returncode == 0, rest
    found = reports.load(path)
    assert found.ended == f"{number.name} came"
    assert found.runs >= 1
    assert not found.failures
    assert found.trace in out
    rendered = subprocess.run(
        [*COMMAND, "--render", str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert rendered.stdout == reports.render(found)


def test_a_worker_that_dies_is_a_finding(tmp_path: Path) -> None:
    """And another one takes its place."""
    path = tmp_path / "report.json"
    process = subprocess.Popen(
        [*COMMAND, "--seeds", "12", "--workers", "1", "--report", str(path)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        process.stderr.readline()
        for child in _workers_of(process.pid):
            os.kill(child, signal.SIGKILL)
        assert process.wait(100) == 1
    found = reports.load(path)
    assert [it.kinds for it in found.failures] == [["worker"]]
    assert found.runs == 11
    assert "worker: its process ended with -9" in reports.render(found)


def _workers_of(pid: int) -> list[int]:
    import psutil

    return [
        it.pid for it in psutil.Process(pid).children() if "spawn_main" in " ".join(it.cmdline())
    ]


def test_rows_of_seeds_and_empty_tables() -> None:
    tally = reports.Tally()
    for seed in (3, 1, 2, 7):
        tally.add(reports.Seed(seed, "", {"operations": 1, "faults_by_kind": {"kill": 2}}))
    report = Report("c", "now", "python", 120, 1)
    tally.write_to(report)
    assert report.seeds == [(1, 3), (7, 7)]
    assert report.faults == {"kill": 8}
    page = reports.render(report)
    assert "1 to 3, 7 to 7" in page
    assert page.endswith("## What was found\n\nNothing.\n")
