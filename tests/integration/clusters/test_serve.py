"""`tstreams serve` as a node of a cluster, and the cluster that it needs: what is refused, and what is given back."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tstreams
from tests.integration.cli import CLEAN, DEADLINE_S, TSTREAMS, Shell, stream_of
from tstreams.cluster.engines.nats import NatsServers
from tstreams.cluster.engines.zookeeper import ZooKeeperServer
from tstreams.protocol import ShardInfo

pytestmark = pytest.mark.xdist_group("zookeeper")

_numbers = itertools.count()


class Site:
    """A ZooKeeper, and one NATS server."""

    def __init__(self, zookeeper: ZooKeeperServer, nats: NatsServers) -> None:
        self.zookeeper = zookeeper.address
        self.nats = nats

    def create(self, name: str, *flags: str, nats: NatsServers | None = None) -> Any:
        used = nats or self.nats
        return Shell()(
            "cluster",
            "create",
            name,
            *("--zookeeper", self.zookeeper),
            *("--nats", ",".join(used.urls), "--nats-monitor", ",".join(used.monitors)),
            *flags,
        )

    def made(self, *flags: str) -> str:
        """A new cluster of two shards."""
        name = f"s{os.getpid()}-{next(_numbers)}"
        done = self.create(name, "--shards", "2", *flags)
        assert done.code == 0, done.err
        return name

    def flags(self, data: Path, cluster: str) -> list[str]:
        words = ["--data", str(data), "--listen", "tcp://127.0.0.1:0", "--http", "off"]
        return [*words, "--cluster", cluster, "--zookeeper", self.zookeeper]

    def refused(self, data: Path, cluster: str) -> str:
        """Why a node does not start."""
        done = Shell()("serve", *self.flags(data, cluster))
        assert done.code == 1
        return done.err

    @contextmanager
    def serving(self, data: Path, cluster: str) -> Iterator[subprocess.Popen[bytes]]:
        """A node that is ready; it must end with 0."""
        ready = data.with_suffix(".ready")
        words = [*TSTREAMS, "serve", *self.flags(data, cluster), "--ready-file", str(ready)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=CLEAN) as process:
            try:
                line = stream_of(process.stdout).readline().decode()
                assert f"of cluster {cluster}" in line
                assert ready.read_text().startswith("tcp://127.0.0.1:")
                yield process
                process.send_signal(signal.SIGTERM)
                assert process.wait(DEADLINE_S) == 0
                assert not ready.exists()
            finally:
                process.kill()


@pytest.fixture
def site(zookeeper: ZooKeeperServer, one_server: NatsServers) -> Site:
    return Site(zookeeper, one_server)


def test_a_cluster_is_made_once(site: Site) -> None:
    name = site.made()
    again = site.create(name, "--shards", "2", "--json")
    assert (again.code, again.json["created"], again.json["shards"]) == (0, False, 2)
    other = site.create(name, "--shards", "3")
    assert other.code == 1
    assert "of another shape: shards 2 instead of 3" in other.err
    assert "Choose another name" in other.err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--log", "paper"), "nothing called 'paper' keeps logs: there are jetstream, bookkeeper"),
        (("--log-replicas", "2"), "keeps a log on 1, 3 or 5 servers, not on 2"),
        (("--nats", "http://a"), "'http://a' is not the address of a NATS server"),
        (("--nats", "nats://me:secret@a"), "a password would be kept in ZooKeeper"),
        (("--nats", "nats://127.0.0.1:1"), "no NATS server answers at nats://127.0.0.1:1"),
    ],
)
def test_what_makes_no_sense_is_refused(site: Site, flags: tuple[str, ...], says: str) -> None:
    done = site.create("refused", *flags)
    assert done.code == 1
    assert says in done.err


def test_servers_that_do_not_sync_are_refused_unless_that_is_meant(
    site: Site, tmp_path: Path
) -> None:
    name = f"s{os.getpid()}-{next(_numbers)}"
    with NatsServers(tmp_path, 1, sync=False) as lazy:
        done = site.create(name, "--shards", "1", nats=lazy)
        assert done.code == 1
        assert "sync_interval: always" in done.err
        allowed = site.create(name, "--shards", "1", "--allow-unsynced", nats=lazy)
        assert allowed.code == 0, allowed.err


def test_there_is_no_such_cluster_and_no_such_zookeeper(site: Site, tmp_path: Path) -> None:
    assert "has no cluster nobody: make it with" in site.refused(tmp_path / "a", "nobody")
    words = ["serve", "--data", str(tmp_path / "a"), "--cluster", "x", "--zookeeper"]
    done = Shell()(*words, "127.0.0.1:1")
    assert done.code == 1
    assert "no ZooKeeper answers at 127.0.0.1:1" in done.err
    assert not (tmp_path / "a").exists()


def test_a_folder_belongs_to_its_cluster(site: Site, tmp_path: Path) -> None:
    first, second = site.made(), site.made()
    with site.serving(tmp_path / "node", first):
        pass
    assert f"belongs to the cluster {first} (" in site.refused(tmp_path / "node", second)
    alone = Shell()("serve", "--data", str(tmp_path / "node"), "--listen", "tcp://127.0.0.1:0")
    assert alone.code == 1
    assert f"belongs to a node of the cluster {first}: set cluster and zookeeper" in alone.err
    (tmp_path / "alone" / "shard-0").mkdir(parents=True)
    assert "which stood alone, and cannot become part" in site.refused(tmp_path / "alone", first)
    with site.serving(tmp_path / "node", first):  # what was refused has changed nothing
        pass


def test_what_a_node_led_is_led_by_another_when_it_has_ended(site: Site, tmp_path: Path) -> None:
    name = site.made()
    with site.serving(tmp_path / "stays", name) as stays:
        address = (tmp_path / "stays.ready").read_text().splitlines()[0]
        with site.serving(tmp_path / "goes", name):
            assert {it.leader is not None for it in _map(address)} == {True}
        node = (tmp_path / "stays" / "node").read_text().strip()
        # No waiting: the one that ended has waited for this.
        assert [it.leader.node for it in _map(address) if it.leader] == [node] * 2
        assert stays.poll() is None


def _map(address: str) -> list[ShardInfo]:
    with tstreams.connect(address) as ts:
        return ts.inspection().node().map
