"""Runs seeds in several processes, for a time, and writes a report of it.

A seed that goes wrong is shrunk and told, and the others go on. A process that dies or hangs with a seed is a
finding too, and another takes its place. SIGINT and SIGTERM end it as the end of its time does: what is under
way is finished, and the report is written.
"""

from __future__ import annotations

import gc
import multiprocessing
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import msgspec

from tests.simulation import report as reports
from tests.simulation.report import Failure, Report, Seed, Tally
from tests.simulation.system import mistakes
from tests.simulation.system.planning import make_plan
from tests.simulation.system.run import Outcome, carry_out
from tests.simulation.system.shrinking import RUNS_MAX, Shrinking
from tests.simulation.system.story import tell

SAVE_EVERY_S = 60.0
PROGRESS_EVERY_S = 30.0
SEED_S_MAX = 900.0
"""How long a worker may be silent. A seed takes a fifth of a second, and shrinking one a minute or two."""
SHRUNK_MAX = 10
"""Failures of one worker that are shrunk. The seeds after them are worth more than an eleventh story."""
FINDINGS_KEPT = 10

_context = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Assignment:
    """What workers are to do."""

    first: int = 1
    count: int | None = None
    """How many seeds; None: until the time is up."""
    duration_s: float | None = None
    steps: int = 120
    workers: int = 1
    mistake: str | None = None
    """Planted in all of them, to see that it is found."""
    shrinking_runs: int = RUNS_MAX


@dataclass
class _Worker:
    process: Any
    connection: Connection
    seed: int | None = None
    """What it is at, if anything."""
    has_spoken: bool = False
    heard_at_s: float = field(default_factory=time.monotonic)


def soak(
    assignment: Assignment, path: Path | None, command: str, say: Callable[[str], object]
) -> Report:
    """Run seeds until the time is up, all are done, or a signal comes. The report is at `path`, too."""
    return _Soak(assignment, path, command, say).run()


