"""What it costs a server to be watched: HTTP, metrics, an open console; and a crowd before the door.

Client processes write transactions in a window, as in `durable`, to a server without HTTP; to one with HTTP,
whose metrics are scraped each second and whose console is open in a browser; and to one with HTTP, with many
idle connections and some slow HTTP clients. They take turns in every round, there and back, so that a machine that
becomes slower or faster meanwhile favours none; each has a server of its own on the same filesystem. Ratios are taken within
a round, and their median is reported.
"""

from __future__ import annotations

import contextlib
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from .door_company import raise_limit
from .door_page import console_of, open_page, wait_for_connections
from .door_report import ALONE, CROWDED, WATCHED, Found, Plan, make_report
from .durable_clients import Contestants, writers_to
from .durable_plan import MANY_CLIENTS, ONE_ITEM, TYPICAL, Phase, Workload
from .fleet import Fleet, fleet
from .interface import BadOptions, BenchmarkFailed, Progress, Report
from .report import grouped
from .rounds import rotated
from .scratch import add_dir_argument, scratch_folder
from .servers import ROOT, ServerProcess, cpu_s_of, family_of, running, tstreams_server

SUMMARY = "What HTTP, metrics, an open console, and a crowd before the door cost a server."
ROUNDS_MIN = 3
SPARE_FILES = 500
"""Descriptors that a server needs beside those of its connections."""
SETTLE_S = 4.0
"""How long a browser is left alone after a page has opened: opening it is not what is measured."""
_NO_LIMIT = 2**62
_WARM_UP_S = 0.5
_COMPANY_WITHIN_S = 90.0
_NAME = "tstreams"

FULL = Plan(seconds=2.0, rounds=5, window=16, idle=10_000, slow=100)
QUICK = Plan(seconds=0.1, rounds=1, window=16, idle=50, slow=4)


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""
    for name, kind, text in (
        ("seconds", float, "how long each phase writes"),
        ("rounds", int, f"rounds; at least {ROUNDS_MIN} without --quick"),
        ("window", int, "transactions in flight"),
        ("idle", int, "idle connections"),
        ("slow", int, "slow HTTP clients"),
    ):
        both = f"(default {getattr(FULL, name):g}; with --quick {getattr(QUICK, name):g})"
        parser.add_argument(f"--{name}", type=kind, metavar="N", help=f"{text} {both}")
    parser.add_argument(
        "--without-browser",
        action="store_true",
        help="a client of events and some requests instead of a console in a browser",
    )
    add_dir_argument(parser)


def make_plan(arguments: Namespace) -> Plan:
    """What the options ask for; `BadOptions` if they ask for nonsense."""
    base = QUICK if arguments.quick else FULL
    names = ("seconds", "rounds", "window", "idle", "slow")
    given = {name: getattr(arguments, name) for name in names}
    plan = Plan(**{name: getattr(base, name) if it is None else it for name, it in given.items()})
    if min(plan.rounds, plan.window, plan.idle, plan.slow) < 1 or plan.seconds <= 0:
        raise BadOptions("all numbers have to be at least 1, and seconds above 0")
    if plan.rounds < ROUNDS_MIN and not arguments.quick:
        raise BadOptions(f"fewer than {ROUNDS_MIN} rounds say nothing; use --quick to try it out")
    room = raise_limit()
    if plan.idle + SPARE_FILES > room:
        raise BadOptions(f"{plan.idle} connections need more than {room} open files: ulimit -Hn")
    return plan


def run(arguments: Namespace, progress: Progress) -> Report:
    """Measure, and report."""
    plan = make_plan(arguments)
    begun = time.monotonic()
    found = Found()
    with fleet(MANY_CLIENTS) as clients:
        for number in range(plan.rounds):
            there = rotated((ALONE, WATCHED, CROWDED), number)
            for condition in (*there, *reversed(there)):
                with scratch_folder(arguments.dir, "door") as folder:
                    turn = Turn(plan, clients, folder, condition, not arguments.without_browser)
                    for workload, phase in turn.measure(found):
                        found.keep(number, condition, workload, phase)
                        progress(
                            f"round {number + 1}/{plan.rounds}  {condition:8} {workload!s:24} "
                            f"{grouped(phase.items_rate)} items/s"
                        )
    return make_report(plan, found, arguments.dir, time.monotonic() - begun)


