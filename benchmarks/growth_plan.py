"""What `growth` measures: along which axes, at which points, and what may grow along each of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

PROCESSES = 2
"""Client processes; the connections are shared out among them."""
WINDOW = 16
"""Commits that each connection has under way while throughput is measured."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a server is given: who commits what, and what is there already."""

    items: int = 10
    """Of one transaction."""
    item_bytes: int = 100
    streams: int = 1
    partitions: int = 2
    """Of each stream. Commits go to all partitions of all streams in turn."""
    open_transactions: int = 0
    """That one client holds open meanwhile, in the first partition."""
    history: int = 0
    """Transactions of one item that were committed before."""
    connections: int = PROCESSES


@dataclass(frozen=True, slots=True)
class Axis:
    """One figure of the load that is varied, all others staying as they are.

    `allowed` says for each cost how it may grow at most: 0 is not at all, 1 is in proportion.
    """

    name: str
    title: str
    points: tuple[int, ...]
    quick_points: tuple[int, ...]
    allowed: dict[str, float]
    why: str

    def load(self, point: int) -> Load:
        """The load at one point of it."""
        chosen = {self.name: point}
        return replace(Load(), **chosen)


COST, P99 = "server_us_per_commit", "p99_us"
READ, SETUP = "server_us_per_read", "setup_us_per_unit"
COSTS = (COST, P99, READ, SETUP)
TOLERANCE = {COST: 0.15, P99: 0.3, READ: 0.15, SETUP: 0.15}
"""How far an exponent may be off on a noisy machine. A p99 of a short run is the noisiest of them."""

_FLAT = {COST: 0.0, P99: 0.0, READ: 0.0, SETUP: 0.0}
_BYTES = {COST: 1.0, P99: 1.0, READ: 1.0}

AXES = (
    Axis(
        "item_bytes",
        "bytes of an item",
        (16, 128, 1024, 8192, 65536),
        (16, 256),
        _BYTES,
        "Every byte is received, checked and written once.",
    ),
    Axis(
        "items",
        "items of a transaction",
        (1, 10, 100, 1000, 10_000),
        (1, 10),
        _BYTES,
        "Every byte is received, checked and written once; nothing is done for each item.",
    ),
    Axis(
        "partitions",
        "partitions of a stream",
        (1, 16, 256, 4096, 65536),
        (1, 16),
        _FLAT | {READ: 0.2},
        "A partition is a part of a key. But a reader of all of them names up to 1024 in each request, and naming "
        "one costs half a microsecond.",
    ),
    Axis(
        "streams",
        "streams written to in turn",
        (1, 10, 100, 1000, 10_000),
        (1, 10),
        _FLAT,
        "A stream is a part of a key.",
    ),
    Axis(
        "open_transactions",
        "open transactions",
        (1, 10, 100, 1000, 10_000),
        (1, 10),
        _FLAT,
        "What is open is in tables; nothing goes through all of it for a commit.",
    ),
    Axis(
        "history",
        "transactions committed before",
        (100, 1000, 10_000, 100_000, 1_000_000),
        (10, 100),
        _FLAT,
        "What was committed is in the index and is not looked at again.",
    ),
    Axis(
        "connections",
        "clients, each with a connection",
        (1, 4, 16, 64, 256),
        (1, 4),
        {COST: 0.0, P99: 1.0, READ: 0.0, SETUP: 0.0},
        "The server works off what comes in groups; a commit waits for those before it.",
    ),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    seconds: float
    """Of each of the three timed phases of a point."""
    rounds: int
    quick: bool = False

    def points(self, axis: Axis) -> tuple[int, ...]:
        """Where an axis is measured."""
        return axis.quick_points if self.quick else axis.points


def chosen_axes(names: Iterable[str]) -> list[Axis]:
    """Those that were asked for, in order; all if none was."""
    wanted = set(names)
    return [axis for axis in AXES if not wanted or axis.name in wanted]


@dataclass(frozen=True, slots=True)
class Phase:
    """What one round found at one point."""

    commits_per_s: float
    p50_us: float
    p99_us: float
    server_us_per_commit: float
    server_us_per_read: float


@dataclass(slots=True)
class Point:
    """All rounds of one point. What it took to get there is measured once."""

    at: int
    phases: list[Phase]
    setup_us_per_unit: float | None = None
    """Processor time of the server for each stream, partition, transaction or client that was added."""
