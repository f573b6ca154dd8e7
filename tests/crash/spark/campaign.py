"""The campaign: a feeder feeds, the query runs, and whatever runs is killed; then all is counted."""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tstreams
from tests.crash.chain.feeders import FeederAccount, feed
from tests.crash.chain.items import PARTITIONS
from tests.crash.server import KilledServer
from tests.crash.spark.judge import RESULTS, SOURCE, expected, found_in_the_end, judge
from tests.crash.spark.post import Post
from tstreams.server.verify import verify

DRIVER, WORKER, SERVER = "driver", "worker", "server"
ROUND = (DRIVER, SERVER, DRIVER, WORKER, DRIVER)
"""Who is killed, from the last to the first, and again. The last is always a driver."""
RESULT_PARTITIONS = 3
READY_S_MAX = 180.0
DRAIN_S_MAX = 240.0
HASTE = 0.2
"""How many kills do not wait until the query has done something."""


class Campaign:
    """One server, one query, and what is done to them."""

    def __init__(self, kills: int, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.server = KilledServer(folder / "data", "--log-level", "warning")
        self.post = Post(self.server.url, folder, self.rng)
        (folder / "tmp").mkdir()
        *others, last = [ROUND[it % len(ROUND)] for it in range(kills)][::-1] or [DRIVER]
        self.rng.shuffle(others)
        self.victims = [*others, last][:kills]

    @property
    def killed(self) -> int:
        """How many have been killed so far."""
        return self.server.kills + self.post.kills + self.post.worker_kills

    def start(self) -> None:
        """A server with the streams, and a driver."""
        self.server.start()
        with tstreams.connect(self.server.url) as ts:
            ts.create_stream(SOURCE, partitions=PARTITIONS, ttl="1d")
            ts.create_stream(RESULTS, partitions=RESULT_PARTITIONS, ttl="1d")
        self.post.start()

    def kill_many(self) -> None:
        """Kill and start again, at any moment."""
        self._wait_until_at_work()
        for victim in self.victims:
            if victim == WORKER or self.rng.random() >= HASTE:
                self._wait_until_at_work()
            self._rest(self.rng.uniform(0.0, 2.0))
            self._kill(victim)
            tell(f"kill {self.killed} of {len(self.victims)}: {victim}")

    def _kill(self, victim: str) -> None:
        if victim == SERVER:
            self.server.kill()
            self.server.start(wait=False)
        elif victim == WORKER:
            while not self.post.kill_worker():
                self._rest(0.05)
        else:
            self.post.kill()
            if self.killed < len(self.victims):
                self.post.start()

    def _wait_until_at_work(self) -> None:
        until = time.monotonic() + READY_S_MAX
        while not self.post.is_at_work:
            if time.monotonic() > until:
                raise RuntimeError(f"the query did nothing: {self.post.log_tail()}")
            self._rest(0.05)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self.post.tend()
            if (left := until - time.monotonic()) <= 0:
                return
            time.sleep(min(left, 0.05))

    def finish(self) -> None:
        """The feeder has stopped: let everything flow out at the end."""
        self.server.wait_until_ready()
        tell("the last driver does what is left")
        self.post.drain(DRAIN_S_MAX)

    def report(self, account: FeederAccount) -> dict[str, Any]:
        """Who was killed, and what it came to."""
        with tstreams.connect(self.server.url) as ts:
            wanted = expected(ts)
            verdict = judge(wanted, found_in_the_end(ts, wanted.total()))
            for partition, count in account.acknowledged.items():
                there = sum(len(txn.items) for txn in ts.scan(SOURCE, partition))
                if there < count:
                    what = f"{SOURCE}/{partition}: {count} were acknowledged, {there} are there"
                    verdict.add("missing", what, count - there)
        if (status := self.server.stop()) != 0:
            verdict.findings.append(f"SIGTERM ended the server with {status}")
        verdict.findings += verify(self.server.data).problems
        return {
            "kills": self.killed,
            "driver_kills": self.post.kills,
            "driver_kills_in_mid_batch": self.post.in_mid_batch,
            "worker_kills": self.post.worker_kills,
            "server_kills": self.server.kills,
            "failed_queries": self.post.failures,
            "micro_batches": self.post.micro_batches,
            "unknown_outcomes": account.unknown,
            **asdict(verdict),
        }

    def close(self) -> None:
        """End whatever runs."""
        self.post.end()
        self.server.close()


def run(kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Feed, process, kill; then what it came to."""
    began = time.monotonic()
    campaign = Campaign(kills, seed, folder)
    try:
        campaign.start()
        account = _while_fed(campaign, seed)
        campaign.finish()
        report = campaign.report(account)
        return {**report, "seconds": round(time.monotonic() - began, 1), "seed": seed}
    finally:
        campaign.close()


def _while_fed(campaign: Campaign, seed: int) -> FeederAccount:
    """Kill as long as it takes, with something to do for the query."""
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(1, context) as pool:
        stop = manager.Event()
        feeder = pool.submit(feed, campaign.server.url, SOURCE, seed, stop)
        try:
            campaign.kill_many()
        finally:
            stop.set()
        return feeder.result()


def tell(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)
