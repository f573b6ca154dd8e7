"""The server's side of ZeroMQ: a ROUTER that any DEALER (or REQ) can speak to.

A message is one multipart message: the header frame, then one frame per payload part.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import zmq
import zmq.utils.monitor

from ..addresses import Address, Transport
from ..errors import Disconnected, Error, ProtocolError, TooLarge, Unauthorized, describe
from ..limits import Limits
from ..messages import (
    JSON_FIRST_BYTE,
    NO_RESPONSE,
    Buffer,
    DecodeError,
    Failure,
    Header,
    Hello,
    Parts,
    decode,
    decode_json,
    encode,
    encode_json,
)
from ..security import CurveServer
from .link import Credentials, Receiver
from .sockets import claim_socket_path
from .zmq_sockets import Wakeup, send_now


class RouterLink:
    """One client of a ROUTER socket, known by its routing id."""

    __slots__ = (
        "_closed",
        "_listener",
        "_outbox",
        "_outbox_bytes",
        "_unheard_bytes",
        "_waiting_bytes",
        "blocked",
        "blocked_since",
        "curve_key",
        "envelope",
        "greeted",
        "json",
        "receiver",
        "seen",
        "unpaced_bytes_max",
    )

    def __init__(self, listener: RouterListener, envelope: tuple[bytes, ...]) -> None:
        self._listener = listener
        self.envelope = envelope
        self._closed = False
        self._outbox: deque[list[Buffer]] = deque()
        self._outbox_bytes = 0
        self.unpaced_bytes_max: int | None = listener.limits.unpaced_stream_bytes_max
        self.blocked = False
        self.blocked_since: float | None = None
        self.curve_key: bytes | None = None
        self.receiver: Receiver | None = None
        self.seen = True
        self.json = False
        self.greeted = False
        self._unheard_bytes = 0
        self._waiting_bytes = 0

    @property
    def routing_id(self) -> bytes:
        """What ROUTER calls this client."""
        return self.envelope[0]

    def send(self, header: Header, parts: Parts) -> None:
        """Give a message to ZeroMQ, or keep it while the client's queue there is full."""
        if self._closed:
            return
        head = encode_json(header) if self.json else encode(header)
        frames: list[Buffer] = [*self.envelope, head, *parts]
        size = sum(map(len, frames))
        if not self._outbox and self._listener.send(self, frames):
            self._unheard_bytes += size
            return
        if self._outbox_bytes + size > self._listener.limits.inflight_bytes_max:
            self._outbox.clear()
            self.close("the peer takes too little of what waits for it")
            return
        self._outbox.append(frames)
        self._outbox_bytes += size
        if not self.blocked:
            self.blocked = True
            self.blocked_since = self._listener.loop.time()
            self._listener.retry_later(self)

    def send_pieces(self, header: Header, first: Buffer, pieces: Sequence[Buffer]) -> None:
        """ZeroMQ takes a part as one buffer."""
        self.send(header, (first, b"".join(pieces)))

    def retry(self) -> None:
        """Try again what ZeroMQ refused."""
        outbox = self._outbox
        while outbox and not self._closed and self._listener.send(self, outbox[0]):
            self._outbox_bytes -= sum(map(len, outbox.popleft()))
        if self._closed or self.receiver is None:
            return
        if outbox:
            self._listener.retry_later(self)
            return
        self.blocked = False
        self.blocked_since = None
        self.receiver.writable()

    def send_now(self, header: Header, parts: Parts) -> bool:
        """Only the loop's own thread sends here."""
        return False

    def flush(self) -> None:
        """ZeroMQ sends by itself."""

    def buffered_bytes(self) -> int:
        """Bytes that may wait: what ZeroMQ refused, and all that was sent since we last heard of the
        client. ZeroMQ does not tell how much of it is still queued; a client that speaks has read."""
        return self._outbox_bytes + self._unheard_bytes

    def credentials(self, token: str) -> Credentials:
        """The routing id stands for the address: ROUTER knows no other."""
        name = self._listener.address.transport.value
        return Credentials(name, self.routing_id.hex(), token, None, self.curve_key)

    def heard(self) -> None:
        """The client spoke: it has read what was sent before."""
        self._unheard_bytes = 0

    @property
    def closed(self) -> bool:
        """Whether it has been forgotten."""
        return self._closed

    def touched(self) -> bool:
        """Whether anything came since the last call."""
        seen, self.seen = self.seen, False
        return seen

    def is_amid_frame(self) -> bool:
        """Never: messages come whole."""
        return False

    def overdue(self, now: float, limits: Limits) -> str | None:
        """Why this client should be dropped at `now`, or None."""
        if self._outbox_bytes < self._waiting_bytes and self.blocked_since is not None:
            self.blocked_since = now  # slow, but not stuck
        self._waiting_bytes = self._outbox_bytes
        if self.blocked_since is not None and now - self.blocked_since > limits.stall_timeout_s:
            return f"the peer took nothing for {limits.stall_timeout_s:g} s"
        return None

    def refuse(self, error: Error) -> None:
        """Say what the client did wrong, and forget it."""
        self._last_word(error.code, describe(error))
        self.end(error.message)

    def close(self, reason: str = "") -> None:
        """Forget the client. It is a stranger when it speaks again."""
        # ROUTER cannot cut a connection: the client has to be told that it is a stranger now.
        self._last_word(Disconnected.code, reason or "closed by the server")
        self.end(reason or "closed by the server")

    abort = close

    def _last_word(self, code: str, text: str) -> None:
        """Tell the client, if ZeroMQ takes it now; it is never queued."""
        if not self._closed and not self._outbox:
            failure = Failure(NO_RESPONSE, code, text)
            head = encode_json(failure) if self.json else encode(failure)
            self._listener.send(self, [*self.envelope, head])

    def end(self, reason: str) -> None:
        """The client is gone, or told to go."""
        if self._closed:
            return
        self._closed = True
        receiver, self.receiver = self.receiver, None
        self._listener.forget(self)
        if receiver is not None:
            receiver.lost(reason)


