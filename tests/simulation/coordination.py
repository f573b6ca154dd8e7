"""What many nodes cost ZooKeeper: real sessions of many nodes in one process, with a real server on loopback.

    python -m tests.simulation.coordination --nodes 20 --shards 1024

Prints, as JSON: how long it takes to make the cluster, for a node to start, to take all shards, and until all nodes
know that one has gone; and what the server's memory has grown by.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import psutil
import uvloop

from tstreams.cluster import Node
from tstreams.cluster.coordination import new_cluster
from tstreams.cluster.engines.zookeeper import ZooKeeperServer
from tstreams.cluster.zookeeper import ZooKeeperCoordination, ZooKeeperSettings, create_cluster


class Report(msgspec.Struct):
    """Times in seconds, memory in MiB."""

    nodes: int
    shards: int
    watches: int
    create_cluster_s: float = 0.0
    start_node_s_mean: float = 0.0
    start_node_cpu_s_mean: float = 0.0
    """Processor time of the node for it."""
    lead_all_s: float = 0.0
    """Until every shard has a leader, all nodes asking at once, and every node knows."""
    lose_node_s: float = 0.0
    """Until every node knows that one has gone, which led its part of all shards."""
    zookeeper_rss_mib_before: float = 0.0
    zookeeper_rss_mib_after: float = 0.0
    own_rss_mib_per_node: float = 0.0


async def run(server: ZooKeeperServer, nodes: int, shards: int) -> Report:
    """Measure."""
    # Each node watches each leader, each node, the list of nodes, placement, director and cluster.
    report = Report(nodes=nodes, shards=shards, watches=nodes * (shards + nodes + 4))
    keeper, own = psutil.Process(server.pid), psutil.Process()
    report.zookeeper_rss_mib_before = _mib(keeper)
    settings = ZooKeeperSettings(hosts=server.address, cluster="large", session_timeout_s=30.0)
    began = time.perf_counter()
    await create_cluster(settings, new_cluster("large", shards=shards))
    report.create_cluster_s = time.perf_counter() - began
    before = _mib(own)
    began, began_cpu = time.perf_counter(), time.process_time()
    many = [ZooKeeperCoordination(settings, Node(id=f"node-{at:03}")) for at in range(nodes)]
    for one in many:
        await one.start()
    report.start_node_s_mean = (time.perf_counter() - began) / nodes
    report.start_node_cpu_s_mean = (time.process_time() - began_cpu) / nodes
    began = time.perf_counter()
    await asyncio.gather(*(many[shard % nodes].lead(shard) for shard in range(shards)))
    await _until(lambda: all(len(one.view.leaders) == shards for one in many))
    report.lead_all_s = time.perf_counter() - began
    report.own_rss_mib_per_node = (_mib(own) - before) / nodes
    gone = many.pop()
    left = shards - sum(shard % nodes == nodes - 1 for shard in range(shards))
    began = time.perf_counter()
    await gone.close()
    await _until(lambda: all(len(one.view.leaders) == left for one in many))
    report.lose_node_s = time.perf_counter() - began
    report.zookeeper_rss_mib_after = _mib(keeper)
    for one in many:
        await one.close()
    return report


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not condition():  # noqa: ASYNC110 - it looks at many nodes
            await asyncio.sleep(0.01)


def _mib(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 2**20)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description="What many nodes cost ZooKeeper.")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--shards", type=int, default=1024)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        server = ZooKeeperServer(Path(folder))
        server.start()
        try:
            report = uvloop.run(run(server, options.nodes, options.shards))
        finally:
            server.stop()
    print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())


if __name__ == "__main__":
    main()
