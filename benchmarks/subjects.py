"""The servers that are measured and written in Python: `python -m benchmarks.subjects NAME`.

Each binds to a free port of 127.0.0.1, prints the port, and serves until it is terminated.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import cast

import uvloop
import zmq

from moebius import Request, Router, Server

from .wire import BARE_REPLY_HEADER, COMMAND, PREFIX, REPLY_PAYLOAD, frame

HOST = "127.0.0.1"


def announce(port: int) -> None:
    """Tell the benchmark that we are ready, and where."""
    print(port, flush=True)


def moebius_server(scheme: str) -> None:
    """moebius, with one plain function."""
    router = Router()

    @router.command(COMMAND)
    def reply(request: Request) -> bytes:
        return REPLY_PAYLOAD

    @router.background
    def ready(server: Server) -> None:
        announce(int(server.addresses[0].rpartition(":")[2]))

    Server(router, f"{scheme}://{HOST}:0").run()


class BareProtocol(asyncio.Protocol):
    """The least a server can do: cut the frames, answer each, write once for each read."""

    _reply = frame(BARE_REPLY_HEADER, REPLY_PAYLOAD)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast(asyncio.Transport, transport).write
        self._tail = b""

    def data_received(self, data: bytes) -> None:
        if self._tail:
            data = self._tail + data
        at, size = 0, len(data)
        out = []
        while size - at >= PREFIX.size:
            end = at + PREFIX.size + PREFIX.unpack_from(data, at)[0]
            if end > size:
                break
            self.request = data[at + PREFIX.size : end]
            out.append(self._reply)
            at = end
        self._tail = data[at:]
        self._write(b"".join(out))


def bare_tcp() -> None:
    """A bare server on uvloop."""

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(BareProtocol, HOST, 0)
        announce(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def bare_zmq() -> None:
    """A bare ROUTER."""
    router = zmq.Context().socket(zmq.ROUTER)
    announce(router.bind_to_random_port(f"tcp://{HOST}"))
    receive, send = router.recv_multipart, router.send_multipart
    while True:
        routing_id, _, _ = receive()
        send((routing_id, BARE_REPLY_HEADER, REPLY_PAYLOAD))


SUBJECTS: dict[str, Callable[[], None]] = {
    "moebius-tcp": lambda: moebius_server("tcp"),
    "moebius-zmq": lambda: moebius_server("zmq+tcp"),
    "bare-tcp": bare_tcp,
    "bare-zmq": bare_zmq,
}

if __name__ == "__main__":
    SUBJECTS[sys.argv[1]]()
