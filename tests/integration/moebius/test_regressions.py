"""Bugs that were found once: each has the test that would have caught it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import msgspec
import pytest
import zmq

from moebius import (
    Client,
    Credentials,
    DeadlineExceeded,
    Error,
    Limits,
    Request,
    Router,
    Server,
    State,
    Strategy,
    TooLarge,
    WorkerRequest,
    sleep,
)

from .conftest import QUICK, Connect, Serve, eventually
from .raw import CALL, CANCEL, FAILURE, HELLO, REPLY, RawClient


def make_router() -> Router:
    router = Router()
    router.command("echo")(lambda request: request.payload)

    @router.command("wait")
    def wait(request: Request) -> Iterator[Any]:
        yield sleep(float(request.payload or b"60"))

    return router


def test_a_broadcast_reaches_nobody_who_is_not_authenticated(serve: Serve) -> None:
    router = make_router()
    came: list[int] = []
    router.on_connect(lambda client: came.append(client.id))

    def by_token(credentials: Credentials) -> str | None:
        return "anna" if credentials.token == "secret" else None

    server = serve(router, "tcp://127.0.0.1:0", authenticate=by_token)
    got: list[bytes] = []
    with (
        RawClient(server.addresses[0]) as stranger,
        Client(server.addresses[0], token="secret", on_push=got.append),
    ):
        eventually(lambda: len(server.clients) == 2)
        assert len(came) == 1
        server.call_soon(server.clients.broadcast, b"confidential")
        eventually(lambda: got == [b"confidential"])
        stranger.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            stranger.sock.recv(1)


def test_little_is_held_before_authentication(serve: Serve) -> None:
    async def slowly(credentials: Credentials) -> str:
        await asyncio.sleep(60)
        return "anna"

    limits = Limits(authenticate_timeout_s=1.0)
    server = serve(make_router(), "tcp://127.0.0.1:0", authenticate=slowly, limits=limits)
    with RawClient(server.addresses[0]) as pushy:
        for n in range(1, 4):
            pushy.send([CALL, n, "echo"], bytes(500_000))
        assert pushy.receive()[0][:3] == [FAILURE, 0, "overloaded"]
        assert pushy.closed()
    with RawClient(server.addresses[0]) as patient:
        patient.send([HELLO])
        assert patient.receive()[0][:3] == [FAILURE, 0, "unauthorized"]


def test_cancelled_requests_do_not_stay_in_the_queue(serve: Serve) -> None:
    server = serve(make_router(), "tcp://127.0.0.1:0")
    with RawClient(server.addresses[0]) as raw:
        raw.send([CALL, 1, "wait"], b"")
        for n in range(2, 3000):
            raw.send([CALL, n, "echo"], b"x")
            raw.send([CANCEL, n])
            assert raw.receive()[0][:3] == [FAILURE, n, "cancelled"]
        peer = next(iter(server.clients))
        assert len(peer.lane._waiting) == 0
        assert peer.inflight == 1


def burn(request: WorkerRequest) -> bytes:
    time.sleep(30)
    return b""


def test_a_server_can_stop_while_a_worker_is_being_replaced() -> None:
    router = Router()
    router.command("burn", workers=1)(burn)
    for _ in range(3):
        with (
            Server(router, "tcp://127.0.0.1:0").in_thread() as server,
            Client(server.addresses[0]) as client,
            pytest.raises(DeadlineExceeded),
        ):
            client.call("burn", timeout=0.2)


def test_a_one_way_send_has_a_deadline_too(connect: Connect, address: str) -> None:
    with Server(make_router(), address).in_thread() as server:
        client = connect(server)
    eventually(lambda: client.state is State.RECONNECTING)
    with pytest.raises(DeadlineExceeded):
        client.send("echo", b"x", timeout=0.1)


def test_closing_a_stream_wakes_its_reader(serve: Serve, connect: Connect, address: str) -> None:
    client = connect(serve(make_router(), address))
    stream = client.stream("wait", b"60")
    ended = threading.Event()

    def read() -> None:
        for _ in stream:
            pass
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    time.sleep(0.1)
    stream.close()
    assert ended.wait(5)


def length(request: WorkerRequest) -> bytes:
    return b"%d" % len(request.payload)


@pytest.mark.parametrize("limits", [Limits(), Limits(frame_bytes_max=64 * 2**20)])
def test_workers_take_what_the_server_takes(serve: Serve, limits: Limits) -> None:
    router = Router()
    router.command("length", workers=1)(length)
    server = serve(router, "tcp://127.0.0.1:0", limits=limits)
    size = limits.frame_bytes_max - limits.header_bytes_max
    with Client(server.addresses[0], limits=limits, timeout=20) as client:
        assert client.call("length", bytes(size)) == b"%d" % size


def test_zmq_messages_are_bounded_as_a_whole(serve: Serve) -> None:
    server = serve(make_router(), "zmq+tcp://127.0.0.1:0", limits=Limits(frame_bytes_max=100_000))
    encode: Callable[[Any], bytes] = msgspec.msgpack.encode
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger, dealer.rcvtimeo = 0, 10_000
        dealer.connect(server.addresses[0].removeprefix("zmq+"))
        dealer.send_multipart([encode([CALL, 1, "echo"]), *[bytes(40_000)] * 3])
        assert msgspec.msgpack.decode(dealer.recv())[:3] == [FAILURE, 0, "too_large"]
        dealer.send_multipart([encode([CALL, 1, "e" * 10_000]), b""])
        assert msgspec.msgpack.decode(dealer.recv())[:3] == [FAILURE, 0, "too_large"]
        dealer.send_multipart([encode([CALL, 1, "echo"]), b"fine"])
        assert dealer.recv_multipart()[1] == b"fine"
    assert server.statistics().counts.rejected == 2


def test_a_req_socket_may_probe_first(serve: Serve) -> None:
    server = serve(make_router(), "zmq+tcp://127.0.0.1:0")
    with zmq.Context() as context, context.socket(zmq.REQ) as sock:
        sock.linger, sock.rcvtimeo, sock.probe_router = 0, 5000, 1
        sock.connect(server.addresses[0].removeprefix("zmq+"))
        eventually(lambda: len(server.clients) == 1)
        sock.send_multipart([msgspec.msgpack.encode([CALL, 1, "echo"]), b"x"])
        assert sock.recv_multipart()[1] == b"x"


@pytest.mark.parametrize("size", [300, 9000, 70_000])
def test_a_long_command_name_fails_alone(
    serve: Serve, connect: Connect, address: str, size: int
) -> None:
    client = connect(serve(make_router(), address))
    with pytest.raises(TooLarge, match="name"):
        client.call("x" * size)
    assert client.call("echo", b"x") == b"x"
    assert client.statistics().connects == 1


def test_a_client_is_not_idle_while_it_waits_for_an_answer(serve: Serve) -> None:
    server = serve(make_router(), "tcp://127.0.0.1:0", limits=QUICK)
    with RawClient(server.addresses[0]) as raw:
        raw.send([CALL, 1, "wait"], b"1.2")
        raw.receive()
        time.sleep(0.3)
        raw.send([CALL, 2, "echo"], b"x")
        assert raw.receive() == ([REPLY, 2], [b"x"])


def test_a_start_hook_that_fails_leaves_nothing_open() -> None:
    router = make_router()

    def fail(server: Server) -> None:
        raise ValueError("in the start hook")

    router.on_start(fail)
    for _ in range(5):
        with (
            pytest.raises(ValueError, match="start hook"),
            Server(router, "inproc://start-hook").in_thread(),
        ):
            pytest.fail("the block must not run")


def test_a_reply_over_the_clients_own_limit_fails_alone(
    serve: Serve, connect: Connect, address: str
) -> None:
    router = make_router()
    router.command("bytes")(lambda request: bytes(int(request.payload)))
    client = connect(serve(router, address), limits=Limits(frame_bytes_max=100_000))
    with pytest.raises(TooLarge):
        client.call("bytes", b"150000")
    assert client.call("bytes", b"10") == bytes(10)
    assert client.statistics().connects == 1


def test_a_one_way_call_with_an_unknown_strategy_is_refused(serve: Serve) -> None:
    router = Router()
    router.command("log", one_way=True)(lambda request: None)
    server = serve(router, "tcp://127.0.0.1:0")
    with RawClient(server.addresses[0]) as raw:
        raw.send([CALL, 1, "log", 0, None, "sideways"], b"x")
        assert raw.receive()[0][:3] == [FAILURE, 1, "unknown_strategy"]


def test_ipv6(serve: Serve) -> None:
    for scheme in ("tcp", "zmq+tcp"):
        server = serve(make_router(), f"{scheme}://[::1]:0")
        with Client(server.addresses[0]) as client:
            assert client.call("echo", b"x") == b"x"


def test_an_error_passed_on_keeps_its_code(serve: Serve, connect: Connect, address: str) -> None:
    router = Router()

    @router.command("upstream", strategy=Strategy.PARALLEL)
    def upstream(request: Request) -> bytes:
        raise Error.from_wire("shop_closed", "come back tomorrow")

    client = connect(serve(router, address))
    with pytest.raises(Error, match="tomorrow") as caught:
        client.call("upstream")
    assert caught.value.code == "shop_closed"


def test_a_large_reply_taken_slowly_excuses_the_frame_behind_it(serve: Serve) -> None:
    """While the server does not read, because its answer is not taken, no frame can be late."""
    router = make_router()
    router.command("large")(lambda request: bytes(12_000_000))
    limits = Limits(sweep_s=0.05, frame_timeout_s=1.5)
    server = serve(router, "tcp://127.0.0.1:0", limits=limits)
    with RawClient(server.addresses[0]) as slow:
        following = slow.frame([CALL, 2, "echo"], b"y" * 100)
        slow.sock.sendall(slow.frame([CALL, 1, "large"], b"") + following[:20])
        received = 0
        while received < 12_000_000:
            # Slow at first, for longer than the timeout; then quickly to the end.
            piece = slow.sock.recv(100_000)
            assert piece, f"closed after {received} bytes"
            received += len(piece)
            time.sleep(0.03 if received < 6_000_000 else 0)
        slow.sock.sendall(following[20:])
        rest = piece
        while b"y" * 100 not in rest:
            piece = slow.sock.recv(100_000)
            assert piece, "closed before the second answer"
            rest = rest[-200:] + piece


def test_an_id_may_be_used_again_as_soon_as_it_was_answered(serve: Serve) -> None:
    router = Router()

    @router.command("twice")
    def twice(request: Request) -> Generator[Any, Any, bytes]:
        yield
        return request.payload

    server = serve(router, "tcp://127.0.0.1:0")
    with RawClient(server.addresses[0]) as raw:
        for n in range(500):
            raw.send([CALL, 1, "twice"], b"%d" % n)
            assert raw.receive() == ([REPLY, 1], [b"%d" % n])
        assert server.statistics().inflight == 0
