"""Frames over TCP and unix sockets, on the loop's own transports. Both sides use the same link."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import cast

from ..addresses import Address, Transport
from ..buffers import Buffers
from ..errors import Error, ProtocolError, describe
from ..frames import LARGE_BYTES, FrameDecoder, encode_frame, encode_pieces
from ..limits import Limits
from ..messages import (
    JSON_FIRST_BYTE,
    NO_RESPONSE,
    Buffer,
    DecodeError,
    Failure,
    Header,
    Parts,
    decode,
    decode_json,
    encode,
    encode_json,
)
from .link import Credentials, Receiver
from .sockets import claim_socket_path

log = logging.getLogger("moebius.transports")

_FRAMES_PER_TURN = 256
"""Messages of one connection that are handled before others get their turn."""

_local = threading.local()


def read_buffers(limits: Limits) -> Buffers:
    """The buffers that all connections of this thread's loop read into."""
    buffers: Buffers | None = getattr(_local, "buffers", None)
    if buffers is None or len(buffers.shared) != limits.read_buffer_bytes:
        buffers = _local.buffers = Buffers(limits.read_buffer_bytes)
    return buffers


class StreamLink(asyncio.BufferedProtocol):
    """One connection: bytes in, messages out, and back.

    Everything that is sent while one read is being worked on leaves in one write; what is sent at
    other times leaves at the end of the loop's turn.
    """

    __slots__ = (
        "_buffer_limit",
        "_close_timeout_s",
        "_close_timer",
        "_closing",
        "_decoder",
        "_flushing",
        "_held",
        "_loop",
        "_on_open",
        "_out",
        "_out_bytes",
        "_reading",
        "_reason",
        "_transport",
        "_transport_name",
        "_waiting_bytes",
        "_write_limit",
        "blocked",
        "blocked_since",
        "json",
        "partial_since",
        "receiver",
        "seen",
        "unpaced_bytes_max",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        transport_name: str,
        on_open: Callable[[StreamLink], Receiver | None],
    ) -> None:
        self._loop = loop
        self._decoder = FrameDecoder(limits, read_buffers(limits))
        self._on_open = on_open
        self._write_limit = limits.write_buffer_bytes
        self._transport_name = transport_name
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._held: list[tuple[bytes, Parts]] = []
        self._reading = False
        self._flushing = False
        self._closing = False
        self._close_timeout_s = limits.close_timeout_s
        self._close_timer: asyncio.TimerHandle | None = None
        self._waiting_bytes = 0
        self._buffer_limit = limits.inflight_bytes_max
        self._reason = "the peer closed the connection"
        self.receiver: Receiver | None = None
        self.unpaced_bytes_max: int | None = None
        self.blocked = False
        self.blocked_since: float | None = None
        self.partial_since: float | None = None
        self.seen = False
        self.json = False

    # From the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._write_limit)
        self.receiver = self._on_open(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts the next bytes."""
        return self._decoder.room

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came: hand on every message that is complete, then write all answers at once."""
        self.seen = True
        decoder = self._decoder
        frames = decoder.advance(nbytes)
        if decoder.partial:
            if frames or self.partial_since is None:
                self.partial_since = self._loop.time()
        elif self.partial_since is not None:
            self.partial_since = None
        if self._held:
            self._held += frames  # they arrived before the pause took hold
        else:
            self._deliver(frames)

    def _deliver(self, frames: list[tuple[bytes, Parts]]) -> None:
        """Hand on messages: so many that others are not kept waiting, and only while the peer takes
        the answers. The rest is held, and reading pauses."""
        receiver = self.receiver
        if receiver is None:
            return
        done = 0
        self._reading = True
        try:
            for head, parts in frames:
                done += 1
                if head and head[0] == JSON_FIRST_BYTE:
                    self.json = True
                    receiver.received(decode_json(head), parts)
                else:
                    receiver.received(decode(head), parts)
                if self._closing:
                    return
                if self._out_bytes > self._write_limit:
                    self._flush()
                if self.blocked or done >= _FRAMES_PER_TURN:
                    break
        except DecodeError as error:
            receiver.malformed(ProtocolError(f"a header could not be read: {error}"))
            return
        finally:
            self._reading = False
            if self._out:
                self._flush()
        if done < len(frames):
            self._hold(frames[done:])
        elif self._decoder.error is not None:
            receiver.malformed(self._decoder.error)

    def _hold(self, frames: list[tuple[bytes, Parts]]) -> None:
        self._held = frames
        if self._transport is not None:
            self._transport.pause_reading()
        if not self.blocked:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Others had their turn, or the peer takes answers again: hand on what was held."""
        if self.blocked or self._closing:
            return
        held, self._held = self._held, []
        self._deliver(held)
        self._resume_reading()

    def _resume_reading(self) -> None:
        if not (self._held or self.blocked or self._closing) and self._transport is not None:
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """The peer will send no more; there is no half-closed state in this protocol."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        receiver, self.receiver = self.receiver, None
        self._transport = None
        self._out.clear()
        self._held.clear()
        if self._close_timer is not None:
            self._close_timer.cancel()
        if receiver is not None:
            receiver.lost(f"{exc}" if exc is not None else self._reason)

    def pause_writing(self) -> None:
        """The peer takes too little: neither streams nor new requests until it does."""
        self.blocked = True
        self.blocked_since = self._loop.time()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer took what was waiting."""
        self.blocked = False
        self.blocked_since = None
        self._go_on()
        if self.receiver is not None:
            self.receiver.writable()

    # The link.

    def send(self, header: Header, parts: Parts) -> None:
        """Queue a message."""
        if self._transport is None or self._closing:
            return
        head = encode_json(header) if self.json else encode(header)
        for buffer in encode_frame(head, parts):
            self._out.append(buffer)
            self._out_bytes += len(buffer)
        if not self._reading and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def send_pieces(self, header: Header, first: Buffer, pieces: Sequence[Buffer]) -> None:
        """Queue a message of two parts, the second in several buffers, which are not copied together."""
        if self._transport is None or self._closing:
            return
        head = encode_json(header) if self.json else encode(header)
        buffers = encode_pieces(head, first, pieces)
        self._out += buffers
        self._out_bytes += sum(map(len, buffers))
        if not self._reading and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def send_now(self, header: Header, parts: Parts) -> bool:
        """Write a message if nothing is before it. Only the loop's own thread sends here; a client's end is a
        `DialledLink`."""
        transport = self._transport
        if transport is None or self._reading or self._out or self._closing or self.json:
            return False
        buffers = encode_frame(encode(header), parts)
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)
        return True

    def flush(self) -> None:
        """Write what is queued, unless a read is being worked on: it leaves at the end of that."""
        if not self._reading and self._out:
            self._flush()

    def _flush(self) -> None:
        self._flushing = False
        out, self._out = self._out, []
        out_bytes, self._out_bytes = self._out_bytes, 0
        transport = self._transport
        if transport is None or not out:
            return
        if len(out) == 1:
            transport.write(out[0])
        elif out_bytes < LARGE_BYTES:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)
        if self.blocked and transport.get_write_buffer_size() > self._buffer_limit:
            self.abort("the peer takes too little of what waits for it")

    def buffered_bytes(self) -> int:
        """Bytes that wait here and in the transport."""
        if self._transport is None:
            return 0
        return self._out_bytes + self._transport.get_write_buffer_size()

    def credentials(self, token: str) -> Credentials:
        """The peer's address, and its certificate if it has shown one."""
        transport = self._transport
        peer = transport.get_extra_info("peername") if transport else None
        certificate = transport.get_extra_info("peercert") if transport else None
        address = ":".join(map(str, peer[:2])) if isinstance(peer, tuple) else ""
        return Credentials(self._transport_name, address, token, certificate or None)

    def touched(self) -> bool:
        """Whether anything came since the last call."""
        seen, self.seen = self.seen, False
        return seen

    def is_amid_frame(self) -> bool:
        """Whether part of a message is here, and the rest is not."""
        return self.partial_since is not None

    def overdue(self, now: float, limits: Limits) -> str | None:
        """Why this link should be closed at `now`, or None."""
        if self.partial_since is not None and (self.blocked or self._held):
            self.partial_since = now  # it is we who do not read
        if self.partial_since is not None and now - self.partial_since > limits.frame_timeout_s:
            return f"a frame was not complete after {limits.frame_timeout_s:g} s"
        waiting = self.buffered_bytes()
        if waiting < self._waiting_bytes and self.blocked_since is not None:
            self.blocked_since = now  # slow, but not stuck
        self._waiting_bytes = waiting
        if self.blocked_since is not None and now - self.blocked_since > limits.stall_timeout_s:
            return f"the peer took nothing for {limits.stall_timeout_s:g} s"
        return None

    def refuse(self, error: Error) -> None:
        """Say what the peer did wrong, and close."""
        self.send(Failure(NO_RESPONSE, error.code, describe(error)), ())
        self.close(error.message)

    def close(self, reason: str = "") -> None:
        """Send what is queued, then close."""
        self._reason = reason or self._reason
        if self._transport is not None and not self._closing:
            self._flush()
            self._closing = True
            self._held.clear()
            self._transport.close()
            # A peer that takes nothing would keep the connection open for ever.
            self._close_timer = self._loop.call_later(self._close_timeout_s, self.abort)

    def abort(self, reason: str = "") -> None:
        """Close now."""
        self._reason = reason or self._reason
        self._out.clear()
        self._closing = True
        if self._transport is not None:
            self._transport.abort()


class DialledLink(StreamLink):
    """A client's end: other threads may send too, and read while the loop stands still.

    A thread that sends by itself need not wait until the loop's thread is woken and has the interpreter:
    requests leave while the next ones are made.

    Invariant: whatever is written, by the loop's transport or by `send_now`, is written under `_lock`;
    `send_now` writes only while nothing waits in `_out` or in the transport, so messages keep their order.
    """

    __slots__ = ("_descriptor", "_lock", "_poller")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        transport_name: str,
        on_open: Callable[[StreamLink], Receiver | None],
    ) -> None:
        super().__init__(loop, limits, transport_name, on_open)
        self._lock = threading.Lock()
        self._descriptor = -1
        self._poller: select.poll | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        if transport.get_extra_info("sslcontext") is None:
            # One of our own: the transport closes its descriptor before we hear of it, and another
            # thread must not write to whatever has got the number since.
            self._descriptor = os.dup(transport.get_extra_info("socket").fileno())
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)
        self._poller = None
        super().connection_lost(exc)

    def send(self, header: Header, parts: Parts) -> None:
        """Queue a message."""
        with self._lock:
            super().send(header, parts)

    def send_pieces(self, header: Header, first: Buffer, pieces: Sequence[Buffer]) -> None:
        """Queue a message of two parts."""
        with self._lock:
            super().send_pieces(header, first, pieces)

    def _flush(self) -> None:
        with self._lock:
            super()._flush()

    def send_now(self, header: Header, parts: Parts) -> bool:
        """Write a message from this thread, whichever it is, if nothing is before it."""
        with self._lock:
            transport = self._transport
            if (
                self._descriptor < 0
                or transport is None
                or self._closing
                or self._out
                or self.blocked
                or transport.get_write_buffer_size()
            ):
                return False
            buffers = encode_frame(encode(header), parts)
            try:
                written = os.writev(self._descriptor, buffers)
            except OSError:  # no room, or the connection is broken: the loop will find out
                return False
            if written < sum(map(len, buffers)):
                rest = b"".join(buffers)[written:]
                self._out.append(rest)
                self._out_bytes += len(rest)
                self._flushing = True
                self._loop.call_soon_threadsafe(self._flush)
            return True

    # For a thread that reads while the loop stands still. Nobody else uses the link meanwhile.

    @property
    def is_plain(self) -> bool:
        """Whether the bytes on the socket are those of the frames, and it may be read."""
        return self._descriptor >= 0 and not (self._held or self.blocked or self._closing)

    def wait_for_bytes(self, kick: int, timeout_s: float) -> bool:
        """Wait until there is something to read. False: the time is over, or the descriptor `kick` is ready."""
        poller = self._poller
        if poller is None:
            poller = self._poller = select.poll()
            poller.register(self._descriptor, select.POLLIN)
            poller.register(kick, select.POLLIN)
        ready = poller.poll(timeout_s * 1000)
        return len(ready) == 1 and ready[0][0] == self._descriptor

    def take_in(self) -> bool:
        """Read what has come, and hand it on. False: something has to be done that only the loop can do."""
        try:
            count = os.readv(self._descriptor, [self._decoder.room])
        except BlockingIOError:
            return True
        except OSError:
            return False  # the loop finds it broken too
        if not count:
            return False
        try:
            self.buffer_updated(count)
        except Exception as error:
            log.exception("a message could not be handed on")
            self.abort(f"a message could not be handed on: {error!r}")
        transport = self._transport
        return not (
            self._held
            or self.blocked
            or self._closing
            or transport is None
            or transport.get_write_buffer_size()
        )