class Turn:
    """One condition of one round: a fresh server, its company, and every workload."""

    def __init__(
        self, plan: Plan, clients: Fleet, folder: Path, condition: str, browser: bool
    ) -> None:
        self._plan = plan
        self._clients = clients
        self._folder = folder
        self._condition = condition
        self._browser = browser

    def measure(self, found: Found) -> Iterator[tuple[Workload, Phase]]:
        """What each workload came to."""
        with contextlib.ExitStack() as stack:
            http = self._condition != ALONE
            server = stack.enter_context(tstreams_server(self._folder, http=http))
            connect = writers_to({_NAME: server.port})
            stack.enter_context(self._clients.sessions(server.check, Contestants, connect))
            company = self._company(server, stack, found)
            # Not before: who waits for company has cold memory then, and who is alone does not wait.
            self._write(server, TYPICAL, "warm-up", _WARM_UP_S)
            for number, workload in enumerate((TYPICAL, ONE_ITEM)):
                before_s = self._others_cpu_s(server, company)
                phase = self._write(server, workload, f"stream-{number}", self._plan.seconds)
                spent_s = self._others_cpu_s(server, company)
                for one in company:
                    one.check()
                found.spend(self._condition, phase, before_s, spent_s)
                yield workload, phase

    def _others_cpu_s(
        self, server: ServerProcess, company: list[ServerProcess]
    ) -> tuple[float, float]:
        """Processor time of the front door, and of those before it with all their processes."""
        front_door = family_of(server.process.pid)[1:]
        others = [pid for one in company for pid in family_of(one.process.pid)]
        return cpu_s_of(front_door), cpu_s_of(others)

    def _write(
        self, server: ServerProcess, workload: Workload, stream: str, seconds: float
    ) -> Phase:
        clients = range(workload.clients)
        self._clients.each("call", [(_NAME, "create", stream, workload.clients)])
        self._clients.each("call", [(_NAME, "open", stream, number) for number in clients])
        shape = (workload.items, workload.item_bytes, self._plan.window, seconds, _NO_LIMIT)
        cpu_before_s, begun = server.cpu_s(), time.perf_counter()
        counts = self._clients.each("write", [(_NAME, *shape)] * workload.clients)
        took_s = time.perf_counter() - begun
        done = sum(counts)
        return Phase(done, done * workload.items, took_s, server.cpu_s() - cpu_before_s)

    # Who else is there.

    def _company(
        self, server: ServerProcess, stack: contextlib.ExitStack, found: Found
    ) -> list[ServerProcess]:
        plan = self._plan
        if self._condition == CROWDED:
            company = [
                self._helper(stack, "idle", str(server.port), str(plan.idle)),
                self._helper(stack, "slow", server.url, str(plan.slow)),
            ]
            wait_for_connections(server.url, plan.idle)
            return company
        if self._condition == WATCHED:
            company = [self._helper(stack, "scrape", server.url)]
            console = console_of(server.url) if self._browser else "--without-browser was said"
            if console is None:
                company.append(stack.enter_context(open_page(server.url, self._folder)))
                found.page = "the console, open in headless Chromium"
                time.sleep(SETTLE_S)
            else:
                company.append(self._helper(stack, "watch", server.url))
                found.page = f"a client of events and of some lists every five seconds: {console}"
            return company
        return []

    def _helper(self, stack: contextlib.ExitStack, role: str, *words: str) -> ServerProcess:
        command = [sys.executable, "-m", "benchmarks.door_company", role, *words]
        helper = stack.enter_context(running(role, command, ROOT))
        if helper.read_line(_COMPANY_WITHIN_S) != "ready":
            raise BenchmarkFailed(f"{role} did not get ready")
        return helper
