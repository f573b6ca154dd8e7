"""What both sides of ZeroMQ need: sending without waiting, and being woken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

from ..messages import Buffer

_COPY_BELOW_BYTES = 64 * 1024
"""Smaller messages are copied into ZeroMQ: cheaper than tracking when it is done with them."""


_LAST = int(zmq.DONTWAIT)
_MORE = int(zmq.DONTWAIT | zmq.SNDMORE)
"""As plain numbers: `send_multipart` would compute the enum for every frame, which doubles its cost."""


def send_now(sock: zmq.Socket[bytes], frames: list[Buffer]) -> None:
    """Send one message without waiting; `zmq.Again` if there is no room for it."""
    if len(frames[-1]) >= _COPY_BELOW_BYTES:
        sock.send_multipart(frames, zmq.DONTWAIT, copy=False)
        return
    send = sock.send
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        send(frame, _MORE if index < last else _LAST)


class Wakeup:
    """Calls back when a socket may have messages.

    A ZeroMQ descriptor is edge-triggered, and any operation on the socket may consume the edge:
    after every turn in which we sent, `check` has to look at the socket's events itself.
    """

    __slots__ = ("_callback", "_closed", "_descriptor", "_loop", "_pending", "_socket")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: zmq.Socket[bytes],
        callback: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._callback = callback
        self._pending = False
        self._closed = False
        self._descriptor: int = sock.FD
        loop.add_reader(self._descriptor, callback)
        self.check()  # the descriptor is silent until the events have been asked for once

    def check(self) -> None:
        """Look at the events at the end of this turn."""
        if not self._pending:
            self._pending = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._pending = False
        if not self._closed and int(self._socket.EVENTS) & zmq.POLLIN:
            self._callback()

    def close(self) -> None:
        """No more calls."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._descriptor)
