"""News for many listeners, of whom each takes what is newest when it is ready: nothing queues up for the slow."""

from __future__ import annotations

import asyncio

import msgspec


class Broadcast:
    """The latest event, and whoever waits for the next."""

    def __init__(self) -> None:
        self._number = 0
        self._latest = b""
        self._next: asyncio.Event = asyncio.Event()
        self.closed = False

    def send(self, event: str, news: msgspec.Struct) -> None:
        """Something new: it is encoded once, for all."""
        self._number += 1
        self._latest = frame(event, msgspec.json.encode(news), self._number)
        self._wake()

    def close(self) -> None:
        """There will be no more."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        event, self._next = self._next, asyncio.Event()
        event.set()

    async def after(self, number: int) -> tuple[int, bytes] | None:
        """The newest event, once there is one after this number; None at the end."""
        while self._number <= number and not self.closed:
            await self._next.wait()
        return None if self.closed else (self._number, self._latest)


def frame(event: str, data: bytes, number: int | None = None) -> bytes:
    """An event as it travels (text/event-stream). The data is JSON, and so has no line breaks."""
    head = b"" if number is None else b"id: %d\n" % number
    return head + b"event: %s\ndata: %s\n\n" % (event.encode(), data)
