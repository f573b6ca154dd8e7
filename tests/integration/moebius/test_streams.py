"""Streams: flow control, leaving early, deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from moebius import (
    Cancelled,
    DeadlineExceeded,
    Limits,
    Request,
    Router,
    Strategy,
    TooLarge,
    aio,
    sleep,
)

from .conftest import Connect, Serve, eventually


class Fountain:
    """Endless streams, of both kinds, that count what they sent and whether they were stopped."""

    def __init__(self, item_bytes: int = 1000) -> None:
        self.router = Router()
        self.sent = 0
        self.stopped = 0
        self.item = bytes(item_bytes)
        self.router.command("generator", strategy=Strategy.PARALLEL)(self.generator)
        self.router.command("async-generator", strategy=Strategy.PARALLEL)(self.async_generator)
        self.router.command("echo")(lambda request: request.payload)

    def generator(self, request: Request) -> Iterator[Any]:
        try:
            while True:
                self.sent += 1
                yield self.item
        finally:
            self.stopped += 1

    async def async_generator(self, request: Request) -> AsyncIterator[bytes]:
        try:
            while True:
                self.sent += 1
                yield self.item
        finally:
            self.stopped += 1


KINDS = pytest.mark.parametrize("kind", ["generator", "async-generator"])


@KINDS
def test_a_reader_that_stops_reading_stops_the_handler(
    serve: Serve, connect: Connect, address: str, kind: str
) -> None:
    fountain = Fountain()
    server = serve(fountain.router, address)
    reader, other = connect(server), connect(server)
    window = 50_000
    stream = reader.stream(kind, window_bytes=window)
    next(stream)
    time.sleep(0.2)
    most = window // (1000 + 64) + 2
    assert fountain.sent <= most + 1
    assert server.statistics().buffered_bytes < 200_000
    assert other.call("echo", b"still served") == b"still served"
    for _ in range(500):
        next(stream)
    assert 500 < fountain.sent <= 500 + 2 * most
    stream.close()
    eventually(lambda: fountain.stopped == 1)


@KINDS
def test_leaving_the_iterator_stops_the_handler(
    serve: Serve, connect: Connect, address: str, kind: str
) -> None:
    fountain = Fountain()
    client = connect(serve(fountain.router, address))
    for n, _ in enumerate(client.stream(kind)):
        if n == 10:
            break
    gc.collect()
    eventually(lambda: fountain.stopped == 1)
    with client.stream(kind) as stream:
        next(stream)
    eventually(lambda: fountain.stopped == 2)
    assert client.call("echo", b"x") == b"x"


def test_an_empty_item_costs_credit_too(serve: Serve, connect: Connect, address: str) -> None:
    fountain = Fountain(item_bytes=0)
    client = connect(serve(fountain.router, address))
    stream = client.stream("generator", window_bytes=6400)
    next(stream)
    time.sleep(0.1)
    assert fountain.sent <= 102
    stream.close()


def test_an_item_larger_than_the_window_passes(
    serve: Serve, connect: Connect, address: str
) -> None:
    fountain = Fountain(item_bytes=200_000)
    client = connect(serve(fountain.router, address))
    with client.stream("generator", window_bytes=1000) as stream:
        assert [len(next(stream)) for _ in range(20)] == [200_000] * 20


def test_cancelling_a_future_stops_the_handler(
    serve: Serve, connect: Connect, address: str
) -> None:
    fountain = Fountain()
    client = connect(serve(fountain.router, address))
    future = client.submit("generator")
    eventually(lambda: fountain.sent)
    future.cancel()
    eventually(lambda: fountain.stopped == 1)


def test_cancelling_a_task_stops_the_handler(serve: Serve, address: str) -> None:
    fountain = Fountain()
    server = serve(fountain.router, address)

    async def main() -> None:
        async with aio.connect(server.addresses[0]) as client:
            task = asyncio.create_task(client.call("generator"))
            await asyncio.to_thread(eventually, lambda: fountain.sent)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert task.cancelled()
            await asyncio.to_thread(eventually, lambda: fountain.stopped)
            assert await client.call("echo", b"x") == b"x"

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_disconnect_in_mid_stream_stops_the_handler(
    serve: Serve, connect: Connect, address: str
) -> None:
    fountain = Fountain()
    server = serve(fountain.router, address)
    client = connect(server)
    next(client.stream("generator"))
    client.close()
    eventually(lambda: fountain.stopped == 1)
    eventually(lambda: len(server.clients) == 0)


def test_deadlines_travel(serve: Serve, connect: Connect, address: str) -> None:
    router = Router()
    stopped: list[str] = []
    left: list[float | None] = []

    @router.command("generator")
    def generator(request: Request) -> Iterator[Any]:
        left.append(request.remaining_s())
        try:
            yield sleep(60)
        finally:
            stopped.append("generator")

    @router.command("coroutine")
    async def coroutine(request: Request) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append("coroutine")

    client = connect(serve(router, address))
    for name in ("generator", "coroutine"):
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded, match=name):
            client.call(name, timeout=0.5)
        assert time.monotonic() - started < 5
        eventually(lambda name=name: stopped and stopped[-1] == name)
    assert left[0] is not None
    assert 0 < left[0] <= 0.5


def test_a_request_whose_time_ran_out_in_the_queue_is_never_begun(
    serve: Serve, connect: Connect, address: str
) -> None:
    router = Router()
    begun: list[bytes] = []

    @router.command("work")
    def work(request: Request) -> Generator[Any, Any, bytes]:
        begun.append(request.payload)
        yield sleep(0.3)
        return b"done"

    client = connect(serve(router, address))
    first = client.submit("work", b"first")
    with pytest.raises(DeadlineExceeded):
        client.call("work", b"second", timeout=0.05)
    assert b"".join(first.result(10)) == b"done"
    assert client.call("work", b"third") == b"done"
    assert begun == [b"first", b"third"]


def test_a_stream_may_have_a_deadline(serve: Serve, connect: Connect, address: str) -> None:
    fountain = Fountain()
    client = connect(serve(fountain.router, address))
    with pytest.raises(DeadlineExceeded):
        for _ in client.stream("generator", timeout=0.2):
            pass
    eventually(lambda: fountain.stopped == 1)


def test_a_handler_can_clean_up_when_it_is_cancelled(
    serve: Serve, connect: Connect, address: str
) -> None:
    router = Router()
    log: list[str] = []

    @router.command("slow-to-stop")
    async def slow_to_stop(request: Request) -> None:
        try:
            log.append("begun")
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.2)
            log.append("cleaned up")

    router.command("echo")(lambda request: request.payload)
    client = connect(serve(router, address))
    future = client.submit("slow-to-stop")
    eventually(lambda: log)
    future.cancel()
    # Its turn is over only when it has cleaned up: nothing overtakes.
    assert client.call("echo", b"x") == b"x"
    assert log == ["begun", "cleaned up"]


def test_a_handler_that_cancels_itself_fails_its_caller(
    serve: Serve, connect: Connect, address: str
) -> None:
    router = Router()

    @router.command("gives-up")
    async def gives_up(request: Request) -> None:
        raise asyncio.CancelledError

    client = connect(serve(router, address))
    with pytest.raises(Cancelled):
        client.call("gives-up")


def test_a_response_over_the_limit_fails_its_request_only(
    serve: Serve, connect: Connect, address: str
) -> None:
    router = Router()
    router.command("bytes")(lambda request: bytes(int(request.payload)))

    @router.command("items")
    def items(request: Request) -> Iterator[Any]:
        yield b"small"
        yield bytes(int(request.payload))

    limits = Limits(frame_bytes_max=100_000)
    client = connect(serve(router, address, limits=limits))
    with pytest.raises(TooLarge):
        client.call("bytes", b"200000")
    stream = client.stream("items", b"200000")
    assert next(stream) == b"small"
    with pytest.raises(TooLarge):
        next(stream)
    with pytest.raises(TooLarge, match="over the limit"):
        client.call("bytes", bytes(200_000))
    assert client.call("bytes", b"5") == bytes(5)


class Board:
    """A handler that waits, and others who send to its readers meanwhile."""

    def __init__(self) -> None:
        self.router = Router()
        self.readers: list[Request] = []
        self.refused = 0
        self.router.command("watch", strategy=Strategy.PARALLEL)(self.watch)
        self.router.command("post")(self.post)

    async def watch(self, request: Request) -> AsyncIterator[bytes]:
        self.readers.append(request)
        try:
            yield b"begun"
            await asyncio.sleep(3600)
        finally:
            self.readers.remove(request)

    def post(self, request: Request) -> bytes:
        sent = [reader.emit(request.payload) for reader in self.readers]
        return b"%d of %d" % (sum(sent), len(sent))


def test_what_others_emit_reaches_the_reader(serve: Serve, connect: Connect, address: str) -> None:
    board = Board()
    client = connect(serve(board.router, address))
    with client.stream("watch", strategy=Strategy.PARALLEL) as stream:
        assert next(stream) == b"begun"
        for word in (b"one", b"two"):
            assert client.call("post", word) == b"1 of 1"
            assert next(stream) == word
    eventually(lambda: not board.readers)


def test_nothing_is_emitted_without_room(serve: Serve, connect: Connect, address: str) -> None:
    board = Board()
    client = connect(serve(board.router, address))
    with client.stream("watch", strategy=Strategy.PARALLEL, window_bytes=3000) as stream:
        assert next(stream) == b"begun"
        answers = [client.call("post", bytes(1000)) for _ in range(10)]
        room = answers.count(b"1 of 1")
        assert 0 < room < 5
        assert answers[room:] == [b"0 of 1"] * (10 - room)
        assert [len(next(stream)) for _ in range(room)] == [1000] * room
        assert client.call("post", b"there is room again") == b"1 of 1"
        assert next(stream) == b"there is room again"


def test_nothing_is_emitted_in_more_parts_than_are_allowed(
    serve: Serve, connect: Connect, address: str
) -> None:
    board = Board()
    board.router.command("pair")(lambda _: b"%d" % board.readers[0].emit((b"one", b"two")))
    client = connect(serve(board.router, address, limits=Limits(parts_max=1)))
    with client.stream("watch", strategy=Strategy.PARALLEL) as stream:
        assert next(stream) == b"begun"
        with pytest.raises(TooLarge, match="2 parts"):
            client.call("pair")
        assert client.call("post", b"one part") == b"1 of 1"
        assert next(stream) == b"one part"


def test_nothing_is_emitted_after_the_end(serve: Serve, connect: Connect, address: str) -> None:
    kept: list[Request] = []
    router = Router()

    @router.command("watch")
    async def watch(request: Request) -> AsyncIterator[bytes]:
        kept.append(request)
        yield b"only one"

    router.command("post")(lambda _: b"%d" % kept[0].emit(b"too late"))
    client = connect(serve(router, address))
    assert list(client.stream("watch")) == [b"only one"]
    assert client.call("post") == b"0"
