"""Settings of a server that is a node of a cluster: what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from .limits import CLUSTER_NAME_BYTES_MAX

_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SERVERS = re.compile(r"[^\s,/:]+:\d{1,5}(,[^\s,/:]+:\d{1,5})*(/\S*)?")


def cluster_name_problems(value: Any) -> list[str]:
    """What is wrong with the name of a cluster."""
    fits = isinstance(value, str) and _CLUSTER_NAME.fullmatch(value)
    if fits and len(value) <= CLUSTER_NAME_BYTES_MAX:
        return []
    return [
        f"{value!r} cannot name a cluster: letters, digits, '.', '_' and '-', "
        f"{CLUSTER_NAME_BYTES_MAX} at most, the first a letter or a digit"
    ]


def zookeeper_problems(value: Any) -> list[str]:
    """What is wrong with the servers of a ZooKeeper."""
    if isinstance(value, str) and _SERVERS.fullmatch(value):
        return []
    return [f"must look like zk1:2181,zk2:2181 or zk1:2181/path, not {value!r}"]


def _url_problems(value: Any) -> list[str]:
    url = urlsplit(value) if isinstance(value, str) else None
    if url is None or url.scheme not in ("http", "https") or not url.hostname or url.query:
        return [f"must look like http://node1:7080, not {value!r}"]
    return []


def _unless_empty(check: Callable[[Any], list[str]]) -> Callable[[Any], list[str]]:
    return lambda value: [] if value == "" else check(value)


CLUSTER_CHECKS: dict[str, Callable[[Any], list[str]]] = {
    "cluster": _unless_empty(cluster_name_problems),
    "zookeeper": _unless_empty(zookeeper_problems),
    "http_advertise": _unless_empty(_url_problems),
}
"""By the name of the setting. Empty means that it is not set."""


def cluster_problems(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with settings of a cluster that are right by themselves."""
    if values["cluster"] and not values["zookeeper"]:
        return ["zookeeper is missing: it says where the cluster is known"]
    if values["cluster"] and values["shards"] not in (1, None):
        return ["shards: how many there are was said when the cluster was created: leave it out"]
    others = [name for name in ("zookeeper", "advertise", "http_advertise") if values[name]]
    if others and not values["cluster"]:
        return [f"{', '.join(others)}: only for a node of a cluster, and cluster is not set"]
    return []
