"""All that a campaign has under it: the server, the clients, the links between them, and what is wrong with them."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import tstreams
from tests.checker.history import Clock
from tests.checker.recording import Recorder, now_us
from tests.crash.server import KilledServer
from tests.torture.crew import Post
from tests.torture.namespace import OURS, Veth
from tests.torture.panel import Cell, Panel
from tests.torture.proxy import Proxy
from tests.torture.work import PASSING, STREAMS

if TYPE_CHECKING:
    from tests.crash.spark.post import Post as SparkPost

CREW = (
    ("writer", "writer-1", "direct"),
    ("writer", "writer-2", "proxy"),
    ("churner", "churner", "direct"),
    ("reader", "reader", "cable"),
    ("keeper", "keeper", "direct"),
    ("processor", "processor", "cable"),
    ("subscriber", "subscriber", "proxy"),
    ("loop", "looper", "direct"),
)
"""The clients: what they do, their names, and how they reach the server. Without a cable, by the proxy."""
_BEGAN_S = time.monotonic()
FLAGS = ("--ledger-bytes", "64KiB", "--payload-cache-bytes", "4MiB", "--log-level", "info")


class TorturedServer(KilledServer):
    """A server that may die at a failpoint."""

    @property
    def is_alive(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    def wait_until_dead(self, timeout_s: float) -> bool:
        """Whether it has died within this time."""
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        assert self._process is not None
        self._process.terminate()

    @property
    def log_path(self) -> Path:
        """What it had to say in all its lives."""
        return Path(self._log.name)


@dataclass(slots=True)
class Incident:
    """A fault that was made, and when (seconds of the monotonic clock)."""

    kind: str
    begin_s: float
    end_s: float
    detail: str = ""


@dataclass(slots=True)
class World:
    """Everything, and what has been noticed so far."""

    folder: Path
    seed: int
    server: TorturedServer
    panel: Panel
    proxy: Proxy
    recorder: Recorder
    disk: Path | None = None
    cable: Veth | None = None
    spark: SparkPost | None = None
    posts: list[Post] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    hits: Counter[str] = field(default_factory=Counter)
    """How often the server has died at each failpoint."""
    missed: Counter[str] = field(default_factory=Counter)
    """How often it did not come there in time."""
    told_to_end_s: float = inf
    """When clients were told to come to an end."""
    orphans: list[str] = field(default_factory=list)
    """Clients that have vanished for good, with something open."""

    # The beginning.

    def start(self) -> None:
        """A server with its streams, and all clients."""
        self.server.start()
        with tstreams.connect(self.server.url) as ts:
            for stream, partitions in STREAMS.items():
                ts.create_stream(stream, partitions=partitions, ttl="1d")
            ts.create_stream(PASSING, partitions=1, ttl="2s")
            for stream in self._spark_streams():
                ts.create_stream(stream, partitions=2, ttl="1d")
        self.posts += [self.post(kind, name, way) for kind, name, way in CREW]
        if self.spark is not None:
            self.posts.append(self.post("feeder", "feeder", "direct"))
            self.spark.start()
        for post in self.posts:
            post.start()

    def _spark_streams(self) -> tuple[str, ...]:
        if self.spark is None:
            return ()
        from tests.crash.spark.judge import RESULTS, SOURCE

        return (SOURCE, RESULTS)

    def post(self, kind: str, name: str, way: str) -> Post:
        """A client that is not started yet."""
        prefix: list[str] = []
        url = self.server.url
        if way == "cable" and self.cable is not None:
            prefix, url = self.cable.prefix, self.cable_url
        elif way != "direct":
            url = self.proxy.url
        rng = random.Random(f"{self.seed} {name}")
        return Post(kind, name, url, self.folder, rng, prefix)

    @property
    def cable_url(self) -> str:
        """The server's address at the cable."""
        return self.server.url.replace("127.0.0.1", OURS)

    # While it goes on.

    def rest(self, seconds: float) -> None:
        """Let time pass, and look after everybody."""
        until = time.monotonic() + seconds
        while True:
            self.tend()
            if (left := until - time.monotonic()) <= 0:
                return
            time.sleep(min(left, 0.05))

    def tend(self) -> None:
        """Whoever ended by itself is complained of, and started again."""
        if not self.server.is_alive:
            self.complain(f"the server ended by itself: {self.server.log_tail()}")
            self.server.start()
        for post in self.posts:
            post.tend()
        if self.spark is not None:
            try:
                self.spark.tend()
            except RuntimeError as error:
                self.complain(str(error))
                self.spark.start()

    def complain(self, text: str) -> None:
        """Something is wrong that no fault explains."""
        tell(f"COMPLAINT {text}")
        self.complaints.append(text)

    def step_clock(self, step_ms: int) -> None:
        """The server's clock jumps. The checker is told, for it knows when things must be dead."""
        for _ in range(2):
            now = now_us()
            wall_ms = time.time_ns() // 1_000_000 + self.panel[Cell.CLOCK_MS]
            self.recorder.add(Clock(now, now, wall_ms=wall_ms))
            self.panel[Cell.CLOCK_MS] += step_ms
            step_ms = 0

    # The end.

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.panel.heal()
        self.proxy.heal()
        if not self.server.is_alive:
            self.server.start()

    def close(self) -> None:
        """End whatever runs."""
        for post in self.posts:
            post.end()
        if self.spark is not None:
            self.spark.end()
        self.server.close()
        self.recorder.close()


def tell(text: str) -> None:
    """Progress, for people: seconds, and what."""
    print(f"{time.monotonic() - _BEGAN_S:7.1f} {text}", file=sys.stderr, flush=True)
