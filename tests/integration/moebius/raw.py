"""A client on a bare socket, written from docs/guides/moebius.md alone: it imports nothing of moebius."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

HELLO, CALL, CANCEL, CREDIT, PING, BYE = 1, 2, 3, 4, 5, 6
WELCOME, REPLY, ITEM, END, FAILURE, PUSH, PONG, GOAWAY = 17, 18, 19, 20, 21, 22, 23, 24


class RawClient:
    """Frames with JSON headers over TCP or a unix socket."""

    def __init__(self, url: str) -> None:
        scheme, _, where = url.partition("://")
        if scheme == "tcp":
            host, port = where.rsplit(":", 1)
            self.sock = socket.create_connection((host, int(port)), timeout=10)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(10)
            self.sock.connect(where)
        self._buffer = b""

    def send(self, header: list[Any], *parts: bytes) -> None:
        self.sock.sendall(self.frame(header, *parts))

    @staticmethod
    def frame(header: list[Any], *parts: bytes) -> bytes:
        head = json.dumps(header).encode()
        table = b"".join(struct.pack(">I", len(part)) for part in parts[:-1])
        body = table + head + b"".join(parts)
        return struct.pack(">IHH", len(body), len(head), len(parts)) + body

    def receive(self) -> tuple[list[Any], list[bytes]]:
        length, header_length, count = struct.unpack(">IHH", self._take(8))
        body = self._take(length)
        sizes = [struct.unpack_from(">I", body, 4 * n)[0] for n in range(max(0, count - 1))]
        at = 4 * len(sizes)
        header = json.loads(body[at : at + header_length])
        at += header_length
        if count:
            sizes.append(length - at - sum(sizes))
        parts = []
        for size in sizes:
            parts.append(body[at : at + size])
            at += size
        return header, parts

    def closed(self) -> bool:
        """Whether the server has closed the connection, after whatever it still had to say."""
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            more = self.sock.recv(65536)
            if not more:
                raise ConnectionError("the server closed the connection")
            self._buffer += more
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken
