"""A whole cluster in one command, and what operators do with it, with real servers and real processes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

import moebius
import tstreams
from tests.e2e.console.browser import browsing, opening, troubles_of
from tests.integration.cli import CLEAN, TSTREAMS, Shell, stream_of
from tests.integration.clusters.conftest import SHARDS, Development, left_behind
from tests.integration.engines import need_nats
from tests.integration.test_operating_docs import CLUSTER, commands
from tstreams import Offset
from tstreams.errors import NotLeader
from tstreams.protocol import Fetch, Subscribe, Want, encode
from tstreams.sharding import home_of

pytestmark = [pytest.mark.xdist_group("clusters"), pytest.mark.slow, pytest.mark.timeout(240)]


def eventually(what: Callable[[], Any], within_s: float = 90.0) -> Any:
    until = time.monotonic() + within_s
    while not (found := what()):
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.1)
    return found


def ask(url: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, str]:
    """One request: the status, the JSON, and the entity tag."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        sent["Content-Type"] = "application/json"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data else None, answer.getheader("ETag") or ""
    finally:
        connection.close()


def test_everything_is_there_and_every_front_door_knows_it(development: Development) -> None:
    status = eventually(lambda: (it := development.status())["health"]["status"] == "ok" and it)
    assert (status["cluster"]["shards"], status["cluster"]["shards_led"]) == (SHARDS, SHARDS)
    assert [it["live"] for it in status["nodes"]] == [True] * 3
    assert [it["problem"] for it in status["health"]["engine"]] == [None] * 3
    assert [it["name"] for it in status["health"]["coordination"]] == ["standalone"]
    for shard in status["shards"]:
        assert [it["in_sync"] for it in shard["followers"]] == [True] * 2
        assert all(it["behind_bytes"] is not None for it in shard["followers"])
        assert shard["epoch"] >= 1
    for url in development.urls:
        _, nodes, _ = ask(url, "GET", "/v1/nodes")
        assert {it["http"] for it in nodes["items"]} == set(development.urls)
        assert {it["addresses"][0] for it in nodes["items"]} == set(development.addresses)
        assert all(it["version"] and it["started"] for it in nodes["items"])
        assert ask(url, "GET", "/health/ready")[0] == 200
    _, first, _ = ask(development.urls[0], "GET", "/v1/nodes?limit=2")
    _, rest, _ = ask(development.urls[1], "GET", f"/v1/nodes?limit=2&after={first['next']}")
    assert [it["id"] for it in first["items"] + rest["items"]] == [
        it["id"] for it in status["nodes"]
    ]
    _, some, _ = ask(development.urls[0], "GET", "/v1/shards?limit=2")
    _, others, _ = ask(development.urls[0], "GET", f"/v1/shards?limit=2&after={some['next']}")
    assert [it["shard"] for it in some["items"] + others["items"]] == list(range(SHARDS))
    assert others["next"] is None


def test_starting_it_again_changes_nothing_and_another_shape_is_refused(
    development: Development,
) -> None:
    pids = {name: development.pid(name) for name in ("zookeeper", "nats-1", "node-1", "node-3")}
    words = ("up", "--shards", str(SHARDS))
    assert development(*words) == development.told
    assert {name: development.pid(name) for name in pids} == pids
    done = development.shell("cluster", "up", "--shards", "9", "--dir", str(development.folder))
    assert done.code == 1
    assert "has a cluster of another shape" in done.err


def test_shards_move_where_operators_want_them_until_it_is_made_even(
    development: Development,
) -> None:
    there = development.nodes()["node-3"]["id"]
    moved = development.shell(
        "cluster", "move", "0", "1", "2", "--to", "node-3", "--dir", str(development.folder)
    )
    assert moved.code == 0, moved.err
    assert moved.text.count(f"is led by {there}") == 3
    status = development.status()
    assert [(it["leader"], it["chosen"]) for it in status["shards"]] == [(there, there)] * SHARDS
    assert status["cluster"]["chosen_leaders"] == SHARDS
    development("rebalance")
    status = development.status()
    assert sorted(it["leads"] for it in status["nodes"]) == [1, 1, 1]
    assert [it["chosen"] for it in status["shards"]] == [None] * SHARDS


def test_a_node_drains_and_takes_part_again(development: Development) -> None:
    there = development.nodes()["node-2"]["id"]
    drained = development("drain", there[:10])
    assert (drained["id"], drained["draining"]) == (there, True)
    assert (drained["placed"], drained["leads"], drained["follows"]) == (0, 0, 0)
    assert there not in development.leaders().values()
    status = development.status()
    assert all(len(it["followers"]) == 1 for it in status["shards"])
    assert development("drain", "node-2", "--undo")["draining"] is False
    eventually(
        lambda: (
            development.status()["cluster"]["settled"]
            and development.nodes()["node-2"]["placed"] == SHARDS
        )
    )
    development("rebalance")


