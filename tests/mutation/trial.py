"""Tries a mutant: runs the tests that could notice it, in a process of its own.

First those that run its lines, the quick ones before the slow ones; then, if nobody noticed it, the two
simulations, which know the promises and not the lines. Functions are changed in a fork of a process that has all
tests loaded. What runs when a module is loaded needs a new process.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage
from hypothesis import Phase, settings

from tests.mutation.mutants import Mutant
from tests.mutation.planting import FOLDER, function_of, plant, plant_before_loading

TESTS = (
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
    "tests/unit/test_index.py",
    "tests/unit/test_index_groups.py",
    "tests/unit/test_index_sweep.py",
    "tests/unit/test_housekeeping.py",
    "tests/simulation/test_subscriptions.py",
    "tests/scenarios",
)
"""What runs the rules and is quick: without servers, without Spark."""
SHARD_SIMULATION = "tests/simulation/test_storage.py"
SEEDS = 40
"""Of the simulation of the whole system."""
FIRST_S = 10.0
"""So long, and five times what its tests take without it, a mutant may take before it counts as endless."""
SIMULATION_S = 120.0
MEMORY_BYTES_MAX = 3 << 30

OPTIONS = ("-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Plugins are loaded once and not again in each fork: that is no reason to warn."""

KILLED, ENDLESS, SURVIVED = "killed", "endless", "survived"


class Broken(Exception):
    """It is not known whether a mutant was noticed: the tests could not be run."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant, and which test noticed it."""

    what: str
    by: str = ""


@dataclass(frozen=True)
class Map:
    """Which tests run which lines, and how long each takes."""

    by_line: dict[str, dict[int, list[str]]]
    seconds: dict[str, float]

    def tests_for(self, mutant: Mutant) -> list[str]:
        """Those that run it, the quick ones first; all, if it is not in a function."""
        if function_of(mutant) is None:
            return sorted(self.seconds, key=self.seconds.__getitem__)
        lines = self.by_line.get(mutant.module, {})
        of_it = {test for n in mutant.lines for test in lines.get(n, ())}
        return sorted(of_it, key=self.seconds.__getitem__)


class _Clerk:
    """Watches tests: how long each takes, which was the first to fail."""

    def __init__(self, coverage: Coverage | None = None) -> None:
        self._coverage = coverage
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._coverage is not None:
            self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed and not self.failed:
            self.failed = report.nodeid


def load_tests(tests: Sequence[str] = TESTS) -> None:
    """Load all of them, so that forks need not."""
    _set_up_hypothesis()
    with _silence():
        code = pytest.main(["--collect-only", *OPTIONS, *tests, SHARD_SIMULATION])
    if code:
        raise Broken(f"tests cannot be loaded: pytest ended with {code}")


def _set_up_hypothesis() -> None:
    """The same examples for each mutant; and nobody needs a short one."""
    settings.register_profile(
        "mutants", phases=[Phase.explicit, Phase.generate], derandomize=True, database=None
    )
    settings.load_profile("mutants")


def draw_map(tests: Sequence[str] = TESTS) -> Map:
    """Run all of them once, and see which lines each of them runs."""
    data = json.loads(_in_fork(lambda: _measure(tests), 600.0))
    if data["failed"]:
        raise Broken(f"{data['failed']} fails without any mutant")
    by_line = {
        module: {int(line): tests for line, tests in lines.items()}
        for module, lines in data["by_line"].items()
    }
    return Map(by_line, data["seconds"])


def _measure(tests: Sequence[str]) -> str:
    coverage = Coverage(data_file=None, include=[f"{FOLDER}/*"], branch=False)
    clerk = _Clerk(coverage)
    coverage.start()
    _pytest(list(tests), clerk)
    coverage.stop()
    data = coverage.get_data()
    by_line = {
        Path(name).stem: {
            line: [it for it in tests if it]
            for line, tests in data.contexts_by_lineno(name).items()
        }
        for name in data.measured_files()
    }
    return json.dumps({"by_line": by_line, "seconds": clerk.seconds, "failed": clerk.failed})


