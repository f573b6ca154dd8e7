"""What a request does while another one of the same client runs."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import pytest

from moebius import (
    BadRequest,
    Busy,
    Limits,
    Replaced,
    Request,
    Router,
    Strategy,
    TooLarge,
    sleep,
)

from .conftest import Connect, Serve, eventually


class Gate:
    """Handlers that run until they are let go."""

    def __init__(self) -> None:
        self.router = Router()
        self.open = threading.Event()
        self.begun: list[bytes] = []
        self.cancelled: list[bytes] = []
        for strategy in Strategy:
            self.router.command(strategy.value, strategy=strategy)(self.wait)
        self.router.command("plain")(lambda request: b"plain")

    def wait(self, request: Request) -> Generator[Any, Any, bytes]:
        self.begun.append(request.payload)
        try:
            while not self.open.is_set():
                yield sleep(0.001)
        except GeneratorExit:
            self.cancelled.append(request.payload)
            raise
        return request.payload


def outcome(future: Any) -> Any:
    error = future.exception(10)
    return type(error) if error else b"".join(future.result())


def test_queue_nothing_overtakes(serve: Serve, connect: Connect, address: str) -> None:
    gate = Gate()
    client = connect(serve(gate.router, address))
    futures = [client.submit("queue", b"%d" % n) for n in range(3)]
    futures.append(client.submit("plain"))
    eventually(lambda: gate.begun)
    with pytest.raises(TimeoutError):
        futures[3].result(0.1)
    assert gate.begun == [b"0"]
    gate.open.set()
    assert [outcome(future) for future in futures] == [b"0", b"1", b"2", b"plain"]
    assert gate.begun == [b"0", b"1", b"2"]


def test_replace_cancels_the_old_one_and_says_so(
    serve: Serve, connect: Connect, address: str
) -> None:
    gate = Gate()
    client = connect(serve(gate.router, address))
    first = client.submit("replace", b"0")
    eventually(lambda: gate.begun == [b"0"])
    second = client.submit("replace", b"1")
    assert outcome(first) is Replaced
    eventually(lambda: gate.begun == [b"0", b"1"])
    third = client.submit("replace", b"2")
    assert outcome(second) is Replaced
    gate.open.set()
    assert outcome(third) == b"2"
    assert gate.cancelled == [b"0", b"1"]


def test_replace_takes_the_place_of_those_that_wait_too(
    serve: Serve, connect: Connect, address: str
) -> None:
    gate = Gate()
    client = connect(serve(gate.router, address))
    futures = [client.submit("queue", b"%d" % n) for n in range(3)]
    eventually(lambda: gate.begun == [b"0"])
    last = client.submit("replace", b"last")
    assert [outcome(future) for future in futures] == [Replaced] * 3
    gate.open.set()
    assert outcome(last) == b"last"
    assert gate.begun == [b"0", b"last"]


def test_ignore_refuses_the_new_one(serve: Serve, connect: Connect, address: str) -> None:
    gate = Gate()
    client = connect(serve(gate.router, address))
    first = client.submit("ignore", b"0")
    eventually(lambda: gate.begun == [b"0"])
    assert [outcome(client.submit("ignore", b"x")) for _ in range(2)] == [Busy, Busy]
    gate.open.set()
    assert outcome(first) == b"0"
    assert outcome(client.submit("ignore", b"again")) == b"again"


def test_parallel_runs_beside(serve: Serve, connect: Connect, address: str) -> None:
    gate = Gate()
    client = connect(serve(gate.router, address))
    futures = [client.submit("parallel", b"%d" % n) for n in range(5)]
    eventually(lambda: len(gate.begun) == 5)
    assert client.call("plain") == b"plain"
    gate.open.set()
    assert [outcome(future) for future in futures] == [b"%d" % n for n in range(5)]


def test_clients_do_not_share_a_turn(serve: Serve, connect: Connect, address: str) -> None:
    gate = Gate()
    server = serve(gate.router, address)
    clients = [connect(server) for _ in range(3)]
    futures = [client.submit("ignore", b"%d" % n) for n, client in enumerate(clients)]
    eventually(lambda: len(gate.begun) == 3)
    gate.open.set()
    assert [outcome(future) for future in futures] == [b"0", b"1", b"2"]


def test_the_caller_may_choose(serve: Serve, connect: Connect, address: str) -> None:
    gate = Gate()
    client = connect(serve(gate.router, address))
    first = client.submit("queue", b"0")
    eventually(lambda: gate.begun)
    assert client.call("plain", strategy=Strategy.PARALLEL) == b"plain"
    with pytest.raises(Busy):
        client.call("plain", strategy=Strategy.IGNORE)
    assert client.call("plain", strategy=Strategy.REPLACE) == b"plain"
    assert outcome(first) is Replaced


def test_a_strategy_that_the_command_names_is_binding(
    serve: Serve, connect: Connect, address: str
) -> None:
    gate = Gate()
    client = connect(serve(gate.router, address))
    with pytest.raises(BadRequest, match="always has the strategy 'ignore'"):
        client.call("ignore", strategy=Strategy.PARALLEL)


def test_a_long_queue_of_quick_requests(serve: Serve, connect: Connect, address: str) -> None:
    gate = Gate()
    client = connect(serve(gate.router, address, limits=Limits(inflight_max=5000)))
    first = client.submit("queue", b"0")
    rest = [client.submit("plain") for _ in range(4000)]
    eventually(lambda: gate.begun)
    gate.open.set()
    assert outcome(first) == b"0"
    assert {outcome(future) for future in rest} == {b"plain"}


def test_requests_in_flight_are_bounded(serve: Serve, connect: Connect, address: str) -> None:
    gate = Gate()
    server = serve(gate.router, address, limits=Limits(inflight_max=4, inflight_bytes_max=100_000))
    client = connect(server)
    # Our client knows the limit and waits with the fifth; PARALLEL work of another is no concern.
    futures = [client.submit("parallel", b"%d" % n) for n in range(8)]
    eventually(lambda: len(gate.begun) == 4)
    eventually(lambda: client.statistics().waiting == 4)
    gate.open.set()
    assert [outcome(future) for future in futures] == [b"%d" % n for n in range(8)]
    gate.open.clear()
    first = client.submit("queue", b"x" * 60_000)
    eventually(lambda: len(gate.begun) == 9)
    with pytest.raises(TooLarge, match="in flight"):
        client.call("queue", b"x" * 60_000)
    gate.open.set()
    first.result(10)
    eventually(lambda: server.statistics().inflight_payload_bytes == 0)
