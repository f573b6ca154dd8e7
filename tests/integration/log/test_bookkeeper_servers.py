"""Bookies as processes: they start, tell why they do not, die, come back with what they had, and end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.cli import Shell
from tests.integration.engines import need_bookkeeper
from tstreams.cluster.engines.bookkeeper import Bookie, Bookies
from tstreams.errors import InvalidState, Unavailable
from tstreams.jars import bookkeeper_jars

pytestmark = [
    pytest.mark.xdist_group("log"),
    pytest.mark.bookkeeper,
    pytest.mark.timeout(300),
]


def test_bookies_end_with_their_block(tmp_path: Path) -> None:
    need_bookkeeper()
    with Bookies(tmp_path, 1) as bookies:
        (bookie,) = bookies.all
        pids = [bookie.pid]
        with pytest.raises(InvalidState, match="runs already"):
            bookie.launch()
        bookie.kill()
        bookie.kill()
        with pytest.raises(InvalidState, match="does not run"):
            bookie.pause()
        bookies.start()
        bookies.start()
        pids.append(bookie.pid)
        bookie.pause()
        assert bookies.zookeeper is not None
        pids.append(bookies.zookeeper.pid)
    assert bookie.pid is None
    assert len(set(pids)) == 3
    for pid in pids:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_bookie_that_cannot_start_says_why(tmp_path: Path, bookies: Bookies) -> None:
    second = Bookie(tmp_path, bookies.all[0].port, bookies.hosts)
    second.launch()
    with pytest.raises(Unavailable, match=r"(?s)a bookie ended with .*; the end of its log:"):
        second.wait()
    second.stop()


def test_bookies_listen_on_loopback_only(bookies: Bookies) -> None:
    import psutil

    for bookie in bookies.all:
        assert bookie.pid is not None
        listening = [
            it.laddr
            for it in psutil.Process(bookie.pid).net_connections("inet")
            if it.status == psutil.CONN_LISTEN
        ]
        assert bookie.port in {it.port for it in listening}
        assert {it.ip.removeprefix("::ffff:") for it in listening} == {"127.0.0.1"}


def test_without_jars_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSTREAMS_JARS", str(tmp_path))
    with pytest.raises(Unavailable, match="tstreams engine install bookkeeper"):
        Bookies(tmp_path / "bookies", zookeeper="127.0.0.1:1").start()


@pytest.mark.core
def test_the_command_line_tells_what_is_there(tmp_path: Path) -> None:
    need_bookkeeper()
    shell = Shell()
    checked = shell.ok("engine", "check", "bookkeeper", "--json")
    assert str(bookkeeper_jars().folder) in checked.json["found"]
    assert checked.err == ""
    shell.ok("engine", "install", "bookkeeper")
    without = Shell(TSTREAMS_JARS=str(tmp_path))
    listed = without.ok("engine", "list", "--json").text.splitlines()
    assert len(listed) == 2
    assert "run `tstreams engine install bookkeeper`" in listed[1]
    failed = without("engine", "check", "bookkeeper")
    assert failed.code == 1
    assert "run `tstreams engine install bookkeeper`" in failed.err
    nowhere = Shell(
        TSTREAMS_JARS=str(tmp_path),
        TSTREAMS_MAVEN_URL="http://127.0.0.1:9",
        PATH=str(tmp_path),
        HOME=str(tmp_path),
    )
    failed = nowhere("engine", "install", "bookkeeper")
    assert failed.code == 1
    assert "does not answer" in failed.err
    assert "no mvn on the path" in failed.err
    assert shell("engine", "install", "jetstream").code == 1
