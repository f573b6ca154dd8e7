"""The pause that a client sees when the node that leads its shard is killed, told to end, or hands the shard over.

A cluster of three nodes on ZooKeeper and three NATS servers, a client process that writes one transaction after the
other, and one that reads behind it. The pause is the longest time between two acknowledgements around the event, less
what is usual. Every number that was acknowledged must have been read once, in order. Then all nodes are restarted, one
after the other, as for an upgrade.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

from tstreams.sharding import home_of

from .cluster_servers import SESSION_S, Node, Site, engines, site, why_not
from .failover_clients import ROLES, Steady
from .failover_report import KILL, MOVE, ROLL, STOP, Event, Found, Gap, Plan, make_report
from .fleet import Fleet, fleet
from .interface import BadOptions, BenchmarkFailed, Progress, Report
from .scratch import add_dir_argument, scratch_folder

SUMMARY = (
    "The pause that clients see when a node is killed, ends, or hands over; a rolling restart."
)
KILLS_MIN = 20
STREAM = "steady"
_AFTER = 20
"""Acknowledgements that are waited for after an event."""

FULL = Plan(kills=20, moves=20, session_s=SESSION_S, shards=3)
QUICK = Plan(kills=1, moves=1, session_s=1.0, shards=1)


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""
    for name, kind, text in (
        (
            "kills",
            int,
            f"how often the node that leads is killed; at least {KILLS_MIN} without --quick",
        ),
        ("moves", int, "how often it is told to end, and how often the shard is moved"),
        ("session_s", float, "ZooKeeper's session timeout"),
        ("shards", int, "shards of the cluster"),
    ):
        both = f"(default {getattr(FULL, name):g}; with --quick {getattr(QUICK, name):g})"
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=kind, metavar="N", help=f"{text} {both}")
    add_dir_argument(parser)


def make_plan(arguments: Namespace) -> Plan:
    """What the options ask for; `BadOptions` if they ask for nonsense."""
    base = QUICK if arguments.quick else FULL
    given = {name: getattr(arguments, name) for name in ("kills", "moves", "session_s", "shards")}
    plan = Plan(**{name: getattr(base, name) if it is None else it for name, it in given.items()})
    if min(plan.kills, plan.moves, plan.shards) < 1 or plan.session_s < 1:
        raise BadOptions("all numbers have to be at least 1")
    if plan.kills < KILLS_MIN and not arguments.quick:
        raise BadOptions(f"fewer than {KILLS_MIN} kills say nothing; use --quick to try it out")
    return plan


def run(arguments: Namespace, progress: Progress) -> Report:
    """Measure, and report."""
    plan = make_plan(arguments)
    lacking = why_not()
    if lacking is not None:
        raise BenchmarkFailed(f"there can be no cluster here: {lacking}")
    begun = time.monotonic()
    found = Found()
    with (
        fleet(2) as clients,
        scratch_folder(arguments.dir, "failover") as folder,
        engines(folder) as made,
        site(made, folder, plan.shards, plan.session_s) as cluster,
        clients.sessions(made.check, Steady),
    ):
        Trial(plan, cluster, clients, found, progress).run()
    return make_report(plan, found, arguments.dir, time.monotonic() - begun)


class Trial:
    """A writer and a reader at work while nodes come and go."""

    def __init__(
        self, plan: Plan, cluster: Site, clients: Fleet, found: Found, progress: Progress
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._clients = clients
        self._found = found
        self._progress = progress
        self._shard = home_of(STREAM, plan.shards)

    def run(self) -> None:
        """Do it all."""
        port = self._leader().port
        for role in ROLES:
            self._do(role, "begin", role, port, STREAM)
        self._wait(time.monotonic())
        for number in range(self._plan.kills):
            self._event(KILL, number, self._plan.kills, self._kill)
        for number in range(self._plan.moves):
            self._event(STOP, number, self._plan.moves, self._stop)
        for number in range(self._plan.moves):
            self._event(MOVE, number, self._plan.moves, self._move)
        nodes = self._cluster.nodes
        for number, node in enumerate(nodes):
            self._event(ROLL, number, len(nodes), partial(self._restart, node))
        self._check()

    def _event(self, kind: str, number: int, count: int, happen: Callable[[], float]) -> None:
        """Let something happen while all is at rest; keep what clients saw of it until all is at rest again."""
        before = {role: len(self._do(role, "errors")) for role in ROLES}
        since = happen()
        self._cluster.settle()
        self._wait(time.monotonic())
        gaps = {role: Gap(*self._do(role, "gap", since)) for role in ROLES}
        errors = [it for role in ROLES for it in self._do(role, "errors")[before[role] :]]
        self._found.keep(Event(kind, gaps["writer"], gaps["reader"], tuple(errors)))
        self._progress(
            f"{kind} {number + 1}/{count}: no acknowledgement for {gaps['writer'].longest_s:.3f} s, "
            f"nothing to read for {gaps['reader'].longest_s:.3f} s, {len(errors)} errors"
        )

    # What happens.

    def _leader(self) -> Node:
        leader = self._cluster.leaders()[self._shard]
        if leader is None:
            raise BenchmarkFailed("nobody leads the shard that is written to")
        return leader

    def _kill(self) -> float:
        """The next leader must have come before it is there again."""
        leader = self._leader()
        killed = leader.kill()
        self._wait(time.monotonic())
        self._start(leader)
        return killed

    def _stop(self) -> float:
        leader = self._leader()
        asked = leader.stop()
        self._wait(time.monotonic())
        self._start(leader)
        return asked

    def _restart(self, node: Node) -> float:
        """As it is done for an upgrade: nobody looks whether others lead by now."""
        asked = node.stop()
        self._start(node)
        return asked

    def _start(self, node: Node) -> None:
        node.start()
        node.wait()

    def _move(self) -> float:
        """To the next node."""
        leader = self._leader()
        heir = self._cluster.nodes[leader.number % len(self._cluster.nodes)]
        asked = self._cluster.move(self._shard, heir)
        self._cluster.wait_for("the move", lambda: self._cluster.leaders()[self._shard] is heir)
        return asked

    # What clients see.

    def _do(self, role: str, method: str, *arguments: Any) -> Any:
        """In the process of this role."""
        number = list(ROLES).index(role)
        return self._clients.one(number, method, *arguments)

    def _wait(self, since: float) -> None:
        for role in ROLES:
            self._do(role, "wait", since, _AFTER)

    def _check(self) -> None:
        """What was acknowledged was read once, in order; what was not may have been written or not."""
        self._do("writer", "end")
        written: list[int] = self._do("writer", "numbers")
        self._do("reader", "wait_for", written[-1])
        self._do("reader", "end")
        read: list[int] = self._do("reader", "numbers")
        lost = set(written) - set(read)
        if lost or read != sorted(set(read)):
            repeated = len(read) - len(set(read))
            raise BenchmarkFailed(
                f"of {len(written)} acknowledged numbers {len(lost)} are lost and {repeated} were read again"
            )
        self._found.written = len(written)
