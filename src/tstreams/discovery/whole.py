"""A stream as a whole, whichever shards its partitions are in: what the front door asks about one stream goes through here."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from ..client.asynchronous.inspection import Inspection
from ..limits import FETCH_WANTS_MAX, INSPECT_MAX
from ..protocol import (
    Browsed,
    Positions,
    ReaderInfo,
    StreamInfo,
    StretchInfo,
    SurveyWant,
    TransactionStatus,
)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a reader stands, and how far its partitions go.

    Invariant: `next_ids` has one entry for each shard of the stream, in the order of its ring.
    """

    saved: Mapping[int, int]
    """Partition to the last transaction that it has read."""
    heads: Mapping[int, int]
    """Partition to the first transaction that is open, where there is one."""
    next_ids: list[int]

    def next_id(self, partition: int) -> int:
        """What the next transaction of a partition will be at least."""
        return self.next_ids[partition % len(self.next_ids)]

    def newest(self, partition: int) -> int:
        """After which transaction a reader stands that is to see only what becomes visible from now on."""
        return self.heads.get(partition, self.next_id(partition)) - 1


class WholeStream:
    """One stream, to be asked about while an operator's request is answered."""

    def __init__(self, inspect: Inspection, info: StreamInfo) -> None:
        self.info = info
        self._inspect = inspect
        self.shards = inspect.shards_of(info.name, info.partitions)
        """Those that have some of it, its home first."""

    @classmethod
    async def named(cls, inspect: Inspection, name: str) -> WholeStream:
        """A stream by its name. `NotFound` if there is none."""
        return cls(inspect, await inspect.stream(name))

    def shard_of(self, partition: int) -> int:
        """The shard that holds a partition."""
        return self.shards[partition % len(self.shards)]

    # What is in it.

    async def survey(self, wants: Iterable[SurveyWant]) -> list[StretchInfo]:
        """How far partitions can be read, and how much that is, in the order of the partitions."""
        by_shard: dict[int, list[SurveyWant]] = {}
        for want in wants:
            by_shard.setdefault(self.shard_of(want.partition), []).append(want)
        asked = [
            self._inspect.survey(shard, self.info.id, mine[at : at + FETCH_WANTS_MAX])
            for shard, mine in by_shard.items()
            for at in range(0, len(mine), FETCH_WANTS_MAX)
        ]
        found = await asyncio.gather(*asked)
        stretches = [stretch for surveyed in found for stretch in surveyed.stretches]
        return sorted(stretches, key=lambda it: it.partition)

    async def browse(
        self, partition: int, from_id: int, to_id: int, limit: int, newest_first: bool = False
    ) -> Browsed:
        """Visible transactions of a partition, without their items."""
        shard = self.shard_of(partition)
        return await self._inspect.browse(
            shard, self.info.id, partition, from_id, to_id, limit, newest_first
        )

    async def transaction(self, partition: int, number: int) -> TransactionStatus:
        """What has become of a transaction."""
        shard = self.shard_of(partition)
        return await self._inspect.transaction(shard, self.info.id, partition, number)

    async def count_open(self) -> int:
        """How many transactions are open, as far as one look at each shard finds them."""
        found = await asyncio.gather(
            *(
                self._inspect.open_transactions(shard, self.info.id, 0, INSPECT_MAX)
                for shard in self.shards
            )
        )
        return sum(len(it.transactions) for it in found)

    # Who reads it.

    async def standing(self, reader: str = "") -> Standing:
        """Where a reader stands in all partitions; without a name only how far they go."""
        found = await self._positions(reader)
        return Standing(
            {partition: at for it in found for partition, at in it.saved},
            {partition: at for it in found for partition, at in it.heads},
            [it.next_id for it in found],
        )

    async def readers(
        self, names: Collection[str], listed_in: int | None = None
    ) -> list[ReaderInfo]:
        """Those of these readers that there are, with all their positions.

        A reader may be in any shard of its stream. With `listed_in`: only those that stand in the list of this
        shard, because no lower one has them.
        """
        wanted = sorted(names)
        found: list[ReaderInfo] = []
        for at in range(0, len(wanted), INSPECT_MAX):
            part = wanted[at : at + INSPECT_MAX]
            lists = await asyncio.gather(
                *(self._inspect.readers_named(it, self.info.id, part) for it in self.shards)
            )
            where: dict[str, list[int]] = {}
            for shard, one in zip(self.shards, lists, strict=True):
                for it in one.readers:
                    where.setdefault(it.name, []).append(shard)
            found += [
                it
                for it in merged(reader for one in lists for reader in one.readers)
                if listed_in is None or min(where[it.name]) == listed_in
            ]
        return [await self._complete(it) for it in found]

    async def reader_names(self) -> list[str]:
        """The names of its readers, as far as one look at each shard finds them."""
        found = await asyncio.gather(
            *(self._inspect.readers(it, self.info.id, b"", INSPECT_MAX) for it in self.shards)
        )
        return sorted({reader.name for it in found for reader in it.readers})

    async def _complete(self, reader: ReaderInfo) -> ReaderInfo:
        if not reader.positions_more:
            return reader
        found = await self._positions(reader.name)
        saved = sorted(position for it in found for position in it.saved)
        return msgspec.structs.replace(reader, positions=saved, positions_more=False)

    async def _positions(self, reader: str) -> list[Positions]:
        asked = (self._inspect.positions(it, self.info.id, reader) for it in self.shards)
        return await asyncio.gather(*asked)


def merged(readers: Iterable[ReaderInfo]) -> list[ReaderInfo]:
    """Readers as several shards of their streams know them, the home first: each once, with all that is known of it."""
    found: dict[tuple[int, str], ReaderInfo] = {}
    for it in readers:
        key = (it.stream, it.name)
        found[key] = _joined(found[key], it) if key in found else it
    return list(found.values())


def _joined(one: ReaderInfo, other: ReaderInfo) -> ReaderInfo:
    """Whoever holds a name holds it in all shards in which it reads; it goes by its number at home."""
    held = one if one.agent else other
    return ReaderInfo(
        one.stream,
        one.stream_name or other.stream_name,
        one.name,
        held.agent,
        held.session,
        max(one.last_seen_ms, other.last_seen_ms),
        sorted([*one.positions, *other.positions]),
        one.positions_more or other.positions_more,
    )
