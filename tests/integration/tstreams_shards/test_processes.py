"""A process for each shard: who is where, who dies, and what becomes of it."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import moebius
import tstreams
from tests.integration.certificates import make_certificate
from tests.integration.cli import Shell
from tstreams.config import Config
from tstreams.errors import BadRequest, NotLeader, Unavailable
from tstreams.protocol import (
    AlterStream,
    Done,
    GetConfig,
    GetStream,
    NodeInfo,
    OpenAgent,
    OpenSession,
    SessionOpened,
    StreamInfo,
    decode_reply,
    encode,
)
from tstreams.server import shard_process
from tstreams.server.sharded_node import COMMAND, ShardedNode
from tstreams.sharding import home_of, shard_of

from .families import Family, family, is_there, until
from .raw import SHARDS, Agent, Raw

HOME = home_of("clicks", SHARDS)
FIRST, SECOND = (shard_of("clicks", it, SHARDS) for it in (1, 2))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def served(data: Path) -> Iterator[Family]:
    with family(data) as found:
        yield found


def write(client: Raw, producer: Agent, item: bytes) -> None:
    """One group, with something for each shard."""
    group = client.group(HOME)
    for partition in (1, 2):
        shard = shard_of("clicks", partition, SHARDS)
        brought = [producer.brings(partition, item)]
        client.prepare(shard, group, [producer.numbers[shard]], brought=brought)
    brought = [producer.brings(0, item)]
    assert client.decide(group, [FIRST, SECOND], [producer.numbers[HOME]], brought=brought)


def all_read(client: Raw, producer: Agent) -> list[list[bytes]]:
    return [client.read(producer, it) for it in range(3)]


# Who is where.


def test_each_shard_has_a_process_and_an_address(served: Family) -> None:
    node = served.describe()
    assert (node.total, node.shards, node.addresses) == (SHARDS, [0, 1, 2], served.addresses)
    assert len(set(served.children.values()) | {served.process.pid}) == 1 + SHARDS
    addresses = [served.addresses_of(it)[0] for it in range(SHARDS)]
    assert len({*addresses, *served.addresses}) == 1 + SHARDS
    for shard, address in enumerate(addresses):
        assert address.startswith("tcp://127.0.0.1:")
        of_shard = told(served, address)
        assert of_shard.map == node.map
        assert (of_shard.id, of_shard.shards) == (f"{node.id}/{shard}", [shard])


def told(served: Family, address: str) -> NodeInfo:
    """What a process of a shard says when it knows of all others."""
    until(lambda: all(it.leader for it in served.describe(address).map))
    return served.describe(address)


def test_who_asks_elsewhere_is_told_where(served: Family) -> None:
    message = encode(OpenSession())
    for asked in [served.addresses[0], *(served.addresses_of(it)[0] for it in range(SHARDS))]:
        told(served, asked)
        with moebius.connect(asked) as client:
            for shard in range(SHARDS):
                where = served.addresses_of(shard)
                if asked in where:
                    reply = decode_reply(client.call(f"{shard}:OpenSession", message))
                    assert isinstance(reply, SessionOpened)
                    continue
                with pytest.raises(moebius.Error) as refused:
                    client.call(f"{shard}:OpenSession", message)
                assert refused.value.code == Unavailable.code
                found = NotLeader.read(refused.value.message)
                assert found is not None
                assert (found.shard, found.epoch, list(found.addresses)) == (shard, 1, where)


@pytest.mark.parametrize(
    "command", ["3:OpenSession", "x:OpenSession", "Nothing", "", ":", "9" * 99]
)
def test_what_there_is_not(served: Family, command: str) -> None:
    for address in (served.addresses[0], served.addresses_of(0)[0]):
        with moebius.connect(address) as client, pytest.raises(moebius.BadRequest):
            client.call(command, encode(OpenSession()))


def test_any_zmq_client_gets_an_answer(data: Path) -> None:
    with family(data, listen="zmq+tcp://127.0.0.1:0") as served, Raw(served.addresses[0]) as client:
        assert isinstance(client.create("clicks", 3), StreamInfo)


def test_over_unix_sockets(tmp_path: Path, data: Path) -> None:
    with family(data, listen=f"ipc://{tmp_path}/s") as served:
        with Raw(served.addresses[0]) as client:
            client.create("clicks", 3)
            producer = client.agent("producer", "clicks", "p", 3)
            write(client, producer, b"x")
            assert [client.read(producer, it, 5000) for it in range(3)] == [[b"x"]] * 3
        assert sorted(it.name for it in tmp_path.glob("s*")) == ["s", "s.0", "s.1", "s.2"]
        assert served.end() == 0
    assert not list(tmp_path.glob("s*"))


@pytest.mark.parametrize("listen", ["tcp://127.0.0.1:0", "ipc://{}/s", "zmq+tcp://127.0.0.1:0"])
def test_clients_find_their_way(tmp_path: Path, data: Path, listen: str) -> None:
    """The client, the front door and the command line, of which none is told where the shards are."""
    with family(data, "--http", "127.0.0.1:0", listen=listen.format(tmp_path)) as served:
        with tstreams.connect(served.addresses[0]) as ts:
            ts.create_stream("clicks", partitions=6)
            producer, consumer = ts.producer("clicks"), ts.consumer("clicks", "c")
            group = ts.checkpoint_group()
            group.add(producer)
            for partition in range(6):
                producer.open(partition).send(b"%d" % partition)
            group.checkpoint()
            found = sorted(it.items[0] for _, it in zip(range(6), consumer.read(), strict=False))
            assert found == [b"%d" % it for it in range(6)]
            consumer.checkpoint()
        http = served.ready["http"]
        shell = Shell(http)
        assert shell.ok("stream", "show", "clicks", "--long", "--json").json["size"]["items"] == 6
        assert shell.ok("consumer", "list", "--json").code == 0
        with urllib.request.urlopen(f"{http}/metrics", timeout=30) as page:
            assert b"\ntstreams_items_total 6.0\n" in page.read()
        with urllib.request.urlopen(f"{http}/health/ready", timeout=30) as page:
            assert page.status == 200


def test_with_token_and_tls(tmp_path: Path, data: Path) -> None:
    """Shards show each other both."""
    certificate, key = make_certificate(tmp_path)
    (tmp_path / "token").write_text("right")
    flags = ["--token-file", str(tmp_path / "token")]
    flags += ["--tls-certificate", certificate, "--tls-key", key]
    options = {"token": "right", "tls": ssl.create_default_context(cafile=certificate)}
    with family(data, *flags) as served, Raw(served.addresses[0], **options) as client:
        client.create("clicks", 3)
        producer = client.agent("producer", "clicks", "p", 3)
        write(client, producer, b"x")
        assert [client.read(producer, it, 5000) for it in range(3)] == [[b"x"]] * 3
        for address in (served.addresses[0], served.addresses_of(1, **options)[0]):
            with pytest.raises(moebius.Unauthorized):
                served.describe(address, **(options | {"token": "wrong"}))


def free_ports(count: int) -> int:
    """The first of so many ports that are free, one after the other."""
    for first in range(20_000 + os.getpid() % 9000, 60_000, count):
        try:
            for port in range(first, first + count):
                with socket.create_server(("127.0.0.1", port)):
                    pass
        except OSError:
            continue
        return first
    raise AssertionError("there are no free ports")


def test_ports_that_were_named(data: Path) -> None:
    first = free_ports(SHARDS)
    with family(data, "--shard-ports", f"{first}-{first + SHARDS - 1}") as served:
        found = [served.addresses_of(it) for it in range(SHARDS)]
        assert found == [[f"tcp://127.0.0.1:{first + it}"] for it in range(SHARDS)]
        served.kill(1)
        assert [served.addresses_of(it) for it in range(SHARDS)] == found


def test_ports_stay_over_a_restart_if_nobody_has_taken_them(data: Path) -> None:
    with family(data) as served:
        before = [served.addresses_of(it) for it in range(SHARDS)]
        assert served.end() == 0
    port = int(before[1][0].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)), family(data) as again:
        after = [again.addresses_of(it) for it in range(SHARDS)]
        assert [after[0], after[2]] == [before[0], before[2]]
        assert after[1] != before[1]
        assert again.end() == 0
    (data / "addresses").write_text("nonsense")
    with family(data) as again:
        assert again.addresses


def test_a_port_that_somebody_else_has(data: Path) -> None:
    first = free_ports(SHARDS)
    ports = f"{first}-{first + SHARDS - 1}"
    with (
        socket.create_server(("127.0.0.1", first + 1)),
        family(data, "--shard-ports", ports) as served,
    ):
        assert served.wait() == 1
    assert f"shard 1 cannot be served: tcp://127.0.0.1:{first + 1}" in served.log
    assert "address already in use" in served.log


def test_ports_that_are_too_few(data: Path) -> None:
    with family(data, "--shard-ports", "7071-7072") as served:
        assert served.wait() == 1
    assert "shard_ports: 7071-7072 are 2 ports, 3 are needed" in served.log


def test_the_address_of_the_server_is_taken(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with family(data, listen=address) as served:
            assert served.wait() == 1
    assert f"cannot serve on {address}" in served.log


def test_settings_in_force(served: Family) -> None:
    for address in ("", served.addresses_of(2)[0]):
        settings = {it.name: it.value for it in served.ask(GetConfig(), address).settings}
        assert settings["shards"] == str(SHARDS)
        assert settings["listen"] == "tcp://127.0.0.1:0"


# What spans shards.


def test_a_group_over_processes(served: Family) -> None:
    with Raw(served.addresses[0]) as client:
        client.create("clicks", 3)
        producer = client.agent("producer", "clicks", "p", 3)
        for item in (b"a", b"b"):
            write(client, producer, item)
        until(lambda: all_read(client, producer) == [[b"a", b"b"]] * 3)


def test_a_change_of_a_stream_is_known_in_all_processes(served: Family) -> None:
    with Raw(served.addresses[0]) as client:
        client.create("clicks", 3)
        producer = client.agent("producer", "clicks", "p", 3)
        changed = client.change(HOME, AlterStream, "clicks", 5000)
        assert (changed.ttl_ms, changed.version) == (5000, 2)
        again = [
            client.change(it, OpenAgent, "producer", "clicks", "p", *producer.rank)
            for it in (FIRST, SECOND)
        ]
        assert [it.stream.ttl_ms for it in again] == [5000, 5000]


@pytest.mark.parametrize("shard", [HOME, FIRST], ids=["decider", "participant"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_group_ends_well_whoever_dies(served: Family, shard: int, when: str) -> None:
    with Raw(served.addresses[0]) as client:
        client.create("clicks", 3)
        producer = client.agent("producer", "clicks", "p", 3)
        group = client.group(HOME)
        brought = [producer.brings(1, b"x")]
        client.prepare(FIRST, group, [producer.numbers[FIRST]], brought=brought)
        if when == "before":
            served.kill(shard)
        mine = [producer.brings(0, b"x")]
        assert client.decide(group, [FIRST], [producer.numbers[HOME]], brought=mine) == Done()
        if when == "after":
            served.kill(shard)
        assert [client.read(producer, it, 10_000) for it in (0, 1)] == [[b"x"], [b"x"]]


# Who dies.


def test_a_shard_that_dies_comes_back_where_it_was(served: Family) -> None:
    with Raw(served.addresses[0]) as client:
        client.create("clicks", 3)
        producer = client.agent("producer", "clicks", "p", 3)
        before = served.describe()
        for shard in range(SHARDS):
            served.kill(shard)
        after = served.describe()
        assert [it.leader for it in after.map] == [it.leader for it in before.map]
        assert [it.epoch for it in after.map] == [2, 2, 2]
        assert after.started_ms == before.started_ms
        until(lambda: served.describe(served.addresses_of(0)[0]).map == after.map)
        write(client, producer, b"x")
        assert [client.read(producer, it, 5000) for it in range(3)] == [[b"x"]] * 3
    assert "the process of a shard has ended: it is started again" in served.log
    assert served.end() == 0


def test_what_was_counted_does_not_go_back(served: Family) -> None:
    with Raw(served.addresses[0]) as client:
        client.create("clicks", 3)
        write(client, client.agent("producer", "clicks", "p", 3), b"x")
        before = served.measured()
        assert before.counters["items_total"] == 3
        assert before.gauges["sessions"] == SHARDS
        assert [(it.name, it.items) for it in before.busiest] == [("clicks", 3)]
        for shard in range(SHARDS):
            served.kill(shard)
        after = served.measured()
        assert after.counters["items_total"] == 3
        assert after.counters["requests_total"] > before.counters["requests_total"]
        was = {it.name: sum(it.counts) for it in before.histograms}
        assert {it.name: sum(it.counts) for it in after.histograms} == {
            name: pytest.approx(count, abs=50) for name, count in was.items()
        }
        assert all(sum(it.counts) >= was[it.name] for it in after.histograms)
        assert after.gauges["failed"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_operator_ends_it(data: Path, served: Family, number: signal.Signals) -> None:
    with Raw(served.addresses[0]) as client:
        client.create("clicks", 3)
    assert served.end(number) == 0
    assert "ended" not in served.log
    for shard in range(SHARDS):
        assert f"shard={shard}" in served.log
    assert Shell().ok("verify", str(data)).code == 0
    with family(data) as again, Raw(again.addresses[0]) as client:
        assert client.ask(HOME, GetStream("clicks")).name == "clicks"


def test_somebody_presses_ctrl_c(served: Family) -> None:
    """The whole group of the terminal gets the signal: the shards are not in it."""
    os.killpg(served.process.pid, signal.SIGINT)
    assert served.wait() == 0
    assert "ended" not in served.log


def test_the_parent_is_killed(data: Path, served: Family) -> None:
    """The shards end with it, and the next server waits until they have."""
    with Raw(served.addresses[0]) as client:
        client.create("clicks", 3)
        producer = client.agent("producer", "clicks", "p", 3)
        write(client, producer, b"x")
    children = served.children
    served.process.kill()
    with family(data) as again:
        assert not any(map(is_there, children.values()))
        with Raw(again.addresses[0]) as client:
            assert [client.read(producer, it, 5000) for it in range(3)] == [[b"x"]] * 3


def test_shards_that_cannot_run_are_waited_for(data: Path, served: Family) -> None:
    """A shard that is stopped when its parent is killed cannot end before it is woken up: nobody else gets the folder
    until then."""
    child = served.children[1]
    others = [served.children[it] for it in (0, 2)]
    os.kill(child, signal.SIGSTOP)
    served.process.kill()
    served.process.wait()
    until(lambda: not any(map(is_there, others)))
    if not is_there(child):  # Linux: SIGKILL needs nobody to wake up
        return
    waking = threading.Timer(1, os.kill, (child, signal.SIGCONT))
    waking.start()
    with family(data) as again:
        assert again.addresses
        assert not is_there(child)


def test_a_second_server_is_refused(data: Path, served: Family) -> None:
    with family(data) as second:
        assert second.wait() == 1
    assert f"is in use by another server (process {served.process.pid})" in second.log
    done = Shell()("verify", str(data))
    assert done.code
    assert "is in use by another server" in done.err


def test_a_folder_of_another_number_of_shards(data: Path) -> None:
    with family(data) as served:
        assert served.end() == 0
    with family(data, "--shards", "2") as other:
        assert other.wait() == 1
    assert "was made for 3 shards, and cannot be served with 2" in other.log
    assert "shard_child" not in other.log


def damage(data: Path, shard: int) -> None:
    ledger = min((data / f"shard-{shard}").rglob("*.ledger"))
    content = bytearray(ledger.read_bytes())
    content[8:40] = b"\xff" * 32
    ledger.write_bytes(content)


def test_a_shard_that_is_damaged_ends_the_server_at_once(data: Path, served: Family) -> None:
    with Raw(served.addresses[0]) as client:
        client.create("clicks", 3)
    damage(data, HOME)
    os.kill(served.children[HOME], signal.SIGKILL)
    assert served.wait() == 1
    assert "ledger" in served.log.splitlines()[-1]
    with family(data) as again:
        assert again.wait() == 1
    assert again.addresses == []


# In a thread: limits that are smaller than in real life.


def test_after_too_many_ends_in_a_row_the_server_ends(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_process, "SHARD_RESTART_S_MIN", 0.01)
    monkeypatch.setattr(shard_process, "SHARD_RESTARTS_MAX", 2)
    node = ShardedNode(Config(data=data, shards=2), ["tcp://127.0.0.1:0"])
    killed: set[int] = set()

    def kill() -> None:
        process = node.processes[1]
        pid = until(lambda: process.serving and process.pid not in killed and process.pid)
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)

    expected = pytest.raises(Unavailable, match=r"shard 1 has ended 3 times in a row, .* status -9")
    with expected, node.in_thread():
        for _ in range(3):
            kill()
        until(lambda: not node.processes)
    assert len(killed) == 3


def test_a_child_that_cannot_be_started(data: Path) -> None:
    for command, why in (
        (["false"], "ended before it served, with status 1"),
        (["sh", "-c", "kill -9 $$"], "ended before it served, with status -9"),
    ):
        node = ShardedNode(Config(data=data, shards=2), ["tcp://127.0.0.1:0"], command=command)
        with pytest.raises(Unavailable, match=why), node.in_thread():
            pass
    node = ShardedNode(Config(data=data, shards=2), command=["/nowhere"])
    with pytest.raises(FileNotFoundError), node.in_thread():
        pass


def test_a_child_that_does_not_end_is_killed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_process, "SHARD_END_S", 5)
    node = ShardedNode(Config(data=data, shards=2), ["tcp://127.0.0.1:0"])
    expected = pytest.raises(Unavailable, match=r"the shards \[1\] have not ended well")
    pids = []
    with expected, node.in_thread():
        pids = [it.pid for it in node.processes if it.pid]
        os.kill(pids[1], signal.SIGSTOP)
    assert len(pids) == 2
    assert not any(map(is_there, pids))


def test_a_process_ends_if_nobody_wants_it(tmp_path: Path) -> None:
    """One that is started by hand gets no orders."""
    done = subprocess.run(COMMAND, input=b"", capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_ports_that_are_none(tmp_path: Path) -> None:
    for text in ("x", "7070", "0-5", "9-8", "1-99999"):
        with pytest.raises(BadRequest, match="shard_ports: must look like 7071-7078"):
            Config(data=tmp_path, shard_ports=text)
