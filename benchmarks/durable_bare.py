"""The ceiling of `durable`: the least that a durable server in Python can do.

`python -m benchmarks.durable_bare FILE` reads frames (u32 length, then that many bytes) from sockets,
appends what came in one turn of the loop to the file with one write and one fdatasync, and answers each
frame with 8 bytes. It looks at nothing, checks nothing, and could find nothing again.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from typing import cast

import uvloop

from .subjects import HOST, announce

PREFIX = struct.Struct("<I")
REPLY = b"durable\n"


class Appender:
    """One write and one fdatasync for all that came in a turn of the loop."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        self._loop = loop
        self._waiting: list[BareLog] = []

    def add(self, connection: BareLog) -> None:
        """The connection has something to write."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(connection)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        data = b"".join([chunk for connection in waiting for chunk in connection.chunks])
        if os.write(self._descriptor, data) != len(data):
            raise OSError("a short write: the disk is full")
        os.fdatasync(self._descriptor)
        for connection in waiting:
            connection.answer()


class BareLog(asyncio.Protocol):
    """One connection. All it knows of a frame is where it ends."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self.chunks: list[bytes] = []
        self._missing = 0  # bytes of the frame that has begun
        self._prefix = b""
        self._frames = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast(asyncio.Transport, transport).write

    def data_received(self, data: bytes) -> None:
        if not self.chunks:
            self._appender.add(self)
        self.chunks.append(data)
        at, size = 0, len(data)
        while at < size:
            if self._missing:
                step = min(self._missing, size - at)
                self._missing -= step
                self._frames += not self._missing
            else:
                step = min(PREFIX.size - len(self._prefix), size - at)
                self._prefix += data[at : at + step]
                if len(self._prefix) == PREFIX.size:
                    (self._missing,) = PREFIX.unpack(self._prefix)
                    self._prefix = b""
            at += step

    def answer(self) -> None:
        """All that came is on disk."""
        self._write(REPLY * self._frames)
        self.chunks, self._frames = [], 0


async def serve(path: str) -> None:
    """Until it is terminated."""
    loop = asyncio.get_running_loop()
    appender = Appender(path, loop)
    server = await loop.create_server(lambda: BareLog(appender), HOST, 0)
    announce(server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(sys.argv[1]))
