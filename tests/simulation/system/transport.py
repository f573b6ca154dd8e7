"""A simulated TCP connection: two ends, and a wire each way that keeps the order of what it carries.

Nothing is lost or doubled on a wire, as TCP sees to. But a wire may be cut for any time, and an end may be given
up while what it had sent is still on its way: the same request then arrives on two connections, the older one
later.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

if TYPE_CHECKING:
    from tests.simulation.system.network import Network
    from tests.simulation.system.scheduler import Process

KERNEL_BYTES = 32 * 1024
"""What the system takes of a sender before the sender has to wait."""


class End(Enum):
    """How a connection ends, as the other side sees it."""

    CLOSED = "closed"
    RESET = "reset"


Message = bytes | End


class Wire:
    """One direction of a connection."""

    def __init__(self, network: Network, sender: SimulatedEnd, receiver: SimulatedEnd) -> None:
        self._network = network
        self._sender = sender
        self._receiver = receiver
        self._last_us = 0
        self._held: list[Message] = []

    @property
    def is_used(self) -> bool:
        """Whether anybody can still receive something, or something is held back."""
        return bool(self._held) or not (self._receiver.gone and self._sender.gone)

    @property
    def way(self) -> tuple[str, str]:
        return self._sender.process.machine, self._receiver.process.machine

    def send(self, message: Message) -> None:
        """Let something go. It arrives after what was sent before it."""
        scheduler, sender = self._network.scheduler, self._sender.process
        sent_us = max(scheduler.now_us, sender.rests_until_us if sender.alive else 0)
        self._last_us = max(self._last_us, sent_us + self._network.delay_us(self.way))
        scheduler.at(self._last_us, lambda: self._arrive(message))

    def _arrive(self, message: Message) -> None:
        if self._held or self._network.is_cut(self.way):
            self._held.append(message)
        else:
            self._deliver(message)

    def release(self) -> None:
        """The cut is healed: what was held back is sent again."""
        held, self._held = self._held, []
        for message in held:
            self.send(message)

    def _deliver(self, message: Message) -> None:
        network, receiver = self._network, self._receiver
        what = message.value if isinstance(message, End) else f"{len(message)} {crc32(message):08x}"
        network.scheduler.note(f"{'>'.join(self.way)} #{receiver.number} {what}")
        if isinstance(message, bytes):
            self._sender.taken(len(message))
            if network.is_trapped(self.way):
                network.scheduler.note(f"{'>'.join(self.way)} #{receiver.number} is lost")
                network.reset(receiver.process.machine)
                return
        if receiver.process.alive and not receiver.gone:
            receiver.process.loop.call_soon(receiver.take, message)
        elif isinstance(message, bytes) and network.is_up(receiver.process.machine):
            receiver.outward.send(End.RESET)  # there is no such connection (any more)


class SimulatedEnd(asyncio.Transport):
    """One end of a connection, as a process has it."""

    outward: Wire

    def __init__(self, network: Network, process: Process, number: int) -> None:
        super().__init__()
        self._network = network
        self.process = process
        self.number = number
        self.gone = False
        """Whether this end is closed: nothing comes in any more."""
        self._protocol: asyncio.BufferedProtocol | None = None
        self._reading = True
        self._inbox: list[Message] = []
        self._waiting_bytes = 0
        self._high_bytes = 64 * 1024
        self._choked = False

    def connect(self, protocol: asyncio.BufferedProtocol) -> None:
        """The connection is made."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._feed()

    # From the wire.

    def take(self, message: Message) -> None:
        """Something came."""
        if not self.gone:
            self._inbox.append(message)
            self._feed()

    def _feed(self) -> None:
        while self._inbox and self._reading and self._protocol is not None and not self.gone:
            message = self._inbox.pop(0)
            if isinstance(message, bytes):
                self._hand_on(self._protocol, message)
            else:
                broken = message is End.RESET
                self._lose(ConnectionResetError("connection reset by peer") if broken else None)

    def _hand_on(self, protocol: asyncio.BufferedProtocol, data: bytes) -> None:
        at = 0
        while at < len(data) and not self.gone:
            room = cast(memoryview, protocol.get_buffer(len(data) - at))
            size = min(len(room), len(data) - at)
            room[:size] = data[at : at + size]
            at += size
            protocol.buffer_updated(size)
            if not self._reading and at < len(data):
                self._inbox.insert(0, data[at:])
                return

    def taken(self, size: int) -> None:
        """The other side's system has taken so much."""
        self._waiting_bytes -= size
        if self._choked and self.get_write_buffer_size() <= self._high_bytes // 4:
            self._choked = False
            if self.process.alive and not self.gone and self._protocol is not None:
                self.process.loop.call_soon(self._protocol.resume_writing)

    def _lose(self, error: Exception | None) -> None:
        self.gone = True
        self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    # From the process.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, sometimes in several pieces."""
        if self.gone or not self.process.alive or not len(data):
            return
        whole = bytes(data)
        self._waiting_bytes += len(whole)
        for piece in self._network.pieces(whole):
            self.outward.send(piece)
        if not self._choked and self.get_write_buffer_size() > self._high_bytes:
            self._choked = True
            if self._protocol is not None:
                self._protocol.pause_writing()

    def close(self) -> None:
        """Send what was written, then close."""
        self._end(End.CLOSED)

    def abort(self) -> None:
        """Close. What the system has taken is on its way all the same."""
        self._end(End.RESET)

    def _end(self, how: End) -> None:
        if not self.gone and self.process.alive:
            self.gone = True
            self._network.forget(self)
            self.outward.send(how)
            if self._protocol is not None:
                self.process.loop.call_soon(self._protocol.connection_lost, None)

    def vanish(self, loudly: bool) -> None:
        """The process is dead: its system says so, unless that is gone too."""
        self.gone = True
        if loudly:
            self.outward.send(End.RESET)

    def break_off(self) -> None:
        """Something between the two has cut them off, and told this side."""
        if not self.gone and self.process.alive:
            self.process.loop.call_soon(self.take, End.RESET)

    def is_closing(self) -> bool:
        return self.gone

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            if self.process.alive:
                self.process.loop.call_soon(self._feed)

    def is_reading(self) -> bool:
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = 64 * 1024 if high is None else high

    def get_write_buffer_size(self) -> int:
        return max(0, self._waiting_bytes - KERNEL_BYTES)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """There is no socket that another thread could write to: as with TLS."""
        known = {"peername": ("simulated", self.number), "sslcontext": "simulated"}
        return known.get(name, default)
