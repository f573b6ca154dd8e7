"""Writes down every epoch and every leader entry of a shard, with kazoo alone, and checks them at the end."""

from __future__ import annotations

import json
import logging
import threading

from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat
from kazoo.retry import KazooRetry


class Witness:
    def __init__(self, hosts: str, cluster: str, shard: int = 0) -> None:
        self.epochs: list[int] = []
        """As ZooKeeper told them, one after the other."""
        self.leaders: dict[int, str] = {}
        """Who led, by epoch."""
        self._problems: list[str] = []
        self._lock = threading.Lock()
        self._base = f"/tstreams/{cluster}/shards/{shard}"
        self.client = KazooClient(
            hosts,
            timeout=30.0,
            connection_retry=KazooRetry(max_tries=-1, max_delay=0.5),
            logger=logging.getLogger("tests.witness"),
        )
        self.client.start(timeout=60)

    def begin(self) -> None:
        """From now on, once the cluster is there."""
        self.client.DataWatch(f"{self._base}/epoch", self._epoch)
        self.client.DataWatch(f"{self._base}/leader", self._leader)

    def led(self, epoch: int, node: str) -> None:
        """A node says that it leads in an epoch."""
        with self._lock:
            if self.leaders.setdefault(epoch, node) != node:
                self._problems.append(f"epoch {epoch}: {self.leaders[epoch]} and {node}")

    def check(self) -> None:
        """Epochs only rose, and each had one leader."""
        assert self._problems == []
        assert self.epochs == sorted(self.epochs)

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def _epoch(self, data: bytes | None, stat: ZnodeStat | None) -> None:
        if data is None:
            self._problems.append("the epoch is gone")
        elif not self.epochs or self.epochs[-1] != int(data):
            self.epochs.append(int(data))

    def _leader(self, data: bytes | None, stat: ZnodeStat | None) -> None:
        if data is not None:
            entry = json.loads(data)
            self.led(entry["epoch"], entry["node"])
