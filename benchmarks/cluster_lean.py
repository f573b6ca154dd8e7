"""A writer that costs almost nothing, so that a machine with few cores has room for the servers that are measured.

It speaks the protocol over a blocking socket, packs its batch once, and sends as many requests at a time as answers
have come. Nobody writes such clients; it stands for clients on machines of their own.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable
from typing import TypeVar

import moebius
from moebius.frames import PREFIX
from moebius.messages import Call
from moebius.messages import encode as encode_header
from tstreams.items import pack
from tstreams.protocol import (
    AgentOpened,
    CreateStream,
    Describe,
    Instant,
    Message,
    NodeInfo,
    OpenAgent,
    OpenSession,
    SessionOpened,
    decode_reply,
    encode,
)
from tstreams.sharding import home_of

T = TypeVar("T", bound=Message)
HOST = "127.0.0.1"
_READ_BYTES = 256 * 1024
_REPLY = b"\x92\x12"
"""What the header of a `Reply` begins with."""
_TTL_MS = 3_600_000
_WITHIN_S = 30.0


class LeanWriter:
    """One socket to the server of one shard. Each writer has a stream of its own, with one partition."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        with moebius.Client(f"tcp://{HOST}:{port}") as client:
            self._node = _ask(client, Describe(), NodeInfo)

    def create(self, stream: str, partitions: int) -> None:
        """Nothing: each writer makes its own when it opens it."""

    def open(self, stream: str, partition: int) -> None:
        """Make a stream in the shard of this writer, and a producer, and connect to whoever serves it."""
        self._shard = shard = partition % self._node.total
        name = next(
            name
            for number in itertools.count()
            if home_of(name := f"{stream}-{partition}-{number}", self._node.total) == shard
        )
        port = self._port_of(shard)
        with moebius.Client(f"tcp://{HOST}:{port}") as client:
            self._session = _ask(client, OpenSession(), SessionOpened, shard).session
            made = CreateStream(self._session, 1, 0, name, 1, _TTL_MS)
            client.call(f"{shard}:CreateStream", encode(made), timeout=_WITHIN_S)
            agent = OpenAgent(self._session, 2, 1, "producer", name, "lean")
            self._agent = _ask(client, agent, AgentOpened, shard).agent
        self._sequence = self._acked = 2
        self._hang_up()
        self._socket = socket.create_connection((HOST, port), timeout=_WITHIN_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tail = b""

    def _port_of(self, shard: int) -> int:
        for info in self._node.map:
            for address in info.leader.addresses if info.number == shard and info.leader else ():
                if address.startswith("tcp://"):
                    return int(address.rpartition(":")[2])
        return self._port

    def write(self, items: list[bytes], window: int, seconds: float, count_max: int) -> int:
        """Instant transactions, all of the same batch."""
        assert self._socket is not None, "it is opened before"
        make = self._maker(bytes(pack(items)))
        deadline = time.perf_counter() + seconds
        sent = done = 0
        while True:
            room = min(window - (sent - done), count_max - sent)
            if room > 0 and time.perf_counter() < deadline:
                self._socket.sendall(b"".join([part for _ in range(room) for part in make()]))
                sent += room
            elif sent == done:
                return done
            done += self._receive(self._socket)

    def _maker(self, batch: bytes) -> Callable[[], tuple[bytes, ...]]:
        command, session, agent = f"{self._shard}:Instant", self._session, self._agent
        batch_bytes, prefix, numbers = len(batch), PREFIX.pack, itertools.count(self._sequence + 1)

        def make() -> tuple[bytes, ...]:
            self._sequence = number = next(numbers)
            header = encode_header(Call(number, command))
            first = encode(Instant(session, number, self._acked, agent, 0))
            size = 4 + len(header) + len(first) + batch_bytes
            return (
                prefix(size, len(header), 2),
                len(first).to_bytes(4, "big"),
                header,
                first,
                batch,
            )

        return make

    def _receive(self, link: socket.socket) -> int:
        """How many answers came; at least a part of one."""
        came = link.recv(_READ_BYTES)
        if not came:
            raise RuntimeError("the server hung up")
        data = self._tail + came
        at, count, size = 0, 0, len(data)
        while size - at >= PREFIX.size:
            body = PREFIX.unpack_from(data, at)[0]
            start = at + PREFIX.size
            if start + body > size:
                break
            if data[start : start + 2] != _REPLY:
                raise RuntimeError(f"the server answered {data[start : start + body]!r}")
            count += 1
            at = start + body
        self._tail = data[at:]
        self._acked += count  # they come in the order of the requests
        return count

    def drop(self, stream: str, partition: int) -> None:
        """Left to its ttl."""

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """Disconnect."""
        self._hang_up()


def _ask(client: moebius.Client, message: Message, kind: type[T], shard: int | None = None) -> T:
    name = type(message).__name__
    command = name if shard is None else f"{shard}:{name}"
    answer = decode_reply(client.call(command, encode(message), timeout=_WITHIN_S))
    assert isinstance(answer, kind), answer
    return answer
