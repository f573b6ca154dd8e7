"""`python -m benchmarks NAME`, `all` for every one of them, `table` for what they have found, `profile`."""

from __future__ import annotations

import shlex
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from . import (
    cluster,
    door,
    durable,
    failover,
    growth,
    history,
    latency,
    pipeline,
    profile,
    reqrep,
    spark,
    streams,
    table,
    views,
)
from . import report as reports
from .interface import BadOptions, Benchmark, BenchmarkFailed, Report
from .results import ALL, save, stamp, together

BENCHMARKS: dict[str, Benchmark] = {
    "reqrep": reqrep,
    "durable": durable,
    "cluster": cluster,
    "failover": failover,
    "door": door,
    "streams": streams,
    "views": views,
    "history": history,
    "pipeline": pipeline,
    "latency": latency,
    "growth": growth,
    "spark": spark,
}
EVERY = "Every benchmark, one after the other, with its own defaults; then the table."


def make_parser() -> ArgumentParser:
    """The whole command line."""
    parser = ArgumentParser(
        prog="python -m benchmarks",
        description="Benchmarks against the peers one would use instead. NAME --help lists the options of one.",
        epilog="Figures go to stdout, progress to stderr. Exit code 1: a benchmark could not be done.",
    )
    commands = parser.add_subparsers(dest="name", metavar="NAME")
    for name, benchmark in BENCHMARKS.items():
        command = commands.add_parser(
            name, help=benchmark.SUMMARY, description=benchmark.__doc__ or benchmark.SUMMARY
        )
        _add_common_arguments(command)
        benchmark.add_arguments(command)
    every = commands.add_parser("all", help=EVERY, description=EVERY)
    _add_common_arguments(every)
    every.add_argument(
        "--out",
        type=Path,
        default=table.BENCH,
        metavar="DIR",
        help=f"where {ALL}, the table and the plots are written (default {table.BENCH})",
    )
    every.add_argument(
        "--only",
        action="append",
        choices=list(BENCHMARKS),
        help="only this one; may be given more than once",
    )
    shown = commands.add_parser("table", help=table.SUMMARY, description=table.__doc__)
    table.add_arguments(shown)
    seen = commands.add_parser("profile", help=profile.SUMMARY, description=profile.__doc__)
    profile.add_arguments(seen)
    return parser


def _add_common_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print exactly one JSON object to stdout"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny counts, to see that everything works; the figures mean nothing",
    )


def run_one(parser: ArgumentParser, words: Sequence[str]) -> Report:
    """Run one benchmark with these words of the command line, and show what it found."""
    arguments = parser.parse_args(words)
    name: str = arguments.name
    benchmark: Benchmark = profile if name == "profile" else BENCHMARKS[name]
    reports.say(f"== {name}: {benchmark.SUMMARY}")
    run = stamp([shlex.quote(word) for word in words])
    try:
        report = benchmark.run(arguments, reports.say)
    except BadOptions as error:
        parser.error(f"{name}: {error}")
    report.data["run"] = run
    reports.show(report, on_stderr=arguments.json)
    return report


def run_all(parser: ArgumentParser, arguments: Namespace) -> int:
    """Run every benchmark with its defaults. One that fails is named in the end, and does not stop the others."""
    flags = [f"--{flag}" for flag in ("json", "quick") if getattr(arguments, flag)]
    found: list[dict[str, object]] = []
    failed: dict[str, str] = {}
    names = [name for name in BENCHMARKS if not arguments.only or name in arguments.only]
    for number, name in enumerate(names, 1):
        reports.say(f"[{number}/{len(names)}]")
        try:
            found.append(run_one(parser, [name, *flags]).data)
        except BenchmarkFailed as error:
            failed[name] = str(error)
            reports.say(f"{name} failed: {error}")
        # After each, so that what is measured is not lost when the next one is stopped.
        save(arguments.out / ALL, together(found, failed))
    results = together(found, failed)
    table.write_beside(results, arguments.out, reports.say)
    if arguments.json:
        reports.write_json(results)
    return 1 if failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = make_parser()
    words = sys.argv[1:] if argv is None else argv
    arguments = parser.parse_args(words)
    if arguments.name is None:
        parser.print_help()
        return 0
    # SIGTERM unwinds like any exception, so that servers and clients are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return _do(parser, arguments, words)
    except BenchmarkFailed as error:
        reports.say(f"benchmark failed: {error}")
        return 1
    except KeyboardInterrupt:
        reports.say("interrupted; everything that was started has been stopped")
        return 128 + signal.SIGINT


def _do(parser: ArgumentParser, arguments: Namespace, words: Sequence[str]) -> int:
    if arguments.name == "all":
        return run_all(parser, arguments)
    if arguments.name == "table":
        try:
            table.run(arguments, reports.say)
        except BadOptions as error:
            parser.error(f"table: {error}")
        return 0
    report = run_one(parser, words)
    if arguments.json:
        reports.write_json(report.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
