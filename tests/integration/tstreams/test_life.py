"""Clients come and go: closing, forking, pickling, embedding, tokens, deadlines."""

from __future__ import annotations

import os
import pickle
import socket
import ssl
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import tstreams
from tstreams import (
    BadRequest,
    Client,
    ClientConfig,
    Expired,
    InvalidState,
    Offset,
    Timeout,
    Tls,
    TransactionState,
    Unauthorized,
    Unavailable,
)
from tstreams.config import Config
from tstreams.server import Node

from .conftest import BLOCKING_ONLY, Connect
from .faces import Face


def test_a_closed_client_closes_its_agents(connect: Connect, ts: Client, clicks: str) -> None:
    client = connect()
    producer, consumer = client.producer(clicks, "p1"), client.consumer(clicks, "c1")
    txn = producer.open(0)
    txn.send(b"x")
    client.close()
    client.close()
    assert (producer.closed, consumer.closed, client.closed) == (True, True, True)
    assert txn.state is TransactionState.CANCELLED
    assert ts.consumer(clicks).last(0) is None
    uses: list[Callable[[], object]] = [
        client.streams,
        client.statistics,
        lambda: client.producer(clicks),
        lambda: client.consumer(clicks),
        producer.open,
        lambda: producer.instant([b"x"]),
        consumer.checkpoint,
        lambda: consumer.get(0),
        lambda: txn.send(b"x"),
    ]
    for use in uses:
        with pytest.raises(InvalidState, match="closed"):
            use()
    producer.close()
    consumer.close()


def test_a_closed_client_leaves_nothing_to_wait_for(
    connect: Connect, ts: Client, clicks: str
) -> None:
    client = connect()
    txn = client.producer(clicks).open(0)
    behind = ts.producer(clicks).instant([b"x"], partition=0)
    consumer = ts.consumer(clicks)
    assert consumer.get(0) is None
    client.close()
    read = consumer.get(0, timeout=30)
    assert read is not None
    assert read.id == behind
    assert txn.state is TransactionState.CANCELLED


@BLOCKING_ONLY
def test_closing_in_a_callback_is_refused(connect: Connect, clicks: str) -> None:
    client = connect()
    caught: list[BaseException] = []
    called = threading.Event()

    def close(_: object) -> None:
        try:
            client.close()
        except RuntimeError as error:
            caught.append(error)
        called.set()

    client.producer(clicks).instant([b"x"], wait=False).add_done_callback(close)
    assert called.wait(30)
    assert (len(caught), client.closed) == (1, False)


def test_nothing_can_be_pickled_but_the_config(face: Face, ts: Client, clicks: str) -> None:
    producer, consumer = ts.producer(clicks), ts.consumer(clicks)
    txn = producer.open(0)
    producer.instant([b"x"], partition=1)
    read = consumer.get(1, timeout=10)
    for thing in (ts, producer, consumer, txn, read):
        with pytest.raises(TypeError, match="config"):
            pickle.dumps(thing)
    config = pickle.loads(pickle.dumps(ts.config))
    assert config == ts.config
    with face.connect(config) as other:
        assert other.stream(clicks) == ts.stream(clicks)


def test_a_config_can_be_pickled_with_all_it_has() -> None:
    config = ClientConfig("tcp://127.0.0.1:1", token="t", timeout=7.0, tls=Tls(ca_file="ca.pem"))
    assert pickle.loads(pickle.dumps(config)) == config
    assert "token" not in repr(config)
    context = ClientConfig("tcp://127.0.0.1:1", tls=ssl.create_default_context())
    with pytest.raises(TypeError, match="Tls"):
        pickle.dumps(context)


def in_child(body: Callable[[], None]) -> None:
    """Run this in a forked child; fail if it fails there."""
    child = os.fork()
    if child == 0:
        try:
            body()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_the_child_connects_anew(ts: Client, node: Node, clicks: str) -> None:
    producer, consumer = ts.producer(clicks, "p1"), ts.consumer(clicks, "c1")
    txn = producer.open(0)
    txn.send(b"parent")
    producer.instant([b"x"], partition=1)
    assert consumer.get(1, timeout=10) is not None
    is_tcp = ts.config.url.startswith("tcp")

    def child() -> None:
        uses: list[Callable[[], object]] = [
            ts.streams,
            lambda: ts.producer(clicks),
            lambda: ts.consumer(clicks),
            producer.open,
            producer.checkpoint,
            lambda: producer.instant([b"x"], wait=False),
            lambda: producer.instant([b"x"], reliable=False),
            lambda: txn.send(b"child"),
            txn.checkpoint,
            txn.cancel,
            lambda: consumer.get(1),
            consumer.read,
            lambda: consumer.last(1),
            lambda: consumer.position(1),
            consumer.checkpoint,
        ]
        for use in uses:
            with pytest.raises(InvalidState, match="fork"):
                use()
        for thing in (producer, consumer, ts):
            thing.close()
        if is_tcp:
            with tstreams.connect(ts.config) as mine:
                mine.producer(clicks).instant([b"child"], partition=2)

    in_child(child)
    txn.checkpoint()
    read = consumer.get(0, timeout=10)
    assert read is not None
    assert read.items == [b"parent"]
    if is_tcp:
        assert consumer.get(2, timeout=10) is not None


