"""`python -m tests.crash --kills 50 --json`: is anything lost, torn, doubled or out of order?

With `--exactly-once` a chain of three processors is killed with its server: is anything missing, or twice?
With `--spark` a streaming query is: its driver, its workers and its server.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tstreams
from tests.crash.account import judge
from tests.crash.chain import campaign
from tests.crash.chain.life import PLANTS
from tests.crash.readers import drain, read
from tests.crash.server import KilledServer, kill_many
from tests.crash.writers import PARTITIONS, PASSING, STREAM, write
from tstreams import Offset
from tstreams.server.verify import verify

WRITERS = 4
READERS = 2
PROGRESS = 100
"""So many transactions must come after the last kill."""


def run(kills: int, seed: int, folder: Path, shards: int = 1) -> dict[str, Any]:
    """Writers, readers, kills; then what it came to."""
    began = time.monotonic()
    flags = ("--ledger-bytes", "64KiB", "--log-level", "warning", "--shards", str(shards))
    server = KilledServer(folder / "data", *flags)
    try:
        server.start()
        with tstreams.connect(server.url) as ts:
            ts.create_stream(STREAM, partitions=PARTITIONS, ttl="1d")
            ts.create_stream(PASSING, partitions=1, ttl="2s")
        with get_context("spawn").Manager() as manager:
            stop = manager.Event()
            with ProcessPoolExecutor(WRITERS + READERS, get_context("spawn")) as pool:
                url = server.url
                writers = [pool.submit(write, url, n, seed, stop) for n in range(WRITERS)]
                readers = [pool.submit(read, url, n, seed, stop) for n in range(READERS)]
                try:
                    kill_many(server, kills, random.Random(seed))
                    see_progress(server.url)
                finally:
                    stop.set()
                accounts = [it.result() for it in writers]
                reader_accounts = [it.result() for it in readers]
        verdict = judge(accounts, drain(server.url), reader_accounts)
        exit_code = server.stop()
        if exit_code != 0:
            verdict.findings.append(f"SIGTERM ended the server with {exit_code}")
        verdict.findings += verify(server.data).problems
        return {
            "kills": server.kills,
            "shard_kills": server.shard_kills,
            **asdict(verdict),
            "seconds": round(time.monotonic() - began, 1),
            "seed": seed,
        }
    finally:
        server.close()


def see_progress(url: str) -> None:
    """Wait until writers go on after the last kill, however slow the machine is."""
    with (
        tstreams.connect(url) as ts,
        ts.consumer(STREAM, name="witness", start=Offset.newest()) as consumer,
    ):
        seen = sum(1 for _ in islice(consumer.read(max_wait=30.0), PROGRESS))
    if seen < PROGRESS:
        raise RuntimeError(f"after the last kill {seen} transactions came, and then none for 30 s")


def table(report: dict[str, Any]) -> str:
    """A report, for people: a line for each figure, and what was found below."""
    rows = {name: value for name, value in report.items() if name != "findings"}
    width = max(map(len, rows))
    lines = [f"{name.replace('_', ' '):<{width}}  {_figure(it)}" for name, it in rows.items()]
    return "\n".join([*lines, *report["findings"]])


def _figure(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {it}" for name, it in value.items())
    return str(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = ArgumentParser("python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="how many kills [50]")
    parser.add_argument("--seed", type=int, default=None, help="the same seed, the same moments")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--exactly-once", action="store_true", help="kill the processors of a chain too"
    )
    kinds.add_argument(
        "--spark", action="store_true", help="kill a query on Spark: driver, workers, server"
    )
    parser.add_argument(
        "--plant", choices=PLANTS, default="", help="let one of the chain do this: it must be found"
    )
    parser.add_argument(
        "--shards", type=int, default=1, help="how many shards the server has, but for --spark [1]"
    )
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="tstreams-crash-") as folder:
        if given.exactly_once:
            report = campaign.run(given.kills, seed, Path(folder), given.plant, given.shards)
        elif given.spark:
            from tests.crash.spark import campaign as on_spark  # not everybody has Spark

            report = on_spark.run(given.kills, seed, Path(folder))
        else:
            report = run(given.kills, seed, Path(folder), given.shards)
    print(json.dumps(report) if given.json else table(report))
    return 1 if report["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
