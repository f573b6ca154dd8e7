"""The connections of a client whose users are threads: to each node that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import moebius
from moebius.client.connection import Locate

from ..config import ClientConfig
from ..locating import Locator
from ..rules.link import Wire
from ..rules.stations import Station


class Network:
    """Makes connections, all with one configuration, and closes them. They share the loop of all blocking clients."""

    def __init__(self, config: ClientConfig) -> None:
        """`BadRequest` if the address makes no sense."""
        self._config = config
        self._locator = Locator(config)
        self._tls = config.tls_context()
        self._wires: list[moebius.Client] = []
        self.seeds = self._locator.seeds

    def open(self) -> tuple[Station, moebius.Client]:
        """Connect for the first time, and wait for it."""
        station = Station(self._locator.address)
        wire = self._make(station, self._locator.target, self._config.timeout)
        station.wire = wire
        return station, wire

    def dial(self, station: Station) -> Wire:
        """See `rules.stations.Network`."""
        return self._make(station, station.address, None)

    def _make(
        self, station: Station, target: str | Locate, connect_timeout_s: float | None
    ) -> moebius.Client:
        config = self._config
        wire = moebius.Client(
            target,
            timeout=config.timeout,
            connect_timeout=connect_timeout_s,
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
        mine = cast(moebius.Client, wire)
        self._wires.remove(mine)
        mine.close_soon()

    def choose(self, addresses: Sequence[str]) -> str | None:
        """See `rules.stations.Network`."""
        return self._locator.choose(addresses)

    def post(self, action: Callable[[], None]) -> None:
        """See `rules.stations.Network`."""
        self._wires[0].post(action)

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """See `rules.stations.Network`."""
        self._wires[0].post_later(delay_s, action)

    def close(self) -> None:
        """Close all of them."""
        for wire in list(self._wires):
            wire.close()

    def __len__(self) -> int:
        return len(self._wires)
