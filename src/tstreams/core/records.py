"""What is written to the log: facts that have happened. A shard's state is the sum of its records.

A record is a header in MessagePack and, for those that carry items, an item batch behind it.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ..errors import Corrupt
from ..items import Buffer
from ..protocol import DECODE_ERRORS, Group

LENGTH_BYTES = 4


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all records. `session` and `sequence` say which request it came from; 0: none."""

    session: int
    sequence: int


class SessionBegun(Record, frozen=True, tag=1):
    """A client's session began."""


class SessionsEnded(Record, frozen=True, tag=2):
    """Sessions were not heard of for too long; their agents end with them, and what those had open."""

    sessions: list[int]
    agents: list[int]
    expired: list[int]


class SessionsNoted(Record, frozen=True, tag=40):
    """How far sessions have come: (session, last number, what is acknowledged). The last record of a group in a log that
    several nodes read: acknowledgements and refusals leave no other trace, and all nodes must forget the same answers."""

    sessions: list[tuple[int, int, int]]


class Swept(Record, frozen=True, tag=41):
    """What had died by this time was removed from the index: see `index.sweeping`. Alone in its group."""

    now_ms: int
    budget: int
    first_slot: int
    first_job: bytes | None


class LedgersDropped(Record, frozen=True, tag=42):
    """Ledgers in which nothing is alive are deleted from the log, on all nodes."""

    ledgers: list[int]


class SnapshotBegun(Record, frozen=True, tag=43):
    """The index is about to be written to the log, as it is somewhere behind this record."""


class SnapshotPiece(Record, frozen=True, tag=44):
    """Keys and values of the index as it was at the log position `at` follow: see `index.snapshot`. Pieces lie among
    other records; `number` counts from 0."""

    at: int
    number: int


class SnapshotEnded(Record, frozen=True, tag=45):
    """All pieces of a snapshot lie between `at` and here."""

    at: int
    pieces: int
    keys: int
    size_bytes: int


class StreamCreated(Record, frozen=True, tag=3):
    """A stream came to be."""

    stream: int
    name: str
    partitions: int
    ttl_ms: int
    description: str
    schema: bytes | None


class StreamAltered(Record, frozen=True, tag=4):
    """A stream has this ttl and description from now on; and this schema, if there is one here.

    What is older than `purged_before` had died by the ttl before: a longer one does not bring it back.
    """

    stream: int
    ttl_ms: int
    description: str
    purged_before: int = 0
    schema: bytes | None = None


class StreamDeleted(Record, frozen=True, tag=5):
    """A stream is gone, with all that it held and what was open in it."""

    stream: int
    cancelled: list[int]


class StreamPurged(Record, frozen=True, tag=6):
    """What a stream held before this id is gone."""

    stream: int
    before_id: int


class AgentBegun(Record, frozen=True, tag=7):
    """An agent took a name; `fenced` is the one that had it before, or 0, and what it had open. `rank`: its number at
    the home of its stream, if that is another shard."""

    agent: int
    kind: str
    stream: int
    name: str
    fenced: int
    cancelled: list[int]
    rank: int = 0


class AgentEnded(Record, frozen=True, tag=8):
    """An agent gave its name back; what it had open is cancelled."""

    agent: int
    cancelled: list[int]


class Opened(Record, frozen=True, tag=9):
    """A transaction was opened."""

    transaction: int
    stream: int
    partition: int
    agent: int
    lease_ms: int


class ItemsSent(Record, frozen=True, tag=10):
    """Items of an open transaction; the batch follows."""

    transaction: int
    stream: int
    partition: int
    count: int


class InstantMade(Record, frozen=True, tag=11):
    """A whole transaction; the batch follows.

    `positions`, as of `Committed`: the readers that moved on with it, if it came with a commit.
    """

    transaction: int
    stream: int
    partition: int
    count: int
    positions: list[tuple[int, str, int, int]] = []


class Committed(Record, frozen=True, tag=12):
    """Transactions became visible and readers moved on, all at once.

    `positions` are (reader's stream, name, partition, transaction). `empty` are transactions without
    items: they end as if they were cancelled.
    """

    transactions: list[int]
    empty: list[int]
    positions: list[tuple[int, str, int, int]]


class Ended(Record, frozen=True, tag=13):
    """Transactions ended without becoming visible: cancelled, or their time ran out."""

    transactions: list[int]
    expired: bool


class Moved(Record, frozen=True, tag=14):
    """A batch was copied forward, out of a ledger in which little is alive; the batch follows.

    `number` says which of its transaction's batches it is.
    """

    transaction: int
    stream: int
    partition: int
    number: int


class Filled(Record, frozen=True, tag=15):
    """A transaction was opened with its only batch, which follows.

    The commit that makes it visible is in the same group of the log, so there is never one without it.
    """

    transaction: int
    stream: int
    partition: int
    agent: int
    count: int


class Staged(Record, frozen=True, tag=16):
    """Open transactions passed from their producer to a step of a job."""

    job: str
    step: int
    lease_ms: int
    transactions: list[int]


class StepCommitted(Record, frozen=True, tag=17):
    """What a step of a job had staged became visible, all at once.

    `empty` and `dropped` ended without it: they had no items, or belonged to other attempts. `replaced`
    are streams, and the id before which nothing of them is left. `final`: the job is over, and forgotten.
    """

    job: str
    step: int
    transactions: list[int]
    empty: list[int]
    dropped: list[int]
    replaced: list[tuple[int, int]]
    final: bool
    now_ms: int


