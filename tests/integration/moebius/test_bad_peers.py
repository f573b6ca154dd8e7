"""Peers that break the rules: each gets a typed error or a closed connection, the others go on."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moebius import Client, Disconnected, Limits, Overloaded, Request, Router, Server, sleep

from .conftest import QUICK, Serve, address_of, eventually
from .raw import CALL, CANCEL, CREDIT, FAILURE, HELLO, PING, REPLY, WELCOME, RawClient


def make_router() -> Router:
    router = Router()
    router.command("echo")(lambda request: request.payload)
    router.command("bytes")(lambda request: bytes(int(request.payload)))

    @router.command("wait")
    def wait(request: Request) -> Iterator[Any]:
        yield sleep(60)

    return router


@pytest.fixture(params=["tcp", "ipc"])
def server(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> Iterator[Server]:
    server = serve(make_router(), address_of(request.param, tmp_path))
    with Client(server.addresses[0]) as good:
        assert good.call("echo", b"before") == b"before"
        yield server
        assert good.call("echo", b"after") == b"after"
        assert good.statistics().connects == 1


def frame(header: bytes, payload: bytes = b"", parts: int = 1) -> bytes:
    return struct.pack(">IHH", len(header) + len(payload), len(header), parts) + header + payload


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(b"\xc1\xff"), "protocol"),  # no MessagePack
        (frame(b"[1, "), "protocol"),  # no JSON
        (frame(b"[]"), "protocol"),  # no message
        (frame(b"[99]"), "protocol"),  # no such message
        (frame(b'[2, "seven", "echo"]'), "protocol"),  # a field of the wrong type
        (frame(b'[2, -7, "echo"]'), "protocol"),
        (frame(b"", b""), "protocol"),  # an empty header
        (frame(b"[17, 1, 1, 1, 1, 1]", b"", 0), "protocol"),  # a server's message
        (frame(b"[18, 1]", b""), "protocol"),
        (frame(b"[5]", b"extra"), "protocol"),  # a payload where there is none
        (frame(b"[1, 2]", b"", 0), "protocol"),  # a version from the future
        (struct.pack(">IHH", 2**32 - 1, 10, 1), "too_large"),
        (struct.pack(">IHH", 2**24, 2**16 - 1, 1), "too_large"),
        (struct.pack(">IHH", 100, 10, 65535), "too_large"),
        (struct.pack(">IHH", 4, 10, 1) + b"abcd", "protocol"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "too_large"),
    ],
)
def test_nonsense_is_answered_with_a_typed_error_and_the_end(
    server: Server, data: bytes, code: str
) -> None:
    with RawClient(server.addresses[0]) as bad:
        bad.send([CALL, 1, "echo"], b"fine so far")
        assert bad.receive() == ([REPLY, 1], [b"fine so far"])
        bad.sock.sendall(data + frame(b'[2, 2, "echo"]', b"not served any more"))
        header, _ = bad.receive()
        assert header[:3] == [FAILURE, 0, code]
        assert header[3]
        assert bad.closed()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.one_of(st.binary(min_size=1, max_size=200), st.binary(max_size=40).map(frame)),
        max_size=4,
    )
)
def test_any_bytes_at_all(server: Server, pieces: list[bytes]) -> None:
    with RawClient(server.addresses[0]) as bad:
        try:
            for piece in pieces:
                bad.sock.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has hung up already


def test_requests_that_make_no_sense_fail_alone(server: Server) -> None:
    with RawClient(server.addresses[0]) as bad:
        bad.send([CALL, 1, "no such command"])
        assert bad.receive()[0][:3] == [FAILURE, 1, "unknown_command"]
        bad.send([CALL, 2, "echo", 0, None, "sideways"], b"x")
        assert bad.receive()[0][:3] == [FAILURE, 2, "unknown_strategy"]
        bad.send([CANCEL, 99])
        bad.send([CREDIT, 99, 1000])
        bad.send([CREDIT, 99, -1000])
        bad.send([CALL, 3, "wait", 0, None, "parallel"], b"")
        bad.send([CALL, 3, "wait", 0, None, "parallel"], b"")
        assert bad.receive()[0][:3] == [FAILURE, 3, "bad_request"]
        bad.send([CALL, 4, "wait", -5, None, "parallel"], b"")
        assert bad.receive()[0][:3] == [FAILURE, 4, "deadline_exceeded"]
        bad.send([CALL, 5, "echo", 0, None, "parallel"], b"fine")
        assert bad.receive() == ([REPLY, 5], [b"fine"])


def test_too_many_requests_in_flight(serve: Serve) -> None:
    server = serve(make_router(), "tcp://127.0.0.1:0", limits=Limits(inflight_max=10))
    with RawClient(server.addresses[0]) as bad:
        for n in range(1, 31):
            bad.send([CALL, n, "wait"], b"")
        refused = [bad.receive()[0] for _ in range(20)]
        assert [header[:3] for header in refused] == [
            [FAILURE, n, "overloaded"] for n in range(11, 31)
        ]
        assert server.statistics().inflight == 10


def test_a_connection_flood_is_refused(serve: Serve) -> None:
    server = serve(make_router(), "tcp://127.0.0.1:0", limits=Limits(clients_max=20))
    url = server.addresses[0]
    with Client(url) as good:
        flood = [RawClient(url) for _ in range(60)]
        refused = 0
        for client in flood:
            client.sock.settimeout(0.3)
            with contextlib.suppress(TimeoutError):
                # It has said nothing, so it is answered in MessagePack.
                refused += b"overloaded" in client.sock.recv(1000)
        assert refused == 41
        assert good.call("echo", b"x") == b"x"
        with pytest.raises((Disconnected, Overloaded)):
            Client(url, connect_timeout=0.5)
        for client in flood:
            client.close()
        eventually(lambda: len(server.clients) == 1)
    with Client(url) as late:
        assert late.call("echo", b"x") == b"x"


def test_a_zmq_flood_is_refused(serve: Serve) -> None:
    server = serve(make_router(), "zmq+tcp://127.0.0.1:0", limits=Limits(clients_max=2))
    url = server.addresses[0]
    with Client(url), Client(url), pytest.raises(Disconnected, match="its limit"):
        Client(url, connect_timeout=0.5)


def test_silent_slow_and_idle_connections_are_closed(serve: Serve) -> None:
    server = serve(make_router(), "tcp://127.0.0.1:0", limits=QUICK)
    url = server.addresses[0]
    with RawClient(url) as silent, RawClient(url) as slow, RawClient(url) as idle:
        slow.sock.sendall(frame(b'[2, 1, "echo"]', b"hello")[:10])
        idle.send([CALL, 1, "echo"], b"x")
        assert idle.receive() == ([REPLY, 1], [b"x"])
        eventually(lambda: len(server.clients) == 0)
        assert silent.closed()
        assert slow.closed()
        assert idle.closed()
    assert server.statistics().counts.clients_expired == 3


def test_a_slow_sender_of_a_large_frame_is_closed(serve: Serve) -> None:
    """It keeps sending a little, so it is never idle, but the frame never ends."""
    server = serve(make_router(), "tcp://127.0.0.1:0", limits=QUICK)
    with RawClient(server.addresses[0]) as slow:
        slow.sock.sendall(struct.pack(">IHH", 10_000_000, 14, 1))
        deadline = time.monotonic() + 10
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() < deadline:
                slow.sock.sendall(b"x" * 100)
                time.sleep(0.05)
        assert time.monotonic() < deadline


def test_heartbeats_promised_and_not_kept(serve: Serve) -> None:
    server = serve(make_router(), "tcp://127.0.0.1:0", limits=QUICK)
    with RawClient(server.addresses[0]) as dead, RawClient(server.addresses[0]) as alive:
        dead.send([HELLO, 1, "", 200, "dead"])
        alive.send([HELLO, 1, "", 200, "alive"])
        assert dead.receive()[0][0] == alive.receive()[0][0] == WELCOME
        for _ in range(15):
            alive.send([PING])
            alive.receive()
            time.sleep(0.1)
        assert dead.closed()
        assert [peer.name for peer in server.clients] == ["alive"]


def test_a_reader_that_never_reads_is_closed(serve: Serve) -> None:
    """It asks for a lot and takes nothing: bounded memory, and an end."""
    server = serve(make_router(), "tcp://127.0.0.1:0", limits=QUICK)
    with RawClient(server.addresses[0]) as greedy, Client(server.addresses[0]) as good:
        request = greedy.frame([CALL, 1, "bytes"], b"1000000")
        greedy.sock.setblocking(False)
        sent = 0
        while sent < 500 * len(request):
            try:
                sent += greedy.sock.send(request * 500)
            except BlockingIOError:
                break
        time.sleep(0.3)
        assert server.statistics().buffered_bytes < 4_000_000
        assert good.call("echo", b"x") == b"x"
        eventually(lambda: len(server.clients) == 1)
        assert server.statistics().buffered_bytes == 0


def test_a_disconnect_without_a_word(server: Server) -> None:
    for _ in range(20):
        with RawClient(server.addresses[0]) as bad:
            bad.send([CALL, 1, "wait"], b"")
            # SO_LINGER 0: the connection is reset, not closed.
            bad.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: len(server.clients) == 1)
    assert server.statistics().inflight == 0


def test_garbage_on_a_zmq_port(serve: Serve) -> None:
    server = serve(make_router(), "zmq+tcp://127.0.0.1:0")
    port = int(server.addresses[0].rsplit(":", 1)[1])
    with Client(server.addresses[0]) as good:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(os.urandom(500))
        # An oversized message is dropped by ZeroMQ itself, with its connection.
        assert good.call("echo", b"x") == b"x"


def test_the_items_of_one_client_do_not_reach_another(server: Server) -> None:
    """The same request id on two connections means two requests."""
    with RawClient(server.addresses[0]) as one, RawClient(server.addresses[0]) as two:
        one.send([CALL, 1, "wait"], b"")
        two.send([CALL, 1, "echo"], b"two")
        assert two.receive() == ([REPLY, 1], [b"two"])
        two.send([CANCEL, 1])
        time.sleep(0.05)
        assert server.statistics().inflight == 1
        one.send([CANCEL, 1])
        assert one.receive()[0][:3] == [FAILURE, 1, "cancelled"]
