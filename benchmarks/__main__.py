"""`python -m benchmarks NAME`, or `all`."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from . import durable, growth, history, latency, pipeline, reqrep, spark, streams
from . import report as reports
from .interface import BadOptions, Benchmark, BenchmarkFailed, Report

BENCHMARKS: dict[str, Benchmark] = {
    "reqrep": reqrep,
    "durable": durable,
    "streams": streams,
    "history": history,
    "pipeline": pipeline,
    "latency": latency,
    "growth": growth,
    "spark": spark,
}


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
    every = "Every benchmark, one after the other, with its own defaults."
    _add_common_arguments(commands.add_parser("all", help=every, description=every))
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


def run_one(parser: ArgumentParser, arguments: Namespace) -> Report:
    """Run one benchmark and show what it found."""
    name: str = arguments.name
    reports.say(f"== {name}: {BENCHMARKS[name].SUMMARY}")
    try:
        report = BENCHMARKS[name].run(arguments, reports.say)
    except BadOptions as error:
        parser.error(f"{name}: {error}")
    reports.show(report, on_stderr=arguments.json)
    return report


def run_all(parser: ArgumentParser, arguments: Namespace) -> None:
    """Run every benchmark with its defaults."""
    flags = [f"--{flag}" for flag in ("json", "quick") if getattr(arguments, flag)]
    found = [run_one(parser, parser.parse_args([name, *flags])).data for name in BENCHMARKS]
    if arguments.json:
        reports.write_json({"benchmark": "all", "reports": found})


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = make_parser()
    arguments = parser.parse_args(argv)
    if arguments.name is None:
        parser.print_help()
        return 0
    # SIGTERM unwinds like any exception, so that servers and clients are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if arguments.name == "all":
            run_all(parser, arguments)
        else:
            report = run_one(parser, arguments)
            if arguments.json:
                reports.write_json(report.data)
    except BenchmarkFailed as error:
        reports.say(f"benchmark failed: {error}")
        return 1
    except KeyboardInterrupt:
        reports.say("interrupted; everything that was started has been stopped")
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