class _Soak:
    def __init__(
        self,
        assignment: Assignment,
        path: Path | None,
        command: str,
        say: Callable[[str], object],
    ) -> None:
        self._assignment = assignment
        self._path = path
        self._say = say
        self._next = assignment.first
        self._is_over = _context.RawValue("b", 0)  # without a lock: who holds one may be killed
        self._tally = Tally()
        self._workers: list[_Worker] = []
        self._begun_s = time.monotonic()
        begun = datetime.now(UTC).isoformat(timespec="seconds")
        self._report = Report(
            reports.commit(), begun, command, assignment.steps, assignment.workers
        )

    def run(self) -> Report:
        if self._path is not None:  # now, and not when hours have gone by
            self._path.parent.mkdir(parents=True, exist_ok=True)
        with _signals(self._signal):
            try:
                for _ in range(self._assignment.workers):
                    self._start_worker()
                self._follow()
            finally:
                for worker in self._workers:
                    worker.process.kill()
                    worker.process.join()
        self._write()
        return self._report

    def _signal(self, number: int, frame: object) -> None:
        self._end(f"{signal.Signals(number).name} came")

    def _end(self, why: str) -> None:
        self._report.ended = self._report.ended or why
        self._is_over.value = 1

    def _start_worker(self) -> None:
        ours, theirs = _context.Pipe()
        process = _context.Process(target=_work, args=(self._assignment, self._is_over, theirs))
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        self._hand_out(worker)

    def _hand_out(self, worker: _Worker) -> None:
        """The next seed, or None: there is no more."""
        count = self._assignment.count
        is_last = count is not None and self._next >= self._assignment.first + count
        worker.seed = None if self._is_over.value or is_last else self._next
        self._next += worker.seed is not None
        with suppress(BrokenPipeError, ConnectionResetError):  # it is dead: its end is heard next
            worker.connection.send(worker.seed)

    # What workers say.

    def _follow(self) -> None:
        duration_s = self._assignment.duration_s
        saved_s = said_s = self._begun_s
        while self._workers:
            found = wait([it.connection for it in self._workers], timeout=0.5)
            for worker in [it for it in self._workers if it.connection in found]:
                self._hear(worker)
            self._look_for_silence()
            now_s = time.monotonic()
            if duration_s is not None and now_s >= self._begun_s + duration_s:
                self._end("the time was up")
            if now_s >= said_s + PROGRESS_EVERY_S or (said_s == self._begun_s and self._tally):
                said_s = now_s
                self._say(self._line())
            if now_s >= saved_s + SAVE_EVERY_S:
                saved_s = now_s
                self._write()
        self._report.ended = self._report.ended or "all seeds were run"

    def _hear(self, worker: _Worker) -> None:
        """Something came of a worker: a seed went wrong, or is done; or its end."""
        try:
            message: Failure | Seed = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            self._gone(worker, "ended")
            return
        worker.heard_at_s, worker.has_spoken = time.monotonic(), True
        if isinstance(message, Failure):
            self._failed(message)
        else:
            self._tally.add(message)
            self._hand_out(worker)

    def _gone(self, worker: _Worker, how: str) -> None:
        self._workers.remove(worker)
        worker.process.join()
        if worker.seed is None:
            return
        if not worker.has_spoken:
            if self._is_over.value:
                return  # a signal came, which it could not wait for yet
            raise RuntimeError(f"a worker could not begin: it ended with {worker.process.exitcode}")
        text = f"worker: its process {how} with {worker.process.exitcode}"
        self._failed(Failure(worker.seed, [text]))
        self._start_worker()

    def _look_for_silence(self) -> None:
        for worker in list(self._workers):
            if time.monotonic() > worker.heard_at_s + SEED_S_MAX:
                worker.process.kill()
                self._gone(worker, f"did not come to an end in {SEED_S_MAX:.0f} s, and ended")

    def _failed(self, failure: Failure) -> None:
        self._report.failures.append(failure)
        self._say(failure.story or f"seed {failure.seed}: {', '.join(failure.findings)}")
        if self._path is not None and failure.story:
            stem = f"{self._path.stem}-seed-{failure.seed}"
            self._path.with_name(stem + ".txt").write_text(failure.story + "\n")
            self._path.with_name(stem + ".json").write_text(failure.plan + "\n")
        self._write()

    # What is written.

    def _line(self) -> str:
        elapsed_s = time.monotonic() - self._begun_s
        tally = self._tally
        return (
            f"{elapsed_s / 60:6.1f} min: {len(tally)} seeds, {len(self._report.failures)} wrong; "
            f"{tally.total('operations'):.0f} operations, {tally.total('faults'):.0f} faults, "
            f"{len(tally) / elapsed_s:.1f} seeds/s"
        )

    def _write(self) -> None:
        report = self._report
        self._tally.write_to(report)
        report.failures.sort(key=lambda it: it.seed)
        report.wall_s = round(time.monotonic() - self._begun_s, 1)
        ours = resource.getrusage(resource.RUSAGE_SELF)
        theirs = resource.getrusage(resource.RUSAGE_CHILDREN)  # of those that have ended
        report.cpu_s = round(sum(it.ru_utime + it.ru_stime for it in (ours, theirs)), 1)
        report.rss_mib_max = theirs.ru_maxrss // 1024
        if self._path is not None:
            reports.save(report, self._path)


@contextmanager
def _signals(handler: Callable[[int, object], None]) -> Iterator[None]:
    before = {it: signal.signal(it, handler) for it in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


# In a worker.


def _work(assignment: Assignment, is_over: Any, connection: Connection) -> None:
    """Do one seed after the other."""
    for it in (signal.SIGINT, signal.SIGTERM):  # a terminal tells all: our parent stops us
        signal.signal(it, signal.SIG_IGN)
    planted = mistakes.planted(assignment.mistake) if assignment.mistake else nullcontext()
    gc.freeze()
    shrunk = 0
    with planted:
        for number in iter(connection.recv, None):
            outcome = carry_out(make_plan(number, assignment.steps))
            if outcome.findings:
                runs_max = assignment.shrinking_runs if shrunk < SHRUNK_MAX else 0
                shrunk += 1
                connection.send(_failure(outcome, runs_max, lambda: bool(is_over.value)))
            connection.send(Seed(number, outcome.digest, outcome.figures))
            del outcome
            gc.collect()


def _failure(outcome: Outcome, runs_max: int, is_enough: Callable[[], bool]) -> Failure:
    findings = outcome.findings[:FINDINGS_KEPT]
    if not runs_max:
        return Failure(outcome.plan.seed, findings)
    shortest = Shrinking(outcome, runs_max, is_enough).shrink()
    plan = msgspec.json.format(msgspec.json.encode(shortest.plan)).decode()
    return Failure(outcome.plan.seed, findings, tell(shortest), plan)


def say(text: str) -> None:
    """To whoever watches; what programs read goes elsewhere."""
    print(text, file=sys.stderr, flush=True)
