"""Client handles: send, broadcast, iterate, close; background tasks and hooks."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from moebius import Limits, Peer, Request, Router, Server, State, sleep

from .conftest import Connect, Serve, eventually


def test_background_tasks_of_every_kind_can_push(
    serve: Serve, connect: Connect, address: str
) -> None:
    router = Router()

    @router.background
    def generator(server: Server) -> Iterator[Any]:
        while True:
            for client in server.clients:
                client.send(b"from a generator")
            yield sleep(0.01)

    @router.background
    async def coroutine(server: Server) -> None:
        import asyncio

        while True:
            server.clients.broadcast((b"from a ", b"coroutine"))
            await asyncio.sleep(0.01)

    @router.background
    async def async_generator(server: Server) -> AsyncIterator[Any]:
        while True:
            server.clients.broadcast(b"from an async generator")
            yield sleep(0.01)

    got: list[bytes] = []
    connect(serve(router, address), on_push=got.append)
    expected = {b"from a generator", b"from a coroutine", b"from an async generator"}
    eventually(lambda: set(got) == expected)


def test_a_failing_background_task_is_reported(serve: Serve, address: str) -> None:
    router = Router()
    errors: list[BaseException] = []

    @router.background
    def fails(server: Server) -> Iterator[Any]:
        yield sleep(0.01)
        raise ValueError("in the background")

    router.on_error(lambda request, error: errors.append(error))
    serve(router, address)
    eventually(lambda: errors)
    assert str(errors[0]) == "in the background"


def test_broadcast_with_a_filter(serve: Serve, connect: Connect, address: str) -> None:
    router = Router()

    @router.command("join")
    def join(request: Request) -> bytes:
        request.client.tags["room"] = request.payload
        return b"%d" % request.client.id

    @router.command("say")
    def say(request: Request) -> bytes:
        room = request.client.tags["room"]
        clients = request.client.server.clients
        return b"%d" % clients.broadcast(
            request.payload, where=lambda peer: peer.tags.get("room") == room
        )

    server = serve(router, address)
    got: dict[int, list[bytes]] = {n: [] for n in range(4)}
    clients = [connect(server, on_push=got[n].append) for n in range(4)]
    ids = [client.call("join", b"red" if n % 2 else b"blue") for n, client in enumerate(clients)]
    assert len(set(ids)) == 4
    assert clients[1].call("say", b"hello reds") == b"2"
    eventually(lambda: got[1] and got[3])
    assert (got[0], got[2]) == ([], [])


def test_hooks_see_clients_come_and_go(serve: Serve, connect: Connect, address: str) -> None:
    router = Router()
    story: list[tuple[str, int]] = []
    router.on_connect(lambda client: story.append(("came", client.id)))
    router.on_disconnect(lambda client: story.append(("left", client.id)))
    server = serve(router, address)
    client = connect(server, name="the first")
    peer = next(iter(server.clients))
    eventually(lambda: peer.name == "the first")
    assert server.clients.get(peer.id) is peer
    assert peer.transport == address.split(":")[0]
    client.close()
    eventually(lambda: story == [("came", 1), ("left", 1)])
    assert peer.gone
    too_late: list[bool] = []
    server.call_soon(lambda: too_late.append(peer.send(b"too late")))
    eventually(lambda: too_late == [False])


def test_the_server_can_close_a_client(serve: Serve, connect: Connect, address: str) -> None:
    router = Router()

    @router.command("leave")
    def leave(request: Request) -> None:
        request.client.close("go away")

    server = serve(router, address)
    states: list[State] = []
    client = connect(server, on_state=states.append)
    client.send("leave")
    eventually(lambda: states == [State.CONNECTED, State.RECONNECTING, State.CONNECTED])


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_a_slow_client_does_not_grow_the_server(
    serve: Serve, tmp_path: Any, transport: str
) -> None:
    """A client that reads nothing: pushes to it are refused once its buffer is full."""
    import socket

    from .conftest import address_of

    router = Router()
    outcomes: list[bool] = []

    @router.background
    def flood(server: Server) -> Iterator[Any]:
        while True:
            outcomes.extend(client.send(bytes(100_000)) for client in server.clients)
            yield sleep(0.0005)

    limits = Limits(push_buffer_bytes=1_000_000)
    server = serve(router, address_of(transport, tmp_path), limits=limits)
    url = server.addresses[0]
    if transport == "tcp":
        sock = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])))
    else:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(url.removeprefix("ipc://"))
    with sock:
        eventually(lambda: outcomes.count(False) > 50)
        assert server.statistics().buffered_bytes < 1_300_000
        assert server.statistics().counts.pushes_refused > 50


def test_a_failing_push_callback_does_not_break_the_client(
    serve: Serve, connect: Connect, address: str
) -> None:
    router = Router()
    router.command("echo")(lambda request: request.payload)
    server = serve(router, address)

    def fail(_: bytes) -> None:
        raise ValueError("in the callback")

    client = connect(server, on_push=fail)
    peer: Peer = next(iter(server.clients))
    with pytest.raises(RuntimeError, match="call_soon"):
        peer.send(b"from the wrong thread")
    server.call_soon(peer.send, b"x")
    eventually(lambda: client.statistics().pushes == 1)
    time.sleep(0.05)
    assert client.call("echo", b"x") == b"x"