def test_threads_share_a_client(ts: Client, clicks: str) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with ts.producer(clicks, f"p{number}") as producer:
                for _ in range(30):
                    with producer.transaction(number % 4) as txn:
                        txn.send_many([b"x" * 100] * 100)
                    producer.instant([b"y"], partition=number % 4)
            ts.create_stream(f"stream {number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sum(1 for _ in ts.consumer(clicks).read(max_wait=0)) == 8 * 60
    assert len(ts.streams(prefix="stream ")) == 8


def test_statistics(ts: Client, clicks: str) -> None:
    with ts.producer(clicks), ts.consumer(clicks):
        statistics = ts.statistics()
        assert (statistics.agents, statistics.requests_under_way) == (2, 0)
        assert statistics.connection.state == "connected"
    assert ts.statistics().agents == 0


# Connecting.


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_nobody_there_is_unavailable(face: Face) -> None:
    with pytest.raises(Unavailable, match="no connection"):
        face.connect(f"tcp://127.0.0.1:{free_port()}", timeout=0.3)


def test_connect_waits_for_a_server_that_is_about_to_start(face: Face, tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    clients: list[Client] = []
    thread = threading.Thread(target=lambda: clients.append(face.connect(address)))
    thread.start()
    with Node(tmp_path, listen=[address]).in_thread():
        thread.join(30)
        clients[0].create_stream("clicks")
        clients[0].close()


@pytest.mark.parametrize("url", ["", "tcp://", "ftp://x:1", "http://", "127.0.0.1:7070", None])
def test_an_address_makes_sense(face: Face, url: str) -> None:
    with pytest.raises(BadRequest):
        face.connect(url)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "1", True])
def test_a_timeout_makes_sense(face: Face, timeout: float) -> None:
    with pytest.raises(BadRequest):
        face.connect("tcp://127.0.0.1:1", timeout=timeout)


def test_a_token_lets_in(face: Face, tmp_path: Path) -> None:
    config = Config(data=tmp_path, listen=("tcp://127.0.0.1:0",), token="sesame")
    with Node(config).in_thread() as node:
        for wrong in ("", "guess"):
            with pytest.raises(Unauthorized):
                face.connect(node.addresses[0], token=wrong)
        with face.connect(node.addresses[0], token="sesame") as ts:
            assert ts.streams() == []


def test_a_server_that_does_not_answer_is_a_timeout(face: Face) -> None:
    """It accepts, welcomes, and then sleeps: what a stopped process looks like."""
    import moebius

    router = moebius.Router()

    @router.command("Describe")
    def describe(request: moebius.Request) -> object:
        yield moebius.sleep(60)

    with (
        moebius.Server(
            router, "tcp://127.0.0.1:0", limits=moebius.Limits(stop_grace_s=0.1)
        ).in_thread() as server,
        pytest.raises(Timeout),
    ):
        face.connect(server.addresses[0], timeout=0.3)


# Embedded.


def test_embedded_is_the_same_client(face: Face, tmp_path: Path) -> None:
    with face.embedded(tmp_path / "data") as ts:
        ts.create_stream("clicks")
        txn_id = ts.producer("clicks").instant([b"x"])
        with pytest.raises(InvalidState):
            face.embedded(tmp_path / "data")
    with face.embedded(str(tmp_path / "data")) as ts:
        read = ts.consumer("clicks", start=Offset.oldest()).get(0, timeout=10)
        assert read is not None
        assert (read.id, read.items) == (txn_id, [b"x"])


def test_two_embedded_servers_beside_each_other(face: Face, tmp_path: Path) -> None:
    with face.embedded(tmp_path / "a") as one, face.embedded(tmp_path / "b") as two:
        one.create_stream("only here")
        assert two.streams() == []


def test_others_can_be_let_in_to_an_embedded_server(face: Face, tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    with (
        face.embedded(tmp_path, listen=[address], ledger_bytes=1024 * 1024) as ts,
        face.connect(address) as other,
    ):
        ts.create_stream("clicks")
        assert other.stream("clicks").name == "clicks"


def test_importing_tstreams_brings_no_server_and_no_arrow() -> None:
    code = (
        "import sys, tstreams; "
        "print([name for name in sys.modules if name.startswith(('tstreams.server', 'pyarrow', 'rocksdict'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_errors_are_a_tree() -> None:
    assert issubclass(Expired, InvalidState)
    assert issubclass(Timeout, Unavailable)
    assert issubclass(Unavailable, tstreams.Error)
