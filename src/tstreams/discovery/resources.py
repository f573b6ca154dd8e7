"""Everything that travels as JSON, in one place: what routes answer with, and what they are sent.

Ids are text, because they exceed what a JavaScript number holds; times are RFC 3339, in UTC; sizes are
whole numbers of bytes. A list is a page: `items`, and `next`, which is the `after` of the next page or null.
A field that is null is not known, or there is none; each says which.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from ..limits import DESCRIPTION_BYTES_MAX, NAME_BYTES_MAX, PARTITIONS_MAX

Id: TypeAlias = Annotated[
    str, msgspec.Meta(pattern="^[0-9]{1,19}$", examples=["170000000000000001"])
]
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Partition: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=PARTITIONS_MAX)]
TtlSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=1, lt=1e11)]
View: TypeAlias = Literal["auto", "text", "json", "hex", "arrow"]
State: TypeAlias = Literal["opened", "checkpointed", "cancelled", "invalid"]


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what routes answer with."""


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what routes are sent."""


def given(body: Body) -> list[str]:
    """Which fields of a body are there, of those that may be left out without a default."""
    return [name for name in body.__struct_fields__ if getattr(body, name) is not msgspec.UNSET]


class Problem(Resource, frozen=True):
    """What went wrong (RFC 9457). `code` is the name of the error, as in `tstreams.errors`."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str


# Amounts.


class Size(Resource, frozen=True):
    """How much there is. `exact`: all was counted; else there is at least this much, and asking again counts on."""

    transactions: Whole
    items: Whole
    bytes: Whole
    exact: bool


class Rates(Resource, frozen=True):
    """What happens per second, averaged over the last seconds."""

    transactions: float
    items: float
    bytes: float


class Lag(Resource, frozen=True):
    """How much of a stream a consumer has not checkpointed yet.

    `seconds`: the age of the oldest transaction among them. `exact`: all was counted; else it is at least
    so much.
    """

    transactions: Whole
    items: Whole
    bytes: Whole
    seconds: float
    exact: bool


# Streams.


class StreamLag(Resource, frozen=True):
    """The slowest consumer of a stream."""

    consumer: str
    lag: Lag


class Stream(Resource, frozen=True):
    """A stream."""

    name: str
    number: Id
    """Another stream that is made under the same name has another number."""
    partitions: int
    ttl_seconds: float
    description: str
    typed: bool
    """Whether it holds rows of an Arrow schema instead of single items."""
    purged_before: Id
    """Transactions with smaller ids cannot be read any more. "0": nothing was purged."""
    last_transaction: datetime | None
    """When the last visible transaction was opened; null: there is none, or too many partitions to look."""
    size: Size | None
    """What can be read of it; null: it was not asked for (`details=false`)."""
    rates: Rates | None
    """What is written; null: it is not among the busiest streams, and not known yet."""
    slowest: StreamLag | None
    """Its slowest consumer; null: it has none, or it was not asked for."""


class Column(Resource, frozen=True):
    """A column of a stream's Arrow schema."""

    name: str
    type: str
    nullable: bool


class StreamDetail(Stream, frozen=True):
    """A stream, with what only its own page shows."""

    columns: list[Column] | None
    """Its Arrow schema; null: it holds single items, or the server has no pyarrow."""
    open_transactions: Whole
    consumers: Whole


class StreamPage(Resource, frozen=True):
    """Streams in the order of their names. A search is in no order that means anything, but always the same."""

    items: list[Stream]
    next: str | None
    total: int | None
    """How many there are in all, if no filter was given; for a search how many were found. null: not known."""


class NewStream(Body, frozen=True):
    """A stream to be made."""

    name: Name
    partitions: Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)] = 1
    ttl_seconds: TtlSeconds = 604_800
    description: Annotated[str, msgspec.Meta(max_length=DESCRIPTION_BYTES_MAX)] = ""


class StreamChange(Body, frozen=True):
    """What is to be changed of a stream; what is left out, or null, stays as it is."""

    ttl_seconds: TtlSeconds | None = None
    description: Annotated[str, msgspec.Meta(max_length=DESCRIPTION_BYTES_MAX)] | None = None


class Point(Body, frozen=True):
    """A place in history: exactly one of a time and the id of a transaction."""

    time: datetime | msgspec.UnsetType = msgspec.UNSET
    id: Id | msgspec.UnsetType = msgspec.UNSET


class Purge(Body, frozen=True):
    """Drop what was opened before a point."""

    before: Point


class Purged(Resource, frozen=True):
    """What a purge did."""

    stream: str
    before: Id
    """Transactions with smaller ids cannot be read any more."""


class PartitionInfo(Resource, frozen=True):
    """A partition of a stream."""

    partition: int
    size: Size
    oldest: datetime | None
    last_id: Id | None
    last_transaction: datetime | None
    held_back_by: Id | None
    """The open transaction behind which readers wait; null: there is none."""
    shard: int


