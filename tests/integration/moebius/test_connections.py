"""Connections that break, servers that come back, peers that fall silent."""

from __future__ import annotations

import os
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
    DeadlineExceeded,
    Disconnected,
    Limits,
    Request,
    Router,
    Server,
    State,
    sleep,
)

from .conftest import QUICK, Connect, Serve, eventually

REPEATABLE = Limits(reconnect_delay_s_min=0.01, reconnect_delay_s_max=0.05)


def echo_router() -> Router:
    router = Router()
    router.command("echo")(lambda request: request.payload)

    @router.command("sleep")
    def wait(request: Request) -> Generator[Any, Any, bytes]:
        yield sleep(float(request.payload))
        return b"slept"

    return router


def test_a_client_survives_a_restart_of_the_server(connect: Connect, address: str) -> None:
    states: list[State] = []
    router = echo_router()
    with Server(router, address).in_thread() as server:
        url = server.addresses[0]
        client = connect(url, limits=REPEATABLE, on_state=states.append)
        assert client.call("echo", b"1") == b"1"
    eventually(lambda: client.state is State.RECONNECTING)
    waiting = client.submit("echo", b"2")
    time.sleep(0.1)
    assert not waiting.done()
    with Server(router, url).in_thread():
        assert b"".join(waiting.result(10)) == b"2"
        assert client.call("echo", b"3") == b"3"
        assert client.statistics().connects == 2
        client.close()
    assert states == [State.CONNECTED, State.RECONNECTING, State.CONNECTED, State.CLOSED]


def test_what_was_under_way_is_unknown_or_repeated(connect: Connect, address: str) -> None:
    router = echo_router()
    with Server(router, address, limits=Limits(stop_grace_s=0)).in_thread() as server:
        url = server.addresses[0]
        client = connect(url, limits=REPEATABLE)
        # PARALLEL would do as well: the point is that both are under way.
        lost = client.submit("sleep", b"60")
        eventually(lambda: server.statistics().inflight == 1)
        for peer in server.clients:
            server.call_soon(peer.link.abort, "pulled")
        with pytest.raises(Disconnected, match="'sleep' was under way"):
            lost.result(10)
        repeated = client.submit("sleep", b"0.3", repeat=True)
        eventually(lambda: server.statistics().inflight == 1)
        for peer in server.clients:
            server.call_soon(peer.link.abort, "pulled")
        assert b"".join(repeated.result(10)) == b"slept"


def test_calls_wait_for_a_connection_up_to_their_deadline(connect: Connect, address: str) -> None:
    with Server(echo_router(), address).in_thread() as server:
        client = connect(server.addresses[0], limits=REPEATABLE)
    eventually(lambda: client.state is State.RECONNECTING)
    with pytest.raises(DeadlineExceeded, match="no connection"):
        client.call("echo", b"x", timeout=0.1)


def test_no_server_is_a_clear_error(connect: Connect, tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        for url in (
            f"tcp://127.0.0.1:{port}",
            f"ipc://{tmp_path}/nobody.sock",
            f"zmq+tcp://127.0.0.1:{port}",
            "inproc://nobody",
        ):
            with pytest.raises(Disconnected, match="no connection to"):
                connect(url, connect_timeout=0.3)


def test_a_closed_client_says_so(serve: Serve, connect: Connect, address: str) -> None:
    client = connect(serve(echo_router(), address))
    if isinstance(client, Client):
        pending = client.submit("sleep", b"60")
        client.close()
        client.close()
        with pytest.raises(Closed):
            pending.result(10)
        with pytest.raises(Closed):
            client.call("echo")


def test_a_fork_needs_a_client_of_its_own(serve: Serve, address: str) -> None:
    server = serve(echo_router(), address)
    with Client(server.addresses[0]) as client:
        assert client.call("echo", b"x") == b"x"
        child = os.fork()
        if child == 0:  # only raw os calls here: the child shares the parent's pytest
            try:
                client.call("echo", b"x")
            except Closed as error:
                os._exit(0 if "fork" in error.message else 1)
            os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert client.call("echo", b"x") == b"x"


def test_one_client_serves_many_threads(serve: Serve, address: str) -> None:
    server = serve(echo_router(), address)
    wrong: list[bytes] = []
    with Client(server.addresses[0]) as client:

        def work(number: int) -> None:
            for n in range(100):
                text = b"%d-%d" % (number, n)
                if client.call("echo", text) != text:
                    wrong.append(text)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


# Liveness.


def test_a_server_that_falls_silent_is_found_dead(connect: Connect, tmp_path: Path) -> None:
    """A real process, stopped by a signal: its sockets stay open, but nobody answers."""
    program = tmp_path / "silent_server.py"
    program.write_text(
        "from moebius import Router, Server\n"
        "router = Router()\n"
        "router.command('echo')(lambda request: request.payload)\n"
        "router.background(lambda server: print(*server.addresses, flush=True))\n"
        "Server(router, ['tcp://127.0.0.1:0', 'zmq+tcp://127.0.0.1:0']).run()\n"
    )
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for url in process.stdout.readline().split():
                client = connect(url, limits=QUICK)
                assert client.call("echo", b"x") == b"x"
                process.send_signal(signal.SIGSTOP)
                eventually(lambda client=client: client.state is State.RECONNECTING)
                process.send_signal(signal.SIGCONT)
                assert client.call("echo", b"y") == b"y"
                client.close()
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        assert process.wait(10) == 0


def test_a_client_that_falls_silent_is_forgotten(serve: Serve, address: str) -> None:
    """It promised heartbeats and sends none: its loop is stuck."""
    server = serve(echo_router(), address, limits=QUICK)
    stuck = threading.Event()

    def hold_on(_: bytes) -> None:
        stuck.wait(20)

    client = Client(server.addresses[0], limits=QUICK, on_push=hold_on)
    try:
        eventually(lambda: len(server.clients) == 1)
        server.call_soon(server.clients.broadcast, b"hold on")
        eventually(lambda: len(server.clients) == 0, 5)
        assert server.statistics().counts.clients_expired == 1
    finally:
        stuck.set()
        client.close()


def test_heartbeats_keep_an_idle_client(serve: Serve, connect: Connect, address: str) -> None:
    server = serve(echo_router(), address, limits=QUICK)
    client = connect(server, limits=QUICK)
    peer = next(iter(server.clients))
    time.sleep(1.5)
    assert peer in server.clients
    assert client.call("echo", b"x") == b"x"
    assert client.statistics().connects == 1


def test_a_long_request_keeps_its_client(serve: Serve, connect: Connect, address: str) -> None:
    server = serve(echo_router(), address, limits=QUICK)
    assert connect(server, limits=QUICK).call("sleep", b"1.5") == b"slept"
