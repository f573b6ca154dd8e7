"""Routes of consumers: where they stand, how far behind they are, and how to put them elsewhere."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from ...client.asynchronous.inspection import Inspection
from ...errors import InvalidState, NotFound
from ...limits import FETCH_WANTS_MAX, INSPECT_MAX
from ...model import time_of
from ...protocol import ReaderInfo, StreamInfo, SurveyWant
from .. import resources as r
from ..amounts import Amount, Budget
from ..calls import Answer, Call
from ..front import Front, shown_ms, shown_time
from ..limits import (
    COUNT_STRIDES_DETAIL,
    COUNT_STRIDES_LIST,
    DETAIL_PARTITIONS_MAX,
    ROW_PARTITIONS_MAX,
)
from ..milestones import Counted
from .paging import page
from .resetting import Resetting

ROW_READERS_MAX = 8
"""Consumers of a stream that are looked at to find the slowest, for a row of a list."""


class Consumers:
    """Lists of consumers, one of them, its lag over time, its reset and its end."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._resetting = Resetting(front, self.find)

    async def consumers(self, call: Call) -> r.ConsumerPage:
        """The consumers of all streams."""
        return await self._page(call, 0)

    async def stream_consumers(self, call: Call) -> r.ConsumerPage:
        """The consumers of one stream."""
        async with self._front.storage.turn() as inspect:
            info = await inspect.stream(call.path["stream"])
        return await self._page(call, info.id)

    async def _page(self, call: Call, stream: int) -> r.ConsumerPage:
        async with self._front.storage.turn() as inspect:

            async def fetch(
                shard: int, position: bytes, limit: int
            ) -> tuple[Sequence[ReaderInfo], bytes | None]:
                found = await inspect.readers(shard, stream, position, limit)
                return found.readers, found.next if found.more else None

            rows, following = await page(
                inspect.shards, call.query["after"], call.query["limit"], fetch
            )
            infos = await self._infos(inspect, {it.stream_name for _, it in rows})
            budget = Budget(COUNT_STRIDES_LIST)
            items = []
            for name, info in infos.items():
                readers = [it for _, it in rows if it.stream_name == name]
                items += await self.rows(inspect, info, readers, budget)
        items.sort(key=lambda it: (it.stream, it.name))
        return r.ConsumerPage(items=items, next=following)

    async def _infos(self, inspect: Inspection, names: set[str]) -> dict[str, StreamInfo]:
        found = await asyncio.gather(*map(inspect.stream, names), return_exceptions=True)
        for it in found:
            if isinstance(it, BaseException) and not isinstance(it, NotFound):
                raise it
        return {it.name: it for it in found if isinstance(it, StreamInfo)}

    async def consumer(self, call: Call) -> Answer:
        """One consumer, partition by partition."""
        name = call.path["consumer"]
        async with self._front.storage.turn() as inspect:
            info, reader = await self.find(inspect, call.path["stream"], name)
            self._front.lags.watch(info.name, name)
            tag = tag_of(reader)
            budget = Budget(COUNT_STRIDES_DETAIL)
            detail = await self._detail(inspect, info, reader, budget)
        return Answer(detail, tag=tag)

    async def consumer_lag(self, call: Call) -> r.LagHistory:
        """Its lag over time; from now on it is watched."""
        name = call.path["consumer"]
        async with self._front.storage.turn() as inspect:
            info, _ = await self.find(inspect, call.path["stream"], name)
        self._front.lags.watch(info.name, name)
        points = self._front.lags.history(info.name, name, call.query["minutes"])
        return r.LagHistory(items=points)

    async def reset_consumer(self, call: Call) -> r.ResetResult:
        """Let it go on elsewhere."""
        async with self._front.changing, self._front.storage.turn() as inspect:
            return await self._resetting.reset(inspect, call)

    async def forget_consumer(self, call: Call) -> Answer:
        """Forget its positions."""
        name = call.path["consumer"]
        async with self._front.changing, self._front.storage.turn() as inspect:
            info, reader = await self.find(inspect, call.path["stream"], name)
            call.check_match(tag_of(reader))
            if reader.agent:
                raise InvalidState(
                    f"consumer {name!r} is live, and would save its position again: stop it first"
                )
            positions = [(partition, 0) for partition, _ in reader.positions]
            await inspect.reset_reader(info.name, name, positions)
        return Answer(None)

    # For others.

    async def find(
        self, inspect: Inspection, stream: str, name: str
    ) -> tuple[StreamInfo, ReaderInfo]:
        """A stream and a reader of it, with all its positions. `NotFound` if either is not there."""
        info = await inspect.stream(stream)
        shard = inspect.shard_of(stream)
        after = b""
        while True:
            found = await inspect.readers(shard, info.id, after, INSPECT_MAX)
            for reader in found.readers:
                if reader.name == name:
                    return info, await self._whole(inspect, shard, reader)
            if not found.more:
                raise NotFound(f"stream {stream!r} has no consumer {name!r}")
            after = found.next

    async def _whole(self, inspect: Inspection, shard: int, reader: ReaderInfo) -> ReaderInfo:
        if not reader.positions_more:
            return reader
        positions = await inspect.positions(shard, reader.stream, reader.name)
        return ReaderInfo(
            reader.stream,
            reader.stream_name,
            reader.name,
            reader.agent,
            reader.session,
            reader.last_seen_ms,
            positions.saved,
            False,
        )

    async def rows(
        self,
        inspect: Inspection,
        info: StreamInfo,
        readers: Sequence[ReaderInfo],
        budget: Budget,
        counted: Mapping[int, Counted] | None = None,
    ) -> list[r.Consumer]:
        """Consumers of a stream without their partitions. `counted`: what is in it, if that is known already."""
        if not readers:
            return []
        if counted is None:
            counted = await self._all(inspect, info, budget, ROW_PARTITIONS_MAX)
        found = []
        for reader in readers:
            behind = await self._behind(inspect, info, reader, counted, budget)
            found.append(_consumer(reader, _total(behind, info.partitions > len(behind))))
        return found

    async def slowest(
        self,
        inspect: Inspection,
        info: StreamInfo,
        counted: Mapping[int, Counted],
        budget: Budget,
    ) -> tuple[r.StreamLag | None, int]:
        """The slowest consumer of a stream, and how many it has (of those that one look finds)."""
        found = await inspect.readers(inspect.shard_of(info.name), info.id, b"", INSPECT_MAX)
        looked_at = found.readers[:ROW_READERS_MAX]
        rows = await self.rows(inspect, info, looked_at, budget, counted)
        slowest = max(rows, key=lambda it: it.lag.transactions, default=None)
        if slowest is None:
            return None, len(found.readers)
        return r.StreamLag(consumer=slowest.name, lag=slowest.lag), len(found.readers)

    async def look(self, stream: str, names: set[str]) -> list[r.Consumer]:
        """Consumers of a stream, for those who watch their lags."""
        async with self._front.storage.turn() as inspect:
            info = await inspect.stream(stream)
            shard = inspect.shard_of(stream)
            readers: list[ReaderInfo] = []
            after, more = b"", True
            while more and len(readers) < len(names):
                page = await inspect.readers(shard, info.id, after, INSPECT_MAX)
                readers += [it for it in page.readers if it.name in names]
                after, more = page.next, page.more
            return await self.rows(inspect, info, readers, Budget(COUNT_STRIDES_LIST))

    async def some(self, limit: int) -> list[tuple[str, str]]:
        """Some consumers, to be watched."""
        async with self._front.storage.turn() as inspect:
            found = []
            for shard in inspect.shards:
                readers = await inspect.readers(shard, 0, b"", min(limit, INSPECT_MAX))
                found += [(it.stream_name, it.name) for it in readers.readers if it.stream_name]
        return found[:limit]

    # Inside.

    async def _all(
        self, inspect: Inspection, info: StreamInfo, budget: Budget, partitions_max: int
    ) -> dict[int, Counted]:
        """What is in each of the first partitions."""
        wanted = range(min(info.partitions, partitions_max))
        shard = inspect.shard_of(info.name)
        return await self._front.milestones.count(inspect, shard, info.id, wanted, budget)

    async def _behind(
        self,
        inspect: Inspection,
        info: StreamInfo,
        reader: ReaderInfo,
        counted: Mapping[int, Counted],
        budget: Budget,
    ) -> dict[int, Counted]:
        """What the consumer has before it, in each of the partitions that were counted."""
        saved = dict(reader.positions)
        wanted = {it: saved.get(it, 0) for it in counted}
        shard = inspect.shard_of(info.name)
        behind = await self._front.milestones.behind(
            inspect, shard, info.id, wanted, counted, budget
        )
        return await _with_oldest(inspect, shard, info.id, wanted, behind)

    async def _detail(
        self, inspect: Inspection, info: StreamInfo, reader: ReaderInfo, budget: Budget
    ) -> r.ConsumerDetail:
        everything = await self._all(inspect, info, budget, DETAIL_PARTITIONS_MAX)
        counted = await self._behind(inspect, info, reader, everything, budget)
        shard = inspect.shard_of(info.name)
        heads = dict((await inspect.positions(shard, info.id, reader.name)).heads)
        saved = dict(reader.positions)
        positions = [
            r.ConsumerPartition(
                partition=partition,
                position=str(saved[partition]) if partition in saved else None,
                time=shown_time(saved.get(partition, 0)),
                lag=_total({partition: it}, False),
                held_back_by=str(heads[partition]) if partition in heads else None,
            )
            for partition, it in counted.items()
        ]
        lag = _total(counted, info.partitions > len(counted))
        fields = msgspec.structs.asdict(_consumer(reader, lag))
        return r.ConsumerDetail(**fields, positions=positions)


