"""What the node does, second by second: measured once for everyone who wants to know, and remembered."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

from ..errors import Error
from ..protocol import Histogram, Measured, StreamTraffic
from . import resources as r
from .broadcast import Broadcast
from .catalogue import Catalogue
from .lags import Lags
from .limits import EVENTS_INTERVAL_S, HISTORY_S
from .storage import Storage

log = logging.getLogger("tstreams.discovery")

NO_RATES = r.Rates(transactions=0.0, items=0.0, bytes=0.0)
NO_LATENCY = r.Latency(p50=0.0, p99=0.0, count=0)


class Sampler:
    """Measures the storage server each second; keeps an hour of it; tells whoever listens."""

    def __init__(self, storage: Storage, catalogue: Catalogue, lags: Lags) -> None:
        self._storage = storage
        self._catalogue = catalogue
        self._lags = lags
        self.broadcast = Broadcast()
        self.measured: Measured | None = None
        """As the server has said last."""
        self._before: Measured | None = None
        self._samples: deque[r.Sample] = deque(maxlen=int(HISTORY_S / EVENTS_INTERVAL_S))
        self.latest = self._statistics(None, None)

    async def run(self) -> None:
        """Measure, until cancelled."""
        await self._storage.connected.wait()
        loop = asyncio.get_running_loop()
        due_at = loop.time()
        while True:
            await self._measure()
            due_at = max(due_at + EVENTS_INTERVAL_S, loop.time())
            await asyncio.sleep(due_at - loop.time())

    async def _measure(self) -> None:
        try:
            measured = await self._storage.inspect.measure()
        except Error as error:
            log.debug("the storage server could not be measured: %s", error)
            self.measured = self._before = None
            self.latest = self._statistics(None, None)
        else:
            self._before, self.measured = self.measured, measured
            self.latest = self._statistics(self._before, measured)
            if self._before is not None:
                self._samples.append(_sample(self.latest))
        self.broadcast.send("statistics", self.latest)

    def history(self, minutes: int) -> list[r.Sample]:
        """The last minutes, the oldest first."""
        count = int(minutes * 60 / EVENTS_INTERVAL_S)
        return list(self._samples)[-count:]

    def rates_of(self, stream: str) -> r.Rates | None:
        """What is written to a stream, if it is among the busiest."""
        return next((it.written for it in self.latest.busiest if it.name == stream), None)

    def _statistics(self, before: Measured | None, now: Measured | None) -> r.Statistics:
        gauges = {} if now is None else now.gauges
        counters = {} if now is None else now.counters
        seconds = 0.0 if before is None or now is None else (now.now_ms - before.now_ms) / 1000
        rates = _Rates(before, now, seconds)
        return r.Statistics(
            time=datetime.now(UTC),
            interval_seconds=seconds,
            available=now is not None,
            written=rates.three("commits_total", "items_total", "append_bytes_total"),
            read=rates.three("transactions_read_total", "items_read_total", "bytes_read_total"),
            requests=rates.of("requests_total"),
            commit=rates.latency("commit_seconds", "group_seconds", "sync_seconds"),
            sync=rates.latency("sync_seconds"),
            streams=len(self._catalogue),
            open_transactions=int(gauges.get("open_transactions", 0)),
            oldest_open_seconds=float(gauges.get("oldest_open_age_seconds", 0)),
            readers_waiting=int(gauges.get("readers_waiting", 0)),
            subscriptions=int(gauges.get("subscriptions", 0)),
            connections=int(gauges.get("connections", 0)),
            disk_free_bytes=int(gauges.get("disk_free_bytes", 0)),
            ledger_bytes=int(gauges.get("ledger_bytes", 0)),
            busiest=_busiest(before, now),
            slowest=self._lags.slowest(),
            values={**counters, **gauges},
        )


class _Rates:
    """What has changed between two measurements."""

    def __init__(self, before: Measured | None, now: Measured | None, seconds: float) -> None:
        self._before = before
        self._now = now
        self._seconds = seconds

    def of(self, name: str) -> float:
        """Of a counter, per second."""
        if self._before is None or self._now is None or self._seconds <= 0:
            return 0.0
        grown = self._now.counters.get(name, 0) - self._before.counters.get(name, 0)
        return max(0, grown) / self._seconds

    def three(self, transactions: str, items: str, size: str) -> r.Rates:
        """Of the three counters that belong together."""
        return r.Rates(
            transactions=self.of(transactions), items=self.of(items), bytes=self.of(size)
        )

    def latency(self, *names: str) -> r.Latency:
        """Of the first of these histograms that there is."""
        if self._before is None or self._now is None:
            return NO_LATENCY
        for name in names:
            now, before = _named(self._now, name), _named(self._before, name)
            if now is not None and before is not None:
                counts = [max(0, a - b) for a, b in zip(now.counts, before.counts, strict=True)]
                return r.Latency(
                    p50=quantile(now.bounds, counts, 0.5),
                    p99=quantile(now.bounds, counts, 0.99),
                    count=sum(counts),
                )
        return NO_LATENCY


def _named(measured: Measured, name: str) -> Histogram | None:
    return next((it for it in measured.histograms if it.name == name), None)


def quantile(bounds: Sequence[float], counts: Sequence[int], part: float) -> float:
    """Estimated as Prometheus does: evenly spread within a bucket, and at most the last bound."""
    rank = sum(counts) * part
    if rank == 0 or not bounds:
        return 0.0
    passed, low = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and passed + count >= rank:
            return low + (bound - low) * (rank - passed) / count
        passed += count
        low = bound
    return bounds[-1]


def _busiest(before: Measured | None, now: Measured | None) -> list[r.BusyStream]:
    if before is None or now is None:
        return []
    earlier = {it.stream: it for it in before.busiest}
    seconds = (now.now_ms - before.now_ms) / 1000
    rows = [_busy(earlier.get(it.stream), it, seconds) for it in now.busiest]
    return sorted(rows, key=lambda it: -(it.written.bytes + it.read.bytes))


def _busy(before: StreamTraffic | None, now: StreamTraffic, seconds: float) -> r.BusyStream:
    if before is None or before.since_ms != now.since_ms or seconds <= 0:
        return r.BusyStream(name=now.name, written=NO_RATES, read=NO_RATES)

    def rate(new: int, old: int) -> float:
        return max(0, new - old) / seconds

    written = r.Rates(
        transactions=rate(now.transactions, before.transactions),
        items=rate(now.items, before.items),
        bytes=rate(now.bytes, before.bytes),
    )
    read = r.Rates(
        transactions=rate(now.transactions_read, before.transactions_read),
        items=rate(now.items_read, before.items_read),
        bytes=rate(now.bytes_read, before.bytes_read),
    )
    return r.BusyStream(name=now.name, written=written, read=read)


def _sample(now: r.Statistics) -> r.Sample:
    slowest = now.slowest[0] if now.slowest else None
    return r.Sample(
        time=now.time,
        written=now.written,
        read=now.read,
        requests=now.requests,
        commit_p50=now.commit.p50,
        commit_p99=now.commit.p99,
        sync_p99=now.sync.p99,
        open_transactions=now.open_transactions,
        oldest_open_seconds=now.oldest_open_seconds,
        lag_transactions=slowest.transactions if slowest else 0,
        lag_seconds=max((it.seconds for it in now.slowest), default=0.0),
    )
