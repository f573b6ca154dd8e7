"""Where the time goes: flame graphs of server and client on the ways of a write, a read, a pipeline and Spark.

A real server and real clients work as in the benchmarks `durable`, `pipeline` and `spark`, while py-spy looks
a hundred times a second at every thread of the server and of one client, or of all Python workers of Spark,
down into C. Samples in which a thread waits are counted and left out; shares are of the others. py-spy
stops a process while it looks, so throughput is not measured here.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from .interface import BadOptions, BenchmarkFailed, Progress, Report, Table
from .machine import machine_facts, package_versions
from .profile_flame import flame
from .profile_paths import PATHS
from .profile_recorder import RATE, Recorded, why_not
from .profile_report import as_data, as_table, markdown
from .profile_stacks import parse
from .results import save
from .scratch import add_dir_argument

SUMMARY = "Flame graphs and the functions that take most time, of servers and clients, with py-spy."
OUT = Path("build/profile")
SECONDS = 15.0


def add_arguments(parser: ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument(
        "--path",
        dest="paths",
        action="append",
        choices=list(PATHS),
        help="only this one; may be given more than once",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="N",
        help=f"how long each is looked at, in whole seconds (default {SECONDS:g})",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=OUT,
        metavar="DIR",
        help=f"where flame graphs, stacks and tables are written (default {OUT})",
    )
    parser.add_argument(
        "--json", action="store_true", help="print exactly one JSON object to stdout"
    )
    add_dir_argument(parser)


def run(arguments: Namespace, progress: Progress) -> Report:
    """Record, and write what was seen. `BenchmarkFailed` if py-spy cannot be had or may not look."""
    if arguments.seconds < 1:
        raise BadOptions("a profile takes at least a second")
    reason = why_not()
    if reason is not None:
        raise BenchmarkFailed(reason)
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    profiles: list[dict[str, Any]] = []
    tables: list[Table] = []
    for path in arguments.paths or list(PATHS):
        for scene, recorded, done in PATHS[path](arguments.dir, arguments.seconds):
            progress(f"{scene}: {done}")
            for seen in recorded:
                data = write_one(out, scene, seen, done)
                profiles.append(data)
                tables.append(as_table(data))
    data = {
        "benchmark": "profile",
        "rate": RATE,
        "seconds": arguments.seconds,
        "machine": machine_facts(),
        "versions": package_versions("tstreams", "py-spy", "rocksdict", "uvloop"),
        "took_s": round(time.monotonic() - begun, 1),
        "profiles": profiles,
    }
    (out / "profile.md").write_text(markdown(profiles), "utf-8")
    save(out / "profile.json", data)
    return Report(data, tuple(tables), (f"written: flame graphs, stacks and tables in {out}",))


def write_one(out: Path, scene: str, seen: Recorded, done: str) -> dict[str, Any]:
    """The flame graph and the stacks of one process; what the tables say of it."""
    profile = parse(seen.folded)
    name = f"{scene}-{seen.name}"
    (out / f"{name}.folded").write_text(seen.folded, "utf-8")
    (out / f"{name}.svg").write_text(flame(f"{scene}: {seen.name}", profile), "utf-8")
    return as_data(name, profile, seen, done)