class PartitionPage(Resource, frozen=True):
    """Partitions in their order."""

    items: list[PartitionInfo]
    next: str | None


# Transactions.


class Transaction(Resource, frozen=True):
    """A transaction. Of one that has ended without a checkpoint nothing is kept: it is not found."""

    id: Id
    stream: str
    partition: int
    time: datetime
    """When it was opened."""
    state: State
    items: Whole
    batches: Whole
    bytes: Whole
    """As they are stored."""


class TransactionPage(Resource, frozen=True):
    """Transactions in the order that was asked for."""

    items: list[Transaction]
    next: str | None


class Item(Resource, frozen=True):
    """One item, or one row. `value` is text (views text and hex) or JSON (views json and arrow)."""

    index: Whole
    bytes: Whole
    """How long it is; 0 for a row."""
    view: Literal["text", "json", "hex", "arrow"]
    value: Any
    truncated: bool
    """Whether only its beginning is shown."""


class ItemPage(Resource, frozen=True):
    """Items of a transaction."""

    items: list[Item]
    next: str | None
    """The `first` of the next page."""
    total: Whole


class NewItem(Body, frozen=True):
    """An item to be written: exactly one of text, any JSON, and bytes in base64. For typed streams JSON objects."""

    text: str | msgspec.UnsetType = msgspec.UNSET
    json: Any | msgspec.UnsetType = msgspec.UNSET
    base64: str | msgspec.UnsetType = msgspec.UNSET


class NewTransaction(Body, frozen=True):
    """A transaction to be written and checkpointed at once. Neither partition nor key: partition 0."""

    items: Annotated[list[NewItem], msgspec.Meta(min_length=1, max_length=1000)]
    partition: Partition | None = None
    key: str | None = None


class Holder(Resource, frozen=True):
    """Who has something: an agent of a stream, in a session."""

    kind: Literal["producer", "reader", "job", "unknown"]
    name: str
    session: Id
    seen: datetime | None
    """The last sign of life of its session; null: not known."""


class OpenTransaction(Resource, frozen=True):
    """A transaction that is open. Later ones of its partition are not visible until it ends."""

    id: Id
    stream: str
    partition: int
    time: datetime
    age_seconds: float
    expires: datetime | None
    items: Whole
    owner: Holder
    staged: bool
    """Whether it was handed over to a job: then it ends with a step of that job."""
    first: bool
    """Whether it is the first open one of its partition: the one behind which readers wait."""
    held_back: list[str]
    """Consumers with saved positions in this partition that it holds back, at most ten."""


class OpenPage(Resource, frozen=True):
    """Open transactions, the oldest first."""

    items: list[OpenTransaction]
    next: str | None


class Cancelled(Resource, frozen=True):
    """A transaction that an operator cancelled."""

    id: Id
    state: Literal["cancelled"]


# Consumers.


class Consumer(Resource, frozen=True):
    """A named reader of a stream: a consumer or a subscriber, or a Spark query."""

    stream: str
    name: str
    live: bool
    """Whether an agent holds the name now, in a session that has not ended."""
    holder: Holder | None
    partitions: Whole
    """In how many it has saved a position."""
    position_time: datetime | None
    """The time of its position in the partition where it is furthest behind; null: it has saved none."""
    lag: Lag
    """Over all partitions; where it has saved no position it has everything before it."""


class ConsumerPage(Resource, frozen=True):
    """Consumers, stream by stream."""

    items: list[Consumer]
    next: str | None


class ConsumerPartition(Resource, frozen=True):
    """Where a consumer stands in one partition."""

    partition: int
    position: Id | None
    """The last transaction that it has checkpointed; null: none yet."""
    time: datetime | None
    lag: Lag
    held_back_by: Id | None
    """The open transaction that it waits for, once it has read what is visible."""


class ConsumerDetail(Consumer, frozen=True):
    """A consumer, partition by partition (the first 1024)."""

    positions: list[ConsumerPartition]


class Reset(Body, frozen=True):
    """Where a consumer is to go on. Refused while it is live, unless `force`: then it is fenced."""

    to: Literal["oldest", "newest"] | Point
    partitions: Annotated[list[Partition], msgspec.Meta(max_length=1024)] | None = None
    """Null: all."""
    force: bool = False
    dry_run: bool = False
    """Only say what would happen."""


class ResetPartition(Resource, frozen=True):
    """What a reset does in one partition."""

    partition: int
    before: Id | None
    after: Id
    direction: Literal["none", "back", "forward"]
    transactions: Whole
    """How many it will read again (back), or never read (forward)."""
    items: Whole
    exact: bool


class ResetResult(Resource, frozen=True):
    """What a reset did, or would do."""

    stream: str
    consumer: str
    applied: bool
    live: bool
    """Whether somebody held the name; if `applied` it was fenced."""
    summary: str
    """One sentence for people."""
    partitions: list[ResetPartition]


class LagPoint(Resource, frozen=True):
    """The lag of a consumer at a time."""

    time: datetime
    transactions: Whole
    seconds: float


