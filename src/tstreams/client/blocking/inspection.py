"""What an operator sees of a server, and may do about it."""

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

    def node(self) -> NodeInfo:
        """What node this is, asked anew."""
        return self._ask(Describe(), NodeInfo)

    def measure(self) -> Measured:
        """What the node has counted: counters, gauges, histograms, the busiest streams."""
        return self._ask(Measure(), Measured)

    def config(self) -> ConfigInfo:
        """The configuration in force."""
        return self._ask(GetConfig(), ConfigInfo)

    def cluster(self) -> ClusterInfo:
        """What the node knows of its cluster. A server that stands alone is one without a name."""
        return self._ask(DescribeCluster(), ClusterInfo)

    def intend(self, wanted: Intend) -> Intended:
        """Say what operators want of the cluster, in the place of the version that was seen."""
        return self._ask(wanted, Intended)

    def check_cluster(self) -> ClusterChecked:
        """How the servers are that the cluster stands on. `InvalidState` from a server that stands alone."""
        return self._ask(CheckCluster(), ClusterChecked)

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

    def numbers(self, shard: int, after: int = 0, limit: int = LIST_NUMBERS_MAX) -> NumberList:
        """Streams in the order in which they were made: number and name."""
        return self._ask(ListNumbers(after, limit), NumberList, shard)

    def open_transactions(
        self, shard: int, stream: int = 0, after: int = 0, limit: int = INSPECT_MAX
    ) -> OpenList:
        """Open transactions, the oldest first, and who holds them."""
        return self._ask(ListOpen(stream, after, limit), OpenList, shard)

    def readers(
        self, shard: int, stream: int = 0, after: bytes = b"", limit: int = INSPECT_MAX
    ) -> ReaderList:
        """Readers: where they stand, and who holds their names."""
        return self._ask(ListReaders(stream, after, limit), ReaderList, shard)

    def readers_named(self, shard: int, stream: int, names: Iterable[str]) -> ReaderList:
        """Those of these readers of a stream that there are in a shard."""
        return self._ask(GetReaders(stream, list(names)), ReaderList, shard)

    def positions(self, shard: int, stream: int, reader: str) -> Positions:
        """Where a reader stands in all partitions, and what `newest` means now."""
        return self._ask(GetPositions(stream, reader), Positions, shard)

    def stream(self, name: str) -> StreamInfo:
        """A stream by its name. `NotFound` if there is none."""
        return self._ask(GetStream(name), StreamInfo, self.shard_of(name))

    def survey(self, shard: int, stream: int, wants: Iterable[SurveyWant]) -> Surveyed:
        """How far partitions of a stream can be read, and how much that is, each with its own limits."""
        return self._ask(Survey(stream, list(wants)), Surveyed, shard)

    def agents(
        self, shard: int, stream: int = 0, after: int = 0, limit: int = INSPECT_MAX
    ) -> AgentList:
        """Producers and readers that hold their names."""
        return self._ask(ListAgents(stream, after, limit), AgentList, shard)

    def sessions(self, shard: int, after: int = 0, limit: int = INSPECT_MAX) -> SessionList:
        """Sessions of clients."""
        return self._ask(ListSessions(after, limit), SessionList, shard)

    def ledgers(self, shard: int, after: int = 0, limit: int = INSPECT_MAX) -> LedgerList:
        """Ledgers of the log."""
        return self._ask(ListLedgers(after, limit), LedgerList, shard)

    def jobs(self, shard: int, after: str = "", limit: int = INSPECT_MAX) -> JobList:
        """Jobs, and the steps that they have committed last."""
        return self._ask(ListJobs(after, limit), JobList, shard)

    def browse(
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
        return self._ask(message, Browsed, shard)

    def transaction(
        self, shard: int, stream: int, partition: int, transaction: int
    ) -> TransactionStatus:
        """What has become of a transaction."""
        message = GetTransaction(stream, partition, transaction)
        return self._ask(message, TransactionStatus, shard)

    # What can be done.

    def reset_reader(
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
        self._driver.run(reset_reader(self._link, stream, reader, positions, force))

    def end_transactions(self, shard: int, transactions: Iterable[int]) -> None:
        """Cancel open transactions, whoever they belong to: all, or none if one of them is not open."""
        self._driver.run(end_transactions(self._link, shard, transactions))

    def _ask(self, message: Message, kind: type[R], shard: int | None = None) -> R:
        return self._driver.run(inspect(self._link, message, kind, shard))

    def __repr__(self) -> str:
        return "<inspection>"
