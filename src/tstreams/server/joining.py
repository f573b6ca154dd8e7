"""A server as a node of a cluster: what ZooKeeper says of the cluster, and the node that fits."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

from ..config import Config
from ..errors import BadRequest
from .cluster_node import ClusterNode
from .engines import engine_kind


def join(config: Config) -> ClusterNode:
    """The node of the cluster that the settings name, not started yet.

    `NotFound` if ZooKeeper has no such cluster, `Timeout` if it does not answer, `BadRequest` if what the cluster's
    engine needs is not installed.
    """
    if find_spec("kazoo") is None:
        raise BadRequest("a cluster needs the package kazoo: pip install 'tstreams[cluster]'")
    from ..cluster.zookeeper import ZooKeeperCoordination, ZooKeeperSettings, read_cluster

    settings = ZooKeeperSettings(
        hosts=config.zookeeper,
        cluster=config.cluster,
        session_timeout_s=config.zookeeper_session_s,
    )
    cluster = asyncio.run(read_cluster(settings))
    logs = engine_kind(cluster.engine).logs(cluster)
    return ClusterNode(
        config,
        shards=cluster.shards,
        engine=logs.open,
        coordinate=lambda entry: ZooKeeperCoordination(settings, entry),
        cluster=cluster,
        logs=logs,
    )
