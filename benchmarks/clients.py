"""Clients as light as Python allows: one loop for every byte stream, one for ZeroMQ.

They hold requests that were encoded before, count every byte that comes back, and do nothing else;
`open` checks whole replies first, so that a broken server cannot look fast.
"""

from __future__ import annotations

import socket

import zmq

from .wire import REPLY_PAYLOAD, StreamScript, ZmqScript, decode_header

HOST = "127.0.0.1"
_READ_BYTES = 256 * 1024


class WrongReply(Exception):
    """The server did not answer as it must."""


class StreamClient:
    """A blocking socket. The same code for moebius, the bare server and redis."""

    def __init__(self, port: int, script: StreamScript) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(_READ_BYTES)
        self._script = script
        self._verify()
        # With a timeout Python would poll before each call; the fleet has a bound of its own.
        self._socket.settimeout(None)

    def sequential(self, count: int) -> None:
        """One request at a time."""
        self._repeat(self._script.requests[0], len(self._script.replies[0]), count)

    def pipelined(self, windows: int) -> None:
        """A window of requests, then all its replies."""
        script = self._script
        self._repeat(b"".join(script.requests), sum(map(len, script.replies)), windows)

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def _repeat(self, request: bytes, expected: int, count: int) -> None:
        send, receive_into, buffer = self._socket.sendall, self._socket.recv_into, self._buffer
        for _ in range(count):
            send(request)
            received = receive_into(buffer)
            while received != expected:
                more = receive_into(buffer) if received < expected else 0
                if not more:
                    raise WrongReply(f"{received} bytes came where {expected} had to")
                received += more

    def _verify(self) -> None:
        script = self._script
        for requests, replies in (
            (script.requests[:1], script.replies[:1]),
            (script.requests, script.replies),
        ):
            self._socket.sendall(b"".join(requests))
            expected = b"".join(replies)
            received = b""
            while len(received) < len(expected):
                more = self._socket.recv(len(expected) - len(received))
                if not more:
                    break
                received += more
            if received != expected:
                raise WrongReply(f"{received!r:.200} came where {expected!r:.200} had to")
            if script.decode(received[: len(replies[0])]) != REPLY_PAYLOAD:
                raise WrongReply(f"the payload of {received!r:.200} is not what it has to be")


class ZmqClient:
    """A DEALER. The same code for moebius and the bare ROUTER."""

    def __init__(self, port: int, script: ZmqScript) -> None:
        self._script = script
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(f"tcp://{HOST}:{port}")
        self._verify()

    def sequential(self, count: int) -> None:
        """One request at a time."""
        self._repeat(self._script.requests[:1], self._script.replies[:1], count)

    def pipelined(self, windows: int) -> None:
        """A window of requests, then all its replies."""
        self._repeat(self._script.requests, self._script.replies, windows)

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()
        self._context.term()

    def _repeat(
        self,
        requests: tuple[tuple[bytes, bytes], ...],
        replies: tuple[tuple[bytes, bytes], ...],
        count: int,
    ) -> None:
        # Frame by frame: `send_multipart` and `recv_multipart` do the same, and more of it in Python.
        send, receive, more_flag = self._socket.send, self._socket.recv, zmq.SNDMORE
        expected = sum(len(header) + len(payload) for header, payload in replies)
        for _ in range(count):
            for header, payload in requests:
                send(header, more_flag)
                send(payload)
            received = 0
            for _ in replies:
                received += len(receive()) + len(receive())
            if received != expected or self._socket.get(zmq.RCVMORE):
                raise WrongReply(f"{received} bytes came where {expected} had to")

    def _verify(self) -> None:
        for count in (1, len(self._script.requests)):
            for request in self._script.requests[:count]:
                self._socket.send_multipart(request)
            for expected in self._script.replies[:count]:
                if not self._socket.poll(10_000):
                    raise WrongReply("no reply came for 10 s")
                received = self._socket.recv_multipart()
                if tuple(received) != expected:
                    raise WrongReply(f"{received!r:.200} came where {expected!r:.200} had to")
                decode_header(received[0])
