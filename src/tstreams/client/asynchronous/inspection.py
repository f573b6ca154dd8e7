"""What an operator sees of a server, and may do about it, for asyncio."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ...limits import INSPECT_MAX, LIST_NUMBERS_MAX
from ...model import ID_MAX
from ...protocol import (
    AgentList,
    AnyReply,
    Browse,
    Browsed,
    CheckCluster,
    ClusterChecked,
    ClusterInfo,
    ConfigInfo,
    Describe,
    DescribeCluster,
    GetConfig,
    GetPositions,
    GetReaders,
    GetStream,
    GetTransaction,
    Intend,
    Intended,
    JobList,
    LedgerList,
    ListAgents,
    ListJobs,
    ListLedgers,
    ListNumbers,
    ListOpen,
    ListReaders,
    ListSessions,
    Measure,
    Measured,
    Message,
    NodeInfo,
    NumberList,
    OpenList,
    Positions,
    ReaderList,
    SessionList,
    StreamInfo,
    Survey,
    Surveyed,
    SurveyWant,
    TransactionStatus,
)
from ..rules.inspecting import end_transactions, inspect, reset_reader
from ..rules.link import Link
from .driver import Driver

R = TypeVar("R", bound=AnyReply)


class Inspection:
    """What an operator sees of a server. Made by `client.inspection()`; it needs no closing.

    Answers are the messages of the wire, as they are described in `tstreams.protocol`. Streams are named
    by their numbers (`Stream.id`) in all that is read; 0 stands for all of them. Lists come in pages: ask
    again, from where a page ended, as long as its `more` is true.
    """

    def __init__(self, driver: Driver, link: Link) -> None:
        self._driver = driver
        self._link = link

    # The node.

    async def node(self) -> NodeInfo:
        """What node this is, asked anew."""
        return await self._ask(Describe(), NodeInfo)

    async def measure(self) -> Measured:
        """What the node has counted: counters, gauges, histograms, the busiest streams."""
        return await self._ask(Measure(), Measured)

    async def config(self) -> ConfigInfo:
        """The configuration in force."""
        return await self._ask(GetConfig(), ConfigInfo)

    async def cluster(self) -> ClusterInfo:
        """What the node knows of its cluster. A server that stands alone is one without a name."""
        return await self._ask(DescribeCluster(), ClusterInfo)

    async def intend(self, wanted: Intend) -> Intended:
        """Say what operators want of the cluster, in the place of the version that was seen."""
        return await self._ask(wanted, Intended)

    async def check_cluster(self) -> ClusterChecked:
        """How the servers are that the cluster stands on. `InvalidState` from a server that stands alone."""
        return await self._ask(CheckCluster(), ClusterChecked)

    @property
    def shards(self) -> list[int]:
        """The shards of the node, as of when it was connected to."""
        return self._link.shards.numbers

    def shard_of(self, stream: str, partition: int = 0) -> int:
        """The shard that holds a partition of a stream of this name. That of partition 0 has its definition."""
        return self._link.shards.shard_of(stream, partition)

    def shards_of(self, stream: str, partitions: int) -> list[int]:
        """The shards of a stream, its home first: that of partition `p` is the one at `p % len(shards)`."""
        return self._link.shards.ring_of(stream, partitions)

    # A shard.

    async def numbers(
        self, shard: int, after: int = 0, limit: int = LIST_NUMBERS_MAX
    ) -> NumberList:
        """Streams in the order in which they were made: number and name."""
        return await self._ask(ListNumbers(after, limit), NumberList, shard)

    async def open_transactions(
        self, shard: int, stream: int = 0, after: int = 0, limit: int = INSPECT_MAX
    ) -> OpenList:
        """Open transactions, the oldest first, and who holds them."""
        return await self._ask(ListOpen(stream, after, limit), OpenList, shard)

    async def readers(
        self, shard: int, stream: int = 0, after: bytes = b"", limit: int = INSPECT_MAX
    ) -> ReaderList:
        """Readers: where they stand, and who holds their names."""
        return await self._ask(ListReaders(stream, after, limit), ReaderList, shard)

    async def readers_named(self, shard: int, stream: int, names: Iterable[str]) -> ReaderList:
        """Those of these readers of a stream that there are in a shard."""
        return await self._ask(GetReaders(stream, list(names)), ReaderList, shard)

    async def positions(self, shard: int, stream: int, reader: str) -> Positions:
        """Where a reader stands in all partitions, and what `newest` means now."""
        return await self._ask(GetPositions(stream, reader), Positions, shard)

    async def stream(self, name: str) -> StreamInfo:
        """A stream by its name. `NotFound` if there is none."""
        return await self._ask(GetStream(name), StreamInfo, self.shard_of(name))

    async def survey(self, shard: int, stream: int, wants: Iterable[SurveyWant]) -> Surveyed:
        """How far partitions of a stream can be read, and how much that is, each with its own limits."""
        return await self._ask(Survey(stream, list(wants)), Surveyed, shard)

    async def agents(
        self, shard: int, stream: int = 0, after: int = 0, limit: int = INSPECT_MAX
    ) -> AgentList:
        """Producers and readers that hold their names."""
        return await self._ask(ListAgents(stream, after, limit), AgentList, shard)

    async def sessions(self, shard: int, after: int = 0, limit: int = INSPECT_MAX) -> SessionList:
        """Sessions of clients."""
        return await self._ask(ListSessions(after, limit), SessionList, shard)

    async def ledgers(self, shard: int, after: int = 0, limit: int = INSPECT_MAX) -> LedgerList:
        """Ledgers of the log."""
        return await self._ask(ListLedgers(after, limit), LedgerList, shard)

    async def jobs(self, shard: int, after: str = "", limit: int = INSPECT_MAX) -> JobList:
        """Jobs, and the steps that they have committed last."""
        return await self._ask(ListJobs(after, limit), JobList, shard)

    async def browse(
        self,
        shard: int,
        stream: int,
        partition: int,
        from_id: int = 0,
        to_id: int = ID_MAX,
        limit: int = INSPECT_MAX,
        newest_first: bool = False,
    ) -> Browsed:
        """Visible transactions of a partition, without their items."""
        message = Browse(stream, partition, from_id, to_id, limit, newest_first)
        return await self._ask(message, Browsed, shard)

    async def transaction(
        self, shard: int, stream: int, partition: int, transaction: int
    ) -> TransactionStatus:
        """What has become of a transaction."""
        message = GetTransaction(stream, partition, transaction)
        return await self._ask(message, TransactionStatus, shard)

    # What can be done.

    async def reset_reader(
        self,
        stream: str,
        reader: str,
        positions: Iterable[tuple[int, int]],
        *,
        force: bool = False,
    ) -> None:
        """Let a reader go on elsewhere: after this transaction in each of these (partition, transaction).

        0 forgets its position. `InvalidState` while somebody holds the name, unless `force` is given:
        whoever that is gets `Fenced`.
        """
        await self._driver.run(reset_reader(self._link, stream, reader, positions, force))

    async def end_transactions(self, shard: int, transactions: Iterable[int]) -> None:
        """Cancel open transactions, whoever they belong to: all, or none if one of them is not open."""
        await self._driver.run(end_transactions(self._link, shard, transactions))

    async def _ask(self, message: Message, kind: type[R], shard: int | None = None) -> R:
        return await self._driver.run(inspect(self._link, message, kind, shard))

    def __repr__(self) -> str:
        return "<inspection>"
