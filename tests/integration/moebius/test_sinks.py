"""Requests whose responses go to a sink, and what is repeated when a server stops."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import weakref
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

import moebius
from moebius import Error, Limits, Request, Router, Server, aio, sleep

from .conftest import eventually


class Sink:
    """Puts what it hears into a queue."""

    def __init__(self) -> None:
        self.heard: SimpleQueue[tuple[str, Any]] = SimpleQueue()

    def item(self, parts: Any) -> None:
        self.heard.put(("item", b"".join(parts)))

    def done(self, parts: Any) -> None:
        self.heard.put(("done", None if parts is None else b"".join(parts)))

    def fail(self, error: Error) -> None:
        self.heard.put(("fail", error.code))


def make_router(seen: list[bytes] | None = None) -> Router:
    router = Router()

    @router.command("echo")
    def echo(request: Request) -> bytes:
        if seen is not None:
            seen.append(request.payload)
        return request.payload

    @router.command("refuse")
    def refuse(request: Request) -> bytes:
        raise moebius.BadRequest("no")

    @router.command("count", strategy=moebius.Strategy.PARALLEL)
    def count(request: Request) -> Iterator[bytes]:
        for _ in range(int(request.payload)):
            yield bytes(1000)

    @router.command("wait")
    def wait(request: Request) -> Iterator[Any]:
        yield sleep(60)

    return router


def test_a_sink_hears_the_end_of_its_request() -> None:
    with (
        Server(make_router(), "tcp://127.0.0.1:0").in_thread() as server,
        moebius.connect(server.addresses[0]) as client,
    ):
        answered, refused, sent = Sink(), Sink(), Sink()
        client.begin(answered, "echo", (b"a", b"b"))
        client.begin(refused, "refuse", ())
        client.begin(sent, "echo", (b"x",), one_way=True)
        assert answered.heard.get(timeout=10) == ("done", b"ab")
        assert refused.heard.get(timeout=10) == ("fail", "bad_request")
        assert sent.heard.get(timeout=10) == ("done", None)
        late = Sink()
        client.begin(late, "wait", (), timeout=0.05)
        assert late.heard.get(timeout=10) == ("fail", "deadline_exceeded")


class HoldingSink(Sink):
    """Holds on to its request, as whoever may cancel it does."""

    pending: Any = None


@pytest.mark.parametrize(
    ("command", "options", "end"),
    [
        ("echo", {}, ("done", b"a")),
        ("refuse", {}, ("fail", "bad_request")),
        ("wait", {"timeout": 0.05}, ("fail", "deadline_exceeded")),
        ("echo", {"one_way": True}, ("done", None)),
    ],
)
def test_an_answer_goes_without_the_garbage_collector(
    command: str, options: dict[str, Any], end: tuple[str, Any]
) -> None:
    with (
        Server(make_router(), "tcp://127.0.0.1:0").in_thread() as server,
        moebius.connect(server.addresses[0]) as client,
    ):
        gc.disable()
        try:
            sink = HoldingSink()
            heard, alive = sink.heard, weakref.ref(sink)
            sink.pending = client.begin(sink, command, (b"a",), **options)
            del sink
            assert heard.get(timeout=10) == end
            eventually(lambda: alive() is None)
        finally:
            gc.enable()


def test_a_cancelled_request_is_stopped_and_its_sink_hears_no_more() -> None:
    with (
        Server(make_router(), "tcp://127.0.0.1:0").in_thread() as server,
        moebius.connect(server.addresses[0]) as client,
    ):
        sink = Sink()
        pending = client.begin(sink, "wait", ())
        eventually(lambda: server.statistics().inflight == 1)
        client.cancel(pending)
        eventually(lambda: server.statistics().inflight == 0)
        assert client.call("echo", b"x") == b"x"
        assert sink.heard.empty()


def test_the_asyncio_client_has_the_same() -> None:
    async def main(address: str) -> None:
        async with aio.connect(address) as client:
            sink, cancelled = Sink(), Sink()
            client.begin(sink, "echo", (b"a",))
            client.cancel(client.begin(cancelled, "wait", ()))
            assert await client.call("echo", b"x") == b"x"
            assert sink.heard.get_nowait() == ("done", b"a")
            assert cancelled.heard.empty()

    with Server(make_router(), "tcp://127.0.0.1:0").in_thread() as server:
        asyncio.run(main(server.addresses[0]))


def test_a_stream_into_a_sink_comes_as_its_credit_allows() -> None:
    with (
        Server(make_router(), "tcp://127.0.0.1:0").in_thread() as server,
        moebius.connect(server.addresses[0]) as client,
    ):
        sink = Sink()
        pending = client.begin(sink, "count", (b"100",), credit=5000)
        for _ in range(5):
            assert sink.heard.get(timeout=10)[0] == "item"
        assert client.call("echo", b"x") == b"x"
        assert client.statistics().items == 5
        client.grant(pending, 1_000_000)
        heard = [sink.heard.get(timeout=10)[0] for _ in range(96)]
        assert heard == ["item"] * 95 + ["done"]


def test_credit_that_is_granted_before_there_is_a_connection_counts() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    with Server(make_router(), address).in_thread():
        client = moebius.connect(address)
    eventually(lambda: client.state is moebius.State.RECONNECTING)
    sink = Sink()
    pending = client.begin(sink, "count", (b"100",), credit=1)
    client.grant(pending, 1_000_000)
    with Server(make_router(), address).in_thread():
        heard = [sink.heard.get(timeout=20)[0] for _ in range(101)]
        assert heard == ["item"] * 100 + ["done"]
        client.close()


def test_the_asyncio_client_grants_credit_too() -> None:
    async def main(address: str) -> None:
        async with aio.connect(address) as client:
            sink = Sink()
            pending = client.begin(sink, "count", (b"20",), credit=5000)
            assert await client.call("echo", b"x") == b"x"
            assert client.statistics().items == 5
            client.grant(pending, 1_000_000)
            heard = [await asyncio.to_thread(sink.heard.get, timeout=10) for _ in range(21)]
            assert [what for what, _ in heard] == ["item"] * 20 + ["done"]

    with Server(make_router(), "tcp://127.0.0.1:0").in_thread() as server:
        asyncio.run(main(server.addresses[0]))


def test_what_a_stopping_server_refused_is_repeated_before_what_came_later() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    blocked = threading.Event()
    first = Router()

    @first.command("echo")
    def never(request: Request) -> Iterator[Any]:
        blocked.set()
        yield sleep(60)

    seen: list[bytes] = []
    limits = Limits(stop_grace_s=0.2)
    with Server(first, address, limits=limits).in_thread() as server:
        client = moebius.connect(address)
        futures = [client.submit("echo", b"%d" % n, repeat=True) for n in range(5)]
        once = client.submit("echo", b"once")
        assert blocked.wait(10)
        eventually(lambda: server.statistics().inflight == 6)
        server.request_stop()
    futures += [client.submit("echo", b"%d" % n, repeat=True) for n in range(5, 10)]
    with Server(make_router(seen), address).in_thread():
        assert [b"".join(future.result(20)) for future in futures] == [b"%d" % n for n in range(10)]
        with pytest.raises(moebius.Stopping):
            once.result(10)
        client.close()
    assert seen == [b"%d" % n for n in range(10)]
