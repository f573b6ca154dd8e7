"""The connections of a client for asyncio: to each node that it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import moebius
import moebius.aio
from moebius.client.connection import Locate

from ..config import ClientConfig
from ..locating import Locator
from ..rules.link import Wire
from ..rules.stations import Station


class Network:
    """Makes connections, all with one configuration, and closes them. They live on the loop that it was made on."""

    def __init__(self, config: ClientConfig) -> None:
        """`BadRequest` if the address makes no sense."""
        self._config = config
        self._locator = Locator(config)
        self._tls = config.tls_context()
        self._loop = asyncio.get_running_loop()
        self._wires: list[moebius.aio.Client] = []
        self._closing: set[asyncio.Task[None]] = set()
        self.seeds = self._locator.seeds

    async def open(self) -> tuple[Station, moebius.aio.Client]:
        """Connect for the first time, and wait for it."""
        station = Station(self._locator.address)
        wire = self._make(station, self._locator.target)
        station.wire = wire
        await wire.open(self._config.timeout)
        return station, wire

    def dial(self, station: Station) -> Wire:
        """See `rules.stations.Network`."""
        wire = self._make(station, station.address)
        wire.start()
        return wire

    def _make(self, station: Station, target: str | Locate) -> moebius.aio.Client:
        config = self._config
        wire = moebius.aio.Client(
            target,
            timeout=config.timeout,
            token=config.token,
            name="tstreams",
            tls=self._tls,
            curve=config.curve,
            on_state=station.changed,
            on_refused=station.refused,
            on_silent=station.fell_silent,
        )
        self._wires.append(wire)
        return wire

    def drop(self, wire: Wire) -> None:
        """See `rules.stations.Network`."""
        mine = cast(moebius.aio.Client, wire)
        self._wires.remove(mine)
        self._begin_to_close(mine)

    def _begin_to_close(self, wire: moebius.aio.Client) -> None:
        task = self._loop.create_task(wire.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def choose(self, addresses: Sequence[str]) -> str | None:
        """See `rules.stations.Network`."""
        return self._locator.choose(addresses)

    def post(self, action: Callable[[], None]) -> None:
        """See `rules.stations.Network`."""
        self._loop.call_soon(action)

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """See `rules.stations.Network`."""
        self._loop.call_later(delay_s, action)

    async def close(self) -> None:
        """Close all of them, also if the task is cancelled in here: then nobody waits for it."""
        first, *others = self._wires
        for wire in others:
            self._begin_to_close(wire)
        await first.close()
        if self._closing:
            await asyncio.wait(self._closing)

    def __len__(self) -> int:
        return len(self._wires)
