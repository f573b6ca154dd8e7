"""A long history in one partition: does finding a time in it, or starting with it, take longer?

Writes the transactions, with a restart (after SIGKILL) at a tenth of them and one at the end. Then it
reads the transaction at a random time of the history (seek and get) and the last one, in turn.
"""

from __future__ import annotations

import random
import time
from argparse import ArgumentParser, Namespace
from datetime import datetime, timedelta
from typing import Any

import tstreams
from tstreams import Offset

from .durable_clients import make_items
from .fleet import Fleet, fleet
from .history_report import Found, Plan, make_report
from .interface import BadOptions, BenchmarkFailed, Progress, Report
from .report import grouped
from .scratch import add_dir_argument, scratch_folder
from .streams_node import Node, Restart
from .window import keep_futures

SUMMARY = "A long history in one partition: finding a time in it, and starting with it."
FULL = Plan(count=10_000_000, samples=500, rounds=5)
QUICK = Plan(count=2_000, samples=20, rounds=2)
STREAM = "history"
ITEM_BYTES = 100
CLIENTS = 2
WINDOW = 256
RESTARTS = 3
_STEP_S = 5.0
_GET_WITHIN_S = 30.0


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""
    for name, text in (
        ("count", "transactions"),
        ("samples", "samples of each kind in a round"),
        ("rounds", "rounds of samples"),
    ):
        default = f"(default {getattr(FULL, name)}; with --quick {getattr(QUICK, name)})"
        parser.add_argument(f"--{name}", type=int, metavar="N", help=f"{text} {default}")
    add_dir_argument(parser)


def make_plan(arguments: Namespace) -> Plan:
    """What the options ask for; `BadOptions` if they ask for nonsense."""
    base = QUICK if arguments.quick else FULL
    chosen = {
        name: getattr(base, name) if getattr(arguments, name) is None else getattr(arguments, name)
        for name in ("count", "samples", "rounds")
    }
    plan = Plan(**chosen)
    if plan.count < 10 * CLIENTS or min(plan.samples, plan.rounds) < 1:
        raise BadOptions(f"at least {10 * CLIENTS} transactions, one sample and one round")
    return plan


class HistoryWriter:
    """A client process that writes transactions of one item."""

    def __init__(self, url: str) -> None:
        self._client = tstreams.connect(url)
        self._producer: Any = None

    def write(self, name: str, seconds: float, count_max: int) -> int:
        """So many of them, or for so long; how many."""
        if self._producer is None:
            self._producer = self._client.producer(STREAM, name=name)
        instant, items = self._producer.instant, make_items(1, ITEM_BYTES)
        return keep_futures(
            lambda: instant(items, partition=0, wait=False), WINDOW, seconds, count_max
        )

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


def run(arguments: Namespace, progress: Progress) -> Report:
    """Measure, and report."""
    plan = make_plan(arguments)
    begun = time.monotonic()
    found = Found()
    with (
        scratch_folder(arguments.dir, "history") as folder,
        fleet(CLIENTS) as clients,
        Node(folder / "node") as node,
    ):
        with tstreams.connect(node.url) as client:
            client.create_stream(STREAM, partitions=1, ttl="30d")
        _fill(clients, node, 0, plan.count // 10, progress)
        found.restarts_small = _restarts(node, progress)
        written_s = time.perf_counter()
        _fill(clients, node, plan.count // 10, plan.count, progress)
        written_s = time.perf_counter() - written_s
        found.written_per_s = (plan.count - plan.count // 10) / written_s
        found.restarts_full = _restarts(node, progress)
        _sample(plan, node, found, progress)
        found.fds_max, found.rss_mib_max = node.fds_max, node.rss_mib_max
    return make_report(plan, found, time.monotonic() - begun)


def _restarts(node: Node, progress: Progress) -> list[Restart]:
    """Several. What they have to replay depends on the moment of the first kill."""
    found = []
    for _ in range(RESTARTS):
        found.append(node.restart(lambda client: client.stream(STREAM)))
        took_s, replayed = found[-1].seconds, found[-1].replayed
        progress(f"killed, and answering again after {took_s:.2f} s, {replayed} records replayed")
    return found


def _fill(clients: Fleet, node: Node, done: int, count: int, progress: Progress) -> None:
    with clients.sessions(node.check, HistoryWriter, node.url):
        while done < count:
            left = count - done
            shares = [left // clients.count] * clients.count
            shares[0] += left % clients.count
            calls = [(f"writer-{own}", _STEP_S, share) for own, share in enumerate(shares)]
            done += sum(clients.each("write", calls))
            progress(f"{grouped(done)} of {grouped(count)} transactions")


def _sample(plan: Plan, node: Node, found: Found, progress: Progress) -> None:
    """The transaction at a random time, and the last one, in turn."""
    pick = random.Random(plan.count)
    with tstreams.connect(node.url) as client:
        consumer = client.consumer(STREAM, name="reader", start=Offset.oldest())
        first = consumer.get(partition=0, timeout=_GET_WITHIN_S)
        last = consumer.last(0)
        if first is None or last is None:
            raise BenchmarkFailed("nothing can be read of what was written")
        for number in range(plan.rounds + 1):
            at_s, last_s = [], []
            for _ in range(max(1, plan.samples // (1 if number else 10))):
                # Untimed reads in between: the server is done with what a read had it fetch ahead.
                _read_last(consumer, last.id)
                at_s.append(_read_at(consumer, _time_between(pick, first.time, last.time)))
                _read_last(consumer, last.id)
                last_s.append(_read_last(consumer, last.id))
            if number:  # the one before is to warm up
                found.add(at_s, last_s)
                progress(f"round {number}/{plan.rounds} of reading at a time")


def _time_between(pick: random.Random, first: datetime, last: datetime) -> datetime:
    """A time of the history: a whole millisecond, as ids have it."""
    return first + timedelta(
        milliseconds=pick.randint(0, (last - first) // timedelta(milliseconds=1))
    )


def _read_at(consumer: Any, when: datetime) -> float:
    begun = time.perf_counter()
    consumer.seek(0, Offset.at(when))
    transaction = consumer.get(partition=0, timeout=_GET_WITHIN_S)
    took_s = time.perf_counter() - begun
    if transaction is None or transaction.time < when or len(transaction.items[0]) != ITEM_BYTES:
        raise BenchmarkFailed(f"{transaction!r} is not what was written at {when} or later")
    return took_s


def _read_last(consumer: Any, last_id: int) -> float:
    begun = time.perf_counter()
    transaction = consumer.last(0)
    took_s = time.perf_counter() - begun
    if transaction is None or transaction.id != last_id or len(transaction.items[0]) != ITEM_BYTES:
        raise BenchmarkFailed(f"{transaction!r} is not the last transaction, {last_id}")
    return took_s
