"""A development cluster that all tests of a module share: three nodes, ZooKeeper and three NATS servers, all real."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli import CLEAN, TSTREAMS, Shell, stream_of
from tests.integration.engines import need_nats
from tstreams.cli.development.processes import Started, marked
from tstreams.cli.rest import Door
from tstreams.errors import Unavailable

SHARDS = 3
UP_S = 110
COMMAND_S = 200


class Development:
    """A cluster that was started in the foreground, and its nodes."""

    def __init__(self, folder: Path, told: dict[str, Any]) -> None:
        self.folder = folder
        self.told = told
        self.shell = Shell()

    @property
    def urls(self) -> list[str]:
        """The front doors."""
        return [it["http"] for it in self.told["nodes"]]

    @property
    def addresses(self) -> list[str]:
        """Where clients connect."""
        return [it["address"] for it in self.told["nodes"]]

    def __call__(self, *words: str) -> Any:
        """Run a command that must work. What it prints as JSON."""
        done = subprocess.run(
            [*TSTREAMS, "cluster", *words, "--dir", str(self.folder), "--json"],
            capture_output=True,
            text=True,
            env=CLEAN,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr)
        return json.loads(done.stdout)

    def status(self) -> Any:
        """The same that the command prints, from the first front door that answers: quicker than a process."""
        for url in self.urls:
            door = Door(url, 10.0)
            with contextlib.suppress(Unavailable):
                return {
                    "cluster": door.get(dict[str, Any], "/v1/cluster"),
                    "health": door.get(dict[str, Any], "/v1/cluster/health"),
                    "nodes": door.get(dict[str, Any], "/v1/nodes")["items"],
                    "shards": door.get(dict[str, Any], "/v1/shards")["items"],
                }
        raise AssertionError("no front door answers")

    def leaders(self) -> dict[int, str]:
        return {it["shard"]: it["leader"] for it in self.status()["shards"]}

    def nodes(self) -> dict[str, Any]:
        """By their names."""
        found = {it["addresses"][0]: it for it in self.status()["nodes"] if it["addresses"]}
        return {it["name"]: found.get(it["address"]) for it in self.told["nodes"]}

    def pid(self, name: str) -> int:
        return int(json.loads((self.folder / "cluster.json").read_text())["processes"][name]["pid"])


def left_behind(folder: Path) -> list[Started]:
    """Processes that belong to the cluster of a folder."""
    return marked(folder.resolve())


@pytest.fixture(scope="module")
def development(
    can_start_zookeeper: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Development]:
    """Started in the foreground; Ctrl-C ends it at the end, and nothing is left of it."""
    need_nats()
    folder = tmp_path_factory.mktemp("development") / "cluster"
    words = ["cluster", "up", "--foreground", "--shards", str(SHARDS), "--dir", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*TSTREAMS, *words, "--json"], stdout=pipe, stderr=pipe, env=CLEAN
    ) as process:
        try:
            line = stream_of(process.stdout).readline()
            assert line, stream_of(process.stderr).read().decode()
            yield Development(folder, json.loads(line))
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=UP_S)
    assert process.returncode == 0, errors.decode()
    assert left_behind(folder) == []
    done = Shell()("cluster", "down", "--dir", str(folder))
    assert done.code == 0
    assert not folder.exists()
