"""Very many streams on one server: what they cost, and whether they slow anything down.

Creates the streams, writes to a random tenth of them and reads that back; times single writes and reads
on random streams beside the same on a second server that has only one stream, sample by sample in turn;
kills the server and starts it again.
"""

from __future__ import annotations

import random
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence

import tstreams

from .fleet import Fleet, fleet
from .interface import BadOptions, Progress, Report
from .report import grouped
from .scratch import add_dir_argument, scratch_folder
from .streams_clients import Crowd, stream_name
from .streams_node import Node
from .streams_probe import Probe, side_by_side
from .streams_report import KINDS, Found, Plan, make_report

SUMMARY = "Very many streams on one server: memory, open files, latency, restart."
FULL = Plan(count=1_000_000, written=100_000, samples=2_000, rounds=5)
QUICK = Plan(count=2_000, written=200, samples=50, rounds=2)
CLIENTS = 2
_CHUNK = 20_000
"""Streams between two lines of progress."""
_CHECKED = 1000
"""Streams that are read again after the restart."""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""
    for name, text in (
        ("count", "streams"),
        ("written", "streams that are written to and read back; at most all"),
        ("samples", "single writes and single reads of each kind in a round"),
        ("rounds", "rounds of samples"),
    ):
        default = f"(default {getattr(FULL, name)}; with --quick {getattr(QUICK, name)})"
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{text} {default}")
    add_dir_argument(parser)


def make_plan(arguments: Namespace) -> Plan:
    """What the options ask for; `BadOptions` if they ask for nonsense."""
    base = QUICK if arguments.quick else FULL
    count = base.count if arguments.count is None else arguments.count
    written = arguments.written
    if written is None:
        written = max(1, min(base.written, count // 10))
    plan = Plan(
        count=count,
        written=written,
        samples=base.samples if arguments.samples is None else arguments.samples,
        rounds=base.rounds if arguments.rounds is None else arguments.rounds,
    )
    if min(plan.count, plan.written, plan.samples, plan.rounds) < 1:
        raise BadOptions("all numbers have to be at least 1")
    if plan.written > plan.count:
        raise BadOptions(f"{plan.written} of {plan.count} streams cannot be written to")
    return plan


def run(arguments: Namespace, progress: Progress) -> Report:
    """Measure, and report."""
    plan = make_plan(arguments)
    begun = time.monotonic()
    with (
        scratch_folder(arguments.dir, "streams") as folder,
        fleet(CLIENTS) as clients,
        Node(folder / "many") as many,
    ):
        found = Found()
        _fill(plan, clients, many, found, progress)
        with Node(folder / "one") as one:
            _probe(plan, many, one, found, progress)
        progress("killing the server and starting it again")
        found.restart = many.restart(lambda client: client.stream(stream_name(0)))
        with clients.sessions(many.check, Crowd, many.url):
            _in_chunks(clients, "read", _chosen(plan)[:_CHECKED], progress)
        found.fds_max, found.rss_mib_max = many.fds_max, many.rss_mib_max
    return make_report(plan, found, time.monotonic() - begun)


def _fill(plan: Plan, clients: Fleet, node: Node, found: Found, progress: Progress) -> None:
    """Create the streams, write to some, read these back."""
    chosen = _chosen(plan)
    with clients.sessions(node.check, Crowd, node.url):
        steps = (("create", range(plan.count)), ("write", chosen), ("read", chosen))
        for method, numbers in steps:
            begun = time.perf_counter()
            _in_chunks(clients, method, numbers, progress)
            found.per_s[method] = len(numbers) / (time.perf_counter() - begun)
            memory = f"{node.rss_mib_max:.0f} MiB, {node.fds_max} open files"
            progress(f"{method}: {grouped(found.per_s[method])}/s; server at most {memory}")


def _chosen(plan: Plan) -> list[int]:
    """The streams that are written to."""
    return random.Random(plan.count).sample(range(plan.count), plan.written)


def _in_chunks(clients: Fleet, method: str, numbers: Sequence[int], progress: Progress) -> None:
    for first in range(0, len(numbers), _CHUNK):
        chunk = numbers[first : first + _CHUNK]
        clients.each(method, [(chunk[own :: clients.count],) for own in range(clients.count)])
        progress(f"{method} {grouped(first + len(chunk))} of {grouped(len(numbers))} streams")


def _probe(plan: Plan, many: Node, one: Node, found: Found, progress: Progress) -> None:
    """Samples on the server with many streams, and on one with a single stream, in turn."""
    with tstreams.connect(one.url) as client:
        client.create_stream(stream_name(0), partitions=1, ttl="1d")
    probes = {"many": Probe(many.url, plan.count), "one": Probe(one.url, 1)}
    try:
        for number in range(plan.rounds + 1):
            warming_up = number == 0
            for kind in KINDS:
                acts: dict[str, Callable[[], tuple[float, float]]] = {
                    name: getattr(probe, f"open_and_{kind}") for name, probe in probes.items()
                }
                samples = side_by_side(acts, max(1, plan.samples // (10 if warming_up else 1)))
                if not warming_up:
                    found.add(kind, samples)
            if not warming_up:
                progress(f"round {number}/{plan.rounds} of single writes and reads")
    finally:
        for probe in probes.values():
            probe.close()
