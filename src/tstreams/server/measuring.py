"""What a node says of itself when somebody asks: the numbers of its shards and of its connections, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moebius import Server

from ..errors import NotFound
from ..limits import BUSIEST_STREAMS
from ..model import IDS_PER_MS
from ..protocol import Histogram, Measured, StreamTraffic
from .metrics import Metrics, Tally
from .shard import Shard

_COUNTED = {
    "commits_total": "commits",
    "items_total": "items",
    "append_bytes_total": "append_bytes",
    "records_total": "records",
    "groups_total": "groups",
    "opened_total": "opened",
    "cancelled_total": "cancelled",
    "expired_total": "expired",
    "overruled_total": "overruled",
    "fenced_total": "fenced",
    "answers_read_total": "answers_read",
    "transactions_read_total": "transactions_read",
    "items_read_total": "items_read",
    "bytes_read_total": "bytes_read",
    "cache_hits_total": "cache_hits",
    "cache_misses_total": "cache_misses",
}
"""The counters of a shard, and what they are called in `Metrics`."""

_CONNECTIONS = {
    "requests_total": "requests",
    "failures_total": "failures",
    "refused_total": "refused",
    "rejected_total": "rejected",
    "unauthorized_total": "unauthorized",
    "connections_total": "clients_seen",
    "connections_refused_total": "clients_refused",
    "connections_expired_total": "clients_expired",
    "errors_total": "errors",
}
"""The counters of the message server, and what they are called there."""

_QUEUES = {
    "connections": "clients",
    "requests_in_flight": "inflight",
    "send_buffer_bytes": "buffered_bytes",
}
"""How many clients the message server has, what it has under way for them, and what these are called there."""

_ROCKSDB = {
    "rocksdb_keys": "estimate-num-keys",
    "rocksdb_memtable_bytes": "cur-size-all-mem-tables",
    "rocksdb_files_bytes": "total-sst-files-size",
    "rocksdb_block_cache_bytes": "block-cache-usage",
    "rocksdb_compaction_pending_bytes": "estimate-pending-compaction-bytes",
}

ONE_DISK = ("disk_free_bytes", "disk_reserve_bytes")
"""What all shards say of the same disk."""

HISTOGRAMS = ("commit_seconds", "sync_seconds", "read_seconds", "group_records", "group_bytes")


def measure_connections(server: Server) -> tuple[Counter[str], Counter[str]]:
    """The counters and gauges of a message server. Looks once at each client."""
    queues = server.statistics()
    counters = Counter({name: getattr(server.counts, it) for name, it in _CONNECTIONS.items()})
    gauges = Counter({name: getattr(queues, it) for name, it in _QUEUES.items()})
    return counters, gauges


def measure(now_ms: int, shards: Iterable[Shard], server: Server) -> Measured:
    """All numbers of a node. Looks once at each client, and at no more than a few thousand other things."""
    shards = list(shards)
    counters, gauges = measure_connections(server)
    # A node of a cluster may have no shard at this moment: it has done nothing then, and says so.
    metrics = [Metrics(now_ms), *(it.metrics for it in shards)]
    for it in metrics:
        counters.update({name: getattr(it, counter) for name, counter in _COUNTED.items()})
    for shard in shards:
        gauges.update(_gauges(shard))
    for name in ONE_DISK:
        gauges[name] //= max(1, len(shards))
    ages_s = [_oldest_age_s(now_ms, shard) for shard in shards]
    traffic = _busiest_of(shards)
    return Measured(
        now_ms,
        dict(counters),
        {**gauges, "oldest_open_age_seconds": max(ages_s, default=0.0)},
        [_histogram(name, metrics) for name in HISTOGRAMS],
        traffic[:BUSIEST_STREAMS],
    )


def _gauges(shard: Shard) -> dict[str, int]:
    state, metrics = shard.core.state, shard.metrics
    free_bytes, reserve_bytes = shard.condition.room.look()
    found = {
        "sessions": len(state.sessions),
        "open_transactions": len(state.open),
        "groups_prepared": len(state.groups.prepared),
        "groups_untold": len(state.groups.decided),
        "requests_parked": shard.parking.statistics().requests,
        "readers_waiting": shard.reads.waiting,
        "subscriptions": shard.subscriptions.count,
        "ledgers": metrics.ledgers,
        "ledger_bytes": metrics.ledger_bytes,
        "live_bytes": shard.index.live.total(),
        "cache_bytes": shard.contents.payloads.cached_bytes,
        "disk_free_bytes": free_bytes,
        "disk_reserve_bytes": reserve_bytes,
        "disk_full": int(shard.full is not None),
        "failed": int(shard.failed is not None),
        "records_since_flush": shard.contents.records_since_flush,
        "streams_measured": metrics.streams,
    }
    if shard.failed is None:  # else the index may be closed
        found |= {name: shard.index.store.number(it) for name, it in _ROCKSDB.items()}
    else:
        found |= dict.fromkeys(_ROCKSDB, 0)
    return found


def _oldest_age_s(now_ms: int, shard: Shard) -> float:
    oldest = next(iter(shard.core.state.open), None)  # they stand in the order of their ids
    return 0.0 if oldest is None else max(0, now_ms - oldest // IDS_PER_MS) / 1000


def _busiest_of(shards: list[Shard]) -> list[StreamTraffic]:
    """What the shards say of each stream, added up; the busiest first."""
    lately: Counter[int] = Counter()
    found: dict[int, StreamTraffic] = {}
    for shard in shards:
        for of_late, it in _busiest(shard):
            lately[it.stream] += of_late
            found[it.stream] = added(found[it.stream], it) if it.stream in found else it
    return sorted(found.values(), key=lambda it: lately[it.stream], reverse=True)


def added(one: StreamTraffic, other: StreamTraffic) -> StreamTraffic:
    """What two shards say of a stream, together."""
    return StreamTraffic(
        one.stream,
        one.name,
        max(one.since_ms, other.since_ms),
        one.transactions + other.transactions,
        one.items + other.items,
        one.bytes + other.bytes,
        one.transactions_read + other.transactions_read,
        one.items_read + other.items_read,
        one.bytes_read + other.bytes_read,
    )


def _busiest(shard: Shard) -> Iterable[tuple[int, StreamTraffic]]:
    for stream, it in shard.metrics.busiest():
        try:
            name = shard.core.state.stream(stream).name
        except NotFound:
            continue  # it was deleted
        yield (
            it.lately,
            StreamTraffic(
                stream,
                name,
                it.since_ms,
                it.transactions,
                it.items,
                it.bytes,
                it.transactions_read,
                it.items_read,
                it.bytes_read,
            ),
        )


def _histogram(name: str, metrics: list[Metrics]) -> Histogram:
    tallies: list[Tally] = [getattr(it, name) for it in metrics]
    first = tallies[0]
    counts = [sum(of_bound) for of_bound in zip(*(it.counts for it in tallies), strict=True)]
    total = sum(it.sum for it in tallies) / first.unit
    return Histogram(name, [bound / first.unit for bound in first.bounds], counts, total)
