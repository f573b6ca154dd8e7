"""Durable transactions: tstreams beside Redis Streams, JetStream, Kafka, PostgreSQL, RabbitMQ and a bare ceiling.

Client processes write transactions in a window, each through the usual client of the contestant, with
every sync to disk on; RabbitMQ's streams have none, and are compared with tstreams without it. All contestants run at the same time with their data on the same filesystem, and
take turns within every workload; ratios are taken within a round, and their median is reported.
"""

from __future__ import annotations

import contextlib
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from .durable_append import measure_append
from .durable_clients import Contestants, writers_to
from .durable_plan import (
    APPEND,
    APPENDED,
    DRAIN,
    DRAINED,
    MANY_CLIENTS,
    TYPICAL,
    WORKLOADS,
    WRITE,
    Key,
    Measured,
    Phase,
    Plan,
    Subject,
    Workload,
    make_subjects,
)
from .durable_report import make_report
from .fleet import Fleet, fleet
from .interface import BadOptions, BenchmarkFailed, Progress, Report
from .report import grouped
from .rounds import rotated
from .scratch import add_dir_argument, scratch_folder
from .servers import Server
from .serving import lasting_servers, start_servers

SUMMARY = "Durable transactions beside Redis, JetStream, Kafka, PostgreSQL, RabbitMQ and a ceiling."
ROUNDS_MIN = 3
WINDOW_MAX = 128
_FOREVER_S = 1e9
_NO_LIMIT = 2**62
_WARM_UP_S = 0.3

FULL = Plan(seconds=1.0, drained_transactions=10_000, rounds=5, window=16)
QUICK = Plan(seconds=0.05, drained_transactions=20, rounds=1, window=16)


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""

    def both(name: str) -> str:
        return f"(default {getattr(FULL, name):g}; with --quick {getattr(QUICK, name):g})"

    parser.add_argument(
        "--seconds", type=float, metavar="S", help=f"how long each phase writes {both('seconds')}"
    )
    parser.add_argument(
        "--drained-transactions",
        type=int,
        metavar="N",
        help=f"transactions that each client reads back {both('drained_transactions')}",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"rounds; at least {ROUNDS_MIN} without --quick {both('rounds')}",
    )
    parser.add_argument(
        "--window", type=int, metavar="N", help=f"transactions in flight {both('window')}"
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
        for name in ("seconds", "drained_transactions", "rounds", "window")
    }
    plan = Plan(**chosen)
    if min(plan.drained_transactions, plan.rounds, plan.window) < 1 or plan.seconds <= 0:
        raise BadOptions("all numbers have to be at least 1, and seconds above 0")
    if plan.rounds < ROUNDS_MIN and not arguments.quick:
        raise BadOptions(f"fewer than {ROUNDS_MIN} rounds say nothing; use --quick to try it out")
    if plan.window > WINDOW_MAX:
        raise BadOptions(f"a window is at most {WINDOW_MAX} transactions")
    return plan


def run(arguments: Namespace, progress: Progress) -> Report:
    """Measure, and report."""
    plan = make_plan(arguments)
    begun = time.monotonic()
    subjects, missing = make_subjects()
    if "tstreams" in arguments.without:
        raise BadOptions("tstreams cannot be left out: the others are compared with it")
    missing |= dict.fromkeys(arguments.without, "it was left out with --without")
    subjects = [subject for subject in subjects if subject.name not in missing]
    for name, reason in missing.items():
        progress(f"{name} is left out: {reason}")
    measured: Measured = {}
    with (
        fleet(MANY_CLIENTS) as clients,
        scratch_folder(arguments.dir, "durable") as kept,
        lasting_servers(subjects, kept) as lasting,
    ):
        for number in range(plan.rounds):
            with scratch_folder(arguments.dir, "durable") as folder:
                Round(number, plan, clients, folder, lasting, measured, progress).run(subjects)
    return make_report(plan, measured, subjects, missing, arguments.dir, time.monotonic() - begun)


