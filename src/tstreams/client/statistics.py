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
    """Producers, consumers and subscribers that are open."""
    connections: int
    """Nodes that it talks to, or tries to; `connection` is the first."""


@dataclass(frozen=True, slots=True)
class SubscriberStatistics:
    """What a subscriber is doing."""

    queued: int
    """Transactions that are here and wait for an engine."""
    queued_bytes: int
    """What the server has sent ahead: bounded by the window."""
    at_work: int
    """Callbacks under way."""
    returned: int
    """Callbacks that have returned since it was made."""
    failed_partitions: int
    """Partitions that a callback's exception has stopped."""
