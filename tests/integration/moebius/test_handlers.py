"""Handlers of every kind, one to one, one to many, one to none."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from moebius import Error, HandlerFailed, Request, Router, UnknownCommand, sleep

from .conftest import Connect, Serve, eventually


class OutOfStock(Error):
    code = "test_out_of_stock"


def make_router() -> Router:
    router = Router()

    @router.command("plain")
    def plain(request: Request) -> bytes:
        return b"hello " + request.payload

    @router.command("coroutine")
    async def coroutine(request: Request) -> bytes:
        await asyncio.sleep(0.001)
        return b"hello " + request.payload

    @router.command("generator-returning")
    def generator_returning(request: Request) -> Generator[Any, Any, bytes]:
        yield sleep(0.001)
        return b"hello " + request.payload

    @router.command("generator")
    def generator(request: Request) -> Iterator[Any]:
        for n in range(int(request.payload)):
            yield b"%d" % n
            yield sleep(0)

    @router.command("async-generator")
    async def async_generator(request: Request) -> AsyncIterator[bytes]:
        for n in range(int(request.payload)):
            yield b"%d" % n

    @router.command("nothing")
    def nothing(request: Request) -> None:
        return None

    @router.command("parts")
    def parts(request: Request) -> tuple[Any, ...]:
        return (b"%d" % len(request.parts), *request.parts, bytearray(b"x"), memoryview(b"y"))

    @router.command("nested")
    def nested(request: Request) -> Generator[Any, Any, None]:
        def inner(depth: int) -> Generator[Any, Any, int]:
            yield b"down %d" % depth
            if depth:
                result = yield inner(depth - 1)
                yield b"got %d" % result
            return depth

        total = yield inner(2)
        yield b"in all %d" % total

    @router.command("awaiting")
    def awaiting(request: Request) -> Iterator[Any]:
        async def later() -> bytes:
            await asyncio.sleep(0.001)
            return b"later"

        async def never() -> bytes:
            raise OutOfStock("none left")

        yield (yield later())
        try:
            yield never()
        except OutOfStock:
            yield b"caught"

    @router.command("text")
    def text(request: Request) -> str:
        return "not bytes"

    @router.command("stream-text")
    def stream_text(request: Request) -> Iterator[Any]:
        yield b"fine"
        yield "not bytes"

    @router.command("boom")
    def boom(request: Request) -> bytes:
        raise ValueError("it broke")

    @router.command("typed")
    async def typed(request: Request) -> bytes:
        raise OutOfStock("none left")

    @router.command("boom-later")
    def boom_later(request: Request) -> Iterator[Any]:
        yield b"one"
        yield b"two"
        raise ValueError("it broke")

    return router


def test_one_response(serve: Serve, connect: Connect, address: str) -> None:
    client = connect(serve(make_router(), address))
    for command in ("plain", "coroutine", "generator-returning"):
        assert client.call(command, b"you") == b"hello you"
    assert client.call("nothing") == b""


def test_many_responses(serve: Serve, connect: Connect, address: str) -> None:
    client = connect(serve(make_router(), address))
    expected = [b"%d" % n for n in range(1000)]
    assert list(client.stream("generator", b"1000")) == expected
    assert list(client.stream("async-generator", b"1000")) == expected
    assert list(client.stream("generator", b"0")) == []
    assert list(client.stream("plain", b"x")) == [b"hello x"]
    assert client.call("generator", b"5") == b"4"


def test_parts_stay_apart(serve: Serve, connect: Connect, address: str) -> None:
    client = connect(serve(make_router(), address))
    large = b"z" * 300_000
    answer = client.call_parts("parts", [b"a", b"", large])
    assert [bytes(part) for part in answer] == [b"3", b"a", b"", large, b"x", b"y"]
    assert client.call("parts", []) == b"0xy"


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 1_000_000, 16 * 1024 * 1024])
def test_payloads_of_all_sizes(serve: Serve, connect: Connect, address: str, size: int) -> None:
    router = Router()
    router.command("echo")(lambda request: request.payload)
    client = connect(serve(router, address))
    payload = bytes(size)
    assert client.call("echo", payload) == payload


def test_generators_in_generators(serve: Serve, connect: Connect, address: str) -> None:
    client = connect(serve(make_router(), address))
    assert list(client.stream("nested")) == [
        b"down 2", b"down 1", b"down 0", b"got 0", b"got 1", b"in all 2",
    ]  # fmt: skip
    assert list(client.stream("awaiting")) == [b"later", b"caught"]


def test_no_response(serve: Serve, connect: Connect, address: str) -> None:
    router = Router()
    seen: list[bytes] = []

    @router.command("log", one_way=True)
    async def log(request: Request) -> bytes:
        seen.append(request.payload)
        return b"nobody gets this"

    router.command("echo")(lambda request: request.payload)
    client = connect(serve(router, address))
    for n in range(10):
        client.send("log", b"%d" % n)
    client.send("echo", b"the response to this goes nowhere")
    client.send("no such command")
    assert client.call("echo", b"x") == b"x"
    eventually(lambda: len(seen) == 10)
    assert seen == [b"%d" % n for n in range(10)]
    assert client.call("log", b"taken") == b""


def test_errors_are_typed(serve: Serve, connect: Connect, address: str) -> None:
    router = make_router()
    reported: list[tuple[str, str]] = []
    router.on_error(lambda request, error: reported.append((request.command, str(error))))  # type: ignore[union-attr]
    client = connect(serve(router, address))
    with pytest.raises(HandlerFailed, match="'boom' failed with ValueError: it broke"):
        client.call("boom")
    with pytest.raises(OutOfStock, match="none left"):
        client.call("typed")
    with pytest.raises(UnknownCommand, match="'missing'"):
        client.call("missing")
    with pytest.raises(HandlerFailed, match="bytes-like"):
        client.call("text")
    assert [name for name, _ in reported] == ["boom", "text"]
    assert client.call("plain", b"still here") == b"hello still here"


def test_what_nobody_has_registered(serve: Serve, connect: Connect, address: str) -> None:
    router = make_router()

    @router.otherwise
    def anything(request: Request) -> bytes:
        return request.command.encode() + b" " + request.payload

    client = connect(serve(router, address))
    assert client.call("missing", b"x") == b"missing x"
    assert client.call("plain", b"x") == b"hello x"


def test_an_error_in_mid_stream_comes_after_the_items(
    serve: Serve, connect: Connect, address: str
) -> None:
    client = connect(serve(make_router(), address))
    for command, items in (("boom-later", [b"one", b"two"]), ("stream-text", [b"fine"])):
        stream = client.stream(command)
        assert [next(stream) for _ in items] == items
        with pytest.raises(HandlerFailed):
            next(stream)
        with pytest.raises(StopIteration):
            next(stream)


def test_a_sleeping_handler_holds_up_nobody_else(
    serve: Serve, connect: Connect, address: str
) -> None:
    router = make_router()
    release = threading.Event()

    @router.command("wait")
    def wait(request: Request) -> Generator[Any, Any, bytes]:
        while not release.is_set():
            yield sleep(0.001)
        return b"released"

    server = serve(router, address)
    waiting, other = connect(server), connect(server)
    future = waiting.submit("wait")
    for _ in range(20):
        assert other.call("plain", b"you") == b"hello you"
    assert not future.done()
    release.set()
    assert b"".join(future.result(10)) == b"released"


def test_yields_of_two_clients_interleave(serve: Serve, connect: Connect, address: str) -> None:
    router = Router()
    order: list[int] = []
    begun: set[int] = set()

    @router.command("steps")
    def steps(request: Request) -> Iterator[Any]:
        begun.add(request.client.id)
        while len(begun) < 2:
            yield
        for _ in range(50):
            order.append(request.client.id)
            yield b"."

    server = serve(router, address)
    first, second = connect(server), connect(server)
    futures = [first.submit("steps"), second.submit("steps")]
    for future in futures:
        future.result(10)
    switches = sum(a != b for a, b in itertools.pairwise(order))
    assert len(order) == 100
    assert switches > 20


def test_calls_are_pipelined(serve: Serve, connect: Connect, address: str) -> None:
    router = make_router()
    client = connect(serve(router, address))
    futures = [client.submit("plain", b"%d" % n) for n in range(3000)]
    assert [b"".join(future.result(30)) for future in futures] == [
        b"hello %d" % n for n in range(3000)
    ]


def test_a_blocking_handler_only_delays(serve: Serve, connect: Connect, address: str) -> None:
    router = make_router()

    @router.command("block")
    def block(request: Request) -> bytes:
        time.sleep(0.2)
        return b"done"

    server = serve(router, address)
    first, second = connect(server), connect(server)
    future = first.submit("block")
    assert second.call("plain", b"you") == b"hello you"
    assert b"".join(future.result(10)) == b"done"
