"""What a shard holds: its index and its log, the core that decides, and those who read what is durable."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable

from ..core.facts import Session, StreamState
from ..core.records import AnyRecord, InstantMade, SessionsNoted
from ..core.shard import Shard as Core
from ..index import Index
from ..ledger.port import Readable
from ..protocol import Want
from .metrics import Metrics
from .payloads import Payloads
from .reads import Reads
from .subscriptions import Subscriptions
from .turn import Pending
from .visible import Visible

log = logging.getLogger("tstreams.server")

FEW_SUBSCRIPTIONS = 8
"""Up to so many hear of something new before its writer hears that it is durable: what is sent first wakes
its receiver, which then has the processor. Of many, the writer should not have to wait for all."""

REPLAY_RECORDS = 10_000
"""Records that are taken from the log in one step after a restart."""

_yield_processor = getattr(os, "sched_yield", lambda: None)
"""Who was just sent something often waits for this very processor, where its data is. After a sync it would get it
only at the end of the turn: a fifth of the time between a write and a callback. Nobody waits: it costs nothing."""

Entry = tuple[AnyRecord, int, int]
"""A record that is durable, where it lies in the log, and its size."""


class Contents:
    """Whoever opens a shard gives it an index and a log (`adopt`), and has the core made of them.

    Invariant: outside of a turn `core` knows what the index knows, and nothing else.
    """

    index: Index
    log: Readable
    core: Core
    payloads: Payloads
    reads: Reads
    subscriptions: Subscriptions

    def __init__(
        self, number: int, shards: int, clock: Callable[[], int], cache_bytes: int
    ) -> None:
        self.number = number
        self.shards = shards
        self.clock = clock
        self.metrics = Metrics(clock())
        self.records_since_flush = 0
        self._cache_bytes = cache_bytes
        self.is_empty = True
        """Whether it was never opened."""
        self._cores = 0

    # Opening.

    def adopt(self, index: Index, log_: Readable) -> None:
        """Hold these from now on."""
        self.index, self.log = index, log_
        self.is_empty = False
        self.make_readers()
        self.make_core()

    def make_readers(self) -> None:
        """Begin without readers: those that were there have been told."""
        self.payloads = Payloads(self.log, self._cache_bytes, self.metrics)
        self.visible = Visible(self.index, self.payloads, self.metrics)
        self.reads = Reads(self.visible)
        self.subscriptions = Subscriptions(self.visible, self.clock)

    def make_core(self) -> None:
        """Forget what was decided and is not durable. Leases and sessions begin anew."""
        index = self.index
        self.core = Core(
            index.facts,
            last_id=index.last_id,
            last_number=index.last_number,
            now_ms=self.clock(),
            number=self.number,
            shards=self.shards,
        )
        self._cores += 1
        self.core.state.heard = self._cores << 32  # so that it rises, whatever was heard before
        self.visible.follow(self.core)

    def settle_replayed(self) -> None:
        """What was read from the log is news to nobody."""
        self.index.applier.shown.clear()
        self.visible.settle()
        self.core.state.lost.clear()

    # What is durable.

    def apply(self, entries: Iterable[Entry], end: int, sessions: dict[int, Session]) -> None:
        """The index takes these records, which end at `end`, and the sessions that they belong to."""
        state, index = self.core.state, self.index
        alive = [it for it in sessions.values() if it.id in state.sessions]
        index.apply(entries, end, state.last_id, state.last_number, alive)
        state.evict()

    def take(
        self,
        pending: Pending,
        positions: list[int],
        end: int,
        touched: dict[int, Session],
        begun_ns: int,
        synced_ns: int,
    ) -> None:
        """A group of ours is durable, up to `end`: the index takes it."""
        if 0 < self.subscriptions.count <= FEW_SUBSCRIPTIONS:
            self._push(pending)
        entries = []
        remember = self.payloads.remember
        for (record, encoded, batch), position in zip(pending, positions, strict=True):
            entries.append((record, position, sum(map(len, encoded))))
            if batch is not None:
                remember(position, batch)
        self.apply(entries, end, touched)
        self.records_since_flush += len(entries)
        shown = self.index.applier.shown
        self.metrics.wrote(entries, shown, time.perf_counter_ns() - begun_ns, synced_ns)
        shown.clear()

    def _push(self, pending: Pending) -> None:
        """Send what is durable now to subscribers, while the index does not have it yet. Only of a turn in
        which instant transactions were made and nothing else: those follow on what was visible before."""
        made = []
        for record, _, batch in pending:
            if type(record) is not InstantMade or batch is None:
                if type(record) is SessionsNoted:
                    continue
                return
            made.append((record, batch))
        try:
            if self.subscriptions.push(made):
                _yield_processor()
        except Exception:  # it is durable, and they will get it from the index
            log.exception("what is new could not be pushed")

    def wake(self) -> None:
        """Tell those who wait what has become visible."""
        state = self.core.state
        if state.lost:
            self.subscriptions.fence()
            state.lost.clear()
        if state.stirred:
            self.reads.wake(self.clock())
            self.subscriptions.wake()
            self.visible.settle()

    def check_heads(self, stream: StreamState) -> None:
        """`InDoubt` if what could be read next of a stream is in doubt, in any partition."""
        if self.core.state.groups.prepared:
            self.visible.check_settled(stream.id, [Want(it, 0) for it in stream.local])
