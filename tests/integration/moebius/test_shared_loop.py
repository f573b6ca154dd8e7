"""Threads that wait alone and read their connection by themselves, and whoever else uses the loop meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from moebius import (
    Client,
    Closed,
    DeadlineExceeded,
    Disconnected,
    Error,
    Request,
    Router,
    Server,
    sleep,
)
from moebius.client.connection import Connection
from moebius.client.shared_loop import SharedLoop
from moebius.messages import Parts
from moebius.transports.tcp import DialledLink

from .conftest import QUICK, eventually

ADDRESS = "tcp://127.0.0.1:0"
MANY = 300


def make_router() -> Router:
    router = Router()
    router.command("echo")(lambda request: request.payload)
    router.command("large")(lambda request: bytes(int(request.payload)))

    @router.command("sleep")
    def wait(request: Request) -> Generator[Any, Any, bytes]:
        yield sleep(float(request.payload))
        return b"slept"

    @router.command("count")
    def count(request: Request) -> Iterator[bytes]:
        for number in range(int(request.payload)):
            yield b"%d" % number

    return router


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(make_router(), ADDRESS, limits=QUICK).in_thread() as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.addresses[0], limits=QUICK) as client:
        yield client


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each read of a thread by itself led to: whether it got what it waited for."""
    found: list[bool] = []
    read = SharedLoop._read

    def noted(self: SharedLoop, *arguments: Any) -> bool:
        found.append(read(self, *arguments))
        return found[-1]

    monkeypatch.setattr(SharedLoop, "_read", noted)
    return found


