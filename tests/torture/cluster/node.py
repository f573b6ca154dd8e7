"""A node of the cluster, on a host of its own, over several lives: it keeps its address and its data."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import moebius
from tests.torture.cluster.network import Host
from tests.torture.cluster.servers import NAME
from tests.torture.panel import Panel
from tests.torture.world import FLAGS, TorturedServer
from tstreams.protocol import Describe, NodeInfo, decode_reply, encode

SESSION_S = 3.0
"""ZooKeeper's session timeout: whoever is not heard of for longer is taken for dead."""
PORT, HTTP_PORT = 7070, 7080
ANSWER_S = 2.0


class TorturedNode:
    """One of them. Its log and all that is no data of it are in `papers`."""

    def __init__(
        self, host: Host, disk: Path, papers: Path, zookeeper: str, mistake: str = ""
    ) -> None:
        self.name = host.name
        self.host = host
        self.disk = disk
        papers.mkdir()
        panel = Panel(papers / "panel")
        address = f"{host.address}:{HTTP_PORT}"
        flags = ["--http", address, "--insecure", "--cluster", NAME, "--zookeeper", zookeeper]
        flags += ["--zookeeper-session-s", f"{SESSION_S:g}", *FLAGS]
        self.server = TorturedServer(disk / "data", *flags, papers=papers)
        self.server.url = f"tcp://{host.address}:{PORT}"
        self.server.command = [*host.way, sys.executable, "-m", "tests.torture.server"]
        self.server.command += ["--panel", str(panel.path), "--mistake", mistake]

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return self.server.url

    @property
    def id(self) -> str:
        """As its data folder has it; empty: it never started."""
        try:
            return self.server.data.joinpath("node").read_text().strip()
        except FileNotFoundError:
            return ""

    def describe(self) -> NodeInfo | None:
        """What it says of itself and of the shards; None if it does not answer."""
        try:
            with moebius.Client(self.url, connect_timeout=ANSWER_S) as client:
                found = decode_reply(client.call("Describe", encode(Describe()), timeout=ANSWER_S))
        except moebius.Error:
            return None
        assert isinstance(found, NodeInfo), found
        return found

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """What its front door answers; None if it does not, or refuses."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://{self.host.address}:{HTTP_PORT}{path}"
        request = urllib.request.Request(url, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=10.0) as answer:
                return json.loads(answer.read())
        except (urllib.error.URLError, OSError):
            return None
