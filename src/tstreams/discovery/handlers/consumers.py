"""Routes of consumers: where they stand, how far behind they are, and how to put them elsewhere."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from ...client.asynchronous.inspection import Inspection
from ...errors import InvalidState, NotFound
from ...limits import INSPECT_MAX
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
from ..whole import WholeStream
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
        async with self._front.storage.turn() as inspect:
            return await self._page(call, inspect, 0, inspect.shards)

    async def stream_consumers(self, call: Call) -> r.ConsumerPage:
        """The consumers of one stream."""
        async with self._front.storage.turn() as inspect:
            whole = await WholeStream.named(inspect, call.path["stream"])
            return await self._page(call, inspect, whole.info.id, sorted(whole.shards))

    async def _page(
        self, call: Call, inspect: Inspection, stream: int, shards: Sequence[int]
    ) -> r.ConsumerPage:
        wholes: dict[str, WholeStream] = {}

        async def fetch(
            shard: int, position: bytes, limit: int
        ) -> tuple[Sequence[ReaderInfo], bytes | None]:
            found = await inspect.readers(shard, stream, position, limit)
            for it in await self._infos(inspect, {it.stream_name for it in found.readers}):
                wholes[it.name] = WholeStream(inspect, it)
            mine = await _listed_in(shard, found.readers, wholes)
            return mine, found.next if found.more else None

        rows, following = await page(shards, call.query["after"], call.query["limit"], fetch)
        budget = Budget(COUNT_STRIDES_LIST)
        items = []
        for name, whole in wholes.items():
            readers = [it for _, it in rows if it.stream_name == name]
            items += await self.rows(whole, readers, budget)
        items.sort(key=lambda it: (it.stream, it.name))
        return r.ConsumerPage(items=items, next=following)

    async def _infos(self, inspect: Inspection, names: set[str]) -> list[StreamInfo]:
        found = await asyncio.gather(*map(inspect.stream, names), return_exceptions=True)
        for it in found:
            if isinstance(it, BaseException) and not isinstance(it, NotFound):
                raise it
        return [it for it in found if isinstance(it, StreamInfo)]

    async def consumer(self, call: Call) -> Answer:
        """One consumer, partition by partition."""
        name = call.path["consumer"]
        async with self._front.storage.turn() as inspect:
            whole, reader = await self.find(inspect, call.path["stream"], name)
            self._front.lags.watch(whole.info.name, name)
            detail = await self._detail(whole, reader, Budget(COUNT_STRIDES_DETAIL))
        return Answer(detail, tag=tag_of(reader))

    async def consumer_lag(self, call: Call) -> r.LagHistory:
        """Its lag over time; from now on it is watched."""
        name = call.path["consumer"]
        async with self._front.storage.turn() as inspect:
            whole, _ = await self.find(inspect, call.path["stream"], name)
        stream = whole.info.name
        self._front.lags.watch(stream, name)
        points = self._front.lags.history(stream, name, call.query["minutes"])
        return r.LagHistory(items=points)

    async def reset_consumer(self, call: Call) -> r.ResetResult:
        """Let it go on elsewhere."""
        async with self._front.changing, self._front.storage.turn() as inspect:
            return await self._resetting.reset(inspect, call)

    async def forget_consumer(self, call: Call) -> Answer:
        """Forget its positions."""
        name = call.path["consumer"]
        async with self._front.changing, self._front.storage.turn() as inspect:
            whole, reader = await self.find(inspect, call.path["stream"], name)
            call.check_match(tag_of(reader))
            if reader.agent:
                raise InvalidState(
                    f"consumer {name!r} is live, and would save its position again: stop it first"
                )
            positions = [(partition, 0) for partition, _ in reader.positions]
            await inspect.reset_reader(whole.info.name, name, positions)
        return Answer(None)

    # For others.

    async def find(
        self, inspect: Inspection, stream: str, name: str
    ) -> tuple[WholeStream, ReaderInfo]:
        """A stream and a reader of it, with all its positions. `NotFound` if either is not there."""
        whole = await WholeStream.named(inspect, stream)
        for reader in await whole.readers([name]):
            return whole, reader
        raise NotFound(f"stream {stream!r} has no consumer {name!r}")

    async def rows(
        self,
        whole: WholeStream,
        readers: Sequence[ReaderInfo],
        budget: Budget,
        counted: Mapping[int, Counted] | None = None,
    ) -> list[r.Consumer]:
        """Consumers of a stream without their partitions. `counted`: what is in it, if that is known already."""
        if not readers:
            return []
        if counted is None:
            counted = await self._all(whole, budget, ROW_PARTITIONS_MAX)
        found = []
        for reader in readers:
            behind = await self._behind(whole, reader, counted, budget)
            partial = whole.info.partitions > len(behind)
            found.append(_consumer(reader, _total(behind, partial)))
        return found

    async def slowest(
        self, whole: WholeStream, counted: Mapping[int, Counted], budget: Budget
    ) -> tuple[r.StreamLag | None, int]:
        """The slowest consumer of a stream, and how many it has (of those that one look finds)."""
        names = await whole.reader_names()
        readers = await whole.readers(names[:ROW_READERS_MAX])
        rows = await self.rows(whole, readers, budget, counted)
        slowest = max(rows, key=lambda it: it.lag.transactions, default=None)
        if slowest is None:
            return None, len(names)
        return r.StreamLag(consumer=slowest.name, lag=slowest.lag), len(names)

    async def look(self, stream: str, names: set[str]) -> list[r.Consumer]:
        """Consumers of a stream, for those who watch their lags."""
        async with self._front.storage.turn() as inspect:
            whole = await WholeStream.named(inspect, stream)
            readers = await whole.readers(names)
            return await self.rows(whole, readers, Budget(COUNT_STRIDES_LIST))

    async def some(self, limit: int) -> list[tuple[str, str]]:
        """Some consumers, to be watched."""
        async with self._front.storage.turn() as inspect:
            found: dict[tuple[str, str], None] = {}
            for shard in inspect.shards:
                readers = await inspect.readers(shard, 0, b"", min(limit, INSPECT_MAX))
                names = ((it.stream_name, it.name) for it in readers.readers if it.stream_name)
                found |= dict.fromkeys(names)
        return list(found)[:limit]

    # Inside.

    async def _all(
        self, whole: WholeStream, budget: Budget, partitions_max: int
    ) -> dict[int, Counted]:
        """What is in each of the first partitions."""
        wanted = range(min(whole.info.partitions, partitions_max))
        return await self._front.milestones.count(whole, wanted, budget)

    async def _behind(
        self,
        whole: WholeStream,
        reader: ReaderInfo,
        counted: Mapping[int, Counted],
        budget: Budget,
    ) -> dict[int, Counted]:
        """What the consumer has before it, in each of the partitions that were counted."""
        saved = dict(reader.positions)
        wanted = {it: saved.get(it, 0) for it in counted}
        behind = await self._front.milestones.behind(whole, wanted, counted, budget)
        return await _with_oldest(whole, wanted, behind)

    async def _detail(
        self, whole: WholeStream, reader: ReaderInfo, budget: Budget
    ) -> r.ConsumerDetail:
        everything = await self._all(whole, budget, DETAIL_PARTITIONS_MAX)
        counted = await self._behind(whole, reader, everything, budget)
        heads = (await whole.standing(reader.name)).heads
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
        lag = _total(counted, whole.info.partitions > len(counted))
        fields = msgspec.structs.asdict(_consumer(reader, lag))
        return r.ConsumerDetail(**fields, positions=positions)


async def _listed_in(
    shard: int, readers: Sequence[ReaderInfo], wholes: Mapping[str, WholeStream]
) -> list[ReaderInfo]:
    """Of the readers that a shard has, those that stand in its list, with what other shards know of them."""
    names: dict[str, set[str]] = {}
    for it in readers:
        if it.stream_name in wholes:
            names.setdefault(it.stream_name, set()).add(it.name)
    found = []
    for stream, mine in names.items():
        found += await wholes[stream].readers(mine, listed_in=shard)
    return found


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
    whole: WholeStream, positions: Mapping[int, int], counted: Mapping[int, Counted]
) -> dict[int, Counted]:
    """With the first transaction after each position, where it is not known."""
    unknown = [
        partition
        for partition, it in counted.items()
        if it.amount.transactions and (not it.oldest_id or it.oldest_id <= positions[partition])
    ]
    found = dict(counted)
    for stretch in await whole.survey(SurveyWant(it, positions[it] + 1, 1) for it in unknown):
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
