"""Durable transactions on three copies: a cluster of three nodes beside JetStream's own streams and Kafka.

Client processes write transactions in a window, each through the usual client of the contestant. Everything is kept three
times, and synced before it is acknowledged. The nodes and JetStream's own streams share the same three NATS servers;
Kafka has three brokers. All run at the same time with their data on the same disk, and take turns within every workload;
ratios are taken within a round, and their median is reported. Besides: what a second shard brings one server, and reading
back from those that lead and those that follow.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

from .cluster_plan import (
    FOLLOWERS,
    LEADER,
    OURS,
    READ,
    SCALE,
    TYPICAL,
    WORKLOADS,
    WRITE,
    Key,
    Measured,
    Phase,
    Plan,
    Subject,
)
from .cluster_report import make_report
from .cluster_stage import Stage, peers_missing, stage
from .durable_clients import Contestants
from .durable_plan import MANY_CLIENTS, Workload
from .fleet import Fleet, fleet
from .interface import BadOptions, BenchmarkFailed, Progress, Report
from .machine import idle_s, machine_facts
from .report import grouped
from .rounds import rotated
from .scratch import add_dir_argument, scratch_folder
from .servers import cpu_s_of

SUMMARY = "Durable transactions on three copies beside JetStream and Kafka; shards; reading back."
ROUNDS_MIN = 3
WINDOW_MAX = 128
SHARDS_MAX = 32
_FOREVER_S = 1e9
_NO_LIMIT = 2**62
_WARM_UP_S = 0.5

FULL = Plan(seconds=2.0, read_transactions=5_000, rounds=5, window=16, shards=3)
QUICK = Plan(seconds=0.1, read_transactions=20, rounds=1, window=16, shards=3)


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""
    for name, kind, text in (
        ("seconds", float, "how long each phase writes"),
        ("read_transactions", int, "transactions that each client reads back"),
        ("rounds", int, f"rounds; at least {ROUNDS_MIN} without --quick"),
        ("window", int, "transactions in flight"),
        ("shards", int, "shards of the cluster"),
    ):
        both = f"(default {getattr(FULL, name):g}; with --quick {getattr(QUICK, name):g})"
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=kind, metavar="N", help=f"{text} {both}")
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
    names = ("seconds", "read_transactions", "rounds", "window", "shards")
    given = {name: getattr(arguments, name) for name in names}
    plan = Plan(**{name: getattr(base, name) if it is None else it for name, it in given.items()})
    if min(plan.read_transactions, plan.rounds, plan.window, plan.shards) < 1 or plan.seconds <= 0:
        raise BadOptions("all numbers have to be at least 1, and seconds above 0")
    if plan.rounds < ROUNDS_MIN and not arguments.quick:
        raise BadOptions(f"fewer than {ROUNDS_MIN} rounds say nothing; use --quick to try it out")
    if plan.window > WINDOW_MAX or plan.shards > SHARDS_MAX:
        raise BadOptions(
            f"a window is at most {WINDOW_MAX}, and there are {SHARDS_MAX} shards at most"
        )
    return plan


def run(arguments: Namespace, progress: Progress) -> Report:
    """Measure, and report."""
    plan = make_plan(arguments)
    begun = time.monotonic()
    if OURS in arguments.without:
        raise BadOptions("tstreams cannot be left out: the others are compared with it")
    missing = peers_missing() | dict.fromkeys(arguments.without, "it was left out with --without")
    for name, reason in missing.items():
        progress(f"{name} is left out: {reason}")
    measured: Measured = {}
    with (
        fleet(MANY_CLIENTS) as clients,
        scratch_folder(arguments.dir, "cluster") as folder,
        stage(plan, folder, missing, progress) as running,
    ):
        connect = {subject.name: subject.connect for subject in running.subjects}
        with clients.sessions(running.check, Contestants, connect):
            for number in range(plan.rounds):
                Round(number, plan, clients, running, measured, progress).run()
    durability = {subject.name: subject.durability for subject in running.subjects}
    durability |= dict.fromkeys((LEADER, FOLLOWERS), durability[OURS])
    return make_report(plan, measured, durability, missing, arguments.dir, time.monotonic() - begun)


class Round:
    """One round: every workload for each contestant in turn, on servers that run for all rounds."""

    def __init__(
        self,
        number: int,
        plan: Plan,
        clients: Fleet,
        running: Stage,
        measured: Measured,
        progress: Progress,
    ) -> None:
        self._number = number
        self._plan = plan
        self._clients = clients
        self._subjects = running.subjects
        self._measured = measured
        self._progress = progress
        self._streams = 0

    def run(self) -> None:
        """Do it all."""
        for subject in self._of(WRITE) + self._of(SCALE):
            self._write(subject, TYPICAL, min(_WARM_UP_S, self._plan.seconds))
        for turn, workload in enumerate(WORKLOADS):
            for subject in rotated(self._of(WRITE), self._number + turn):
                phase = self._write(subject, workload, self._plan.seconds)
                self._keep((WRITE, subject.name, workload), phase)
        for subject in rotated(self._of(SCALE), self._number):
            phase = self._write(subject, TYPICAL, self._plan.seconds)
            self._keep((SCALE, subject.name, TYPICAL), phase)
        for subject in self._of(READ):
            self._read(subject)

    def _of(self, mode: str) -> list[Subject]:
        return [subject for subject in self._subjects if mode in subject.modes]

    def _keep(self, key: Key, phase: Phase) -> None:
        self._measured.setdefault(key, []).append(phase)
        mode, name, workload = key
        self._progress(
            f"round {self._number + 1}/{self._plan.rounds}  {mode:5} {workload!s:20} {name:20} "
            f"{grouped(phase.items_rate)} items/s"
        )

    def _write(self, subject: Subject, workload: Workload, seconds: float) -> Phase:
        """Everybody writes for a while, into a stream that is new."""
        stream = self._new_stream(subject.name, workload.clients)
        shape = (workload.items, workload.item_bytes, self._plan.window, seconds, _NO_LIMIT)
        meter = Meter(subject, self._clients)
        counts = self._clients.each("write", [(subject.name, *shape)] * workload.clients)
        phase = meter.phase(sum(counts), workload.items)
        self._each(subject.name, "drop", stream, workload.clients)
        return phase

    def _read(self, subject: Subject) -> None:
        """Everybody reads back what it wrote: from those that lead, and from those that follow."""
        each, shape = self._plan.read_transactions, TYPICAL
        stream = self._new_stream(subject.name, shape.clients)
        filling = (shape.items, shape.item_bytes, self._plan.window, _FOREVER_S, each)
        self._clients.each("write", [(subject.name, *filling)] * shape.clients)
        items = each * shape.items
        for name, method in rotated(((LEADER, "drain"), (FOLLOWERS, "drain_any")), self._number):
            calls = [(subject.name, method, stream, at, each) for at in range(shape.clients)]
            meter = Meter(subject, self._clients)
            found = self._clients.each("call", calls)
            phase = meter.phase(each * shape.clients, shape.items)
            if set(found) != {(items, items * shape.item_bytes)}:
                raise BenchmarkFailed(f"{name}: each wrote {items} items, and {found} were read")
            self._keep((READ, name, shape), phase)

    def _new_stream(self, name: str, clients: int) -> str:
        self._streams += 1
        stream = f"stream-{self._number}-{self._streams}"
        self._clients.each("call", [(name, "create", stream, clients)])
        self._each(name, "open", stream, clients)
        return stream

    def _each(self, name: str, method: str, stream: str, clients: int) -> None:
        self._clients.each("call", [(name, method, stream, number) for number in range(clients)])


class Meter:
    """What a phase takes: time, and whose processor time."""

    def __init__(self, subject: Subject, clients: Fleet) -> None:
        self._subject = subject
        self._clients = clients
        self._cores = int(machine_facts()["cores"])
        self._before = self._look()
        self._begun = time.perf_counter()

    def phase(self, transactions: int, items: int) -> Phase:
        """It is over: so many transactions of so many items were made."""
        took_s = time.perf_counter() - self._begun
        spent = [after - before for after, before in zip(self._look(), self._before, strict=True)]
        servers_s, engine_s, idle, clients_s = spent
        return Phase(
            transactions,
            transactions * items,
            took_s,
            servers_s,
            engine_s,
            clients_s,
            min(1.0, idle / (took_s * self._cores)),
        )

    def _look(self) -> tuple[float, ...]:
        subject = self._subject
        servers_s, engine_s = cpu_s_of(subject.servers()), cpu_s_of(subject.engines())
        idle = idle_s()
        return servers_s, engine_s, idle, sum(self._clients.each("cpu_s", [()] * MANY_CLIENTS))