class RouterListener:
    """A ROUTER socket and the clients behind it."""

    def __init__(
        self,
        address: Address,
        limits: Limits,
        context: zmq.Context[zmq.Socket[bytes]],
        curve: CurveServer | None,
        on_open: Callable[[RouterLink], Receiver | None],
        *,
        guarded: bool = False,
    ) -> None:
        """`guarded`: clients are authenticated, so a routing id must not be reusable."""
        self._guarded = guarded
        self.address = address
        self.limits = limits
        self._context = context
        self._curve = curve
        self._on_open = on_open
        self._links: dict[bytes, RouterLink] = {}
        self._draining = False
        self.loop: asyncio.AbstractEventLoop

    async def open(self) -> None:
        """Bind and begin to receive."""
        self.loop = asyncio.get_running_loop()
        if self.address.transport is Transport.ZMQ_IPC:
            claim_socket_path(self.address.path)
        self._socket = sock = self._context.socket(zmq.ROUTER)
        try:
            sock.linger = 0
            sock.ipv6 = ":" in self.address.host
            sock.sndhwm = sock.rcvhwm = self.limits.zmq_queue_messages
            sock.setsockopt(zmq.MAXMSGSIZE, self.limits.frame_bytes_max)
            sock.setsockopt(zmq.ROUTER_MANDATORY, 1)
            beat_ms = int(self.limits.heartbeat_s * 1000)
            sock.setsockopt(zmq.HEARTBEAT_IVL, beat_ms)
            sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, beat_ms * self.limits.heartbeats_missed_max)
            if self._curve is not None:
                self._curve.apply(sock)
            sock.bind(self.address.zmq_endpoint)
        except zmq.ZMQError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen on {self.address}: {error}") from None
        if self.address.host:
            endpoint = sock.getsockopt(zmq.LAST_ENDPOINT)
            assert isinstance(endpoint, bytes)
            self.address = self.address.with_port(int(endpoint.rstrip(b"\0").rsplit(b":", 1)[1]))
        self._wakeup = Wakeup(self.loop, sock, self._drain)

    def close(self) -> None:
        """Nothing yet: to unbind would cut off the clients that are here. New ones are refused."""

    def close_socket(self) -> None:
        """Close the socket, after the last message went out."""
        self._wakeup.close()
        if self.address.transport is Transport.ZMQ_IPC:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address.path)
        # Give ZeroMQ's own thread a moment to put the last messages on the wire.
        self._socket.close(linger=200)

    def send(self, link: RouterLink, frames: list[Buffer]) -> bool:
        """Pass a message on; False if ZeroMQ has no room for that client."""
        try:
            send_now(self._socket, frames)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            link.end("the peer closed the connection")
            return True
        if not self._draining:
            self._wakeup.check()
        return True

    def retry_later(self, link: RouterLink) -> None:
        """Try a full client again soon."""
        self.loop.call_later(self.limits.zmq_retry_s, link.retry)

    def forget(self, link: RouterLink) -> None:
        """The link is closed."""
        self._links.pop(link.routing_id, None)

    def _drain(self) -> None:
        """Take what came, up to a limit, so that other sockets get their turn."""
        receive = self._socket.recv_multipart
        self._draining = True
        try:
            if self._curve is None:
                for _ in range(self.limits.drain_max):
                    self._take(receive(zmq.DONTWAIT), None)
            else:
                for _ in range(self.limits.drain_max):
                    self._take_from_curve(receive(zmq.DONTWAIT, copy=False))
        except zmq.Again:
            return
        except BaseException:
            self._wakeup.check()  # messages may be left, and their edge is used up
            raise
        finally:
            self._draining = False
        self._wakeup.check()

    def _take_from_curve(self, frames: Any) -> None:
        """CURVE: whose key it was is told with every frame, so check it with every message."""
        key = frames[-1].get("User-Id").encode()
        raw = [frame.bytes for frame in frames]
        link = self._links.get(raw[0])
        if link is not None and link.curve_key != key:
            link.close("another key came under the same routing id")
        self._take(raw, key)

    def _take(self, frames: list[bytes], curve_key: bytes | None) -> None:
        routing_id = frames[0]
        link = self._links.get(routing_id)
        # A REQ socket puts an empty frame before its message, and wants one before the answer.
        body = 2 if len(frames) > 2 and not frames[1] else 1
        if link is None:
            link = self._new_link(tuple(frames[:body]), curve_key)
        elif body > len(link.envelope):
            link.envelope = tuple(frames[:body])  # a REQ socket that probed before it spoke
        receiver = link.receiver
        if receiver is None:
            return
        link.seen = True
        link.heard()
        head = frames[body] if len(frames) > body else b""
        if not head:  # a probe (ZMQ_PROBE_ROUTER): the client says that it is there
            return
        error = self._over_a_limit(head, frames[body + 1 :])
        if error is not None:
            receiver.malformed(error)
            return
        try:
            if head[0] == JSON_FIRST_BYTE:
                link.json = True
                header = decode_json(head)
            else:
                header = decode(head)
        except DecodeError as refusal:
            receiver.malformed(ProtocolError(f"a header could not be read: {refusal}"))
            return
        if type(header) is Hello:
            if link.greeted:
                # A second hello under one routing id is another connection: it inherits nothing.
                link.end("another connection took the same routing id")
                link = self._new_link(link.envelope, curve_key)
                if link.receiver is None:
                    return
                receiver = link.receiver
            link.greeted = True
        receiver.received(header, tuple(frames[body + 1 :]))

    def _new_link(self, envelope: tuple[bytes, ...], curve_key: bytes | None) -> RouterLink:
        """A client that we have not seen, or not since it was forgotten."""
        link = RouterLink(self, envelope)
        link.curve_key = curve_key
        routing_id = envelope[0]
        if self._guarded and self._curve is None and not routing_id.startswith(b"\0"):
            # Whoever knows a chosen id could take over the client's place once it has left.
            link.refuse(Unauthorized("let ZeroMQ choose the routing id, or use CURVE"))
            return link
        self._links[routing_id] = link
        receiver = self._on_open(link)
        if receiver is not None and link.closed:
            receiver.lost("closed while it connected")
            return link
        link.receiver = receiver
        if receiver is None:
            self._links.pop(routing_id, None)
        return link

    def _over_a_limit(self, head: bytes, parts: list[bytes]) -> Error | None:
        """ZeroMQ bounds each frame; the rest is ours to look at."""
        limits = self.limits
        if len(head) > limits.header_bytes_max:
            return TooLarge(f"a header of {len(head)} bytes is over {limits.header_bytes_max}")
        if len(parts) <= 1:
            return None
        if len(parts) > limits.parts_max:
            return TooLarge(f"more than {limits.parts_max} parts")
        if sum(map(len, parts)) > limits.frame_bytes_max:
            return TooLarge(f"a message is over {limits.frame_bytes_max} bytes")
        return None
