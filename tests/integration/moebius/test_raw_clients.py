"""Clients that are not ours: a bare socket, and plain ZeroMQ sockets."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from moebius import Limits, Request, Router, Server, sleep

from .conftest import QUICK, Serve, address_of, eventually
from .raw import (
    CALL,
    CANCEL,
    CREDIT,
    END,
    FAILURE,
    HELLO,
    ITEM,
    PING,
    PONG,
    PUSH,
    REPLY,
    WELCOME,
    RawClient,
)

pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


def make_router() -> Router:
    router = Router()
    router.command("echo")(lambda request: request.payload)
    router.command("parts")(lambda request: tuple(request.parts))
    router.command("silent", one_way=True)(lambda request: None)

    @router.command("count")
    def count(request: Request) -> Iterator[Any]:
        for n in range(int(request.payload)):
            yield b"%d" % n

    @router.command("fountain")
    def fountain(request: Request) -> Iterator[Any]:
        while True:
            yield bytes(int(request.payload))

    return router


@pytest.fixture(params=["tcp", "ipc"])
def raw(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> Iterator[RawClient]:
    server = serve(make_router(), address_of(request.param, tmp_path), limits=Limits())
    with RawClient(server.addresses[0]) as client:
        yield client


def test_a_bare_socket_can_call_stream_and_send(raw: RawClient) -> None:
    raw.send([CALL, 7, "echo"], b"hello")
    assert raw.receive() == ([REPLY, 7], [b"hello"])
    raw.send([CALL, 8, "parts"], b"a", b"", b"ccc")
    assert raw.receive() == ([REPLY, 8], [b"a", b"", b"ccc"])
    raw.send([CALL, 9, "count"], b"3")
    assert [raw.receive() for _ in range(4)] == [
        ([ITEM, 9], [b"0"]), ([ITEM, 9], [b"1"]), ([ITEM, 9], [b"2"]), ([END, 9], []),
    ]  # fmt: skip
    raw.send([CALL, 0, "silent"], b"x")
    raw.send([CALL, 10, "silent"], b"x")
    assert raw.receive() == ([END, 10], [])
    raw.send([PING, 5])
    assert raw.receive() == ([PONG, 5], [])


def test_a_bare_socket_can_introduce_itself(raw: RawClient) -> None:
    raw.send([HELLO, 1, "", 5000, "raw"])
    header, parts = raw.receive()
    assert header[:2] == [WELCOME, 1]
    assert parts == []


def test_many_frames_in_one_write_are_answered_in_order(raw: RawClient) -> None:
    frames = b"".join(raw.frame([CALL, n, "echo"], b"%d" % n) for n in range(1, 501))
    raw.sock.sendall(frames)
    assert [raw.receive() for _ in range(500)] == [([REPLY, n], [b"%d" % n]) for n in range(1, 501)]


def test_one_byte_at_a_time(raw: RawClient) -> None:
    for byte in raw.frame([CALL, 3, "echo"], b"slowly"):
        raw.sock.sendall(bytes([byte]))
        time.sleep(0.001)
    assert raw.receive() == ([REPLY, 3], [b"slowly"])


def test_credit_by_hand(raw: RawClient) -> None:
    raw.send([CALL, 4, "fountain", 0, 1064], b"1000")
    assert raw.receive() == ([ITEM, 4], [bytes(1000)])
    raw.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        raw.receive()
    raw.sock.settimeout(10)
    raw.send([CREDIT, 4, 2 * 1064])
    assert [raw.receive()[0] for _ in range(2)] == [[ITEM, 4]] * 2
    raw.send([CANCEL, 4])
    header, _ = raw.receive()
    assert header[:3] == [FAILURE, 4, "cancelled"]


def test_without_credit_the_socket_itself_holds_the_stream_back(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve(make_router(), "tcp://127.0.0.1:0")
    with RawClient(server.addresses[0]) as client, RawClient(server.addresses[0]) as other:
        client.send([CALL, 1, "fountain"], b"60000")
        time.sleep(0.5)
        assert server.statistics().buffered_bytes < 3_000_000
        before = server.statistics().counts.items
        time.sleep(0.2)
        assert server.statistics().counts.items == before
        other.send([CALL, 1, "echo"], b"x")
        assert other.receive() == ([REPLY, 1], [b"x"])
        for _ in range(200):
            assert client.receive() == ([ITEM, 1], [bytes(60_000)])


# ZeroMQ.


@pytest.fixture(params=["zmq+tcp", "zmq+ipc"])
def zmq_server(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> Server:
    return serve(make_router(), address_of(request.param, tmp_path))


Plug = Callable[..., Any]


@pytest.fixture
def plug() -> Iterator[Plug]:
    """Plain ZeroMQ sockets, closed after the test."""
    with contextlib.ExitStack() as stack:
        context: Any = stack.enter_context(zmq.Context())

        def make(kind: int, server: Server, **options: int) -> Any:
            sock = stack.enter_context(context.socket(kind))
            sock.linger = 0
            sock.rcvtimeo = 10_000
            for name, value in options.items():
                setattr(sock, name, value)
            sock.connect(server.addresses[0].removeprefix("zmq+"))
            return sock

        yield make


def test_a_plain_dealer_speaks_messagepack_and_json(zmq_server: Server, plug: Plug) -> None:
    dealer = plug(zmq.DEALER, zmq_server)
    dealer.send_multipart([pack([CALL, 1, "echo"]), b"hello"])
    header, payload = dealer.recv_multipart()
    assert (unpack(header), payload) == ([REPLY, 1], b"hello")
    other = plug(zmq.DEALER, zmq_server)
    other.send_multipart([json.dumps([CALL, 2, "count"]).encode(), b"2"])
    answers = [other.recv_multipart() for _ in range(3)]
    assert [json.loads(answer[0]) for answer in answers] == [[ITEM, 2], [ITEM, 2], [END, 2]]
    dealer.send_multipart([pack([CALL, 3, "parts"]), b"a", b"", b"c"])
    assert dealer.recv_multipart()[1:] == [b"a", b"", b"c"]


def test_a_probe_is_understood(zmq_server: Server, plug: Plug) -> None:
    dealer = plug(zmq.DEALER, zmq_server, probe_router=1)
    eventually(lambda: len(zmq_server.clients) == 1)
    dealer.send_multipart([pack([CALL, 1, "echo"]), b"x"])
    assert dealer.recv_multipart()[1] == b"x"
    assert len(zmq_server.clients) == 1
    zmq_server.call_soon(zmq_server.clients.broadcast, b"ping")
    header, payload = dealer.recv_multipart()
    assert (unpack(header), payload) == ([PUSH], b"ping")


def test_a_req_socket_works_too(zmq_server: Server, plug: Plug) -> None:
    sock = plug(zmq.REQ, zmq_server)
    for n in range(3):
        sock.send_multipart([pack([CALL, n + 1, "echo"]), b"%d" % n])
        assert sock.recv_multipart()[1] == b"%d" % n


def test_a_stream_without_credit_is_bounded(zmq_server: Server, plug: Plug) -> None:
    dealer = plug(zmq.DEALER, zmq_server)
    dealer.send_multipart([pack([CALL, 1, "fountain"]), b"65536"])
    received = 0
    while True:
        header, *payload = dealer.recv_multipart()
        if unpack(header)[0] == FAILURE:
            break
        received += len(payload[0])
    assert unpack(header)[2] == "overloaded"
    assert 15 * 2**20 < received < 17 * 2**20


def test_bad_zmq_messages_get_typed_errors(zmq_server: Server, plug: Plug) -> None:
    dealer = plug(zmq.DEALER, zmq_server)
    for frames in (
        [b"\xc1garbage"],
        [b"[not json"],
        [pack([99])],
        [pack([CALL, 1, "echo"])] + [b""] * 80,
    ):
        dealer.send_multipart(frames)
        header = unpack_any(dealer.recv_multipart()[0])
        assert header[:2] == [FAILURE, 0]
        assert header[2] in ("protocol", "too_large")
    dealer.send_multipart([pack([CALL, 1, "echo"]), b"still here"])
    assert dealer.recv_multipart()[1] == b"still here"


def unpack_any(data: bytes) -> Any:
    return json.loads(data) if data[:1] == b"[" else unpack(data)


def test_silent_zmq_clients_are_forgotten(serve: Serve, plug: Plug) -> None:
    server = serve(make_router(), "zmq+tcp://127.0.0.1:0", limits=QUICK)
    dealers = [plug(zmq.DEALER, server) for _ in range(5)]
    for dealer in dealers:
        dealer.send_multipart([pack([CALL, 1, "echo"]), b"x"])
        dealer.recv_multipart()
    assert len(server.clients) == 5
    eventually(lambda: len(server.clients) == 0)
    # Each is told, and is welcome again.
    assert unpack(dealers[0].recv_multipart()[0])[:3] == [FAILURE, 0, "disconnected"]
    dealers[0].send_multipart([pack([CALL, 2, "echo"]), b"again"])
    assert dealers[0].recv_multipart()[1] == b"again"


def test_a_dealer_that_vanishes_in_mid_stream(serve: Serve, plug: Plug) -> None:
    router = make_router()
    stopped = threading.Event()

    @router.command("watched")
    def watched(request: Request) -> Iterator[Any]:
        try:
            while True:
                yield b"x" * 100
                yield sleep(0.001)
        finally:
            stopped.set()

    server = serve(router, "zmq+tcp://127.0.0.1:0")
    dealer = plug(zmq.DEALER, server)
    dealer.send_multipart([pack([CALL, 1, "watched"]), b""])
    dealer.recv_multipart()
    dealer.close(linger=0)
    assert stopped.wait(10)
    eventually(lambda: len(server.clients) == 0)
