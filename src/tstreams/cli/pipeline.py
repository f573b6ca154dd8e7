"""`tstreams pipeline`: run declared pipelines on Spark until they have ended or a signal comes."""

from __future__ import annotations

import signal
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..config import read_number
from ..errors import Unavailable
from . import output
from .connection import add_connection, spark_options
from .output import BadUsage, checked, whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark.runner import Runner

LOG_LEVELS = ("OFF", "ERROR", "WARN", "INFO", "DEBUG")

STATUSES = """exit codes:
  0    all pipelines have ended (--once), or were stopped by SIGINT or SIGTERM
  1    a pipeline has failed for good, or Spark cannot be reached
  2    the command line makes no sense
  130  a second SIGINT ended it at once (143: a second SIGTERM)"""


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams pipeline",
        "Run streaming pipelines on Spark.",
        """
        tstreams pipeline run pipelines.py
        tstreams pipeline run pipelines.py --once --json
        """,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_run(actions)
    return parser


def _add_run(actions: Any) -> None:
    parser = output.add_action(
        actions,
        "run",
        "run one or many declared pipelines",
        "Run the pipelines that Python files or modules declare with @tstreams.spark.pipeline, side by "
        "side in one Spark session, until SIGINT (Ctrl-C) or SIGTERM. Shows how each gets on: a table "
        "on a terminal, else lines.\n\n"
        "A signal stops the pipelines one after the other, each between two micro-batches. A second "
        "signal ends everything at once. A pipeline that fails is started again after a pause, which "
        "doubles each time up to a minute. Queries start one after the other: the next when the one "
        "before has done its first micro-batch.",
        """
        tstreams pipeline run pipelines.py
        tstreams pipeline run shop.pipelines:totals --once
        tstreams pipeline run a.py b.py --master spark://host:7077 --conf spark.executor.memory=2g
        tstreams pipeline run pipelines.py --remote sc://host:15002 --json
        """,
    )
    parser.epilog = f"{parser.epilog}\n\n{STATUSES}"
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="FILE_OR_MODULE",
        help="a Python file or a module; with :NAME one of its pipelines",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="process what is there now (available-now), one pipeline after the other in the order of "
        "their declaration, and end",
    )
    parser.add_argument(
        "--checkpoints",
        default="checkpoints",
        metavar="FOLDER",
        help="where pipelines that name no checkpoint location keep theirs [checkpoints]",
    )
    _add_failures(parser)
    _add_spark(parser)
    add_connection(parser, "30s")


def _add_failures(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("failing and stopping")
    group.add_argument(
        "--restarts",
        type=whole(0),
        default=3,
        metavar="N",
        help="how often in a row a pipeline is started again; a micro-batch that succeeds ends the "
        "row [3]",
    )
    group.add_argument(
        "--backoff",
        type=checked(_seconds),
        default="1s",
        metavar="TIME",
        help="the pause before the first restart; it doubles with each, up to 60s [1s]",
    )
    group.add_argument(
        "--keep-going",
        action="store_true",
        help="go on with the other pipelines when one has failed for good; else they are stopped",
    )
    group.add_argument(
        "--stop-timeout",
        type=checked(_seconds),
        default="60s",
        metavar="TIME",
        help="how long a stop waits for the end of a pipeline's micro-batch; then it is stopped in "
        "the middle of it, and readers of its sink may be held up until stagingTtl [60s]",
    )


def _add_spark(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("spark")
    group.add_argument("--master", metavar="URL", help="the cluster to run on [local[*]]")
    group.add_argument(
        "--remote",
        metavar="URL",
        help="a Spark Connect server, sc://host:port, instead of --master",
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        type=checked(_setting),
        metavar="KEY=VALUE",
        help="a setting of Spark; may be given several times",
    )
    group.add_argument(
        "--spark-log",
        choices=LOG_LEVELS,
        default="OFF",
        help="what Spark itself logs, to standard error; failures are told in any case [OFF]",
    )


def run(arguments: Namespace) -> int:
    """Do it."""
    if arguments.master and arguments.remote:
        raise BadUsage("--master and --remote exclude each other: a session runs here or there")
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from ..spark.loading import check_targets, load_pipelines
        from ..spark.pipelines import Place
        from ..spark.runner import Runner
    except ImportError as error:
        raise Unavailable(
            f'pipelines need Spark: pip install "tstreams[spark]" ({error})'
        ) from None
    from .pipeline_view import view_for

    place = Place(spark_options(arguments), arguments.checkpoints, arguments.once)
    check_targets(arguments.targets)
    began_at = time.monotonic()
    try:
        with _session(arguments) as spark, view_for(arguments.json) as view:
            # A file may define functions of Spark's, for which there has to be a session.
            pipelines = load_pipelines(arguments.targets)
            runner = Runner(
                spark,
                pipelines,
                view,
                place=place,
                restarts=arguments.restarts,
                backoff_s=arguments.backoff,
                stop_timeout_s=arguments.stop_timeout,
                keep_going=arguments.keep_going,
            )
            with _stopping_on_signals(runner):
                succeeded = runner.run()
            view.ended(runner.runs, time.monotonic() - began_at)
    except (PySparkException, Py4JError) as error:
        from ..spark.failures import reason_of

        raise Unavailable(f"Spark: {reason_of(error)}") from None
    except BrokenPipeError:  # of standard output: whoever read it has left
        raise
    except ConnectionError as error:
        raise Unavailable(
            f"Spark's Java process has ended ({error.strerror}); pipelines go on where they were when they are "
            "run again"
        ) from None
    return output.OK if succeeded else output.FAILED


@contextmanager
def _session(arguments: Namespace) -> Iterator[SparkSession]:
    from ..spark.session import session

    settings = dict(arguments.conf)
    if arguments.remote is None:
        settings.setdefault("spark.log.level", arguments.spark_log)
    spark = session("tstreams pipeline", arguments.master, settings, remote=arguments.remote)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _stopping_on_signals(runner: Runner) -> Iterator[None]:
    """A signal stops the runner; a second one does what it always does. Spark has put a handler of its own
    for SIGINT, which cancels all jobs at once."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # A signal that is ignored stays so: a shell does that for what runs in the background.
    handled = [number for number, handler in before.items() if handler != signal.SIG_IGN]

    def stop(_: int, __: FrameType | None) -> None:
        runner.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


def _seconds(text: str) -> float:
    seconds = read_number(text, "seconds")
    if seconds <= 0:
        raise ValueError("it must be more than nothing")
    return seconds


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return key, value