class StreamListener:
    """A listening socket."""

    def __init__(
        self,
        address: Address,
        limits: Limits,
        tls: ssl.SSLContext | None,
        on_open: Callable[[StreamLink], Receiver | None],
    ) -> None:
        self.address = address
        self._limits = limits
        self._tls = tls
        self._on_open = on_open
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Begin to accept connections."""
        loop = asyncio.get_running_loop()
        name = self.address.transport.value

        def link() -> StreamLink:
            return StreamLink(loop, self._limits, name, self._on_open)

        backlog = self._limits.backlog
        handshake_s = self._limits.first_frame_timeout_s if self._tls else None
        if self.address.transport is Transport.IPC:
            claim_socket_path(self.address.path)
            self._server = await loop.create_unix_server(
                link,
                self.address.path,
                ssl=self._tls,
                ssl_handshake_timeout=handshake_s,
                backlog=backlog,
            )
            return
        server = await loop.create_server(
            link,
            self.address.host,
            self.address.port,
            ssl=self._tls,
            ssl_handshake_timeout=handshake_s,
            backlog=backlog,
        )
        self._server = server
        self.address = self.address.with_port(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Accept no more; connections that are open stay."""
        if self._server is not None:
            self._server.close()
            self._server = None
            if self.address.transport is Transport.IPC:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.address.path)


async def dial(
    address: Address,
    limits: Limits,
    tls: ssl.SSLContext | None,
    on_open: Callable[[StreamLink], Receiver],
) -> DialledLink:
    """Connect to a server."""
    loop = asyncio.get_running_loop()

    def link() -> DialledLink:
        return DialledLink(loop, limits, address.transport.value, on_open)

    if address.transport is Transport.IPC:
        host = "localhost" if tls else None
        _, opened = await loop.create_unix_connection(
            link, address.path, ssl=tls, server_hostname=host
        )
    else:
        _, opened = await loop.create_connection(link, address.host, address.port, ssl=tls)
    return opened
