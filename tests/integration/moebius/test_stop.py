"""Starting and stopping: gracefully, from threads, by signals."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from moebius import (
    Client,
    Closed,
    Disconnected,
    Error,
    Limits,
    Request,
    Router,
    Server,
    Stopping,
    StopReport,
    Strategy,
    aio,
    sleep,
)

from .conftest import Connect, eventually
from .raw import CALL, FAILURE, REPLY, RawClient


def make_router() -> Router:
    router = Router()
    router.command("echo")(lambda request: request.payload)

    @router.command("sleep", strategy=Strategy.PARALLEL)
    def wait(request: Request) -> Generator[Any, Any, bytes]:
        yield sleep(float(request.payload))
        return b"slept"

    return router


def test_an_idle_server_stops_at_once(connect: Connect, address: str) -> None:
    server = Server(make_router(), address)
    with server.in_thread():
        client = connect(server)
        assert client.call("echo", b"x") == b"x"
        started = time.monotonic()
    assert time.monotonic() - started < 3


def test_what_runs_may_finish_and_what_is_too_slow_is_told(connect: Connect, address: str) -> None:
    server = Server(make_router(), address, limits=Limits(stop_grace_s=1.0))
    reports: list[StopReport] = []
    with server.in_thread():
        client = connect(server)
        quick, slow = client.submit("sleep", b"0.3"), client.submit("sleep", b"60")
        eventually(lambda: server.statistics().inflight == 2)
        server.request_stop()
        assert b"".join(quick.result(10)) == b"slept"
        with pytest.raises((Stopping, Disconnected)) as caught:
            slow.result(10)
        assert isinstance(caught.value, Stopping)
    reports.append(asyncio.run(server.stop()))
    assert reports == [StopReport(finished=1, cancelled=1, clients=1)]


def test_while_it_stops_nothing_new_begins() -> None:
    server = Server(make_router(), "tcp://127.0.0.1:0", limits=Limits(stop_grace_s=5))
    with server.in_thread(), RawClient(server.addresses[0]) as raw:
        raw.send([CALL, 1, "sleep"], b"0.5")
        eventually(lambda: server.statistics().inflight == 1)
        server.request_stop()
        time.sleep(0.1)
        raw.send([CALL, 2, "echo"], b"late")
        assert raw.receive()[0][:3] == [FAILURE, 2, "stopping"]
        assert raw.receive() == ([REPLY, 1], [b"slept"])
        assert raw.closed()


def test_a_server_can_start_again(connect: Connect, address: str) -> None:
    server = Server(make_router(), address)
    for _ in range(2):
        with server.in_thread():
            assert connect(server).call("echo", b"x") == b"x"


def test_on_a_loop_of_ones_own() -> None:
    async def main() -> None:
        async with Server(make_router(), "tcp://127.0.0.1:0") as server:
            async with aio.connect(server.addresses[0]) as client:
                assert await client.call("echo", b"x") == b"x"
            with pytest.raises(Closed, match="running already"):
                await server.start()

    asyncio.run(main())


def start_and_stop(address: str) -> None:
    with Server(make_router(), address).in_thread():
        pass


def test_an_address_in_use_is_a_clear_error(address: str) -> None:
    with Server(make_router(), address).in_thread() as server:
        url = server.addresses[0]
        with pytest.raises((OSError, Error), match=r"(?i)in use"):
            start_and_stop(url)
        with Client(url) as client:
            assert client.call("echo", b"x") == b"x"


@pytest.mark.parametrize("transport", ["ipc", "zmq+ipc"])
def test_a_stale_socket_file_is_replaced(tmp_path: Path, transport: str) -> None:
    path = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
    assert path.exists()
    url = f"{transport}://{path}"
    with Server(make_router(), url).in_thread(), Client(url) as client:
        assert client.call("echo", b"x") == b"x"
    assert not path.exists()


@pytest.mark.parametrize("transport", ["ipc", "zmq+ipc"])
def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path, transport: str) -> None:
    path = tmp_path / "precious.txt"
    path.write_text("keep me")
    with pytest.raises(OSError, match="in use by a file"):
        start_and_stop(f"{transport}://{path}")
    assert path.read_text() == "keep me"


def test_hooks_and_handlers_can_ask_for_the_stop() -> None:
    router = make_router()
    addresses: list[str] = []
    router.on_start(lambda server: addresses.extend(server.addresses))

    @router.command("stop")
    def stop(request: Request) -> bytes:
        request.server.request_stop()
        return b"stopping"

    reports: list[StopReport] = []

    async def main() -> None:
        server = Server(router, "tcp://127.0.0.1:0")
        await server.start()
        reports.append(await server.wait())

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    eventually(lambda: addresses)
    with Client(addresses[0]) as client:
        assert client.call("stop") == b"stopping"
        thread.join(10)
    assert reports


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_well(tmp_path: Path, number: int) -> None:
    program = tmp_path / "server.py"
    program.write_text(
        "from moebius import Router, Server\n"
        "router = Router()\n"
        "router.command('echo')(lambda request: request.payload)\n"
        "router.on_start(lambda server: print(*server.addresses, flush=True))\n"
        "addresses = ['tcp://127.0.0.1:0', 'zmq+tcp://127.0.0.1:0', 'ipc://x.sock']\n"
        "print(Server(router, addresses).run())\n"
    )
    with subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        for url in process.stdout.readline().split():
            with Client(url.replace("x.sock", f"{tmp_path}/x.sock")) as client:
                assert client.call("echo", b"x") == b"x"
        process.send_signal(number)
        assert process.wait(15) == 0
        assert "StopReport(finished=0, cancelled=0" in process.stdout.read()


def test_statistics(connect: Connect, address: str) -> None:
    with Server(make_router(), address).in_thread() as server:
        client = connect(server)
        for _ in range(10):
            client.call("echo", b"x")
        future = client.submit("sleep", b"0.3")
        eventually(lambda: server.statistics().inflight == 1)
        before = server.statistics()
        future.result(10)
        assert (before.counts.requests, before.counts.replies) == (11, 10)
        assert server.statistics().counts.replies == 11
        mine = client.statistics()
        assert (mine.calls, mine.replies, mine.failures, mine.inflight) == (11, 11, 0, 0)
        assert client.id == next(iter(server.clients)).id
