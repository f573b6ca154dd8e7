"""Handlers in worker processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import psutil
import pytest

from moebius import (
    BadRequest,
    Cancelled,
    Client,
    DeadlineExceeded,
    Error,
    HandlerFailed,
    Pool,
    Router,
    Server,
    WorkerDied,
    WorkerRequest,
    sleep,
)

from .conftest import Connect, Serve, eventually


class Unprofitable(Error):
    code = "test_unprofitable"


def pid_of(request: WorkerRequest) -> bytes:
    return b"%d" % os.getpid()


def double(request: WorkerRequest) -> bytes:
    return request.payload * 2


async def double_later(request: WorkerRequest) -> bytes:
    return request.payload * 2


def count(request: WorkerRequest) -> Generator[Any, Any, bytes]:
    for n in range(int(request.payload)):
        yield b"%d" % n
        yield sleep(0)
    return b"end"


async def count_async(request: WorkerRequest) -> AsyncIterator[bytes]:
    for n in range(int(request.payload)):
        yield b"%d" % n


def large(request: WorkerRequest) -> Iterator[bytes]:
    for _ in range(100):
        yield bytes(500_000)


def burn(request: WorkerRequest) -> bytes:
    deadline = time.monotonic() + float(request.payload)
    while time.monotonic() < deadline:
        pass
    return b"burnt"


def die(request: WorkerRequest) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def fail(request: WorkerRequest) -> bytes:
    raise ValueError("in the worker")


def refuse(request: WorkerRequest) -> bytes:
    raise Unprofitable("not worth it")


def wrong(request: WorkerRequest) -> str:
    return "not bytes"


def make_router(workers: int = 2) -> Router:
    router = Router()
    pool = Pool(workers)
    for function in (
        pid_of, double, double_later, count, count_async, large, burn, die, fail, refuse, wrong,
    ):  # fmt: skip
        router.command(function.__name__, workers=pool)(function)
    router.command("local")(lambda request: b"%d" % os.getpid())
    return router


def test_all_kinds_of_handlers(serve: Serve, connect: Connect, address: str) -> None:
    client = connect(serve(make_router(), address))
    assert client.call("double", b"ab") == b"abab"
    assert client.call("double_later", b"ab") == b"abab"
    assert list(client.stream("count", b"3")) == [b"0", b"1", b"2", b"end"]
    assert list(client.stream("count_async", b"3")) == [b"0", b"1", b"2"]
    assert client.call("pid_of") != client.call("local")
    assert len(client.call("double", bytes(3_000_000))) == 6_000_000


def test_errors_cross_the_process_border(serve: Serve, connect: Connect) -> None:
    router = make_router(1)
    reported: list[str] = []
    router.on_error(lambda request, error: reported.append(str(error)))
    client = connect(serve(router, "tcp://127.0.0.1:0"))
    with pytest.raises(HandlerFailed, match="ValueError: in the worker"):
        client.call("fail")
    with pytest.raises(Unprofitable, match="not worth it"):
        client.call("refuse")
    with pytest.raises(HandlerFailed, match="bytes-like"):
        client.call("wrong")
    assert len(reported) == 2
    assert client.call("double", b"x") == b"xx"


def test_a_worker_that_dies_fails_its_caller_and_is_replaced(
    serve: Serve, connect: Connect
) -> None:
    server = serve(make_router(1), "tcp://127.0.0.1:0")
    client = connect(server)
    first = client.call("pid_of")
    started = time.monotonic()
    with pytest.raises(WorkerDied, match="'die'"):
        client.call("die")
    second = client.call("pid_of")
    assert first != second
    assert time.monotonic() - started < 4, "a worker that was ready is replaced without delay"
    assert server.statistics().worker_restarts == 1


def test_an_idle_worker_that_dies_is_replaced(serve: Serve, connect: Connect) -> None:
    server = serve(make_router(1), "tcp://127.0.0.1:0")
    client = connect(server)
    pid = client.call("pid_of")
    os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: server.statistics().worker_restarts == 1)
    assert client.call("pid_of") != pid


def test_workers_work_beside_each_other_and_the_loop_stays_free(
    serve: Serve, connect: Connect
) -> None:
    server = serve(make_router(2), "tcp://127.0.0.1:0")
    clients = [connect(server) for _ in range(3)]
    futures = [client.submit("burn", b"1") for client in clients]
    eventually(lambda: server.statistics().inflight == 3)
    started = time.monotonic()
    assert int(connect(server).call("local")) == os.getpid()
    assert time.monotonic() - started < 0.9
    assert [b"".join(future.result(20)) for future in futures] == [b"burnt"] * 3


def test_cancelling_ends_the_worker(serve: Serve, connect: Connect) -> None:
    server = serve(make_router(1), "tcp://127.0.0.1:0")
    client = connect(server)
    client.call("pid_of")
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        client.call("burn", b"60", timeout=0.3)
    stream = client.stream("large")
    next(stream)
    stream.close()
    assert client.call("double", b"x") == b"xx"
    assert time.monotonic() - started < 20
    assert server.statistics().worker_restarts == 2


def test_a_slow_reader_holds_the_worker_back(serve: Serve, connect: Connect) -> None:
    server = serve(make_router(1), "tcp://127.0.0.1:0")
    client = connect(server)
    stream = client.stream("large", window_bytes=1_000_000)
    next(stream)
    time.sleep(0.5)
    assert server.statistics().counts.items < 10
    assert sum(len(item) for item in stream) == 99 * 500_000


def test_waiting_for_a_worker_can_be_cancelled(serve: Serve, connect: Connect) -> None:
    server = serve(make_router(1), "tcp://127.0.0.1:0")
    busy, waiting = connect(server), connect(server)
    future = busy.submit("burn", b"0.6")
    eventually(lambda: server.statistics().inflight == 1)
    with pytest.raises((DeadlineExceeded, Cancelled)):
        waiting.call("double", b"x", timeout=0.1)
    assert b"".join(future.result(10)) == b"burnt"
    assert waiting.call("double", b"x") == b"xx"
    assert server.statistics().worker_restarts == 0


def test_a_function_that_cannot_travel_is_a_clear_error(serve: Serve, connect: Connect) -> None:
    router = Router()
    router.command("closure", workers=1)(lambda request: b"")
    server = serve(router, "tcp://127.0.0.1:0")
    client = connect(server)
    for _ in range(2):
        with pytest.raises(HandlerFailed, match=r"(?i)pickle"):
            client.call("closure")
    assert server.statistics().worker_restarts == 0


def test_no_process_is_left_behind(serve: Serve) -> None:
    with Server(make_router(2), "tcp://127.0.0.1:0").in_thread() as server:
        with Client(server.addresses[0]) as client:
            pid = int(client.call("pid_of"))
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


def test_a_pool_has_at_least_one_worker() -> None:
    with pytest.raises(BadRequest, match="at least one"):
        Pool(0)
