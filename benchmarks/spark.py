"""Through Spark: the source and the sink of tstreams beside the least that a Python source and sink can do.

Five million rows of 100 B, as items and as typed rows, go from the source to nowhere, from memory to the
sink, and from source to sink. Beside them, in the same rounds: a Python data source that gives Arrow
batches which are in memory already, with a sink that only counts (the ceiling), Parquet files, and Kafka
with Spark's connector, where there is one. Then micro-batches of 1000 rows, from stream to stream, beside
those of a trivial source and sink. Ratios are taken within a round; their median is reported.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from .interface import BadOptions, BenchmarkFailed, Progress, Report
from .kafka import find_kafka, kafka_server
from .report import grouped
from .rounds import rotated
from .scratch import add_dir_argument, scratch_folder
from .servers import ServerProcess, tstreams_server
from .spark_plan import KINDS, WAYS, Key, Measured, Plan
from .spark_report import make_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .spark_subjects import Ceiling, Streams, Subject

SUMMARY = (
    "Through Spark, beside an in-memory source as the ceiling, Parquet, and Kafka's connector."
)
ROUNDS_MIN = 3
_WARM_UP_BATCHES = 5
_QUERY_WITHIN_S = 300

FULL = Plan(rows=5_000_000, batches=40, rounds=5, cores=2)
QUICK = Plan(rows=20_000, batches=6, rounds=1, cores=2)


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this benchmark."""
    for name, text in (
        ("rows", "rows in each phase"),
        ("batches", "micro-batches in each streaming query"),
        ("rounds", f"rounds; at least {ROUNDS_MIN} without --quick"),
        ("cores", "tasks that Spark runs at a time"),
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
        choices=("parquet", "kafka"),
        help="leave a contestant out; may be given more than once",
    )
    add_dir_argument(parser)


def make_plan(arguments: Namespace) -> Plan:
    """What the options ask for; `BadOptions` if they ask for nonsense."""
    base = QUICK if arguments.quick else FULL
    chosen = {
        name: getattr(base, name) if getattr(arguments, name) is None else getattr(arguments, name)
        for name in ("rows", "batches", "rounds", "cores")
    }
    plan = Plan(**chosen)
    if min(plan.rows, plan.rounds, plan.cores) < 1:
        raise BadOptions("all numbers have to be at least 1")
    if plan.batches <= _WARM_UP_BATCHES:
        raise BadOptions(
            f"the first {_WARM_UP_BATCHES} micro-batches are not counted: more of them"
        )
    if plan.rounds < ROUNDS_MIN and not arguments.quick:
        raise BadOptions(f"fewer than {ROUNDS_MIN} rounds say nothing; use --quick to try it out")
    return plan


def run(arguments: Namespace, progress: Progress) -> Report:
    """Measure, and report."""
    plan = make_plan(arguments)
    begun = time.monotonic()
    try:
        from .spark_kafka import Kafka, find_connector
        from .spark_session import spark_session
        from .spark_subjects import Ceiling, Parquet, Streams
    except ImportError as error:
        raise BenchmarkFailed(f"{error}: pip install 'tstreams[spark]'") from None
    jars = find_connector()
    missing = {"kafka": jars} if isinstance(jars, str) else {}
    missing |= dict.fromkeys(arguments.without, "it was left out with --without")
    for name, reason in missing.items():
        progress(f"{name} is left out: {reason}")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(arguments.dir, "spark"))
        server = stack.enter_context(tstreams_server(folder))
        found = [] if "kafka" in missing or isinstance(jars, str) else jars
        spark = stack.enter_context(spark_session(plan.cores, folder, found))
        streams, ceiling = Streams(spark, plan, server.port), Ceiling(spark, plan)
        subjects: dict[str, Subject] = {
            "tstreams": streams,
            "ceiling": ceiling,
            "parquet": Parquet(spark, plan, folder),
        }
        kafka = find_kafka()
        if found and not isinstance(kafka, str):
            (folder / "kafka").mkdir()
            broker = stack.enter_context(kafka_server(kafka, folder / "kafka"))
            subjects["kafka"] = Kafka(spark, plan, broker.port)
        for name in arguments.without:
            subjects.pop(name, None)
        bench = Bench(plan, spark, subjects, server, folder, progress)
        bench.prepare()
        # The first round warms everything up, and is not counted.
        for number in range(0 if arguments.quick else -1, plan.rounds):
            bench.rows_round(number)
            bench.microbatch_round(number, streams, ceiling)
    seconds = time.monotonic() - begun
    return make_report(plan, bench.measured, missing, arguments.dir, seconds)


