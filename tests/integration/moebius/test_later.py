"""Plain functions that answer later: many requests taken in order, answered together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from moebius import (
    LATER,
    Client,
    Closed,
    Error,
    Limits,
    Overloaded,
    Request,
    Router,
    Server,
    TooLarge,
)

from .conftest import Serve, eventually

ADDRESS = "tcp://127.0.0.1:0"


Connect = Callable[[Server], Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with contextlib.ExitStack() as stack:
        yield lambda server: stack.enter_context(Client(server.addresses[0]))


class Refused(Error):
    code = "test_refused"


class Desk:
    """Keeps requests until somebody says `go`."""

    def __init__(self) -> None:
        self.router = Router()
        self.kept: list[Request] = []
        self.router.command("keep")(self.keep)
        self.router.command("go")(self.go)
        self.router.command("at-once")(self.at_once)
        self.router.on_stop(lambda server: self.release())

    def keep(self, request: Request) -> object:
        self.kept.append(request)
        return LATER

    def go(self, request: Request) -> bytes:
        self.release()
        return b"gone"

    def at_once(self, request: Request) -> object:
        request.answer(b"before it returned")
        with pytest.raises(Closed):
            request.answer(b"twice")
        return LATER

    def release(self) -> None:
        kept, self.kept = self.kept, []
        for request in kept:
            if request.payload == b"bad":
                request.fail(Refused("no"))
            else:
                request.answer(b"kept " + request.payload)


def test_answers_come_when_the_handler_gives_them(serve: Serve, connect: Connect) -> None:
    desk = Desk()
    client = connect(serve(desk.router, ADDRESS))
    futures = [client.submit("keep", b"%d" % n) for n in range(10)] + [
        client.submit("keep", b"bad")
    ]
    # QUEUE is the strategy: had one of them kept its turn, this would wait for ever.
    assert client.call("go") == b"gone"
    assert [b"".join(future.result(5)) for future in futures[:10]] == [
        b"kept %d" % n for n in range(10)
    ]
    with pytest.raises(Error, match="no"):
        futures[10].result(5)
    assert client.call("at-once") == b"before it returned"


def test_what_is_to_be_answered_later_counts_as_in_flight(serve: Serve, connect: Connect) -> None:
    desk = Desk()
    server = serve(desk.router, ADDRESS, limits=Limits(inflight_max=4, inflight_bytes_max=10_000))
    client = connect(server)
    kept = [client.submit("keep", b"%d" % n) for n in range(3)]
    eventually(lambda: len(desk.kept) == 3)
    with pytest.raises(TooLarge):
        client.call("keep", bytes(20_000))
    assert server.statistics().inflight == 3
    client.call("go")
    for future in kept:
        future.result(5)
    eventually(lambda: server.statistics().inflight == 0)


def test_a_client_over_the_limit_is_told_so(serve: Serve, connect: Connect) -> None:
    desk = Desk()
    server = serve(desk.router, ADDRESS, limits=Limits(inflight_max=4))
    client = connect(server)
    client._exchange._inflight_max = 100  # a client that does not keep to it
    kept = [client.submit("keep", b"%d" % n) for n in range(4)]
    with pytest.raises(Overloaded):
        client.call("keep", b"one too many")
    server.call_soon(desk.release)
    for future in kept:
        future.result(5)


def test_a_client_that_left_gets_no_answer_and_harms_nobody(serve: Serve, connect: Connect) -> None:
    desk = Desk()
    server = serve(desk.router, ADDRESS)
    leaving = connect(server)
    leaving.submit("keep", b"x")
    eventually(lambda: len(desk.kept) == 1)
    leaving.close()
    eventually(lambda: desk.kept[0].client.gone)
    assert connect(server).call("go") == b"gone"


def test_a_stopping_server_gives_the_answers_first(serve: Serve, connect: Connect) -> None:
    desk = Desk()
    server = serve(desk.router, ADDRESS)
    client = connect(server)
    future = client.submit("keep", b"x")
    eventually(lambda: len(desk.kept) == 1)
    server.request_stop()
    assert b"".join(future.result(5)) == b"kept x"


PIECES = [bytes([number]) * 9000 for number in range(200)]


def test_an_answer_in_pieces_arrives_as_two_parts(serve: Serve, address: str) -> None:
    router = Router()

    @router.command("pieces")
    def pieces(request: Request) -> object:
        request.answer_in_pieces(b"first", [memoryview(it) for it in PIECES])
        with pytest.raises(Closed):
            request.answer_in_pieces(b"again", PIECES)
        return LATER

    with Client(serve(router, address).addresses[0]) as client:
        for _ in range(3):  # more than is taken at once
            futures = [client.submit("pieces") for _ in range(4)]
            for future in futures:
                assert list(map(bytes, future.result(10))) == [b"first", b"".join(PIECES)]
        client.send("pieces")  # nobody waits for this one
        assert len(client.call_parts("pieces")) == 2


def test_an_answer_in_pieces_keeps_to_the_limit(serve: Serve, connect: Connect) -> None:
    router = Router()

    @router.command("pieces")
    def pieces(request: Request) -> object:
        request.answer_in_pieces(b"", [bytes(1000)] * int(request.payload))
        return LATER

    client = connect(serve(router, ADDRESS, limits=Limits(frame_bytes_max=100_000)))
    assert len(client.call("pieces", b"90")) == 90_000
    with pytest.raises(TooLarge, match="200000 bytes"):
        client.call("pieces", b"200")
    assert len(client.call("pieces", b"1")) == 1000