class LagHistory(Resource, frozen=True):
    """The lag of a consumer over time, as far as the front door has watched it; the oldest first."""

    items: list[LagPoint]


# The node and what is in it.


class Session(Resource, frozen=True):
    """A session of a client."""

    id: Id
    seen: datetime | None
    expires: datetime | None
    agents: Whole
    requests: Whole
    """Changes that it has asked for."""
    unacknowledged: Whole
    """Answers to them that it has not said to have."""


class SessionPage(Resource, frozen=True):
    """Sessions by their ids."""

    items: list[Session]
    next: str | None


class Ledger(Resource, frozen=True):
    """A ledger: a file of the log."""

    shard: int
    id: Id
    bytes: Whole
    live_bytes: Whole | None
    """Payload in it that can still be read; null: not known."""
    dead_bytes: Whole | None
    """Payload in it that cannot be read any more, and goes when it is cleaned up; null: not known."""
    closed: bool
    created: datetime | None


class LedgerPage(Resource, frozen=True):
    """Ledgers in their order."""

    items: list[Ledger]
    next: str | None


class Job(Resource, frozen=True):
    """A job: transactions of many processes that one coordinator commits, step by step. A Spark query is one."""

    name: str
    last_step: int
    """The last one that was committed."""
    committed: datetime | None


class JobPage(Resource, frozen=True):
    """Jobs by their names."""

    items: list[Job]
    next: str | None


class Shard(Resource, frozen=True):
    """A shard of a node."""

    shard: int
    epoch: int
    role: Literal["leader", "follower"]


class Copy(Resource, frozen=True):
    """A node that has a copy of a shard, and does not lead it."""

    node: str
    addresses: list[str]


class Range(Resource, frozen=True):
    """Partitions `first`, `first + step`, and so on up to `last`: those of a stream that are in one shard."""

    first: int
    last: int
    step: Annotated[int, msgspec.Meta(ge=1)]
    shard: int
    epoch: int
    """Rises whenever another node, or another life of the same, has taken the shard over."""
    node: str
    """Who leads the shard: writes go there. Empty: nobody at this moment."""
    addresses: list[str]
    followers: list[Copy]
    """Who else has it: nobody, as long as there is one node."""


class Lookup(Resource, frozen=True):
    """Where the partitions of a stream are served: one range for each shard that has some of them."""

    stream: str
    number: Id
    partitions: int
    ranges: list[Range]


class Setting(Resource, frozen=True):
    """A setting in force; secrets are hidden."""

    name: str
    value: str
    default: bool
    """Whether it is the default."""
    description: str


class Configuration(Resource, frozen=True):
    """All settings in force."""

    items: list[Setting]


class Health(Resource, frozen=True):
    """Whether it works. `checks` says what was looked at, and what was found."""

    status: Literal["ok", "failing"]
    checks: dict[str, str]


# Statistics.


class BusyStream(Resource, frozen=True):
    """One of the busiest streams."""

    name: str
    written: Rates
    read: Rates


class SlowConsumer(Resource, frozen=True):
    """One of the consumers with the greatest lag."""

    stream: str
    consumer: str
    transactions: Whole
    seconds: float
    live: bool


class Latency(Resource, frozen=True):
    """How long something took, in seconds, over the last interval."""

    p50: float
    p99: float
    count: Whole


class Statistics(Resource, frozen=True):
    """What the node does: rates and latencies over the last second, the rest as it is now."""

    time: datetime
    interval_seconds: float
    available: bool
    """False: the storage server did not answer, and all numbers are those from before, or zero."""
    written: Rates
    read: Rates
    requests: float
    """Per second."""
    commit: Latency
    """From the request to the answer, where known; else the time of a group."""
    sync: Latency
    """fdatasync."""
    streams: Whole
    open_transactions: Whole
    oldest_open_seconds: float
    readers_waiting: Whole
    subscriptions: Whole
    connections: Whole
    disk_free_bytes: Whole
    ledger_bytes: Whole
    busiest: list[BusyStream]
    slowest: list[SlowConsumer]
    values: dict[str, float]
    """Every counter and gauge of the server by its name, as in /metrics."""


class Sample(Resource, frozen=True):
    """One second of the past."""

    time: datetime
    written: Rates
    read: Rates
    requests: float
    commit_p50: float
    commit_p99: float
    sync_p99: float
    open_transactions: Whole
    oldest_open_seconds: float
    lag_transactions: Whole
    """Of the slowest consumer."""
    lag_seconds: float


class History(Resource, frozen=True):
    """The past, the oldest first: one sample per `interval_seconds`, as far as the front door remembers."""

    interval_seconds: float
    items: list[Sample]


class StreamTick(Resource, frozen=True):
    """The event `stream` of /v1/events: what a stream did in the last second."""

    stream: str
    time: datetime
    rates: Rates
    size: Size
    last_transaction: datetime | None


EXACTLY_ONE: tuple[type[Body], ...] = (Point, NewItem)
"""Of these exactly one field is given."""