def test_a_node_is_added_and_removed(development: Development) -> None:
    added = development("add")
    assert added["live"]
    refused = development.shell("cluster", "remove", "node-4", "--dir", str(development.folder))
    assert refused.code == 1
    assert "has shards: `tstreams cluster drain node-4` first" in refused.err
    pid = development.pid("node-4")
    development("drain", "node-4")
    assert development("remove", "node-4") == {"removed": added["id"]}
    assert added["id"] not in {it["id"] for it in development.status()["nodes"]}
    assert not (development.folder / "node-4").exists()
    assert pid not in {it.pid for it in left_behind(development.folder)}


def test_changes_over_http_heed_what_was_seen(development: Development) -> None:
    url = development.urls[0]
    node = development.nodes()["node-1"]["id"]
    path = f"/v1/nodes/{node}"
    status, _, tag = ask(url, "GET", path)
    assert status == 200
    assert ask(url, "GET", path, If_None_Match=tag)[0] == 304
    assert ask(url, "PATCH", path, {"draining": True}, If_Match='"other"')[0] == 412
    assert ask(url, "PATCH", path, {"draining": False}, If_Match=tag)[0] == 200
    status, problem, _ = ask(url, "DELETE", path)
    assert (status, problem["code"]) == (409, "invalid_state")
    assert "end its process" in problem["detail"]
    assert ask(url, "PATCH", "/v1/nodes/nobody", {"draining": True})[0] == 404
    assert ask(url, "DELETE", "/v1/nodes/nobody")[0] == 404
    assert ask(url, "GET", f"/v1/shards/{SHARDS}")[0] == 404
    assert ask(url, "PATCH", "/v1/shards/0", {"leader": "nobody"})[0] == 404
    _, _, tag = ask(url, "GET", "/v1/shards/0")
    leader = development.leaders()[0]
    status, shard, tag = ask(url, "PATCH", "/v1/shards/0", {"leader": leader}, If_Match=tag)
    assert (status, shard["chosen"]) == (200, leader)
    assert ask(url, "PATCH", "/v1/shards/0", {"leader": None}, If_Match='"other"')[0] == 412
    assert ask(url, "PATCH", "/v1/shards/0", {"leader": None}, If_Match=tag)[1]["chosen"] is None


def test_everyone_can_drain_but_the_last(development: Development) -> None:
    ids = [it["id"] for it in development.nodes().values()]
    url = development.urls[0]
    for id_ in ids[1:]:
        assert ask(url, "PATCH", f"/v1/nodes/{id_}", {"draining": True})[0] == 200
    status, problem, _ = ask(url, "PATCH", f"/v1/nodes/{ids[0]}", {"draining": True})
    assert status == 409
    assert "no other node is there to go to" in problem["detail"]
    for id_ in ids[1:]:
        assert ask(url, "PATCH", f"/v1/nodes/{id_}", {"draining": False})[0] == 200
    eventually(lambda: development.status()["cluster"]["settled"])


class Writer(threading.Thread):
    """Writes to a stream of its own, one transaction after the other, until it is stopped."""

    def __init__(self, stream: str, address: str) -> None:
        super().__init__()
        self.stream = stream
        self.written = 0
        self.failure: Exception | None = None
        self._address = address
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            with tstreams.connect(self._address) as ts:
                ts.create_stream(self.stream)
                with ts.producer(self.stream, name="writer") as producer:
                    while not self._stopping.is_set():
                        producer.instant([str(self.written).encode()], partition=0)
                        self.written += 1
        except Exception as error:
            self.failure = error

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)


def test_clients_notice_nothing_when_all_nodes_restart(development: Development) -> None:
    eventually(lambda: development.status()["cluster"]["settled"])
    before = {it["shard"]: it for it in development.status()["shards"]}
    pids = [development.pid(f"node-{n}") for n in (1, 2, 3)]
    writers = [Writer(f"rolling-{n}", development.addresses[n % 3]) for n in range(6)]
    for writer in writers:
        writer.start()
    eventually(lambda: all(it.written > 10 or it.failure for it in writers))
    try:
        assert development("restart") == {"restarted": ["node-1", "node-2", "node-3"]}
        counts = [it.written for it in writers]
        eventually(lambda: all(it.written > n for it, n in zip(writers, counts, strict=True)))
    finally:
        for writer in writers:
            writer.stop()
    assert [it.failure for it in writers] == [None] * len(writers)
    assert set(pids).isdisjoint(development.pid(f"node-{n}") for n in (1, 2, 3))
    after = {it["shard"]: it for it in development.status()["shards"]}
    for shard, old in before.items():  # each went to another node, and came back
        assert after[shard]["leader"] == old["leader"]
        assert after[shard]["epoch"] - old["epoch"] >= 2
    with tstreams.connect(development.addresses[0]) as ts:
        for writer in writers:
            with ts.consumer(writer.stream, name="check", start=Offset.oldest()) as consumer:
                found = [int(txn.items[0]) for txn in consumer.read(max_wait=2.0)]
            assert found == list(range(writer.written))


