"""What all handlers share: the storage server, and what the front door has learnt about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..model import ID_MAX, IDS_PER_MS, first_id_at, time_of
from . import resources as r
from .catalogue import Catalogue
from .lags import Find, Lags, Look
from .limits import SERVER_TIMEOUT_S
from .milestones import Milestones
from .peers import Peers
from .problems import Refused
from .settings import Settings
from .statistics import Sampler
from .storage import Storage

if TYPE_CHECKING:
    from .application import Application


class Front:
    """The parts of the front door, and the tasks that keep them up to date while `running`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.storage = Storage(settings.client(SERVER_TIMEOUT_S))
        self.peers = Peers(settings)
        self.milestones = Milestones()
        self.catalogue = Catalogue()
        self.lags = Lags()
        self.sampler = Sampler(self.storage, self.catalogue, self.lags)
        self.application: Application | None = None
        """What answers requests: it counts them."""
        self.event_clients = 0
        self.changing = asyncio.Lock()
        """Held by changes that were asked for with If-Match, so that two of them cannot both find their match."""

    @asynccontextmanager
    async def running(self, look: Look, find: Find) -> AsyncIterator[list[asyncio.Task[None]]]:
        """Connect, measure, and learn the names of streams, while the block runs.

        The tasks that do so never end by themselves: if one does, something is wrong, and leaving the
        block raises it.
        """
        jobs = (
            self.storage.run(),
            self.sampler.run(),
            self.catalogue.run(self.storage),
            self._watch_lags(look, find),
        )
        tasks = [asyncio.create_task(job) for job in jobs]
        try:
            yield tasks
        finally:
            self.sampler.broadcast.close()
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            await self.peers.close()
            await self.storage.close()

    async def _watch_lags(self, look: Look, find: Find) -> None:
        await self.storage.connected.wait()
        await self.lags.run(look, find)


def shown_time(transaction_id: int) -> datetime | None:
    """When a transaction was opened; None for no transaction, or for a time that has no name."""
    if not transaction_id:
        return None
    try:
        return time_of(transaction_id)
    except (OverflowError, ValueError, OSError):
        return None


def shown_ms(ms: int) -> datetime | None:
    """A time in milliseconds; None for zero."""
    return shown_time(ms * IDS_PER_MS)


def id_at(point: r.Point, what: str) -> int:
    """The smallest id at a point, which has exactly one of a time and an id."""
    if len(r.given(point)) != 1:
        raise Refused(422, "bad_request", f"{what}: give exactly one of time and id")
    if isinstance(point.id, str):
        return read_id(point.id, what)
    assert isinstance(point.time, datetime)
    return id_of_time(point.time, what)


def id_of_time(when: datetime, what: str) -> int:
    """The smallest id at a time."""
    if when.tzinfo is None:
        raise Refused(
            422, "bad_request", f"{what}: a time ends with Z, or with its offset from UTC"
        )
    try:
        return first_id_at(when.astimezone(UTC))
    except (OverflowError, ValueError):
        raise Refused(422, "bad_request", f"{what}: {when} is out of bounds") from None


def read_id(text: str, what: str) -> int:
    """An id."""
    number = int(text)
    if number > ID_MAX:
        raise Refused(422, "bad_request", f"{what}: ids go up to {ID_MAX}")
    return number
