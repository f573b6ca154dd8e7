"""Routes of streams and their partitions."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from ...client.asynchronous.inspection import Inspection
from ...errors import NotFound
from ...protocol import StreamInfo, StretchInfo, SurveyWant
from .. import resources as r
from ..amounts import Amount, Budget
from ..calls import Answer, Call
from ..front import Front, id_at, shown_time
from ..limits import (
    COUNT_STRIDES_DETAIL,
    COUNT_STRIDES_LIST,
    DETAIL_PARTITIONS_MAX,
    ROW_PARTITIONS_MAX,
)
from ..milestones import Counted
from ..problems import Refused
from ..whole import WholeStream
from .consumers import Consumers
from .paging import decode_cursor, decode_number, decode_text, encode_cursor

SEARCH_LOOKS_MAX = 5
"""How often a page of a search is filled up with others where hits turn out to be deleted."""


class Streams:
    """Lists of streams and searches, one of them, changes, and partitions."""

    def __init__(self, front: Front, consumers: Consumers) -> None:
        self._front = front
        self._consumers = consumers

    async def streams(self, call: Call) -> r.StreamPage:
        """A page of streams, by name or by search."""
        if call.query["search"] and call.query["prefix"]:
            raise Refused(422, "bad_request", "give one of prefix and search")
        async with self._front.storage.turn() as inspect:
            if call.query["search"]:
                infos, following, total = await self._search(inspect, call)
            else:
                infos, following, total = await self._list(call)
            if call.query["details"]:
                budget = Budget(COUNT_STRIDES_LIST)
                rows = await asyncio.gather(
                    *(self._row(WholeStream(inspect, it), budget) for it in infos)
                )
                items = [row for row in rows if row is not None]
            else:
                items = [self._plain(info) for info in infos]
        return r.StreamPage(items=items, next=following, total=total)

    async def _list(self, call: Call) -> tuple[list[StreamInfo], str | None, int | None]:
        limit, after, prefix = (call.query[it] for it in ("limit", "after", "prefix"))
        name = "" if after is None else decode_text(decode_cursor(after)[1])
        found = await self._front.storage.client.streams(prefix, limit + 1, name)
        more = len(found) > limit
        infos = [
            StreamInfo(
                it.id,
                it.name,
                it.partitions,
                round(it.ttl.total_seconds() * 1000),
                it.description,
                it.schema_bytes,
                it.purged_before,
            )
            for it in found[:limit]
        ]
        catalogue = self._front.catalogue
        total = len(catalogue) if catalogue.complete and not prefix else None
        return infos, encode_cursor(0, infos[-1].name.encode()) if more else None, total

    async def _search(
        self, inspect: Inspection, call: Call
    ) -> tuple[list[StreamInfo], str | None, int | None]:
        word, limit, after = (call.query[it] for it in ("search", "limit", "after"))
        catalogue = self._front.catalogue
        first = 0 if after is None else decode_number(decode_cursor(after)[1])
        infos: list[StreamInfo] = []
        following: int | None = first
        for _ in range(SEARCH_LOOKS_MAX):
            if following is None or len(infos) >= limit:
                break
            places, following = catalogue.find(word, following, limit - len(infos))
            names = [catalogue.name(place) for place in places]
            found = await asyncio.gather(*map(inspect.stream, names), return_exceptions=True)
            for place, it in zip(places, found, strict=True):
                if isinstance(it, NotFound):
                    catalogue.bury(place)
                elif isinstance(it, BaseException):
                    raise it
                elif it.id == catalogue.number(place):
                    infos.append(it)
                else:  # made anew under its name: it has another place, too
                    catalogue.bury(place)
        cursor = None if following is None else encode_cursor(0, str(following).encode())
        total = None
        if catalogue.complete:
            total = len(infos) if after is None and following is None else catalogue.count(word)
        return infos, cursor, total

    async def stream(self, call: Call) -> Answer:
        """One stream."""
        async with self._front.storage.turn() as inspect:
            return await self._detail(await WholeStream.named(inspect, call.path["stream"]))

    async def create_stream(self, call: Call) -> Answer:
        """Make one."""
        body: r.NewStream = call.body
        client = self._front.storage.client
        await client.create_stream(body.name, body.partitions, body.ttl_seconds, body.description)
        async with self._front.storage.turn() as inspect:
            answer = await self._detail(await WholeStream.named(inspect, body.name))
        location = {"Location": f"/v1/streams/{quote(body.name, safe='')}"}
        return Answer(answer.resource, location, tag=answer.tag)

    async def alter_stream(self, call: Call) -> Answer:
        """Change one."""
        body: r.StreamChange = call.body
        name = call.path["stream"]
        async with self._front.changing, self._front.storage.turn() as inspect:
            info = await inspect.stream(name)
            call.check_match(tag_of(info))
            if body.ttl_seconds is not None or body.description is not None:
                await self._front.storage.client.alter_stream(
                    name, ttl=body.ttl_seconds, description=body.description
                )
            return await self._detail(await WholeStream.named(inspect, name))

    async def delete_stream(self, call: Call) -> Answer:
        """Delete one."""
        name = call.path["stream"]
        async with self._front.changing, self._front.storage.turn() as inspect:
            call.check_match(tag_of(await inspect.stream(name)))
            await self._front.storage.client.delete_stream(name)
        return Answer(None)

    async def purge_stream(self, call: Call) -> r.Purged:
        """Drop its old transactions."""
        name = call.path["stream"]
        before = id_at(call.body.before, "before")
        async with self._front.changing, self._front.storage.turn() as inspect:
            call.check_match(tag_of(await inspect.stream(name)))
            await self._front.storage.client.purge_stream(name, before)
            info = await inspect.stream(name)
        return r.Purged(stream=name, before=str(info.purged_before))

    async def partitions(self, call: Call) -> r.PartitionPage:
        """Its partitions, a page of them."""
        limit, after = call.query["limit"], call.query["after"]
        first = 0 if after is None else decode_number(decode_cursor(after)[1])
        async with self._front.storage.turn() as inspect:
            whole = await WholeStream.named(inspect, call.path["stream"])
            wanted = range(first, min(first + limit, whole.info.partitions))
            items = await self._partition_rows(whole, wanted) if wanted else []
        more = wanted.stop < whole.info.partitions and bool(wanted)
        cursor = encode_cursor(0, str(wanted.stop).encode()) if more else None
        return r.PartitionPage(items=items, next=cursor)

    async def partition(self, call: Call) -> r.PartitionInfo:
        """One partition."""
        number = call.path["partition"]
        async with self._front.storage.turn() as inspect:
            whole = await WholeStream.named(inspect, call.path["stream"])
            check_partition(whole.info, number)
            (row,) = await self._partition_rows(whole, [number])
        return row

    # Inside.

    def _plain(self, info: StreamInfo) -> r.Stream:
        """A stream of which nothing was counted."""
        return r.Stream(
            name=info.name,
            number=str(info.id),
            partitions=info.partitions,
            ttl_seconds=info.ttl_ms / 1000,
            description=info.description,
            typed=info.schema is not None,
            purged_before=str(info.purged_before),
            last_transaction=None,
            size=None,
            rates=self._front.sampler.rates_of(info.name),
            slowest=None,
        )

    async def _row(self, whole: WholeStream, budget: Budget) -> r.Stream | None:
        """A stream with its size and lag; None if it was deleted meanwhile."""
        try:
            row, _ = await self._counted(whole, budget, ROW_PARTITIONS_MAX)
        except NotFound:
            return None
        return row

    async def _detail(self, whole: WholeStream) -> Answer:
        budget = Budget(COUNT_STRIDES_DETAIL)
        row, consumers = await self._counted(whole, budget, DETAIL_PARTITIONS_MAX)
        detail = r.StreamDetail(
            **msgspec.structs.asdict(row),
            columns=columns_of(whole.info),
            open_transactions=await whole.count_open(),
            consumers=consumers,
        )
        return Answer(detail, tag=tag_of(whole.info))

    async def _counted(
        self, whole: WholeStream, budget: Budget, partitions_max: int
    ) -> tuple[r.Stream, int]:
        """A stream with its size and lag, and how many consumers it has."""
        info = whole.info
        wanted = range(min(info.partitions, partitions_max))
        counted = await self._front.milestones.count(whole, wanted, budget)
        amount = Amount()
        for it in counted.values():
            amount = amount.plus(it.amount)
        exact = all(it.exact for it in counted.values())
        last_id = max((it.last_id for it in counted.values()), default=0)
        if not exact:
            ends = await whole.survey(SurveyWant(it, 0) for it in wanted)
            last_id = max((it.last_id for it in ends), default=0)
        is_all = exact and len(wanted) == info.partitions
        slowest, consumers = await self._consumers.slowest(whole, counted, budget)
        row = msgspec.structs.replace(
            self._plain(info),
            last_transaction=shown_time(last_id),
            size=amount.size(is_all),
            slowest=slowest,
        )
        return row, consumers

    async def _partition_rows(
        self, whole: WholeStream, wanted: Sequence[int]
    ) -> list[r.PartitionInfo]:
        budget = Budget(COUNT_STRIDES_DETAIL)
        counted = await self._front.milestones.count(whole, wanted, budget)
        ends = await whole.survey(SurveyWant(it, 0) for it in wanted)
        heads = (await whole.standing()).heads
        return [
            _partition(
                whole.shard_of(it.partition),
                counted[it.partition],
                it,
                heads.get(it.partition, 0),
            )
            for it in ends
        ]


def _partition(shard: int, counted: Counted, end: StretchInfo, head: int) -> r.PartitionInfo:
    return r.PartitionInfo(
        partition=end.partition,
        size=counted.amount.size(counted.exact),
        oldest=shown_time(counted.oldest_id),
        last_id=str(end.last_id) if end.last_id else None,
        last_transaction=shown_time(end.last_id),
        held_back_by=str(head) if head else None,
        shard=shard,
    )


def check_partition(info: StreamInfo, partition: int) -> None:
    """`NotFound` if the stream has no such partition."""
    if partition >= info.partitions:
        raise NotFound(f"stream {info.name!r} has {info.partitions} partitions, from 0 on")


def tag_of(info: StreamInfo) -> str:
    """The entity tag of a stream: it changes with what an operator can change, not with what is written."""
    told = repr((info.id, info.partitions, info.ttl_ms, info.description, info.purged_before))
    schema = info.schema or b""
    return f'"{hashlib.sha256(told.encode() + schema).hexdigest()[:20]}"'


def columns_of(info: StreamInfo) -> list[r.Column] | None:
    """The columns of a stream's schema, if it has one and this machine can read it."""
    if info.schema is None:
        return None
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ImportError:
        return None
    schema = pa.ipc.read_schema(pa.py_buffer(info.schema))
    return [r.Column(name=it.name, type=str(it.type), nullable=bool(it.nullable)) for it in schema]
