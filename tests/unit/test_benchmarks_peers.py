"""The peers of the benchmarks as they are found and started: what is lacking is said, and servers are shared."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import durable_plan, kafka, latency_plan, rabbitmq
from benchmarks.interface import BenchmarkFailed
from benchmarks.servers import Server, ServerProcess, running
from benchmarks.serving import lasting_servers, start_servers


@pytest.fixture
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without programs, on which nothing was fetched."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(rabbitmq, "_SCRIPTS", str(tmp_path / "scripts")[1:])
    monkeypatch.setattr(rabbitmq, "UNPACKED", tmp_path / "rabbitmq")
    monkeypatch.setattr(kafka, "JARS", tmp_path / "kafka")


@pytest.mark.usefixtures("nothing_here")
def test_what_is_not_here_is_left_out_with_the_reason() -> None:
    for plan in (durable_plan, latency_plan):
        subjects, missing = plan.make_subjects()
        names = {subject.name for subject in subjects}
        assert "tstreams" in names
        assert {"kafka", "rabbitmq-streams"} <= set(missing)
        assert not names & set(missing)
        assert "make rabbitmq" in missing["rabbitmq-streams"]


@pytest.mark.usefixtures("nothing_here")
def test_fetching_says_what_it_lacks() -> None:
    with pytest.raises(BenchmarkFailed, match="no apt-get on PATH"):
        rabbitmq.fetch()


def test_the_packages_of_erlang_and_missing_libraries_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depends = {
        "rabbitmq-server": " |Depends: erlang-base\\n  Depends: <erlang-base-hipe>\\n  Depends: socat\\n",
        "erlang-base": "  Depends: libhere1\\n  Depends: libaway1\\n  Suggests: erlang-doc\\n",
        "libaway1": "  PreDepends: libdeeper1\\n",
        "libdeeper1": "",
    }
    cases = "\n".join(f'{name}) printf "{name}\\n{text}";;' for name, text in depends.items())
    programs = {
        "apt-cache": f'shift; for name; do case "$name" in\n{cases}\n*) exit 100;; esac; done',
        "dpkg-query": 'printf "libhere1 installed\\nlibaway1 not-installed\\n"',
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert rabbitmq._needed() == ["erlang-base", "libaway1", "libdeeper1", "rabbitmq-server"]


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    serve: Callable[[Path], AbstractContextManager[Server]]
    lasts: bool = False
    shares: str | None = None


@contextlib.contextmanager
def sleeper(folder: Path) -> Iterator[ServerProcess]:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with running("sleeper", command, folder) as server:
        yield server


def test_servers_are_shared_and_last(tmp_path: Path) -> None:
    contestants = [
        Contestant("fresh", sleeper),
        Contestant("kept", sleeper, lasts=True),
        Contestant("guest", sleeper, lasts=True, shares="kept"),
        Contestant("alone", sleeper, shares="left out"),
    ]
    kept, folder = tmp_path / "kept", tmp_path / "round"
    kept.mkdir()
    folder.mkdir()
    with lasting_servers(contestants, kept) as lasting:
        assert set(lasting) == {"kept", "guest"}
        assert lasting["kept"] is lasting["guest"]
        with contextlib.ExitStack() as stack:
            servers = dict(lasting)
            start_servers(stack, contestants, folder, servers)
            assert set(servers) == {it.name for it in contestants}
            assert {it.name for it in folder.iterdir()} == {"fresh", "alone"}
            assert servers["kept"] is lasting["kept"]
        lasting["kept"].check()
        assert not is_running(servers["fresh"])
    assert not is_running(lasting["kept"])


def is_running(server: Server) -> bool:
    assert isinstance(server, ServerProcess)
    return server.process.poll() is None