class ReaderReset(Record, frozen=True, tag=18):
    """An operator put a reader elsewhere.

    `positions` are (partition, transaction); 0: none is known any more. `fenced` is the agent that held the
    name until then, or 0.
    """

    stream: int
    reader: str
    positions: list[tuple[int, int]]
    fenced: int


class Overruled(Record, frozen=True, tag=19):
    """An operator cancelled transactions that were open."""

    transactions: list[int]


# Between shards.


class OpenedWith(Record, frozen=True, tag=20):
    """A transaction was opened with its only batch, which follows, and stays open: it was brought to be prepared."""

    transaction: int
    stream: int
    partition: int
    agent: int
    lease_ms: int
    count: int


class Prepared(Record, frozen=True, tag=21):
    """The part of a group that is in this shard can be committed. Only the decision ends it: `Settled`.

    Fields as of `Committed`. `agents`: all members; none of them loses its name before that. `kept` are those of its
    transactions that are open again if the group is refused, all others are cancelled then. `cut` says which of them got a
    last batch together with this that they lose again: (transaction, its items, whether an item was unfinished before it).
    """

    group: Group
    lease_ms: int
    agents: list[int]
    transactions: list[int]
    empty: list[int]
    positions: list[tuple[int, str, int, int]]
    kept: list[int] = []
    cut: list[tuple[int, int, bool]] = []


class StepPrepared(Record, frozen=True, tag=22):
    """The same for the part of a step of a job. Fields as of `StepCommitted`."""

    group: Group
    lease_ms: int
    job: str
    step: int
    transactions: list[int]
    empty: list[int]
    dropped: list[int]
    replaced: list[tuple[int, int]]
    final: bool


class Settled(Record, frozen=True, tag=23):
    """A group that was prepared here has happened, or never will: then what it would have committed is cancelled, or open
    again (`Prepared.kept`)."""

    group: Group
    committed: bool
    now_ms: int


class Decided(Record, frozen=True, tag=24):
    """A group of this session has happened, everywhere: behind the record of its part in this shard, in one group of
    the log. `others`: the shards that have to be told."""

    number: int
    others: list[int]


class Refused(Record, frozen=True, tag=25):
    """A group of this session never happens. `reason`: the code of an error. `others`: the shards that are told."""

    number: int
    reason: str
    others: list[int]


class ToTell(Record, frozen=True, tag=26):
    """A stream is changed by the record behind this one, and these shards have to be told. `version` 0: it is deleted."""

    stream: int
    version: int
    shards: list[int]


class Told(Record, frozen=True, tag=27):
    """Other shards know: of groups (session, number, shard), and of streams (stream, version, shard)."""

    groups: list[tuple[int, int, int]]
    streams: list[tuple[int, int, int]]


class StreamCopied(Record, frozen=True, tag=28):
    """A stream of another shard is so from now on, by what its home says."""

    stream: int
    name: str
    partitions: int
    ttl_ms: int
    description: str
    schema: bytes | None
    purged_before: int
    version: int


class CopyDropped(Record, frozen=True, tag=29):
    """A stream of another shard is gone, with all that it held here. There may have been nothing of it."""

    stream: int
    cancelled: list[int]
    now_ms: int


class CopiesForgotten(Record, frozen=True, tag=30):
    """It is not remembered any longer that these streams of other shards were deleted."""

    streams: list[int]


AnyRecord: TypeAlias = (
    SessionBegun
    | SessionsEnded
    | SessionsNoted
    | Swept
    | LedgersDropped
    | SnapshotBegun
    | SnapshotPiece
    | SnapshotEnded
    | StreamCreated
    | StreamAltered
    | StreamDeleted
    | StreamPurged
    | AgentBegun
    | AgentEnded
    | Opened
    | ItemsSent
    | InstantMade
    | Committed
    | Ended
    | Moved
    | Filled
    | Staged
    | StepCommitted
    | ReaderReset
    | Overruled
    | OpenedWith
    | Prepared
    | StepPrepared
    | Settled
    | Decided
    | Refused
    | ToTell
    | Told
    | StreamCopied
    | CopyDropped
    | CopiesForgotten
)

WITH_ITEMS = (Filled, InstantMade, ItemsSent, Moved, OpenedWith)
"""The records that an item batch follows."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)


def encode_record(record: AnyRecord, items: Buffer | None) -> list[Buffer]:
    """As it goes to the log: the length of the header, the header, the items."""
    header = _encoder.encode(record)
    head = len(header).to_bytes(LENGTH_BYTES, "little") + header
    return [head] if items is None else [head, items]


def decode_record(data: memoryview) -> tuple[AnyRecord, int]:
    """A record, and where its items begin. `Corrupt` if it is none."""
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    end = LENGTH_BYTES + length
    if end > len(data):
        raise Corrupt(f"a log record of {len(data)} bytes is shorter than its header of {length}")
    try:
        return _decoder.decode(data[LENGTH_BYTES:end]), end
    except DECODE_ERRORS as error:
        raise Corrupt(f"a log record with a right checksum cannot be read: {error}") from None
