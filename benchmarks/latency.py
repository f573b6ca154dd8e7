"""From the checkpoint to the callback: a tstreams subscriber beside the receivers of its peers.

One process sends a message of 100 B every millisecond and waits for each acknowledgement; another is
called with it, or reads it. Measured is from before the send until the message is in the receiver's hands,
by one clock, with and without a sync to disk before the acknowledgement. All contestants run at the same
time and take turns; ratios are taken within a round, and their median is reported.
"""

from __future__ import annotations

import contextlib
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from .fleet import Fleet, fleet
from .interface import BadOptions, Progress, Report
from .latency_clients import Contestants
from .latency_plan import Measured, Phase, Plan, Subject, make_subjects
from .latency_report import make_report
from .report import grouped
from .rounds import percentile, rotated
from .scratch import add_dir_argument, scratch_folder
from .servers import Server
from .serving import lasting_servers, start_servers

SUMMARY = (
    "From a checkpoint to a subscriber's callback, beside Redis, NATS, Kafka, PostgreSQL, RabbitMQ."
)
ROUNDS_MIN = 3
_WARM_UP_SHARE = 10
"""One message in so many, at the beginning of a phase, is not counted."""

FULL = Plan(messages=2000, rate=1000, rounds=15)
QUICK = Plan(messages=20, rate=1000, rounds=1)


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""
    for name, text in (
        ("messages", "messages in each phase"),
        ("rate", "messages per second"),
        ("rounds", f"rounds; at least {ROUNDS_MIN} without --quick"),
    ):
        full, quick = getattr(FULL, name), getattr(QUICK, name)
        parser.add_argument(
            f"--{name}",
            type=int,
            metavar="N",
            help=f"{text} (default {full}; with --quick {quick})",
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
    chosen = {
        name: getattr(base, name) if getattr(arguments, name) is None else getattr(arguments, name)
        for name in ("messages", "rate", "rounds")
    }
    plan = Plan(**chosen)
    if min(plan.messages, plan.rate, plan.rounds) < 1:
        raise BadOptions("all numbers have to be at least 1")
    if plan.rounds < ROUNDS_MIN and not arguments.quick:
        raise BadOptions(f"fewer than {ROUNDS_MIN} rounds say nothing; use --quick to try it out")
    return plan


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
    with (
        fleet(2) as pair,
        scratch_folder(arguments.dir, "latency") as kept,
        lasting_servers(subjects, kept) as lasting,
    ):
        for number in range(plan.rounds):
            with scratch_folder(arguments.dir, "latency") as folder:
                Round(number, plan, pair, folder, lasting, measured, progress).run(subjects)
    return make_report(plan, measured, subjects, missing, arguments.dir, time.monotonic() - begun)


class Round:
    """One round: fresh servers and folders for all but those that last, each in turn."""

    def __init__(
        self,
        number: int,
        plan: Plan,
        pair: Fleet,
        folder: Path,
        lasting: dict[str, Server],
        measured: Measured,
        progress: Progress,
    ) -> None:
        self._number = number
        self._plan = plan
        self._pair = pair
        self._folder = folder
        self._measured = measured
        self._progress = progress
        self._servers = dict(lasting)

    def run(self, subjects: list[Subject]) -> None:
        """Do it all."""
        with self._serving(subjects):
            for subject in rotated(subjects, self._number):
                count = max(1, self._plan.messages // subject.few)
                self._keep(subject.name, self._phase(subject.name, count))

    @contextlib.contextmanager
    def _serving(self, subjects: list[Subject]) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            start_servers(stack, subjects, self._folder, self._servers)
            ports = {name: server.port for name, server in self._servers.items()}
            stack.enter_context(self._pair.sessions(self._check, Contestants, ports))
            yield

    def _check(self) -> None:
        for server in self._servers.values():
            server.check()

    def _phase(self, name: str, count: int) -> Phase:
        job = f"messages-{self._number}"
        self._pair.each("call", [(name, "create", job)])
        # The receiver is the second of the two; the first has nothing to do meanwhile.
        both = self._pair.each
        both("call", [(name, "create", f"{job}-idle"), (name, "listen", job, count)])
        sending, hearing = (name, "send", job, count, self._plan.rate), (name, "heard")
        took_s, latencies = both("call", [sending, hearing])
        return Phase(latencies[count // _WARM_UP_SHARE :], count / took_s)

    def _keep(self, name: str, phase: Phase) -> None:
        self._measured.setdefault(name, []).append(phase)
        p50, p99 = (percentile(phase.latencies_us, percent) for percent in (50, 99))
        self._progress(
            f"round {self._number + 1}/{self._plan.rounds}  {name:18} p50 {grouped(p50)} µs, "
            f"p99 {grouped(p99)} µs at {grouped(phase.sent_per_s)}/s"
        )