def tag_of(reader: ReaderInfo) -> str:
    """The entity tag of a consumer: it changes with its positions, and with who holds its name."""
    told = repr((reader.stream, reader.name, reader.agent, sorted(reader.positions)))
    return f'"{hashlib.sha256(told.encode()).hexdigest()[:20]}"'


def holder_of(reader: ReaderInfo) -> r.Holder | None:
    """Who holds a reader's name."""
    if not reader.agent:
        return None
    return r.Holder(
        kind="reader",
        name=reader.name,
        session=str(reader.session),
        seen=shown_ms(reader.last_seen_ms),
    )


def _consumer(reader: ReaderInfo, lag: r.Lag) -> r.Consumer:
    oldest = min((position for _, position in reader.positions), default=0)
    return r.Consumer(
        stream=reader.stream_name,
        name=reader.name,
        live=reader.agent != 0,
        holder=holder_of(reader),
        partitions=len(reader.positions),
        position_time=shown_time(oldest),
        lag=lag,
    )


async def _with_oldest(
    inspect: Inspection,
    shard: int,
    stream: int,
    positions: Mapping[int, int],
    counted: Mapping[int, Counted],
) -> dict[int, Counted]:
    """With the first transaction after each position, where it is not known."""
    unknown = [
        partition
        for partition, it in counted.items()
        if it.amount.transactions and (not it.oldest_id or it.oldest_id <= positions[partition])
    ]
    found = dict(counted)
    for at in range(0, len(unknown), FETCH_WANTS_MAX):
        part = unknown[at : at + FETCH_WANTS_MAX]
        wants = [SurveyWant(partition, positions[partition] + 1, 1) for partition in part]
        surveyed = await inspect.survey(shard, stream, wants)
        for stretch in surveyed.stretches:
            old = found[stretch.partition]
            found[stretch.partition] = Counted(old.amount, old.exact, stretch.last_id, old.last_id)
    return found


def _total(counted: Mapping[int, Counted], partial: bool) -> r.Lag:
    amount = Amount()
    for it in counted.values():
        amount = amount.plus(it.amount)
    waiting = [it.oldest_id for it in counted.values() if it.amount.transactions and it.oldest_id]
    seconds = 0.0
    if waiting:
        seconds = max(0.0, (datetime.now(UTC) - time_of(min(waiting))).total_seconds())
    return r.Lag(
        transactions=amount.transactions,
        items=amount.items,
        bytes=amount.bytes,
        seconds=seconds,
        exact=not partial and all(it.exact for it in counted.values()),
    )
