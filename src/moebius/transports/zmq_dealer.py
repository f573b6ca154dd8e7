"""The client's side of ZeroMQ: a DEALER socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

import zmq
import zmq.utils.monitor

from ..addresses import Address
from ..errors import Error, ProtocolError
from ..limits import Limits
from ..messages import (
    NO_RESPONSE,
    Buffer,
    Bye,
    DecodeError,
    Failure,
    Header,
    Parts,
    decode,
    encode,
)
from ..security import CurveClient
from .link import Credentials, Receiver
from .zmq_sockets import Wakeup, send_now

_NEVER_MS = 24 * 3600 * 1000


class DealerLink:
    """A client's connection: a DEALER socket that lives as long as one ZeroMQ connection.

    ZeroMQ would reconnect silently, and requests might be lost or arrive at a server that does not
    know us; so its own reconnecting is put off for ever and a lost connection is a lost link.
    """

    __slots__ = (
        "_address",
        "_limits",
        "_loop",
        "_monitor",
        "_outbox",
        "_outbox_bytes",
        "_receiver",
        "_socket",
        "_wakeup",
        "_watch",
        "blocked",
        "seen",
        "unpaced_bytes_max",
    )

    def __init__(
        self,
        address: Address,
        limits: Limits,
        context: zmq.Context[zmq.Socket[bytes]],
        curve: CurveClient | None,
        receiver: Receiver,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._limits = limits
        self._receiver: Receiver | None = receiver
        self._outbox: deque[list[Buffer]] = deque()
        self._outbox_bytes = 0
        self.unpaced_bytes_max: int | None = None
        self.blocked = False
        self.seen = False
        self._socket = sock = context.socket(zmq.DEALER)
        sock.linger = 0
        sock.ipv6 = ":" in address.host
        sock.sndhwm = sock.rcvhwm = limits.zmq_queue_messages
        sock.setsockopt(zmq.MAXMSGSIZE, limits.frame_bytes_max)
        # Not -1: that would throw away what came in before the connection broke.
        sock.setsockopt(zmq.RECONNECT_IVL, _NEVER_MS)
        if curve is not None:
            curve.apply(sock)
        events = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED
        self._monitor = sock.get_monitor_socket(
            events | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        )
        self._watch = Wakeup(self._loop, self._monitor, self._on_event)
        self._wakeup = Wakeup(self._loop, sock, self._drain)
        sock.connect(address.zmq_endpoint)

    def send(self, header: Header, parts: Parts) -> None:
        """Give a message to ZeroMQ, or keep it while its queue is full."""
        if self._receiver is None:
            return
        frames: list[Buffer] = [encode(header), *parts]
        if self._outbox or not self._try(frames):
            self._outbox.append(frames)
            self._outbox_bytes += sum(map(len, frames))
            if not self.blocked:
                self.blocked = True
                self._loop.call_later(self._limits.zmq_retry_s, self._retry)
        self._wakeup.check()

    def send_pieces(self, header: Header, first: Buffer, pieces: Sequence[Buffer]) -> None:
        """ZeroMQ takes a part as one buffer."""
        self.send(header, (first, b"".join(pieces)))

    def _try(self, frames: list[Buffer]) -> bool:
        try:
            send_now(self._socket, frames)
        except zmq.Again:
            return False
        return True

    def _retry(self) -> None:
        outbox = self._outbox
        while outbox and self._receiver is not None and self._try(outbox[0]):
            self._outbox_bytes -= sum(map(len, outbox.popleft()))
        if self._receiver is None:
            return
        if outbox:
            self._loop.call_later(self._limits.zmq_retry_s, self._retry)
            return
        self.blocked = False
        self._receiver.writable()

    def _drain(self) -> bool:
        """Take what came; whether there may be more."""
        try:
            for _ in range(self._limits.drain_max):
                if self._receiver is None:
                    return False
                head, *parts = self._socket.recv_multipart(zmq.DONTWAIT)
                self.seen = True
                header = decode(head)
                self._receiver.received(header, tuple(parts))
                if isinstance(header, Failure) and header.id == NO_RESPONSE:
                    self.abort(header.message)
        except zmq.Again:
            return False
        except DecodeError as error:
            if self._receiver is not None:
                self._receiver.malformed(ProtocolError(f"a header could not be read: {error}"))
            return False
        self._wakeup.check()
        return True

    def _on_event(self) -> None:
        with contextlib.suppress(zmq.Again):
            while self._receiver is not None:
                frames = self._monitor.recv_multipart(zmq.DONTWAIT)
                event = zmq.utils.monitor.parse_monitor_message(frames)["event"]
                while self._receiver is not None and self._drain():
                    pass  # what came before the connection broke still counts
                if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                    self.abort("the server refused our key")
                else:
                    self.abort("the connection to the server broke")

    def send_now(self, header: Header, parts: Parts) -> bool:
        """Only the loop's own thread sends here."""
        return False

    def flush(self) -> None:
        """ZeroMQ sends by itself."""

    def buffered_bytes(self) -> int:
        """Bytes that ZeroMQ refused so far."""
        return self._outbox_bytes

    def credentials(self, token: str) -> Credentials:
        """The server's address."""
        return Credentials(self._address.transport.value, str(self._address), token)

    def touched(self) -> bool:
        """Whether anything came since the last call."""
        seen, self.seen = self.seen, False
        return seen

    def is_amid_frame(self) -> bool:
        """Never: messages come whole."""
        return False

    def overdue(self, now: float, limits: Limits) -> str | None:
        """Nothing: heartbeats find a dead server."""
        return None

    def refuse(self, error: Error) -> None:
        """A client that cannot read what the server sends has nothing to say to it."""
        self.abort(error.message)

    def close(self, reason: str = "") -> None:
        """Say goodbye, and close."""
        if self._receiver is not None:
            self._try([encode(Bye())])
            self._end(reason or "closed", linger_ms=200)

    def abort(self, reason: str = "") -> None:
        """Close now."""
        if self._receiver is not None:
            self._end(reason or "closed", linger_ms=0)

    def _end(self, reason: str, linger_ms: int) -> None:
        receiver, self._receiver = self._receiver, None
        self._wakeup.close()
        self._watch.close()
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)
        if receiver is not None:
            receiver.lost(reason)
