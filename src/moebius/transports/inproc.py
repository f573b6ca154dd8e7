"""Messages inside one process: for embedding and tests. Nothing is encoded or copied.

The two ends may live on loops in different threads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar

from ..addresses import Address
from ..errors import Disconnected, Error
from ..limits import Limits
from ..messages import NO_RESPONSE, Buffer, Failure, Header, Parts
from .link import Credentials, Receiver

log = logging.getLogger("moebius")

_MESSAGE_OVERHEAD_BYTES = 128


class InprocLink:
    """One end of a connection. `send` puts a message on the other end's queue and wakes its loop.

    Invariant: a delivery is scheduled on `_loop` if and only if `_scheduled`, or the queue is empty.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, name: str) -> None:
        self._loop = loop
        self._limits = limits
        self._name = name
        self._lock = threading.Lock()
        self._inbox: deque[tuple[Header, Parts] | str] = deque()
        self._inbox_bytes = 0
        self._scheduled = False
        self._closed = False
        self.other: InprocLink
        self.receiver: Receiver | None = None
        self.unpaced_bytes_max: int | None = None
        self.blocked = False
        self.blocked_since: float | None = None
        self.seen = False

    def send(self, header: Header, parts: Parts) -> None:
        """Queue a message at the other end."""
        if self._closed:
            return
        if self.other.put((header, parts)) > self._limits.write_buffer_bytes and not self.blocked:
            self.blocked = True
            self.blocked_since = self._loop.time()
            if not self.other._inbox_bytes:  # it was taken before we could say so
                self._schedule(self._unblock)

    def send_pieces(self, header: Header, first: Buffer, pieces: Sequence[Buffer]) -> None:
        """The other end gets a part as one buffer."""
        self.send(header, (first, b"".join(pieces)))

    def put(self, message: tuple[Header, Parts] | str) -> int:
        """From the other end's thread: take a message, or why the connection ended."""
        with self._lock:
            self._inbox.append(message)
            if not isinstance(message, str):
                self._inbox_bytes += sum(map(len, message[1])) + _MESSAGE_OVERHEAD_BYTES
            waiting, wake = self._inbox_bytes, not self._scheduled
            self._scheduled = True
        if wake:
            self._schedule(self._deliver)
        return waiting

    def _schedule(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # that loop is closed: nobody is left to be told
            self._closed = True

    def _deliver(self) -> None:
        with self._lock:
            batch, self._inbox = self._inbox, deque()
            self._inbox_bytes = 0
            self._scheduled = False
        self.seen = True
        if self.other.blocked:
            self.other._schedule(self.other._unblock)
        for message in batch:
            receiver = self.receiver
            if receiver is None:
                return
            if isinstance(message, str):
                self._end(message)
            else:
                try:
                    receiver.received(*message)
                except Exception:
                    log.exception("a message could not be handled")

    def _unblock(self) -> None:
        if self.blocked:
            self.blocked = False
            self.blocked_since = None
            if self.receiver is not None:
                self.receiver.writable()

    def send_now(self, header: Header, parts: Parts) -> bool:
        """Only the loop's own thread sends here."""
        return False

    def flush(self) -> None:
        """Nothing waits here."""

    def buffered_bytes(self) -> int:
        """Bytes that the other end has not taken."""
        return self.other._inbox_bytes

    def credentials(self, token: str) -> Credentials:
        """The name of the address."""
        return Credentials("inproc", self._name, token)

    def touched(self) -> bool:
        """Whether anything came since the last call."""
        seen, self.seen = self.seen, False
        return seen

    def is_amid_frame(self) -> bool:
        """Never: messages come whole."""
        return False

    def overdue(self, now: float, limits: Limits) -> str | None:
        """Why this link should be closed at `now`, or None."""
        if self.blocked_since is not None and now - self.blocked_since > limits.stall_timeout_s:
            return f"the peer took nothing for {limits.stall_timeout_s:g} s"
        return None

    def refuse(self, error: Error) -> None:
        """Say what the peer did wrong, and close."""
        self.send(Failure(NO_RESPONSE, error.code, error.message), ())
        self.close(error.message)

    def close(self, reason: str = "") -> None:
        """Tell the other end, after what was sent before."""
        if not self._closed:
            self.other.put(reason or "the peer closed the connection")
            self._end(reason or "closed")

    abort = close

    @property
    def closed(self) -> bool:
        """Whether this end is closed."""
        return self._closed

    def give_up(self) -> None:
        """Nobody waits for this connection any more, whether it comes about or not."""
        self.receiver = None
        self._closed = True

    def _end(self, reason: str) -> None:
        self._closed = True
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            receiver.lost(reason)


class InprocListener:
    """A name in this process that clients can connect to."""

    _names: ClassVar[dict[str, InprocListener]] = {}

    def __init__(
        self,
        address: Address,
        limits: Limits,
        on_open: Callable[[InprocLink], Receiver | None],
    ) -> None:
        self.address = address
        self._limits = limits
        self._on_open = on_open
        self._loop: asyncio.AbstractEventLoop

    async def open(self) -> None:
        """Take the name."""
        if self.address.path in self._names:
            raise Error(f"{self.address} is in use in this process")
        self._loop = asyncio.get_running_loop()
        self._names[self.address.path] = self

    def close(self) -> None:
        """Give the name back."""
        if self._names.get(self.address.path) is self:
            del self._names[self.address.path]

    def accept(self, client: InprocLink) -> None:
        """On the server's loop: make the server's end of a connection."""
        if client.closed:
            return  # it gave up waiting for us
        server = InprocLink(self._loop, self._limits, self.address.path)
        server.other, client.other = client, server
        receiver = self._on_open(server)
        if receiver is not None and server.closed:
            receiver.lost("closed while it connected")
        else:
            server.receiver = receiver


async def dial(address: Address, limits: Limits, receiver: Receiver) -> InprocLink:
    """Connect to a server of this process."""
    listener = InprocListener._names.get(address.path)
    if listener is None:
        raise Disconnected(f"nobody listens on {address} in this process")
    loop = asyncio.get_running_loop()
    link = InprocLink(loop, limits, address.path)
    link.receiver = receiver
    if listener._loop is loop:
        listener.accept(link)
        return link
    accepted = asyncio.Event()

    def accept() -> None:
        listener.accept(link)
        loop.call_soon_threadsafe(accepted.set)

    try:
        listener._loop.call_soon_threadsafe(accept)
    except RuntimeError:
        raise Disconnected(f"the server of {address} has ended") from None
    try:
        await accepted.wait()
    except BaseException:
        link.give_up()
        raise
    return link
