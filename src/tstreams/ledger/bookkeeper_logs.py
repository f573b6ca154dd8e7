"""The logs of all shards on BookKeeper, as one process uses them: one client for all."""

from __future__ import annotations

import asyncio

from .bookkeeper import BookKeeperEngine
from .bookkeeper_link import BookKeeperLink, BookKeeperSettings
from .engine import Engine


class BookKeeperLogs:
    """Connects when the first log is opened. The log of shard 3 is called `NAME-3`."""

    def __init__(self, settings: BookKeeperSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._connecting = asyncio.Lock()
        self._link: BookKeeperLink | None = None

    async def open(self, shard: int) -> Engine:
        """The log of a shard. Raises what `BookKeeperLink.connect` raises."""
        return await BookKeeperEngine.open(await self._connected(), f"{self._name}-{shard}")

    async def bookies(self) -> dict[str, bool]:
        """The bookies that are there, and whether they can be written to."""
        return await (await self._connected()).bookies()

    async def _connected(self) -> BookKeeperLink:
        async with self._connecting:
            if self._link is None:
                self._link = await BookKeeperLink.connect(self._settings)
            return self._link

    async def close(self) -> None:
        """Disconnect. Close the engines before."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()