def test_every_front_door_shows_all_streams(development: Development) -> None:
    names = {f"everywhere-{n}" for n in range(6)}
    with tstreams.connect(development.urls[0]) as ts:
        for name in names:
            ts.create_stream(name)
            with ts.producer(name, name="p") as producer:
                producer.instant([b"one", b"two"], partition=0)
    led_by = {it["shard"]: it for it in development.status()["shards"]}
    for url in development.urls:
        _, page, _ = ask(url, "GET", "/v1/streams?prefix=everywhere-")
        assert {it["name"] for it in page["items"]} == names
        assert {it["size"]["items"] for it in page["items"]} == {2}
        for name in names:
            _, found, _ = ask(url, "GET", f"/v1/lookup/{name}?partition=0")
            (place,) = found["ranges"]
            led = led_by[place["shard"]]
            assert (place["node"], place["addresses"]) == (led["leader"], led["addresses"])
            assert place["epoch"] == led["epoch"]
            assert {it["node"] for it in place["followers"]} == {
                it["node"] for it in led["followers"]
            }


def test_the_console_shows_who_leads_what(development: Development) -> None:
    leaders = development.leaders()
    with browsing() as browser, opening(browser, development.urls[1]) as tabs:
        for theme in ("light", "dark"):
            tab = tabs(theme)
            tab.open("#/nodes")
            expect(tab.page.get_by_text("All is well")).to_be_visible()
            expect(tab.page.get_by_role("table", name="Nodes").locator("tbody tr")).to_have_count(3)
            for shard, node in leaders.items():
                tiles = tab.page.get_by_role("list", name=f"Shards of node {node}")
                expect(tiles.get_by_text(f"Shard {shard}: led here")).to_have_count(1)
            rows = tab.page.get_by_role("table", name="Shards").locator("tbody tr")
            expect(rows).to_have_count(SHARDS)
            assert [str(leaders[n]) in rows.nth(n).inner_text() for n in leaders] == [True] * SHARDS
            expect(tab.page.get_by_text("What it stands on")).to_be_visible()
            assert troubles_of(tab) == []
            tab.shoot(f"cluster-{theme}")
        tab = tabs("dark", width=390, height=844)
        tab.open("#/nodes")
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_every_command_of_the_page_works(development: Development) -> None:
    """The page about operating a cluster. Ending it, and removing what is gone, are tests of their own."""
    node = development.nodes()["node-2"]["id"]
    found = [
        it for it in commands(CLUSTER) if it[:2] not in (["cluster", "down"], ["cluster", "remove"])
    ]
    assert len(found) > 8
    shell = Shell(development.urls[0])
    for words in found:
        told = [node if word == "4f1d2c3b5a697887" else word for word in words]
        if told[:2] in (["cluster", "up"], ["cluster", "restart"]):
            told += ["node-2"] * (told[1] == "restart") + ["--dir", str(development.folder)]
            told += ["--shards", str(SHARDS)] * (told[1] == "up")
        if told[:2] == ["cluster", "create"]:
            settings = development.status()["cluster"]["engine_settings"]
            told = ["cluster", "create", "main", "--shards", "1", "--nats", settings["servers"]]
            told += ["--nats-monitor", settings["monitors"]]
            told += ["--zookeeper", development.told["zookeeper"]]
        if told[:2] == ["cluster", "move"]:
            told[2:4] = ["0", "1"]
        done = shell(*told)
        assert done.code == 0, (words, done)
        if told[:2] == ["cluster", "drain"] and "--undo" not in told:
            assert shell(*told, "--undo").code == 0  # the next ones want it to be there


def test_a_node_that_is_killed_is_seen_and_started_again(development: Development) -> None:
    node = development.nodes()["node-3"]["id"]
    os.kill(development.pid("node-3"), signal.SIGKILL)
    eventually(lambda: set(development.leaders().values()).isdisjoint({None, node}))
    status = development.status()
    assert status["health"]["status"] == "degraded"
    assert f"node {node} is not there" in " ".join(status["health"]["problems"])
    shown = development.shell("cluster", "status", "--dir", str(development.folder))
    assert (shown.code, "gone" in shown.text) == (0, True)
    assert development("up", "--shards", str(SHARDS)) == development.told
    eventually(lambda: development.status()["cluster"]["settled"])
    assert development.nodes()["node-3"]["id"] == node


