"""The campaign: feeders feed, processors process, and whatever runs is killed; then all is counted."""

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
from tests.crash.chain.items import BILLS, FEEDS, ORDERS, PARTITIONS, PAYMENTS, PRICED, STREAMS
from tests.crash.chain.judge import judge, read
from tests.crash.chain.post import Post
from tests.crash.chain.processor import NAMES
from tests.crash.server import KilledServer
from tstreams.server.verify import verify

SERVER = "server"
SOURCES = {"price": [ORDERS], "join": [PRICED, PAYMENTS], "route": [BILLS]}
READY_S_MAX = 60.0
FINISH_S_MAX = 90.0
IDLE_S = 1.0
"""How long a processor waits for more at the end, before it is asked whether it has done all."""
TWIN_EVERY = 6
"""So many kills to one twin."""
FREEZE_EVERY = 8
"""So many kills to one time that the server sleeps, for longer than some of its clients wait."""


class Campaign:
    """One server, three posts, and what is done to them."""

    def __init__(
        self, kills: int, seed: int, folder: Path, plant: str = "", shards: int = 1
    ) -> None:
        self.kills = kills
        self.rng = random.Random(seed)
        flags = ("--ledger-bytes", "256KiB", "--log-level", "warning", "--shards", str(shards))
        self.server = KilledServer(folder / "data", *flags)
        self.posts = {
            name: Post(name, self.server.url, folder, random.Random(f"{seed} {name}"), plant)
            for name in NAMES
        }
        self.freezes = 0
        self._deck: list[str] = []

    @property
    def killed(self) -> int:
        """How many have been killed so far."""
        return self.server.kills + sum(post.kills for post in self.posts.values())

    # At work.

    def start(self) -> None:
        """A server with the streams, and a processor at each post."""
        self.server.start()
        with tstreams.connect(self.server.url) as ts:
            for stream in STREAMS:
                ts.create_stream(stream, partitions=PARTITIONS, ttl="1d")
        for post in self.posts.values():
            post.start()

    def kill_many(self) -> None:
        """Kill and start again: at any moment, also in the middle of the start."""
        self._wait_until_all_work()
        while self.killed < self.kills:
            if self.killed % TWIN_EVERY == TWIN_EVERY // 2:
                self._replace_one()
            if self.killed % FREEZE_EVERY == FREEZE_EVERY // 2:
                self._freeze()
            victim = self._draw()
            if self.rng.random() < 0.8:
                self._wait_until_all_work(victim)
                self._rest(self.rng.uniform(0.0, 0.5))
            if victim == SERVER:
                if self.rng.random() < 0.5 or not self.server.kill_shard(self.rng):
                    self.server.kill()
                    self.server.start(wait=False)
            else:
                self.posts[victim].kill()
            tell(f"kill {self.killed} of {self.kills}: {victim}")
        self._wait_until_all_work()
        self._rest(2.0)  # time for zombies to wake up and be told

    def _replace_one(self) -> None:
        post = self.posts[self.rng.choice(NAMES)]
        tell(f"a twin for {post.name}")
        post.replace(self.rng.uniform(0.0, 3.0))
        self._rest(self.rng.uniform(0.0, 1.0))

    def _freeze(self) -> None:
        """Requests that their senders have given up wait in the server's buffers, and take effect later."""
        self._wait_until_all_work()
        tell("the server sleeps")
        with self.server.frozen():
            self._rest(self.rng.uniform(0.5, 3.0))
        self.freezes += 1

    def _draw(self) -> str:
        """Who is next: all in turn, in any order."""
        if not self._deck:
            self._deck = [SERVER, *NAMES]
            self.rng.shuffle(self._deck)
        return self._deck.pop()

    def _wait_until_all_work(self, victim: str = SERVER) -> None:
        """Who has not yet done anything is not worth killing. Of the server, all must have."""
        posts = list(self.posts.values()) if victim == SERVER else [self.posts[victim]]
        until = time.monotonic() + READY_S_MAX
        while not all(post.is_at_work for post in posts):
            if time.monotonic() > until:
                idle = [post.name for post in posts if not post.is_at_work]
                raise RuntimeError(f"{', '.join(idle)} did nothing for {READY_S_MAX} s")
            self._rest(0.02)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            for post in self.posts.values():
                post.tend()
            if (left := until - time.monotonic()) <= 0:
                return
            time.sleep(min(left, 0.02))

    # At the end.

    def finish(self) -> None:
        """The feeders have stopped: let everything flow out at the end."""
        self.server.wait_until_ready()
        for post in self.posts.values():
            post.end()
        for name, post in self.posts.items():
            tell(f"{name} finishes")
            until = time.monotonic() + FINISH_S_MAX
            post.finish(IDLE_S, FINISH_S_MAX)
            while not self._has_done_all(name):
                if time.monotonic() > until:
                    raise RuntimeError(f"{name} does not come to an end: {post.log_tail()}")
                post.finish(IDLE_S, FINISH_S_MAX)

    def _has_done_all(self, name: str) -> bool:
        with tstreams.connect(self.server.url) as ts:
            for stream in SOURCES[name]:
                with ts.consumer(stream, name) as consumer:
                    for partition in range(PARTITIONS):
                        last = consumer.last(partition)
                        if last is not None and consumer.position(partition) != last.id:
                            return False
        return True

    def close(self) -> None:
        """End whatever runs."""
        for post in self.posts.values():
            post.end()
        self.server.close()

    # The result.

    def report(self, accounts: dict[str, FeederAccount]) -> dict[str, Any]:
        """Who was killed, and what it came to."""
        with tstreams.connect(self.server.url) as ts:
            found = read(ts)
        verdict = judge(found)
        for stream, account in accounts.items():
            lanes = found.orders if stream == ORDERS else found.payments
            for partition, count in account.acknowledged.items():
                for number in range(len(lanes[partition]), count):
                    lost = FEEDS[stream](partition, number)
                    verdict.add("missing", f"{stream}/{partition}: {lost} was acknowledged")
        if (status := self.server.stop()) != 0:
            verdict.findings.append(f"SIGTERM ended the server with {status}")
        verdict.findings += verify(self.server.data).problems
        posts = self.posts.values()
        return {
            "kills": self.killed,
            "server_kills": self.server.kills,
            "shard_kills": self.server.shard_kills,
            "processor_kills": sum(post.kills for post in posts),
            "kills_by_processor": {post.name: post.kills for post in posts},
            "zombies": sum(post.twins for post in posts),
            "zombies_fenced": sum(post.fenced for post in posts),
            "server_freezes": self.freezes,
            "unknown_outcomes": sum(account.unknown for account in accounts.values()),
            **asdict(verdict),
        }


def run(kills: int, seed: int, folder: Path, plant: str = "", shards: int = 1) -> dict[str, Any]:
    """Feed, process, kill; then what it came to."""
    began = time.monotonic()
    campaign = Campaign(kills, seed, folder, plant, shards)
    try:
        campaign.start()
        accounts = _while_fed(campaign, seed)
        campaign.finish()
        report = campaign.report(accounts)
        return {**report, "seconds": round(time.monotonic() - began, 1), "seed": seed}
    finally:
        campaign.close()


def _while_fed(campaign: Campaign, seed: int) -> dict[str, FeederAccount]:
    """Kill as long as it takes, with something to do for everybody."""
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(len(FEEDS), context) as pool:
        stop = manager.Event()
        url = campaign.server.url
        feeders = {stream: pool.submit(feed, url, stream, seed, stop) for stream in FEEDS}
        try:
            campaign.kill_many()
        finally:
            stop.set()
        return {stream: feeder.result() for stream, feeder in feeders.items()}


def tell(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)
