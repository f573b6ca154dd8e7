"""Counters that a server and a client keep, and the snapshots they give out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """What a server has counted since it started."""

    requests: int = 0
    replies: int = 0
    items: int = 0
    failures: int = 0
    refused: int = 0
    """Requests over a limit, or refused by strategy IGNORE."""
    cancelled: int = 0
    rejected: int = 0
    """Messages that broke the protocol."""
    unauthorized: int = 0
    pushes: int = 0
    pushes_refused: int = 0
    clients_seen: int = 0
    clients_refused: int = 0
    clients_expired: int = 0
    """Closed by us: dead, idle, stalled, or too slow."""
    errors: int = 0
    """Exceptions in handlers, hooks and background tasks."""


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """A snapshot of a server."""

    counts: Counts
    clients: int
    inflight: int
    """Requests that run or wait, of all clients."""
    inflight_payload_bytes: int
    buffered_bytes: int
    """Bytes waiting for clients to take them."""
    workers: int
    worker_restarts: int
    uptime_s: float


@dataclass(frozen=True, slots=True)
class StopReport:
    """How a graceful stop went."""

    finished: int
    """Requests that were running and finished in the time of grace."""
    cancelled: int
    """Requests that did not, and were cancelled (`stopping`)."""
    clients: int
    """Connections that were open."""


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """A snapshot of a client."""

    state: str
    calls: int
    replies: int
    items: int
    failures: int
    pushes: int
    connects: int
    inflight: int
    waiting: int
    buffered_bytes: int
