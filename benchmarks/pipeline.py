"""Read, transform, write, exactly once: one atomic commit per batch, beside Redis, PostgreSQL and Kafka.

Each worker process takes batches of its own partition, puts every item into upper case, and commits the
results together with its place in the input, durably. All contestants run at the same time with their data
on the same filesystem, and take turns within every workload; ratios are taken within a round, and their
median is reported.
"""

from __future__ import annotations

import contextlib
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from .fleet import Fleet, fleet
from .interface import BadOptions, Progress, Report
from .pipeline_plan import (
    MANY_WORKERS,
    WORKLOADS,
    Key,
    Measured,
    Phase,
    Plan,
    Subject,
    Workload,
    make_subjects,
)
from .pipeline_report import make_report
from .pipeline_workers import Contestants
from .report import grouped
from .rounds import rotated
from .scratch import add_dir_argument, scratch_folder
from .servers import Server

SUMMARY = "Read, transform, write with one atomic commit, beside Redis, PostgreSQL and Kafka."
ROUNDS_MIN = 3
_FIRST_BATCHES = 20

FULL = Plan(seconds=1.0, rounds=5, batches_max=10_000)
QUICK = Plan(seconds=0.02, rounds=1, batches_max=5)


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help=f"how long each phase takes, about (default {FULL.seconds:g}; with --quick {QUICK.seconds:g})",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"rounds; at least {ROUNDS_MIN} without --quick (default {FULL.rounds}; with --quick 1)",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NAME",
        help="leave a contestant out; may be given more than once",
    )
    add_dir_argument(parser)


def make_plan(arguments: Namespace) -> Plan:
    """What the options ask for; `BadOptions` if they ask for nonsense."""
    base = QUICK if arguments.quick else FULL
    seconds = base.seconds if arguments.seconds is None else arguments.seconds
    rounds = base.rounds if arguments.rounds is None else arguments.rounds
    if rounds < 1 or seconds <= 0:
        raise BadOptions("rounds have to be at least 1, and seconds above 0")
    if rounds < ROUNDS_MIN and not arguments.quick:
        raise BadOptions(f"fewer than {ROUNDS_MIN} rounds say nothing; use --quick to try it out")
    return Plan(seconds, rounds, base.batches_max)


def run(arguments: Namespace, progress: Progress) -> Report:
    """Measure, and report."""
    plan = make_plan(arguments)
    begun = time.monotonic()
    subjects, missing = make_subjects()
    missing |= dict.fromkeys(arguments.without, "it was left out with --without")
    subjects = [subject for subject in subjects if subject.name not in missing]
    for name, reason in missing.items():
        progress(f"{name} is left out: {reason}")
    measured: Measured = {}
    rates: dict[Key, float] = {}
    with fleet(MANY_WORKERS) as workers:
        for number in range(plan.rounds):
            with scratch_folder(arguments.dir, "pipeline") as folder:
                Round(number, plan, workers, folder, measured, rates, progress).run(subjects)
    return make_report(plan, measured, subjects, missing, arguments.dir, time.monotonic() - begun)


class Round:
    """One round: fresh servers and folders for all, every workload for each in turn.

    `rates` are commits per second as measured last: how much to give the workers, for phases of equal length.
    """

    def __init__(
        self,
        number: int,
        plan: Plan,
        workers: Fleet,
        folder: Path,
        measured: Measured,
        rates: dict[Key, float],
        progress: Progress,
    ) -> None:
        self._number = number
        self._plan = plan
        self._workers = workers
        self._folder = folder
        self._measured = measured
        self._rates = rates
        self._progress = progress
        self._servers: dict[str, Server] = {}
        self._jobs = 0

    def run(self, subjects: list[Subject]) -> None:
        """Do it all."""
        names = [subject.name for subject in subjects]
        with self._serving(subjects):
            for turn, workload in enumerate(WORKLOADS):
                for name in rotated(names, self._number + turn):
                    key = (name, workload)
                    if turn in (0, len(WORKLOADS) // 2) or key not in self._rates:
                        first = min(_FIRST_BATCHES, self._plan.batches_max)
                        phase = self._phase(name, workload, first)  # a warm-up
                        self._rates.setdefault(key, phase.commits_rate)
                    batches = self._plan.batches(workload, self._rates[key])
                    self._keep(key, self._phase(name, workload, batches))

    @contextlib.contextmanager
    def _serving(self, subjects: list[Subject]) -> Iterator[None]:
        """All servers, and a connection of every worker to each of them."""
        with contextlib.ExitStack() as stack:
            for subject in subjects:
                folder = self._folder / subject.name
                folder.mkdir()
                self._servers[subject.name] = stack.enter_context(subject.serve(folder))
            ports = {name: server.port for name, server in self._servers.items()}
            stack.enter_context(self._workers.sessions(self._check, Contestants, ports))
            yield

    def _check(self) -> None:
        for server in self._servers.values():
            server.check()

    def _keep(self, key: Key, phase: Phase) -> None:
        self._measured.setdefault(key, []).append(phase)
        self._rates[key] = phase.commits_rate
        name, workload = key
        self._progress(
            f"round {self._number + 1}/{self._plan.rounds}  {workload!s:18} {name:14} "
            f"{grouped(phase.commits_rate)} commits/s, {grouped(phase.items_rate)} items/s"
        )

    def _phase(self, name: str, workload: Workload, batches: int) -> Phase:
        """Fill the inputs, let all workers handle them at the same time, and look at the outputs."""
        self._jobs += 1
        job, partitions = f"job-{self._jobs}", range(workload.workers)
        each = [(name, job, partition, batches, workload.items) for partition in partitions]
        self._workers.each("create", [(name, job, workload.workers)])
        self._workers.each("fill", each)
        server = self._servers[name]
        cpu_before_s = server.cpu_s()
        worked = self._workers.each("work", each)
        cpu_s = server.cpu_s() - cpu_before_s
        took_s = max(ended for _, ended, _ in worked) - min(begun for begun, _, _ in worked)
        self._workers.each("finish", each)
        self._workers.each("drop", [(name, job, partition) for partition in partitions])
        commits = batches * workload.workers
        latencies = [commit_s * 1e6 for _, _, all_of_one in worked for commit_s in all_of_one]
        return Phase(commits, commits * workload.items, took_s, latencies, cpu_s)
