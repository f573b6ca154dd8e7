"""A TCP relay that cuts a connection at its COMMIT, before or after the server has got it."""

from __future__ import annotations

import socket
import threading
import time
from typing import Literal

Cut = Literal["before", "after", "late"]


class CommitCutter:
    """Relays to a PostgreSQL server; cuts as many commits as it is told to.

    before   the server never gets the commit
    after    the server gets it, and its answer is lost
    late     the client hears of the cut first, and the server gets the commit some time later
    """

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts: list[Cut] = []
        self.done = 0
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, function: object, *arguments: object) -> None:
        thread = threading.Thread(target=function, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            server = socket.create_connection(self._server)
            muted = threading.Event()
            self._start(self._upstream, client, server, muted)
            self._start(self._downstream, server, client, muted)

    def _upstream(
        self, client: socket.socket, server: socket.socket, muted: threading.Event
    ) -> None:
        while data := _receive(client):
            if b"COMMIT" in data and self.cuts:
                muted.set()
                cut = self.cuts.pop()
                if cut == "after":
                    server.sendall(data)
                    time.sleep(0.2)
                _shut(client)
                if cut == "late":
                    time.sleep(0.5)
                    server.sendall(data)
                    time.sleep(0.2)
                self.done += 1
                break
            server.sendall(data)
        _shut(server)

    def _downstream(
        self, server: socket.socket, client: socket.socket, muted: threading.Event
    ) -> None:
        while data := _receive(server):
            if not muted.is_set():
                client.sendall(data)
        _shut(client)
        server.close()
        client.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(30)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except OSError:
        return b""


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is already
