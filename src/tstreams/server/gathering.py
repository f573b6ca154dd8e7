"""What the processes of a server have measured, as if it were one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moebius import Server

from ..limits import BUSIEST_STREAMS
from ..protocol import Histogram, Measured, StreamTraffic
from .measuring import ONE_DISK, added, measure_connections

_OLDEST = "oldest_open_age_seconds"


class Gathering:
    """The numbers of all shard processes. Counters only grow, also if a process dies and another takes its place."""

    def __init__(self) -> None:
        self._now: dict[int, Measured] = {}
        """What the present process of each shard has said last."""
        self._before: dict[int, list[Measured]] = {}
        """What those before it had counted, as one."""

    def take(self, shard: int, measured: Measured) -> None:
        """The process of a shard says this."""
        self._now[shard] = measured

    def end(self, shard: int) -> None:
        """The process of a shard has ended: the next one counts from 0."""
        last = self._now.pop(shard, None)
        if last is not None:
            self._before[shard] = [_counted([*self._before.get(shard, ()), last])]

    def measured(self, now_ms: int, server: Server, down: int) -> Measured:
        """All of it, with the connections of the parent itself; `down` shards are not served now."""
        now = list(self._now.values())
        everything = [*(it for kept in self._before.values() for it in kept), *now]
        counters, gauges = measure_connections(server)
        for it in everything:
            counters.update(it.counters)
        totals: dict[str, float] = dict(gauges)
        for it in now:
            for name, value in it.gauges.items():
                totals[name] = totals.get(name, 0) + value
        for name in ONE_DISK:
            totals[name] = max((it.gauges[name] for it in now), default=0)
        totals[_OLDEST] = max((it.gauges[_OLDEST] for it in now), default=0.0)
        totals["failed"] = totals.get("failed", 0) + down
        return Measured(now_ms, dict(counters), totals, _histograms(everything), _busiest(now))


def _counted(all_of: list[Measured]) -> Measured:
    """What only grows, added up."""
    counters: Counter[str] = Counter()
    for it in all_of:
        counters.update(it.counters)
    return Measured(0, dict(counters), {}, _histograms(all_of), [])


def _histograms(all_of: Iterable[Measured]) -> list[Histogram]:
    found: dict[str, Histogram] = {}
    for measured in all_of:
        for it in measured.histograms:
            other = found.get(it.name)
            if other is not None:
                counts = [one + two for one, two in zip(it.counts, other.counts, strict=True)]
                it = Histogram(it.name, it.bounds, counts, it.sum + other.sum)
            found[it.name] = it
    return list(found.values())


def _busiest(all_of: Iterable[Measured]) -> list[StreamTraffic]:
    """The streams that are the busiest of any shard, whose first ones come first: how busy they were lately only the
    shards know."""
    found: dict[int, StreamTraffic] = {}
    rank: dict[int, int] = {}
    for measured in all_of:
        for place, it in enumerate(measured.busiest):
            found[it.stream] = added(found[it.stream], it) if it.stream in found else it
            rank[it.stream] = min(place, rank.get(it.stream, place))
    order = sorted(found.values(), key=lambda it: (rank[it.stream], -it.bytes - it.bytes_read))
    return order[:BUSIEST_STREAMS]