class Round:
    """One round: fresh servers and folders for all but those that last, every workload for each in turn."""

    def __init__(
        self,
        number: int,
        plan: Plan,
        clients: Fleet,
        folder: Path,
        lasting: dict[str, Server],
        measured: Measured,
        progress: Progress,
    ) -> None:
        self._number = number
        self._plan = plan
        self._clients = clients
        self._folder = folder
        self._measured = measured
        self._progress = progress
        self._servers = dict(lasting)
        self._streams = 0

    def run(self, subjects: list[Subject]) -> None:
        """Do it all."""
        names = [subject.name for subject in subjects]
        with self._serving(subjects):
            for name in names:
                self._write(name, TYPICAL, _WARM_UP_S)
            for turn, workload in enumerate(WORKLOADS):
                taking_part = [it.name for it in subjects if workload in it.workloads]
                for name in rotated(taking_part, self._number + turn):
                    self._keep((WRITE, name, workload), self._write(name, workload, None))
            for name in rotated(
                [name for name in ("tstreams", "redis") if name in names], self._number
            ):
                self._keep((DRAIN, name, DRAINED), self._drain(name))
            ours, files = measure_append(
                self._folder / "tstreams" / "data",
                self._folder / "plain-file",
                lambda: self._write("tstreams", APPENDED, None),
                self._plan.seconds,
            )
            self._keep((APPEND, "tstreams", APPENDED), ours)
            self._keep((APPEND, "file", APPENDED), files)

    @contextlib.contextmanager
    def _serving(self, subjects: list[Subject]) -> Iterator[None]:
        """All servers, and a connection of every client to each of them."""
        with contextlib.ExitStack() as stack:
            start_servers(stack, subjects, self._folder, self._servers)
            ports = {name: server.port for name, server in self._servers.items()}
            stack.enter_context(self._clients.sessions(self._check, Contestants, writers_to(ports)))
            yield

    def _check(self) -> None:
        for server in self._servers.values():
            server.check()

    def _keep(self, key: Key, phase: Phase) -> None:
        self._measured.setdefault(key, []).append(phase)
        mode, name, workload = key
        self._progress(
            f"round {self._number + 1}/{self._plan.rounds}  {mode} {workload!s:24} {name:16} "
            f"{grouped(phase.items_rate)} items/s"
        )

    def _write(self, name: str, workload: Workload, seconds: float | None) -> Phase:
        """Everybody writes for a while, into a stream that is new."""
        stream = self._new_stream(name, workload.clients)
        phase = self._timed_write(name, workload, seconds or self._plan.seconds, _NO_LIMIT)
        self._each(name, "drop", stream, workload.clients)
        return phase

    def _timed_write(self, name: str, workload: Workload, seconds: float, count_max: int) -> Phase:
        shape = (workload.items, workload.item_bytes, self._plan.window, seconds, count_max)
        server = self._servers[name]
        cpu_before_s, begun = server.cpu_s(), time.perf_counter()
        counts = self._clients.each("write", [(name, *shape)] * workload.clients)
        took_s = time.perf_counter() - begun
        done = sum(counts)
        return Phase(done, done * workload.items, took_s, server.cpu_s() - cpu_before_s)

    def _drain(self, name: str) -> Phase:
        """The same data in each; then everybody reads back what it wrote."""
        each = self._plan.drained_transactions
        stream = self._new_stream(name, DRAINED.clients)
        self._timed_write(name, DRAINED, _FOREVER_S, each)
        server = self._servers[name]
        cpu_before_s, begun = server.cpu_s(), time.perf_counter()
        calls = [(name, "drain", stream, number, each) for number in range(DRAINED.clients)]
        found = self._clients.each("call", calls)
        took_s, cpu_s = time.perf_counter() - begun, server.cpu_s() - cpu_before_s
        items = each * DRAINED.items
        if set(found) != {(items, items * DRAINED.item_bytes)}:
            raise BenchmarkFailed(f"{name}: {items} items were written by each, {found} read back")
        self._each(name, "drop", stream, DRAINED.clients)
        return Phase(each * DRAINED.clients, items * DRAINED.clients, took_s, cpu_s)

    def _new_stream(self, name: str, clients: int) -> str:
        self._streams += 1
        stream = f"stream-{self._number}-{self._streams}"
        self._clients.each("call", [(name, "create", stream, clients)])
        self._each(name, "open", stream, clients)
        return stream

    def _each(self, name: str, method: str, stream: str, clients: int) -> None:
        self._clients.each("call", [(name, method, stream, number) for number in range(clients)])
