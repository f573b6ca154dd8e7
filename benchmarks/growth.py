"""How costs grow: throughput, p99 and the server's work for a commit, against what one has more of.

Along each axis one figure of the load is varied, by equal factors, and all others stay as they are: bytes of an
item, items of a transaction, partitions, streams, open transactions, transactions committed before, clients. Each
point has a server of its own, so that its past is its own; the points take turns in every round. A power law is
fitted to each cost, and its exponent compared with what it may be.
"""

from __future__ import annotations

import contextlib
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from .fleet import Fleet, fleet
from .growth_clients import Clients
from .growth_plan import AXES, PROCESSES, SETUP, WINDOW, Axis, Phase, Plan, Point, chosen_axes
from .growth_report import Grown, make_report
from .interface import BadOptions, Progress, Report
from .report import grouped
from .rounds import percentile, rotated
from .scratch import add_dir_argument, scratch_folder
from .servers import ServerProcess, tstreams_server

SUMMARY = "How throughput, p99 and the server's work for a commit grow with size, number and age."
ROUNDS_MIN = 3
_WARM_UP_S = 0.2
_SETUP_WITHIN_S = 600.0

FULL = Plan(seconds=0.5, rounds=5)
QUICK = Plan(seconds=0.05, rounds=1, quick=True)


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument(
        "--axis",
        action="append",
        default=[],
        choices=[axis.name for axis in AXES],
        help="only this one; may be given more than once",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help=f"how long each phase takes (default {FULL.seconds:g}; with --quick {QUICK.seconds:g})",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"rounds; at least {ROUNDS_MIN} without --quick (default {FULL.rounds}; with --quick 1)",
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
    return Plan(seconds, rounds, base.quick)


def run(arguments: Namespace, progress: Progress) -> Report:
    """Measure, and report."""
    plan = make_plan(arguments)
    begun = time.monotonic()
    found: list[Grown] = []
    with fleet(PROCESSES) as clients:
        for axis in chosen_axes(arguments.axis):
            with scratch_folder(arguments.dir, "growth") as folder:
                points = AxisRun(axis, plan, clients, folder, progress).run()
            found.append((axis, points))
    return make_report(plan, found, arguments.dir, time.monotonic() - begun)


class AxisRun:
    """One axis: a server for each point, all at the same time, and rounds in which they take turns."""

    def __init__(
        self, axis: Axis, plan: Plan, clients: Fleet, folder: Path, progress: Progress
    ) -> None:
        self._axis = axis
        self._plan = plan
        self._clients = clients
        self._folder = folder
        self._progress = progress
        self._servers: dict[int, ServerProcess] = {}
        self._points = {at: Point(at, []) for at in plan.points(axis)}

    def run(self) -> list[Point]:
        """Do it all."""
        with self._serving():
            for at, point in self._points.items():
                point.setup_us_per_unit = self._prepare(at)
            for at in self._points:
                self._commits(at, min(_WARM_UP_S, self._plan.seconds), WINDOW)
            for number in range(self._plan.rounds):
                for at in rotated(list(self._points), number):
                    self._keep(number, at, self._phase(at))
        return list(self._points.values())

    @contextlib.contextmanager
    def _serving(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for at in self._points:
                folder = self._folder / str(at)
                folder.mkdir()
                self._servers[at] = stack.enter_context(tstreams_server(folder))
            stack.enter_context(self._clients.sessions(self._check, Clients))
            yield

    def _check(self) -> None:
        for server in self._servers.values():
            server.check()

    def _prepare(self, at: int) -> float | None:
        """Bring a server to its point; what that cost it for each unit, where the axis has units."""
        load, server = self._axis.load(at), self._servers[at]
        every = range(PROCESSES)
        self._clients.each("add", [(at, server.port, load, process) for process in every])
        cpu_before_s = server.cpu_s()
        self._each(at, "create", 1)
        self._each(at, "connect", PROCESSES)
        if load.open_transactions:
            self._each(at, "hold", 1)
        if load.history:
            self._each(at, "fill", PROCESSES)
        cpu_s = server.cpu_s() - cpu_before_s
        self._progress(f"{self._axis.name} {grouped(at)}: ready")
        return cpu_s / at * 1e6 if SETUP in self._axis.allowed else None

    def _each(self, at: int, method: str, processes: int) -> None:
        self._clients.each("call", [(at, method)] * processes, _SETUP_WITHIN_S)

    def _commits(self, at: int, seconds: float, window: int) -> tuple[float, list[float], float]:
        """Seconds that it took, what each commit took, and the processor time of the server."""
        server = self._servers[at]
        cpu_before_s = server.cpu_s()
        timed = self._clients.each("call", [(at, "commit", seconds, window)] * PROCESSES)
        cpu_s = server.cpu_s() - cpu_before_s
        took_s = max(ended for _, ended, _ in timed) - min(begun for begun, _, _ in timed)
        return took_s, [it for _, _, commits in timed for it in commits], cpu_s

    def _reads(self, at: int) -> float:
        """Processor time of the server for a commit that a reader of the whole stream waits for, in µs."""
        # One client reads what it writes; the last, because the first may hold transactions open before it.
        reader = min(PROCESSES, self._axis.load(at).connections) - 1
        server = self._servers[at]

        def call(method: str, *arguments: float) -> list[int | None]:
            idle = [(at, "rest")] * reader
            return self._clients.each("call", [*idle, (at, method, *arguments)])

        call("begin_reading")
        call("read", 0.0)
        cpu_before_s = server.cpu_s()
        count = call("read", self._plan.seconds)[-1]
        cpu_s = server.cpu_s() - cpu_before_s
        call("end_reading")
        return cpu_s / (count or 1) * 1e6

    def _phase(self, at: int) -> Phase:
        """As many as go, for throughput; one at a time for each client, for latency; and with a reader."""
        took_s, commits, cpu_s = self._commits(at, self._plan.seconds, WINDOW)
        _, single, _ = self._commits(at, self._plan.seconds, 1)
        return Phase(
            commits_per_s=len(commits) / took_s,
            p50_us=percentile(single, 50) * 1e6,
            p99_us=percentile(single, 99) * 1e6,
            server_us_per_commit=cpu_s / len(commits) * 1e6,
            server_us_per_read=self._reads(at),
        )

    def _keep(self, number: int, at: int, phase: Phase) -> None:
        self._points[at].phases.append(phase)
        self._progress(
            f"round {number + 1}/{self._plan.rounds}  {self._axis.name} {grouped(at):>10}  "
            f"{grouped(phase.commits_per_s)} commits/s, p99 {grouped(phase.p99_us)} µs, "
            f"server {phase.server_us_per_commit:.1f} µs, {phase.server_us_per_read:.0f} with a reader"
        )
