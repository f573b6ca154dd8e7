"""Requests that belong elsewhere: they are kept, taken back, and begun again on another connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

import moebius
from moebius import Request, Router, Server, aio, sleep

from .conftest import eventually
from .test_sinks import Sink

T = TypeVar("T")


class Place:
    """A server that can be told to send everyone elsewhere, or to answer nobody."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.refuses = False
        router = Router()

        @router.command("1:add")
        @router.command("2:add")
        def add(request: Request) -> bytes:
            if self.refuses:
                raise moebius.Overloaded("elsewhere")
            self.seen.append(request.payload)
            return request.payload

        @router.command("1:wait")
        def wait(request: Request) -> Iterator[Any]:
            yield sleep(60)

        @router.command("1:count", strategy=moebius.Strategy.PARALLEL)
        def count(request: Request) -> Iterator[bytes]:
            while True:
                yield bytes(1000)

        self.server = Server(router, ["tcp://127.0.0.1:0"])


@pytest.fixture
def places() -> Iterator[tuple[Place, Place]]:
    old, new = Place(), Place()
    with old.server.in_thread(), new.server.in_thread():
        yield old, new


def is_first(command: str) -> bool:
    return command.startswith("1:")


def keep(command: str, error: moebius.Error) -> bool:
    return isinstance(error, moebius.Overloaded)


def on_loop(client: moebius.Client, action: Callable[[], T]) -> T:
    """Do this on the I/O thread."""
    done: list[T] = []
    event = threading.Event()

    def act() -> None:
        done.append(action())
        event.set()

    client.post(act)
    assert event.wait(30)
    return done[0]


def test_what_was_refused_goes_on_elsewhere_in_its_order(places: tuple[Place, Place]) -> None:
    old, new = places
    old.refuses = True
    with (
        moebius.connect(old.server.addresses[0], on_refused=keep) as one,
        moebius.connect(new.server.addresses[0]) as other,
    ):
        sinks = [Sink() for _ in range(50)]
        for number, sink in enumerate(sinks):
            one.begin(sink, f"{1 + number % 2}:add", (b"%d" % number,), repeat=True)

        def move() -> int:
            requests = one.withdraw(is_first)
            for request in requests:
                other.begin_again(request)
            return len(requests)

        assert on_loop(one, move) == 25
        for number, sink in enumerate(sinks):
            if not number % 2:
                assert sink.heard.get(timeout=30) == ("done", b"%d" % number)
        assert new.seen == [b"%d" % it for it in range(0, 50, 2)]
        assert on_loop(one, lambda: one.withdraw(is_first)) == []
        assert all(sink.heard.empty() for sink in sinks[1::2])  # they are kept here
        assert on_loop(one, lambda: len(one.withdraw(lambda _: True))) == 25


def test_what_nobody_takes_back_ends_with_its_deadline(places: tuple[Place, Place]) -> None:
    old, _ = places
    old.refuses = True
    with moebius.connect(old.server.addresses[0], on_refused=keep) as client:
        with pytest.raises(moebius.DeadlineExceeded, match="elsewhere"):
            client.call("1:add", b"x", timeout=0.2, repeat=True)
        with pytest.raises(moebius.Overloaded):  # nobody could repeat it
            client.call("1:add", b"x")
        cancelled, closed = Sink(), Sink()
        request = client.begin(cancelled, "1:add", (b"x",), repeat=True)
        client.cancel(request)
        client.begin(closed, "1:add", (b"x",), repeat=True)
        eventually(lambda: client.statistics().inflight == 0)
        assert on_loop(client, lambda: client.withdraw(lambda _: False)) == []
    assert closed.heard.get(timeout=30) == ("fail", "closed")
    assert cancelled.heard.empty()


def test_a_lost_connection_sends_again_what_was_kept(places: tuple[Place, Place]) -> None:
    old, _ = places
    old.refuses = True
    refused: list[str] = []

    def note(command: str, error: moebius.Error) -> bool:
        refused.append(command)
        return True

    with moebius.connect(old.server.addresses[0], on_refused=note) as client:
        sinks = [Sink() for _ in range(5)]
        for number, sink in enumerate(sinks):
            client.begin(sink, "1:add", (b"%d" % number,), repeat=True)
        eventually(lambda: len(refused) == 5)
        old.refuses = False
        link = client._connection.link
        assert link is not None
        on_loop(client, lambda: link.abort("a test cuts it"))
        for number, sink in enumerate(sinks):
            assert sink.heard.get(timeout=30) == ("done", b"%d" % number)
        assert old.seen == [b"%d" % it for it in range(5)]


def test_what_waits_for_a_connection_or_an_answer_can_be_moved(places: tuple[Place, Place]) -> None:
    old, new = places
    with (
        moebius.connect(old.server.addresses[0]) as one,
        moebius.Client("tcp://127.0.0.1:1", connect_timeout=None) as nowhere,
        moebius.connect(new.server.addresses[0]) as other,
    ):
        waits, adds, stream = Sink(), Sink(), Sink()
        one.begin(waits, "1:wait", (b"",), repeat=True, timeout=0.5)
        one.begin(stream, "1:count", (b"",), credit=5000)
        nowhere.begin(adds, "1:add", (b"x",), repeat=True)
        eventually(lambda: one.statistics().inflight == 2)

        def move() -> None:
            for request in (*one.withdraw(is_first), *nowhere.withdraw(is_first)):
                other.begin_again(request)

        on_loop(one, move)
        assert adds.heard.get(timeout=30) == ("done", b"x")
        assert waits.heard.get(timeout=30) == ("fail", "deadline_exceeded")  # as it was set
        while (heard := stream.heard.get(timeout=30))[0] == "item":
            pass
        assert heard == ("fail", "disconnected")
        statistics = one.statistics()
        assert (statistics.inflight, statistics.waiting) == (0, 0)
        assert other.statistics().inflight == 0


def test_a_cancel_that_comes_to_the_old_connection_counts(places: tuple[Place, Place]) -> None:
    old, new = places
    with (
        moebius.connect(old.server.addresses[0]) as one,
        moebius.connect(new.server.addresses[0]) as other,
    ):
        sink, later = Sink(), Sink()
        request = one.begin(sink, "1:wait", (b"",), repeat=True)

        def move() -> None:
            for it in one.withdraw(is_first):
                other.begin_again(it)

        on_loop(one, move)
        one.begin(later, "1:wait", (b"",), repeat=True)
        one.cancel(request)
        eventually(lambda: request.ended)
        assert not on_loop(one, later.heard.qsize)
        assert one.statistics().inflight == 1  # another request, which may have the same number


def test_the_same_for_asyncio(places: tuple[Place, Place]) -> None:
    old, new = places
    old.refuses = True

    async def body() -> None:
        one = aio.Client(old.server.addresses[0], on_refused=keep)
        other = aio.Client(new.server.addresses[0])
        await one.open()
        other.start()
        sinks = [Sink() for _ in range(10)]
        for number, sink in enumerate(sinks):
            one.begin(sink, "1:add", (b"%d" % number,), repeat=True)
        for request in one.withdraw(is_first):
            other.begin_again(request)
        while not sinks[-1].heard.qsize():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await one.close()
        await other.close()

    asyncio.run(asyncio.wait_for(body(), 60))
    assert new.seen == [b"%d" % it for it in range(10)]
    assert old.seen == []