class Bench:
    """One Spark, one server, and all contestants in turn."""

    def __init__(
        self,
        plan: Plan,
        spark: SparkSession,
        subjects: dict[str, Subject],
        server: ServerProcess,
        folder: Path,
        progress: Progress,
    ) -> None:
        self.measured = Measured({}, {}, {})
        self._plan = plan
        self._spark = spark
        self._subjects = subjects
        self._server = server
        self._folder = folder
        self._progress = progress

    def prepare(self) -> None:
        """Fill what the sources read."""
        for name, subject in self._subjects.items():
            for kind in subject.kinds:
                begun = time.perf_counter()
                subject.fill(kind)
                self._progress(f"{name} filled, {kind}: {time.perf_counter() - begun:.1f} s")

    def rows_round(self, number: int) -> None:
        """All ways with all kinds of rows; of each, all contestants one after the other."""
        for way in WAYS if number >= 0 else WAYS[-1:]:
            for kind in KINDS:
                for name in rotated(list(self._subjects), max(0, number)):
                    if kind in self._subjects[name].kinds:
                        self._phase(number, (name, way, kind))

    def _phase(self, number: int, key: Key) -> None:
        name, way, kind = key
        cpu_s, begun = self._server.cpu_s(), time.perf_counter()
        self._go(name, way, kind)
        seconds = time.perf_counter() - begun
        cpu_s = self._server.cpu_s() - cpu_s
        self._server.check()
        if way != "source":
            self._subjects[name].check(kind)
        rate = grouped(self._plan.rows / seconds)
        self._progress(f"{self._label(number)}  {name:9} {way:9} {kind:7} {rate:>11} rows/s")
        if number >= 0:
            self.measured.seconds.setdefault(key, []).append(seconds)
            self.measured.server_cpu_s.setdefault(key, []).append(cpu_s)

    def _go(self, name: str, way: str, kind: str) -> None:
        from .spark_subjects import memory

        subject = self._subjects[name]
        if way == "source":
            subject.read(kind).write.format("noop").mode("overwrite").save()
        elif way == "sink":
            subject.write(memory(self._spark, self._plan, kind), kind)
        else:
            subject.write(subject.read(kind), kind)

    def microbatch_round(self, number: int, streams: Streams, ceiling: Ceiling) -> None:
        """Queries of small micro-batches, one contestant after the other."""
        for name in rotated(["tstreams", "ceiling"], max(0, number)):
            subject = streams if name == "tstreams" else ceiling
            batches = self._plan.batches
            checkpoint = self._folder / f"checkpoint-{name}-{number}"
            query = subject.stream(checkpoint, batches)
            if not query.awaitTermination(_QUERY_WITHIN_S):
                raise BenchmarkFailed(f"a query of {name} took more than {_QUERY_WITHIN_S} s")
            took = [
                it.durationMs["triggerExecution"] for it in query.recentProgress if it.numInputRows
            ]
            if len(took) != batches:
                raise BenchmarkFailed(f"{name} made {len(took)} micro-batches, not {batches}")
            if name == "tstreams":
                streams.check_stream(batches)
            median = statistics.median(took[_WARM_UP_BATCHES:])
            self._progress(f"{self._label(number)}  {name:9} micro-batch {median:.0f} ms")
            if number >= 0:
                self.measured.microbatch_ms.setdefault(name, []).append(median)

    def _label(self, number: int) -> str:
        return f"round {number + 1}/{self._plan.rounds}" if number >= 0 else "warm-up  "
