"""The source: streaming and batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..client.blocking.consumer import Consumer
from ..model import Offset
from . import connections, slices
from .columns import Layout
from .filters import Bounds
from .offsets import Map, capped, from_json, ranges, to_json
from .options import Ids, ReadOptions
from .slices import Slice


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams on and on. The driver has one; a copy goes to each task."""

    def __init__(self, options: ReadOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout
        self._map_: Map | None = None
        self._target: Ids | None = None
        self._consumers: dict[str, Consumer] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs: not the driver's connections."""
        return {**self.__dict__, "_map_": None, "_target": None, "_consumers": {}}

    @property
    def _map(self) -> Map:
        if self._map_ is None:
            ts = connections.client(self._options.client)
            self._map_ = Map(ts, self._options.streams)
        return self._map_

    # On the driver.

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        """Where a query begins that has no checkpoint."""
        return to_json(self._map.resolve(self._options.start))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What a micro-batch may take, as the options say."""
        if self._options.transactions_max is not None:
            return ReadMaxRows(self._options.transactions_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802
        self, start: dict[str, dict[str, int]], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        """How far the next micro-batch goes."""
        begin = from_json(start)
        if isinstance(limit, ReadAllAvailable):
            end = self._map.latest(begin)
        else:
            options = self._options
            end = self._map.latest(begin, options.transactions_max, options.bytes_max)
        if self._target is not None:
            end = capped(end, self._target, begin)
        return to_json(end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes from now on is for the next run."""
        self._target = self._map.latest({})

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """How far could be read now: for the query's progress."""
        return to_json(self._map.latest({}))

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        ts = connections.client(self._options.client)
        found = ranges(from_json(start), from_json(end))
        return slices.cut(ts, found, self._options.partitions_min)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        """A micro-batch is done: show it as the position of a consumer, if one is named."""
        name = self._options.consumer
        if name is None:
            return
        ts = connections.client(self._options.client)
        for stream, partitions in from_json(end).items():
            consumer = self._consumers.get(stream)
            if consumer is None:
                consumer = self._consumers[stream] = ts.consumer(stream, name)
            for partition, last_id in partitions.items():
                if last_id and consumer.position(partition) != last_id:
                    consumer.seek(partition, Offset.after(last_id))
            consumer.checkpoint()

    def stop(self) -> None:
        """The query has ended."""
        for consumer in self._consumers.values():
            consumer.close()

    # In a task.

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a slice, as record batches."""
        assert isinstance(partition, Slice)
        options = self._options
        return slices.read(
            options.client,
            self._layout,
            partition,
            options.fail_on_data_loss,
            options.traceparent,
        )


class BatchReader(DataSourceReader):
    """Reads what is there now, once."""

    def __init__(self, options: ReadOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
        """Use filters to read less. Spark applies them all the same: none is dropped here."""
        self._bounds = Bounds.of(filters, self._layout.prefix)
        return iter(filters)

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the read."""
        ts = connections.client(self._options.client)
        streams = Map(ts, self._options.streams)
        seen = streams.streams()
        start = streams.resolve(self._options.start)
        found = ranges(start, streams.resolve(self._options.end))
        wanted = (it for it in map(self._bounds.narrow, found) if it is not None)
        planned = slices.cut(ts, wanted, self._options.partitions_min)
        if self._options.fail_on_data_loss:
            for it in planned:
                it.seen = seen.get(it.stream)
        return planned

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a slice, as record batches."""
        if not isinstance(
            partition, Slice
        ):  # there was nothing to plan, but Spark runs a task for it
            return iter(())
        # A range may end anywhere: that nothing is at its end does not mean that something was lost.
        options = self._options
        return slices.read(options.client, self._layout, partition, False, options.traceparent)
