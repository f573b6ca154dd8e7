"""Requests of one thread arrive in the order in which they were made, whichever way they go out."""

from __future__ import annotations

import threading

from moebius import Client, Request, Router, Server, State

from .conftest import eventually


def collecting() -> tuple[Router, list[bytes]]:
    router = Router()
    came: list[bytes] = []

    @router.command("take")
    def take(request: Request) -> bytes:
        came.append(request.payload)
        return request.payload

    return router, came


def test_lone_and_many_and_one_way_requests_keep_their_order() -> None:
    router, came = collecting()
    sent = []
    with (
        Server(router, "tcp://127.0.0.1:0").in_thread() as server,
        Client(server.addresses[0]) as client,
    ):
        futures = []
        for number in range(3000):
            payload = b"%d" % number
            sent.append(payload)
            if number % 7 == 0:
                client.call("take", payload)  # alone, if what was before it has been answered
            elif number % 5 == 0:
                client.begin(_Nobody(), "take", (payload,), one_way=True)
            else:
                futures.append(client.submit("take", payload))
        for future in futures:
            future.result(10)
        client.call("take", b"last")
    assert came == [*sent, b"last"]


def test_order_survives_a_connection_that_comes_back() -> None:
    router, came = collecting()
    with Server(router, "tcp://127.0.0.1:0").in_thread() as server:
        address = server.addresses[0]
        client = Client(address)
        client.call("take", b"first")
    # What is sent one way into a connection that is about to break is lost; so wait until it is known.
    eventually(lambda: client.state is not State.CONNECTED)
    futures = []
    for number in range(200):  # nobody is there
        if number % 3 == 0:
            client.begin(_Nobody(), "take", (b"%d" % number,), one_way=True)
        else:
            futures.append(client.submit("take", b"%d" % number, repeat=True))
    with Server(router, address).in_thread():
        later = range(200, 400)  # while those go out
        futures += [client.submit("take", b"%d" % number, repeat=True) for number in later]
        for future in futures:
            future.result(20)
        client.call("take", b"last")
        client.close()
    assert came == [b"first", *(b"%d" % number for number in range(400)), b"last"]


def test_threads_that_send_at_once_lose_nothing() -> None:
    router, came = collecting()
    with (
        Server(router, "tcp://127.0.0.1:0").in_thread() as server,
        Client(server.addresses[0]) as client,
    ):

        def work(name: int) -> None:
            for number in range(300):
                payload = b"%d %d" % (name, number)
                assert client.call("take", payload) == payload

        threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(came) == 1800
    for name in range(6):
        mine = [payload for payload in came if payload.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, number) for number in range(300)]


class _Nobody:
    """A sink for requests that want no response."""

    def item(self, parts: object) -> None: ...

    def done(self, parts: object) -> None: ...

    def fail(self, error: object) -> None: ...
