"""The storage server, as the front door sees it: one connection, and turns for those who ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..client.asynchronous.client import Client, open_client
from ..client.asynchronous.inspection import Inspection
from ..client.config import ClientConfig
from ..errors import Error, Unavailable
from .limits import WORK_MAX

log = logging.getLogger("tstreams.discovery")

_RETRY_S = 1.0


class Storage:
    """A connection that is made when the server is there, and made again when it is lost.

    Who asks through `turn` waits for one of a few turns. Cancelling gives it back.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._client: Client | None = None
        self._inspection: Inspection | None = None
        self._turns = asyncio.Semaphore(WORK_MAX)
        self.connected = asyncio.Event()
        """Set when there is a connection; it mends itself from then on."""

    async def run(self) -> None:
        """Connect, and try again until that works. The connection mends itself from then on, until cancelled."""
        while self._client is None:
            try:
                client = await open_client(self._config)
            except Error as error:
                log.warning("the storage server does not answer yet: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                self._client, self._inspection = client, client.inspection()
                self.connected.set()
        await asyncio.Event().wait()

    @property
    def client(self) -> Client:
        """The client; `Unavailable` before there is one."""
        if self._client is None:
            raise Unavailable("the storage server does not answer yet: try again in a moment")
        return self._client

    @property
    def inspect(self) -> Inspection:
        """What operators ask; `Unavailable` before there is a connection."""
        if self._inspection is None:
            raise Unavailable("the storage server does not answer yet: try again in a moment")
        return self._inspection

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Inspection]:
        """Wait for a turn to ask."""
        async with self._turns:
            yield self.inspect

    async def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            await self._client.close()
