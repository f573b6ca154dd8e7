"""What a client tells about itself."""

from __future__ import annotations

from dataclasses import dataclass

import moebius


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """What a client is doing."""

    connection: moebius.ClientStatistics
    requests_under_way: int
    """Changes that have not been answered."""
    bytes_under_way: int
    """Item batches that have not been answered."""
    agents: int
    """Producers and consumers that are open."""