# One mutant.


def attempt(mutant: Mutant, tests: Map) -> Verdict:
    """By the tests that run its lines."""
    chosen = tests.tests_for(mutant)
    if not chosen:
        return Verdict(SURVIVED, "no test runs it")
    limit_s = FIRST_S + 5 * sum(tests.seconds[it] for it in chosen)
    if function_of(mutant) is None:
        return _verdict(lambda: _afresh(mutant, chosen, limit_s + 10))
    return _verdict(lambda: _in_fork(lambda: _with(mutant, lambda: _pytest(chosen)), limit_s))


def simulate(mutant: Mutant) -> Verdict:
    """By the simulations."""
    if function_of(mutant) is None:
        return _verdict(lambda: _afresh(mutant, [SHARD_SIMULATION], SIMULATION_S))
    for run in (_simulate_system, lambda: _pytest([SHARD_SIMULATION])):
        found = _verdict(lambda run=run: _in_fork(lambda: _with(mutant, run), SIMULATION_S))  # type: ignore[misc]
        if found.what != SURVIVED:
            return found
    return Verdict(SURVIVED)


def _verdict(run: Callable[[], str]) -> Verdict:
    try:
        by = run()
    except TimeoutError:
        return Verdict(ENDLESS)
    return Verdict(KILLED, by) if by else Verdict(SURVIVED)


def _with(mutant: Mutant, run: Callable[[], str]) -> str:
    plant(mutant)
    return run()


def _pytest(tests: list[str], clerk: _Clerk | None = None) -> str:
    """The first test that fails, or nothing."""
    clerk = clerk or _Clerk()
    with _silence():
        code = pytest.main(["-x", *OPTIONS, *tests], plugins=[clerk])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return f"pytest: {pytest.ExitCode(code).name}"
    return clerk.failed


def _simulate_system() -> str:
    from tests.simulation.system.planning import make_plan
    from tests.simulation.system.run import carry_out

    for seed in range(1, SEEDS + 1):
        outcome = carry_out(make_plan(seed))
        if outcome.findings:
            return f"seed {seed}: {', '.join(sorted(outcome.kinds))}"
    return ""


# Processes.


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with (
        open(os.devnull, "w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        yield


def _in_fork(work: Callable[[], str], limit_s: float) -> str:
    """What came of it in a process that is a copy of this one. `TimeoutError`: nothing, for too long."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _in_child(work, writing)
    os.close(writing)
    os.set_blocking(reading, False)
    parts: list[bytes] = []
    until = time.monotonic() + limit_s
    while (status := os.waitpid(pid, os.WNOHANG))[0] == 0:
        with contextlib.suppress(BlockingIOError):
            parts.append(os.read(reading, 1 << 20))
        if time.monotonic() > until:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(reading)
            raise TimeoutError
        time.sleep(0.005)
    os.set_blocking(reading, True)
    while part := os.read(reading, 1 << 20):
        parts.append(part)
    os.close(reading)
    if status[1]:
        return f"process: ended with {os.waitstatus_to_exitcode(status[1])}"
    return b"".join(parts).decode()


def _in_child(work: Callable[[], str], writing: int) -> Any:
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        found = work().encode()
        while found:
            found = found[os.write(writing, found) :]
        code = 0
    finally:
        os._exit(code)


def _afresh(mutant: Mutant, tests: list[str], limit_s: float) -> str:
    command = [sys.executable, "-m", "tests.mutation.trial", mutant.module, str(mutant.number)]
    process = subprocess.Popen(
        [*command, *tests], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process:
        try:
            out, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise TimeoutError from None
    return out if process.returncode == 0 else f"process: ended with {process.returncode}"


if __name__ == "__main__":
    plant_before_loading(sys.argv[1], int(sys.argv[2]))
    _set_up_hypothesis()
    sys.stdout.write(_pytest(sys.argv[3:]))