def in_thread(function: Callable[[], Any]) -> Any:
    """What a function returns in a thread that is not the main one: only such threads read by themselves."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(60)


def calls(client: Client, name: bytes, count: int = MANY) -> None:
    for number in range(count):
        payload = name + b"-%d" % number
        assert client.call("echo", payload) == payload


def warm_up(client: Client, reads: list[bool]) -> None:
    """Call until this thread reads by itself: not at once, if there was a crowd before."""

    def has_read() -> bool:
        calls(client, b"warm", 20)
        return True in reads

    eventually(has_read)


def test_a_thread_alone_reads_by_itself(client: Client, reads: list[bool]) -> None:
    def work() -> None:
        warm_up(client, reads)
        reads.clear()
        calls(client, b"alone")

    in_thread(work)
    assert reads.count(True) > MANY // 2


def test_the_main_thread_does_not(client: Client, reads: list[bool]) -> None:
    calls(client, b"main")
    assert reads == []


def test_what_came_while_the_loop_was_asked_for_is_not_waited_for(
    client: Client, reads: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    polls: list[int] = []
    poll, borrow = DialledLink.wait_for_bytes, SharedLoop._borrow

    def noted(self: DialledLink, kick: int, timeout_s: float) -> bool:
        polls.append(kick)
        return poll(self, kick, timeout_s)

    def work() -> None:
        warm_up(client, reads)
        answered = threading.Event()

        def borrow_late(self: SharedLoop, connection: Connection, now: float) -> bool:
            self.go_on()
            assert answered.wait(10)
            return borrow(self, connection, now)

        gate = threading.Lock()
        gate.acquire()
        with monkeypatch.context() as patch:
            patch.setattr(SharedLoop, "_borrow", borrow_late)
            patch.setattr(DialledLink, "wait_for_bytes", noted)
            reads.clear()
            client.begin(_Bell(gate, answered), "echo", (b"early",))
            assert client.wait(gate, 10)

    in_thread(work)
    assert (reads, polls) == ([True], [])


class _Bell:
    """Releases a lock when its request has ended."""

    def __init__(self, gate: threading.Lock, answered: threading.Event) -> None:
        self._gate = gate
        self._answered = answered

    def item(self, parts: Parts) -> None:
        raise AssertionError("there is one answer")

    def done(self, parts: Parts | None) -> None:
        self._gate.release()
        self._answered.set()

    def fail(self, error: Error) -> None:
        raise AssertionError(error)


def test_large_answers_come_in_one_piece(client: Client, reads: list[bool]) -> None:
    def ask() -> None:
        warm_up(client, reads)
        for size in (1, 100_000, 3_000_000, 10, 1_000_000, 64 * 1024):
            for _ in range(3):
                assert client.call("large", b"%d" % size) == bytes(size)

    in_thread(ask)


def test_several_threads_and_clients_go_on_side_by_side(server: Server, client: Client) -> None:
    with Client(server.addresses[0]) as other, ThreadPoolExecutor(4) as pool:
        done = [
            pool.submit(calls, it, b"%d" % number)
            for number, it in enumerate((client, client, other, other))
        ]
        for future in done:
            future.result(60)


def test_futures_and_streams_come_while_others_read(client: Client, reads: list[bool]) -> None:
    stop = threading.Event()

    def keep_calling() -> None:
        while not stop.is_set():
            calls(client, b"busy", 20)

    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(keep_calling)
        eventually(lambda: True in reads)
        for number in range(50):
            assert client.submit("echo", b"%d" % number).result(30) == (b"%d" % number,)
            time.sleep(0.001)
        assert list(client.stream("count", b"200")) == [b"%d" % it for it in range(200)]
        stop.set()
        busy.result(60)


def test_a_future_is_answered_though_nobody_waits(client: Client, reads: list[bool]) -> None:
    """The loop may stand still when it is begun."""

    def submit() -> list[Future[Any]]:
        warm_up(client, reads)
        return [client.submit("echo", b"later") for _ in range(3)]

    for future in in_thread(submit):
        assert future.result(30) == (b"later",)


def test_a_callback_of_a_future_may_not_wait_whoever_calls_it(
    client: Client, reads: list[bool]
) -> None:
    refused: list[str] = []
    answered: list[bytes] = []

    def ask_again(_: Future[Any]) -> None:
        try:
            answered.append(client.call("echo", b"in a callback"))  # it had ended before
        except RuntimeError as error:
            refused.append(str(error))

    def work() -> None:
        warm_up(client, reads)
        for _ in range(100):
            client.submit("echo", b"with a callback").add_done_callback(ask_again)
            calls(client, b"between", 5)

    in_thread(work)
    eventually(lambda: len(refused) + len(answered) == 100)
    assert "hand the work to another thread" in refused[0]


def test_deadlines_hold_while_a_thread_reads(client: Client, reads: list[bool]) -> None:
    def work() -> None:
        warm_up(client, reads)
        with pytest.raises(DeadlineExceeded):
            client.call("sleep", b"30", timeout=0.3)
        calls(client, b"after", 50)

    in_thread(work)


def test_heartbeats_go_on_while_a_thread_reads(client: Client, server: Server) -> None:
    """For longer than the server would wait for a client that is silent."""

    def work() -> None:
        until = time.monotonic() + 2.5 * QUICK.idle_timeout_s
        while time.monotonic() < until:
            calls(client, b"on and on", 10)

    in_thread(work)
    assert client.statistics().connects == 1


def test_a_connection_that_breaks_is_noticed(server: Server, client: Client) -> None:
    broken = threading.Event()

    def work() -> None:
        with pytest.raises((Disconnected, Closed, DeadlineExceeded)):
            calls(client, b"until the end", 10_000_000)
        broken.set()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        time.sleep(0.2)
        server.request_stop()
        client_gone = threading.Timer(2.0, client.close)
        client_gone.start()
        done.result(60)
        client_gone.cancel()
    assert broken.is_set()


def test_closing_a_client_wakes_who_reads(client: Client, reads: list[bool]) -> None:
    def work() -> None:
        warm_up(client, reads)
        client.call("sleep", b"30", timeout=60)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        time.sleep(0.3)
        client.close()
        with pytest.raises(Closed):
            done.result(30)
