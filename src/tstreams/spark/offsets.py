"""Where a query stands: the last transaction that it has read, by stream and partition.

As Spark keeps it in its checkpoint: {"orders": {"0": 179300000000000000, "1": 0}}; 0 is before all others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from ..client.blocking.client import Client
from ..errors import Corrupt, NotFound
from ..model import ID_MAX, Stream
from .options import Ids, Point, Streams

DISCOVERY_S = 5.0
"""How often a query that reads all streams of a prefix looks for new ones."""


def to_json(ids: Ids) -> dict[str, dict[str, int]]:
    """For Spark's checkpoint."""
    return {
        name: {str(partition): it for partition, it in partitions.items()}
        for name, partitions in ids.items()
    }


def from_json(found: Mapping[str, Mapping[str, int]]) -> Ids:
    """From Spark's checkpoint. `Corrupt` if it holds something else."""
    try:
        ids = {
            name: {int(partition): it for partition, it in partitions.items()}
            for name, partitions in found.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise Corrupt(f"an offset of Spark's checkpoint cannot be read: {found!r:.200}") from None
    for partitions in ids.values():
        for partition, it in partitions.items():
            if type(it) is not int or not 0 <= it <= ID_MAX or partition < 0:
                raise Corrupt(f"an offset of Spark's checkpoint is out of bounds: {found!r:.200}")
    return ids


class Map:
    """The streams of a query, and where points are in them."""

    def __init__(self, ts: Client, streams: Streams) -> None:
        self._ts = ts
        self._wanted = streams
        self._found: dict[str, Stream] = {}
        self._looked_at = 0.0

    def streams(self) -> dict[str, Stream]:
        """The streams that there are, by name. Those of a prefix may become more."""
        if self._wanted.prefix is None:
            if not self._found:
                self._found = {name: self._ts.stream(name) for name in self._wanted.names}
        elif not self._looked_at or time.monotonic() - self._looked_at >= DISCOVERY_S:
            self._found = {it.name: it for it in self._ts.streams(self._wanted.prefix)}
            self._looked_at = time.monotonic()
        return self._found

    def resolve(self, point: Point) -> Ids:
        """The last id before a point, in each partition."""
        return {name: self._resolve(stream, point) for name, stream in self.streams().items()}

    def _resolve(self, stream: Stream, point: Point) -> dict[int, int]:
        partitions = range(stream.partitions)
        if point.kind == "newest":
            return self.ends(stream.name, dict.fromkeys(partitions, 0))
        if point.kind == "ids":
            assert point.ids is not None
            named = point.ids.get(stream.name, {})
            return {it: named.get(it, 0) for it in partitions}
        return dict.fromkeys(partitions, max(0, point.id - 1))

    def ends(
        self,
        name: str,
        after: dict[int, int],
        transactions_max: int | None = None,
        bytes_max: int | None = None,
    ) -> dict[int, int]:
        """How far each partition can be read; where nothing new is, that is where it stands."""
        found = self._ts.survey(name, after, transactions=transactions_max, size=bytes_max)
        return {it: found[it].last_id or after[it] for it in after}

    def latest(
        self, start: Ids, transactions_max: int | None = None, bytes_max: int | None = None
    ) -> Ids:
        """How far all streams can be read from here, within the limits if there are any."""
        ends: Ids = dict(start)  # a stream that was deleted stays where it was
        streams = self.streams()
        share = max(1, len(streams))
        for name, stream in streams.items():
            after = {it: start.get(name, {}).get(it, 0) for it in range(stream.partitions)}
            limits = [
                None if it is None else max(1, it // share) for it in (transactions_max, bytes_max)
            ]
            try:
                ends[name] = self.ends(name, after, *limits)
            except NotFound:
                if self._wanted.prefix is None:
                    raise
        return ends


def capped(end: Ids, target: Ids, start: Ids) -> Ids:
    """An end that is not behind the target; but never before the start: an offset does not go back."""

    def cap(name: str, partition: int, last_id: int) -> int:
        at_most = target.get(name, {}).get(partition, 0)
        return max(min(last_id, at_most), start.get(name, {}).get(partition, 0))

    return {
        name: {partition: cap(name, partition, it) for partition, it in partitions.items()}
        for name, partitions in end.items()
    }


def ranges(start: Ids, end: Ids) -> Iterable[tuple[str, int, int, int]]:
    """Stream, partition, the id that was read last, and the one to read up to, where there is something."""
    for name, partitions in end.items():
        for partition, up_to in partitions.items():
            after = start.get(name, {}).get(partition, 0)
            if up_to > after:
                yield name, partition, after, up_to
