"""A number of bytes that several may hold at once: whoever would be beyond it waits, in the order of coming."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Budget:
    """Invariant: `held_bytes` is at most `bytes_max`; nobody waits who would fit and is first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(not turn.done() for _, turn in self._waiting)

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Hold so many bytes, or all there are if it is more than that. Who is cancelled while waiting holds none."""
        size_bytes = min(size_bytes, self._bytes_max)
        if self._waiting or self.held_bytes + size_bytes > self._bytes_max:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((size_bytes, turn))
            try:
                await turn
            except asyncio.CancelledError:
                self._give_back(0 if turn.cancelled() else size_bytes)
                raise
        else:
            self.held_bytes += size_bytes
        try:
            yield
        finally:
            self._give_back(size_bytes)

    def _give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if turn.done():  # it was cancelled
                self._waiting.popleft()
            elif self.held_bytes + size_bytes <= self._bytes_max:
                self._waiting.popleft()
                self.held_bytes += size_bytes
                turn.set_result(None)
            else:
                return
