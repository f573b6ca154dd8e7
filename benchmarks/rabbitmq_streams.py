"""A small client of RabbitMQ's stream protocol: a blocking socket, no more than the benchmarks need.

RabbitMQ's own client for Python, rstream, would hold it back: it reads 256 bytes at a time, builds objects for each
frame and each message, and sends batches that are one entry from a timer, twice a second.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence

from .servers import HOST

WITHIN_S = 60.0
_VERSION = 1
_ANSWER = 0x8000
_OK = 1
_HEAD = struct.Struct(">IHH")
"""Length of what follows, command, version."""
_ANSWERED = struct.Struct(">IH")
"""Which request, and how it went."""
_ENTRY = struct.Struct(">QI")
"""Number and length of a message."""
_BATCH = struct.Struct(">QBHII")
"""Of a batch as one entry: number, kind, messages, length, and length again, as nothing is compressed."""
_UNCOMPRESSED_BATCH = 0x80
_CHUNK_BYTES = 48
"""The head of a chunk, as it lies in the file and is delivered."""
_RECEIVE_BYTES = 256 * 1024

DECLARE_PUBLISHER, PUBLISH, CONFIRM, PUBLISH_ERROR, DELETE_PUBLISHER = 1, 2, 3, 4, 6
SUBSCRIBE, DELIVER, CREDIT, UNSUBSCRIBE = 7, 8, 9, 12
CREATE, DELETE, METADATA_UPDATE = 13, 14, 16
PEER_PROPERTIES, SASL_HANDSHAKE, SASL_AUTHENTICATE, TUNE, OPEN, CLOSE, HEARTBEAT = range(17, 24)
_PUBLISHER, _SUBSCRIPTION = 1, 1
_FROM_FIRST = struct.pack(">H", 1)
_CREDITS = 100


class Refused(Exception):
    """RabbitMQ did not do what it was asked, or hung up."""


def text(words: str) -> bytes:
    """A string, as the protocol has it."""
    data = words.encode()
    return struct.pack(">H", len(data)) + data


class StreamConnection:
    """One connection, with one publisher and one subscription at most."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._came = bytearray()
        self._requests = 0
        self.published = 0
        self.confirmed = 0
        """Entries, since the publisher was declared."""
        self._ask(PEER_PROPERTIES, struct.pack(">I", 0))
        self._ask(SASL_HANDSHAKE)
        plain = b"\0guest\0guest"
        self._ask(SASL_AUTHENTICATE, text("PLAIN") + struct.pack(">I", len(plain)) + plain)
        tuned = self._next_of(TUNE)
        (frame_bytes_max, _) = struct.unpack(">II", tuned)
        self._send(TUNE, struct.pack(">II", frame_bytes_max, 0))  # no heartbeats
        self._ask(OPEN, text("/"))

    def create(self, stream: str) -> None:
        """Make a stream, with the server's defaults."""
        self._ask(CREATE, text(stream) + struct.pack(">I", 0))

    def delete(self, stream: str) -> None:
        """Remove it; its publisher is gone with it."""
        self._ask(DELETE, text(stream))

    def declare_publisher(self, stream: str) -> None:
        """Publish to this stream from now on. It has no name: nothing is checked for repetition."""
        self._ask(DECLARE_PUBLISHER, bytes([_PUBLISHER]) + text("") + text(stream))
        self.published = self.confirmed = 0

    def delete_publisher(self) -> None:
        """Publish no more."""
        self._ask(DELETE_PUBLISHER, bytes([_PUBLISHER]))

    def publish(self, items: Sequence[bytes]) -> None:
        """Messages of their own, in one frame."""
        pack, number = _ENTRY.pack, self.published
        parts = [struct.pack(">BI", _PUBLISHER, len(items))]
        for item in items:
            parts += (pack(number, len(item)), item)
            number += 1
        self.published = number
        self._send(PUBLISH, b"".join(parts))

    def publish_as_one(self, items: Sequence[bytes]) -> None:
        """The same messages as one entry: all are stored, or none."""
        inner = b"".join([part for item in items for part in (len(item).to_bytes(4), item)])
        size = len(inner)
        head = struct.pack(">BI", _PUBLISHER, 1)
        head += _BATCH.pack(self.published, _UNCOMPRESSED_BATCH, len(items), size, size)
        self.published += 1
        self._send(PUBLISH, head + inner)

    def wait_confirmed(self, count: int) -> None:
        """Until so many entries are confirmed."""
        while self.confirmed < count:
            self._next_of(CONFIRM)

    def subscribe(self, stream: str) -> None:
        """From the first message on."""
        start = bytes([_SUBSCRIPTION]) + text(stream) + _FROM_FIRST
        self._ask(SUBSCRIBE, start + struct.pack(">HI", _CREDITS, 0))

    def unsubscribe(self) -> None:
        """Nothing more comes."""
        self._ask(UNSUBSCRIBE, bytes([_SUBSCRIPTION]))

    def receive(self, take: Callable[[bytes], object]) -> None:
        """Call with each message of the next chunk."""
        chunk = self._next_of(DELIVER)
        self._send(CREDIT, struct.pack(">BH", _SUBSCRIPTION, 1))
        (entries,) = struct.unpack_from(">H", chunk, 3)
        at = 1 + _CHUNK_BYTES
        for _ in range(entries):
            (size,) = struct.unpack_from(">I", chunk, at)
            take(chunk[at + 4 : at + 4 + size])
            at += 4 + size

    def close(self) -> None:
        """Hang up politely."""
        self._ask(CLOSE, struct.pack(">H", _OK) + text("done"))
        self._socket.close()

    def _ask(self, command: int, body: bytes = b"") -> None:
        """Send a request, and wait until it has been done."""
        self._requests += 1
        self._send(command, struct.pack(">I", self._requests) + body)
        number, code = _ANSWERED.unpack_from(self._next_of(command | _ANSWER))
        if (number, code) != (self._requests, _OK):
            raise Refused(f"RabbitMQ refused command {command}: code {code}")

    def _send(self, command: int, body: bytes) -> None:
        self._socket.sendall(_HEAD.pack(4 + len(body), command, _VERSION) + body)

    def _next_of(self, wanted: int) -> bytes:
        """The body of the next frame of this kind. What comes before is noted, or of no interest."""
        while True:
            size, command, _ = _HEAD.unpack(self._take(_HEAD.size))
            body = self._take(size - 4)
            if command == CONFIRM:
                self.confirmed += int.from_bytes(body[1:5])
            elif command == PUBLISH_ERROR:
                raise Refused(f"RabbitMQ refused messages: {body[:32].hex()}")
            elif command == CLOSE:
                raise Refused(f"RabbitMQ hangs up: {body[8:].decode(errors='replace')}")
            if command == wanted:
                return body
            if command not in {CONFIRM, METADATA_UPDATE, HEARTBEAT}:
                raise Refused(f"RabbitMQ sent {command:#x}, wanted was {wanted:#x}")

    def _take(self, count: int) -> bytes:
        came = self._came
        while len(came) < count:
            more = self._socket.recv(_RECEIVE_BYTES)
            if not more:
                raise Refused("RabbitMQ hung up")
            came += more
        taken = bytes(came[:count])
        del came[:count]
        return taken
