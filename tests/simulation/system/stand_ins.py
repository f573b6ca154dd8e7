"""What takes the place of the machine's clock, of chance and of large limits while a simulation runs."""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import tstreams.aio
import tstreams.server.node  # noqa: F401
from tests.simulation.system.machine import ServerMachine, SimulatedLock
from tests.simulation.system.scheduler import Scheduler

_SMALL = {
    "tstreams.core.state.STREAMS_CACHED_MAX": 1,
    "tstreams.index.applier.STREAMS_CACHED_MAX": 1,
    "tstreams.ledger.local.LARGE_GROUP_BYTES": 700,
    "tstreams.ledger.local.SPARE_BYTES_MIN": 2048,
    "tstreams.server.contents.REPLAY_RECORDS": 3,
    "tstreams.server.compactor.STEP_BYTES": 1000,
    "tstreams.server.housekeeping.FLUSH_EVERY_MS": 3_000,
    "tstreams.server.housekeeping.FLUSH_TO_TRIM_MS": 500,
    "tstreams.server.housekeeping.ROLL_AFTER_MS": 2_000,
    "tstreams.core.state.SESSION_TTL_MS": 30_000,
    "tstreams.core.shard.SESSION_TTL_MS": 30_000,
    "tstreams.core.transitions.SESSION_TTL_MS": 30_000,
    "tstreams.client.rules.session.KEEPALIVE_S_MAX": 6.0,
    "tstreams.client.rules.outbox.SEND_BATCH_BYTES": 200,
    "tstreams.client.rules.results.SEND_BATCH_BYTES": 200,
}
"""What takes a large server, or long hours, to happen, happens here with a few records, in a minute."""


class SimulatedTime:
    """The module `time`, as far as the clock of the simulation goes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic(self) -> float:
        self._scheduler.look_at_clock()
        return self._scheduler.now_us / 1e6

    def perf_counter_ns(self) -> int:
        """For what is only measured: nothing waits for it."""
        return self._scheduler.now_us * 1000

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"time.{name} is not simulated")


class _Complaints(logging.Handler):
    """Says so when the program logs that it has caught a mistake of its own."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(logging.ERROR)
        self._scheduler = scheduler

    def emit(self, record: logging.LogRecord) -> None:
        process = self._scheduler.current
        if record.exc_info and process is not None and process.alive:
            self._scheduler.complain(f"{process}: {record.getMessage()}: {record.exc_info[1]!r}")


def _program() -> list[tuple[str, ModuleType]]:
    return [(n, m) for n, m in sorted(sys.modules.items()) if n.startswith(("tstreams", "moebius"))]


@contextmanager
def stand_ins(scheduler: Scheduler, machine: ServerMachine) -> Iterator[None]:
    """While this lasts, the program has the simulation's clock, dice, lock and limits."""
    patches: list[Any] = [
        patch.object(module, "time", SimulatedTime(scheduler))
        for _, module in _program()
        if module.__dict__.get("time") is time
    ]
    patches += [patch(name, value) for name, value in _SMALL.items()]
    patches += [
        patch("moebius.client.connection.luck", scheduler.random_for("reconnects")),
        patch("tstreams.client.rules.inquiry.luck", scheduler.random_for("maps")),
        patch("tstreams.client.rules.routing.luck", scheduler.random_for("routes")),
        patch("tstreams.server.node.DirectoryLock", lambda _: SimulatedLock(machine)),
        patch("tstreams.server.node.node_id", lambda _: "5e7d" * 4),
        patch("tstreams.server.node.check_shards", lambda *_: None),
    ]
    SimulatedLock.holder = None
    handler = _Complaints(scheduler)
    loggers = [logging.getLogger(name) for name in ("tstreams", "moebius", "asyncio")]
    was_enabled = gc.isenabled()
    gc.disable()  # what is collected when would depend on what ran before
    try:
        for it in patches:
            it.start()
        for logger in loggers:
            logger.addHandler(handler)
            logger.propagate = False
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True
        for it in reversed(patches):
            it.stop()
        if was_enabled:
            gc.enable()
