"""The lag of consumers over time: of those who are watched, counted every few seconds."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ..errors import Error, NotFound
from . import resources as r
from .limits import HISTORY_S, LAG_INTERVAL_S, WATCHED_CONSUMERS_MAX

log = logging.getLogger("tstreams.discovery")

SLOWEST_MAX = 20
"""How many of the watched are named in the statistics."""

Look = Callable[[str, set[str]], Awaitable[list[r.Consumer]]]
"""Finds consumers of a stream by their names: those that there are. `NotFound` if there is no such stream."""
Find = Callable[[int], Awaitable[list[tuple[str, str]]]]
"""Some consumers, as stream and name: so many at most."""


@dataclass(slots=True)
class _Watched:
    points: deque[r.LagPoint] = field(
        default_factory=lambda: deque(maxlen=int(HISTORY_S / LAG_INTERVAL_S))
    )
    latest: r.Consumer | None = None


class Lags:
    """Who is watched, and what was seen. Those who were asked for longest ago make room for others."""

    def __init__(self) -> None:
        self._watched: OrderedDict[tuple[str, str], _Watched] = OrderedDict()

    def watch(self, stream: str, consumer: str) -> None:
        """From now on this one is watched."""
        key = (stream, consumer)
        if key not in self._watched:
            self._watched[key] = _Watched()
            if len(self._watched) > WATCHED_CONSUMERS_MAX:
                self._watched.popitem(last=False)
        else:
            self._watched.move_to_end(key)

    def history(self, stream: str, consumer: str, minutes: int) -> list[r.LagPoint]:
        """What was seen in the last minutes, the oldest first."""
        watched = self._watched.get((stream, consumer))
        if watched is None:
            return []
        since = datetime.now(UTC) - timedelta(minutes=minutes)
        return [point for point in watched.points if point.time >= since]

    def latest(self) -> list[r.Consumer]:
        """All that are watched, as they were seen last, the slowest first."""
        found = [it.latest for it in self._watched.values() if it.latest is not None]
        return sorted(found, key=lambda it: (-it.lag.transactions, it.stream, it.name))

    def slowest(self) -> list[r.SlowConsumer]:
        """Those with the greatest lags."""
        return [
            r.SlowConsumer(
                stream=it.stream,
                consumer=it.name,
                transactions=it.lag.transactions,
                seconds=it.lag.seconds,
                live=it.live,
            )
            for it in self.latest()[:SLOWEST_MAX]
        ]

    async def run(self, look: Look, find: Find) -> None:
        """Look at the watched ones, stream by stream, until cancelled. Room that is left is for others."""
        while True:
            try:
                if len(self._watched) < WATCHED_CONSUMERS_MAX:
                    for stream, name in await find(WATCHED_CONSUMERS_MAX - len(self._watched)):
                        self._watched.setdefault((stream, name), _Watched())
                for stream in {stream for stream, _ in self._watched}:
                    await self._look(stream, look)
            except Error as error:
                log.debug("lags could not be counted: %s", error)
            await asyncio.sleep(LAG_INTERVAL_S)

    async def _look(self, stream: str, look: Look) -> None:
        names = {name for at, name in self._watched if at == stream}
        try:
            found = {it.name: it for it in await look(stream, names)}
        except NotFound:
            found = {}
        now = datetime.now(UTC)
        for name in names:
            watched = self._watched.get((stream, name))
            if watched is None:  # it made room for another meanwhile
                continue
            if name not in found:
                del self._watched[stream, name]
                continue
            watched.latest = it = found[name]
            watched.points.append(
                r.LagPoint(time=now, transactions=it.lag.transactions, seconds=it.lag.seconds)
            )
