"""Clusters for tests that run in this process, one after the other."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

import tstreams
from tests.integration.tstreams.three_nodes import (
    Ground,
    ThreeNodes,
    make_cluster,
    remove_logs,
)
from tstreams.cluster.coordination import Cluster
from tstreams.errors import Error

T = TypeVar("T")

STREAMS_REMOVED_MAX = 12
"""With more of them a new cluster is there sooner."""

_names = itertools.count()


class Clusters:
    """A cluster at a time, for one test after the other.

    To start one takes longer than most tests. So one that looks as if nobody had used it is used again: all streams are
    deleted, and nothing that others could stumble over is left of the test before. If a test has moved the
    clock, or something is left, the next one has a new cluster.
    """

    def __init__(self, ground: Ground, folder: Path, shards: int) -> None:
        self.ground = ground
        self._shards = shards
        self._folder = folder
        self._nodes: ThreeNodes | None = None
        self._clock: Callable[[], int] = lambda: 0
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.started = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this on the loop of the nodes, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(90)

    def make(self) -> Cluster:
        """A cluster without nodes."""
        return self.run(make_cluster(self.ground, f"c{os.getpid()}-{next(_names)}", self._shards))

    def remove(self, cluster: Cluster) -> None:
        """Nobody needs it any more."""
        self.run(remove_logs(self.ground, cluster))

    def take(self, clock: Callable[[], int], *, fresh: bool = False) -> ThreeNodes:
        """Three nodes whose clock this is; if they are to be `fresh`, nobody was ever there."""
        self._clock = clock
        if fresh and self._nodes is not None:
            self._end(self._nodes)
        if self._nodes is None:
            folder = self._folder / str(self.started)
            nodes = ThreeNodes(self.ground, self.make(), folder, clock=self._now)
            self.run(nodes.start())
            self._nodes = nodes
            self.started += 1
        return self._nodes

    def _now(self) -> int:
        return self._clock()

    def give_back(self, *, reuse: bool) -> None:
        """The test has ended. Unless the nodes are as new, they end too."""
        if self._nodes is not None and not (reuse and self._is_cleaned(self._nodes)):
            self._end(self._nodes)

    def _is_cleaned(self, nodes: ThreeNodes) -> bool:
        if not nodes.is_settled():
            return False
        try:
            with tstreams.connect(nodes.addresses[0], timeout=5) as ts:
                found = ts.streams(limit=STREAMS_REMOVED_MAX + 1)
                if len(found) > STREAMS_REMOVED_MAX:
                    return False
                for stream in found:
                    ts.delete_stream(stream.name)
        except Error:
            return False

        async def look() -> bool:
            return nodes.is_as_new()

        return self.run(look())

    def _end(self, nodes: ThreeNodes) -> None:
        self._nodes = None
        self.run(nodes.stop())
        self.remove(nodes.cluster)
        shutil.rmtree(self._folder / str(self.started - 1))

    def close(self) -> None:
        if self._nodes is not None:
            self._end(self._nodes)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