def test_a_leader_that_stood_still_tells_nobody_what_it_knew(development: Development) -> None:
    """SIGSTOP: another leads after the session, clients find it while they are still connected to the first; SIGCONT: that
    one refuses what it finds in its sockets, and ends what has waited there."""
    stream = next(it for it in (f"still-{n}" for n in range(99)) if home_of(it, SHARDS) == 0)
    eventually(lambda: development.status()["cluster"]["settled"])
    names = {it["id"]: name for name, it in development.nodes().items()}
    leader = development.leaders()[0]
    address = development.addresses[[*development.nodes()].index(names[leader])]
    pid = development.pid(names[leader])
    others = [it for it in development.addresses if it != address]
    with (
        tstreams.connect(",".join(others), timeout=60.0) as ts,
        moebius.Client(address, timeout=60.0) as wire,
        ThreadPoolExecutor(1) as pool,
    ):
        number = ts.create_stream(stream).id
        producer = ts.producer(stream, name="p")
        before = producer.instant([b"before"], partition=0)
        from_start = encode(Fetch(number, [Want(0, 1)], 1000))
        beyond = encode(Fetch(number, [Want(0, before + 1)], 1000, wait_ms=20_000))
        waits = wire.submit("0:Fetch", beyond)
        news = wire.stream("0:Subscribe", encode(Subscribe(number, [Want(0, before + 1)], 1000)))
        pushed = pool.submit(list, news)
        assert wire.call("0:Fetch", from_start)  # so the two before it are there too
        os.kill(pid, signal.SIGSTOP)
        try:
            unread = wire.submit("0:Fetch", from_start)
            after = producer.instant([b"after"], partition=0)
            routing = ts._link.shards.routing
            assert routing is not None
            (left,) = [it for it in routing.stations if it.address == address]
            assert left.connected  # nobody waited for the end of the connection
        finally:
            os.kill(pid, signal.SIGCONT)
        for asked in (unread, waits, pushed):
            with pytest.raises(moebius.Error) as refused:
                asked.result(60)
            assert NotLeader.read(refused.value.message) is not None
        assert [it.id for it in ts.scan(stream, 0)] == [before, after]
        producer.close()
    eventually(lambda: development.status()["cluster"]["settled"])


# What goes wrong while it is started.


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = Shell(ZOOKEEPER_HOME=str(tmp_path / "empty"))(
        "cluster", "up", "--dir", str(tmp_path / "cluster")
    )
    assert done.code == 1
    assert "there is no zookeeper*.jar in it" in done.err
    assert not (tmp_path / "cluster").exists()


def test_what_a_start_that_was_killed_has_left_is_ended(
    can_start_zookeeper: None, tmp_path: Path
) -> None:
    need_nats()
    folder = tmp_path / "cluster"
    (folder / "mine").mkdir(parents=True)
    words = ["cluster", "up", "--dir", str(folder), "--nodes", "1", "--shards", "1"]
    with subprocess.Popen([*TSTREAMS, *words], stderr=subprocess.PIPE, env=CLEAN) as process:
        stream_of(process.stderr).readline()  # ZooKeeper is there, the rest is on its way
        process.kill()
    assert left_behind(folder) != []
    done = Shell()("cluster", "down", "--dir", str(folder))
    assert done.code == 0, done.err
    assert left_behind(folder) == []
    assert [it.name for it in folder.iterdir()] == ["mine"]  # it was not ours
    assert Shell()("cluster", "down", "--dir", str(folder)).code == 0
    done = Shell()("cluster", "restart", "--dir", str(folder))
    assert (done.code, "there is no development cluster in" in done.err) == (1, True)


def test_data_can_be_kept(can_start_zookeeper: None, tmp_path: Path) -> None:
    need_nats()
    folder, shell = tmp_path / "cluster", Shell()
    words = ("up", "--dir", str(folder), "--nodes", "1", "--shards", "1")
    first = shell("cluster", *words, "--json")
    assert first.code == 0, first.err
    url = first.json["nodes"][0]["address"]
    Shell(url).ok("stream", "create", "clicks")
    assert shell("cluster", "down", "--keep-data", "--dir", str(folder)).code == 0
    assert left_behind(folder) == []
    assert list(folder.rglob("lock")) == []
    again = shell("cluster", *words, "--json")
    assert again.code == 0, again.err
    assert again.json == first.json
    assert "clicks" in Shell(url).ok("stream", "list").text
    assert shell("cluster", "down", "--dir", str(folder)).code == 0
    assert not folder.exists()
