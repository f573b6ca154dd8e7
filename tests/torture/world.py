"""All that a campaign against one server has under it: the server, the links to it, and what is wrong with them."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tstreams
from tests.checker.history import Clock
from tests.checker.recording import now_us
from tests.crash.server import KilledServer
from tests.torture.crew import Post
from tests.torture.failpoints import POINTS
from tests.torture.namespace import OURS, Veth
from tests.torture.panel import Cell, Panel
from tests.torture.proxy import Proxy
from tests.torture.resources import connections_left
from tests.torture.scene import Scene, tell
from tests.torture.verdict import Verdict, conclude, judge, judge_log, judge_query
from tests.torture.work import PRODUCERS, make_streams
from tstreams.server.verify import verify

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
FLAGS = ("--ledger-bytes", "64KiB", "--payload-cache-bytes", "4MiB", "--log-level", "info")
QUERY_S_MAX = 300.0


class TorturedServer(KilledServer):
    """A server that may die at a failpoint."""

    @property
    def is_alive(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether it serves, in its present life."""
        return self.is_alive and self._ready.exists()

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
class World:
    """One server, and everything around it."""

    scene: Scene
    server: TorturedServer
    panel: Panel
    proxy: Proxy
    disk: Path | None = None
    cable: Veth | None = None
    spark: SparkPost | None = None
    hits: Counter[str] = field(default_factory=Counter)
    """How often the server has died at each failpoint."""
    missed: Counter[str] = field(default_factory=Counter)
    """How often it did not come there in time."""

    def __post_init__(self) -> None:
        self.scene.hire = lambda kind, name: self.post(kind, name, "direct")
        self.scene.guards.append(self._tend)

    # The beginning.

    def start(self) -> None:
        """A server with its streams, and all clients."""
        self.server.start()
        with tstreams.connect(self.server.url) as ts:
            make_streams(ts)
            for stream in self._spark_streams():
                ts.create_stream(stream, partitions=2, ttl="1d")
        self.scene.posts += [self.post(kind, name, way) for kind, name, way in CREW]
        if self.spark is not None:
            self.scene.posts.append(self.post("feeder", "feeder", "direct"))
            self.spark.start()
        for post in self.scene.posts:
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
        return Post(kind, name, url, self.scene.folder, self.scene.rng(name), prefix)

    @property
    def cable_url(self) -> str:
        """The server's address at the cable."""
        return self.server.url.replace("127.0.0.1", OURS)

    def wait_for_others(self) -> None:
        """Wait until the query works."""
        if self.spark is None:
            return
        spark = self.spark
        if not self.scene.rest_until(lambda: spark.is_at_work, QUERY_S_MAX):
            self.scene.complain(f"stuck: the query: {spark.log_tail()}")

    # While it goes on.

    def _tend(self) -> None:
        if not self.server.is_alive:
            self.scene.complain(f"the server ended by itself: {self.server.log_tail()}")
            self.server.start()
        if self.spark is not None:
            try:
                self.spark.tend()
            except RuntimeError as error:
                self.scene.complain(str(error))
                self.spark.start()

    def step_clock(self, step_ms: int) -> None:
        """The server's clock jumps. The checker is told, for it knows when things must be dead."""
        for _ in range(2):
            now = now_us()
            wall_ms = time.time_ns() // 1_000_000 + self.panel[Cell.CLOCK_MS]
            self.scene.recorder.add(Clock(now, now, wall_ms=wall_ms))
            self.panel[Cell.CLOCK_MS] += step_ms
            step_ms = 0

    # The end.

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.panel.heal()
        self.proxy.heal()
        if not self.server.is_alive:
            self.server.start()

    def finish(self, verdict: Verdict) -> None:
        """All clients have ended: read all that is there, judge, and end the server."""
        if self.spark is not None:
            tell("the query does what is left")
            self.spark.drain(QUERY_S_MAX)
        if left := connections_left(self.server.pid):
            self.scene.complain(f"leak: {left} connections are left, and nobody is there any more")
        tell("all is read, and judged")
        also = () if self.spark is None else (PRODUCERS["feeder"],)
        conclude(self.scene, self.server.url, also)
        judge(self.scene, self.server.url, verdict)
        if self.spark is not None:
            judge_query(self.server.url, verdict)
        judge_log(self.server.log_path, verdict)
        if (status := self.server.stop()) != 0:
            verdict.add(f"SIGTERM ended the server with {status}: {self.server.log_tail()}")
        verdict.findings += verify(self.server.data).problems

    def report(self) -> dict[str, Any]:
        """What of it is not in every campaign."""
        return {
            "failpoints": {
                "hit": dict(sorted(self.hits.items())),
                "deaths": self.hits.total(),
                "not_reached_in_time": self.missed.total(),
                "never_hit": sorted(set(POINTS) - set(self.hits)),
            }
        }

    def close(self) -> None:
        """End whatever runs."""
        self.scene.close()
        if self.spark is not None:
            self.spark.end()
        self.server.close()
