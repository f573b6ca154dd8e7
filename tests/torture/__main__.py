"""`python -m tests.torture --minutes 30 --json`: everything fails, for as long as you like. Is any promise broken?
With `--cluster` it is a whole cluster that fails, and not one server.

It runs in namespaces of its own, if it may make some: a small disk that can be full, and a cable that can be pulled.
What needs that, and cannot have it, is named in the report as skipped. Ends with status 1 if anything is wrong.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.cluster_servers import why_not as why_no_cluster
from benchmarks.machine import machine_facts
from tests.simulation.report import commit
from tests.simulation.system.mistakes import names
from tests.torture import shim
from tests.torture.campaign import Settings
from tests.torture.cluster.campaign import run as run_cluster
from tests.torture.cluster.faults import CLUSTER
from tests.torture.cluster.mistakes import CLUSTER_MISTAKES
from tests.torture.faults import SERVER
from tests.torture.namespace import CLUSTER_PROBE, INSIDE, run_inside, way_in
from tests.torture.page import render
from tests.torture.single import run as run_single

SPARK_MINUTES_MIN = 5.0
"""From here on a query on Spark takes part, if nobody says otherwise: its start alone takes a while."""


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = ArgumentParser("python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long [1]")
    parser.add_argument(
        "--cluster", action="store_true",
        help="against a whole cluster, each server of which has a host of its own",
    )  # fmt: skip
    parser.add_argument(
        "--log", choices=("jetstream", "bookkeeper"), default="jetstream",
        help="what keeps the logs of the cluster [jetstream]",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=None, help="the same seed, the same faults")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--spark", choices=("yes", "no", "auto"), default="auto",
        help=f"whether a query on Spark takes part [from {SPARK_MINUTES_MIN:.0f} minutes on]",
    )  # fmt: skip
    parser.add_argument(
        "--unprivileged",
        action="store_true",
        help="make nothing that needs namespaces or a compiler",
    )
    parser.add_argument(
        "--faults", metavar="KINDS", default="",
        help="only these, with commas between; `none` for none. Against one server: "
        f"{', '.join(SERVER.kinds)}. Against a cluster: {', '.join(CLUSTER.kinds)}",
    )  # fmt: skip
    parser.add_argument(
        "--mistake", choices=("", *names(), *CLUSTER_MISTAKES), default="", metavar="NAME",
        help="let the server, or all nodes, make one of the mistakes of the simulation, or of a cluster: "
        f"{', '.join(CLUSTER_MISTAKES)}. It must be found",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, help="a new folder, for all that the run leaves")
    parser.add_argument(
        "--render", metavar="FILE", type=Path, help="print such a JSON object as Markdown"
    )
    return parser


def settings_of(given: Namespace, barrier: str) -> Settings:
    """What was asked for, and can be had."""
    only = tuple(it for it in given.faults.split(",") if it)
    known = CLUSTER.kinds if given.cluster else SERVER.kinds
    if unknown := [it for it in only if it != "none" and it not in known]:
        raise SystemExit(f"there is no such fault: {', '.join(unknown)}")
    barriers = dict.fromkeys(("disk", "cable"), barrier) if barrier else {}
    spark = given.spark == "yes" or (
        given.spark == "auto"
        and not given.cluster
        and given.minutes >= SPARK_MINUTES_MIN
        and _has_spark()
    )
    if lacking := "--unprivileged was given" if given.unprivileged else shim.barrier():
        barriers["shim"] = lacking
    if not spark:
        barriers["spark"] = "no query on Spark takes part: see --spark"
    return Settings(given.minutes, given.seed, spark, given.mistake, only, barriers, given.log)


def _has_spark() -> bool:
    return importlib.util.find_spec("pyspark") is not None


def table(report: dict[str, Any]) -> str:
    """A report, for people: a line for each figure, and what was found below."""
    rows = {name: value for name, value in report.items() if name != "findings"}
    width = max(map(len, rows))
    lines = [f"{name.replace('_', ' '):<{width}}  {_figure(it)}" for name, it in rows.items()]
    found = report["findings"] or ["nothing is wrong"]
    return "\n".join([*lines, *found])


def _figure(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_figure(it)}" for name, it in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    given = make_parser().parse_args(words)
    if given.render is not None:
        print(render(json.loads(given.render.read_text())), end="")
        return 0
    if given.seed is None:
        given.seed = random.SystemRandom().randrange(10**6)
        words += ["--seed", str(given.seed)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is cleaned up
    barrier = "--unprivileged was given" if given.unprivileged else ""
    if given.cluster and (lacking := barrier or why_no_cluster()):
        raise SystemExit(f"no cluster: {lacking}")
    if not barrier and INSIDE not in os.environ:
        way = way_in(CLUSTER_PROBE) if given.cluster else way_in()
        if not isinstance(way, str):
            with tempfile.TemporaryDirectory(prefix="tstreams-torture-") as folder:
                return run_inside(way, words, folder)
        barrier = way
    if given.cluster and barrier:
        raise SystemExit(f"no cluster without hosts of its own: {barrier}")
    settings = settings_of(given, barrier)
    run = run_cluster if given.cluster else run_single
    origin = {
        "commit": commit(),
        "begun": datetime.now(UTC).isoformat(timespec="seconds"),
        "arguments": words,
        "machine": machine_facts(),
    }
    if given.keep is not None:
        given.keep.mkdir(parents=True)
        report = run(settings, given.keep)
    else:
        with tempfile.TemporaryDirectory(prefix="tstreams-torture-") as folder:
            report = run(settings, Path(folder))
    report |= origin
    print(json.dumps(report) if given.json else table(report))
    return 1 if report["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
