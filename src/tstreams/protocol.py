"""Every message between a tstreams client and a server, in one place.

A request is one moebius call. Its command is the shard's number, a colon, and the message's class name
(`0:Instant`); `Describe` alone is asked of the node and has no number. The first part is the message in
MessagePack, and an item batch, if there is one, is the second. Requests that change anything carry the
session and a sequence number in it: sent again, they take effect once.

A reply is one message too; that to a `Fetch` has the item batches as its second part, end to end. A reply
begins with a tag, so that a shard can keep answers of all kinds and give them again.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from .errors import Corrupt
from .model import ID_MAX

Id: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=ID_MAX)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all requests and replies."""


class Change(Message, frozen=True):
    """A request that changes something. `acked`: the client has the replies up to this one."""

    session: Id
    sequence: Id
    acked: Id


# Sessions.


class OpenSession(Message, frozen=True):
    """Begin a session: the frame in which requests are recognised when they are sent again."""


class SessionOpened(Message, frozen=True, tag=1):
    """The answer to `OpenSession`."""

    session: Id
    ttl_ms: Count


class KeepAlive(Message, frozen=True):
    """I am here: extend my session and the leases of my open transactions."""

    session: Id
    acked: Id


# Streams.


class CreateStream(Change, frozen=True):
    """Make a stream."""

    name: str
    partitions: Count
    ttl_ms: Id
    description: str = ""
    schema: bytes | None = None


class AlterStream(Change, frozen=True):
    """Change what can be changed of a stream; None leaves it as it is.

    A new schema takes the place of one that the client has seen, and has found to fit: if it is another one
    by now, the request is refused.
    """

    name: str
    ttl_ms: Id | None = None
    description: str | None = None
    schema: bytes | None = None
    old_schema: bytes | None = None


class DeleteStream(Change, frozen=True):
    """Delete a stream with all it holds."""

    name: str


class PurgeStream(Change, frozen=True):
    """Drop what was opened before this id."""

    name: str
    before_id: Id


class StreamInfo(Message, frozen=True, tag=2):
    """A stream, in replies."""

    id: Id
    name: str
    partitions: Count
    ttl_ms: Id
    description: str
    schema: bytes | None
    purged_before: Id = 0


# Agents.


class OpenAgent(Change, frozen=True):
    """Register a producer or a reader under its name; an older one of that name is fenced."""

    kind: str
    stream: str
    name: str


class AgentOpened(Message, frozen=True, tag=3):
    """The answer to `OpenAgent`."""

    agent: Id
    stream: StreamInfo


class CloseAgent(Change, frozen=True):
    """The agent leaves; what it has open is cancelled."""

    agent: Id


# Transactions.


class OpenTransaction(Change, frozen=True):
    """Open a transaction; the answer has its id."""

    agent: Id
    partition: Count
    lease_ms: Count


class SendItems(Change, frozen=True):
    """One batch into an open transaction; the batch is the second part."""

    agent: Id
    transaction: Id


class Instant(Change, frozen=True):
    """Open, fill and checkpoint in one; the batch is the second part."""

    agent: Id
    partition: Count


class ReadPosition(Message, frozen=True):
    """How far a reader has come in a partition.

    `after`: where it must stand now (0: nowhere yet), else nothing of the commit happens. So commits can be
    sent one behind the other: after one that did not take effect, none does.
    """

    agent: Id
    partition: Count
    transaction: Id
    after: Id | None = None


class Brought(Message, frozen=True):
    """A batch that comes with a `Commit`: the last one of a transaction or, if that is 0, all of a new one.

    A new one is opened, filled and checkpointed by the commit, in this partition.
    """

    agent: Id
    partition: Count
    transaction: Id = 0


class Commit(Change, frozen=True):
    """Checkpoint transactions and readers' positions, all or nothing.

    `agents` are all members, also those with nothing to commit: each must still hold its name. `brought`
    says what the batches are that follow, one part each: nothing has to be sent and answered before.
    """

    agents: list[Id]
    transactions: list[Id]
    positions: list[ReadPosition] = []
    brought: list[Brought] = []


class CancelTransactions(Change, frozen=True):
    """Drop open transactions and what was sent into them."""

    agents: list[Id]
    transactions: list[Id]


# Jobs: transactions that many producers fill, in many processes, and one coordinator checkpoints.


class Stage(Change, frozen=True):
    """Hand open transactions of a producer over to a step of a job.

    They are complete, and belong to nobody but the job from then on: what becomes of the producer and its
    session is nothing to them. They live for `lease_ms`, and so long again whenever somebody stages for
    the same step; so this is sent without transactions, too, by whoever still works for it.
    """

    agent: Id
    transactions: list[Id]
    job: str
    step: Id
    lease_ms: Count


class CommitStep(Change, frozen=True):
    """Checkpoint staged transactions, all or nothing, and once: a step that was committed is `Done` again.

    What else the job has staged, in this step or in earlier ones, is dropped. What the streams `replace`
    held before is gone, if opened before the first of these transactions. `final`: the job ends with this
    step, and nobody will ask for it again.
    """

    job: str
    step: Id
    transactions: list[Id]
    replace: list[str] = []
    final: bool = False


class CancelStep(Change, frozen=True):
    """Drop what a job has staged in a step. One that was committed stays as it is."""

    job: str
    step: Id


class GetJob(Message, frozen=True):
    """Which step of a job was committed last? The answer is a `JobInfo`."""

    name: str


class JobInfo(Message, frozen=True, tag=9):
    """The answer to `GetJob`. `last_step`: -1 if none was committed yet."""

    last_step: int


class Done(Message, frozen=True, tag=4):
    """It is done. `id`: of the transaction that was opened, where one was."""

    id: Id = 0


# Reading. Nothing here changes anything, so nothing is numbered.


class Describe(Message, frozen=True):
    """What node is this, and which shards does it serve?"""


class NodeInfo(Message, frozen=True, tag=5):
    """The answer to `Describe`."""

    version: str
    shards: list[Count]


class GetStream(Message, frozen=True):
    """A stream by its name; the answer is a `StreamInfo`."""

    name: str


class ListStreams(Message, frozen=True):
    """Streams in the order of their names: those that begin with `prefix` and come after `after`."""

    prefix: str
    after: str
    limit: Count


class StreamList(Message, frozen=True, tag=6):
    """The answer to `ListStreams`. `more`: there are others behind the last of these."""

    streams: list[StreamInfo]
    more: bool


class GetPositions(Message, frozen=True):
    """Where a reader of this name stands, and what `newest` means now."""

    stream: Id
    reader: str


class Positions(Message, frozen=True, tag=7):
    """The answer to `GetPositions`.

    `next_id`: every transaction opened from now on has this id or a greater one. `heads`: (partition, id)
    of the first open transaction, where there is one: newest begins there. `saved`: (partition, id) of
    the last transaction that the reader has checkpointed.
    """

    next_id: Id
    heads: list[tuple[Count, Id]]
    saved: list[tuple[Count, Id]]


class Want(Message, frozen=True):
    """What a reader wants of one partition: ids in [from_id, to_id].

    `first_batch` leaves out the first batches of the transaction `from_id`: how to go on in the middle of
    one that is larger than a reply.
    """

    partition: Count
    from_id: Id
    to_id: Id = ID_MAX
    first_batch: Count = 0


class Fetch(Message, frozen=True):
    """Visible transactions, whole or in chunks, of one or many partitions.

    If there are none the answer waits for the first to become visible, up to `wait_ms`. `bytes_max`
    bounds the answer, but one batch comes at least.
    """

    stream: Id
    wants: list[Want]
    bytes_max: Count
    wait_ms: Count = 0


class FetchLast(Message, frozen=True):
    """The last visible transaction of a partition; the answer is a `Fetched` with one or none."""

    stream: Id
    partition: Count
    bytes_max: Count


class SurveyWant(Message, frozen=True):
    """What to look at in one partition: visible transactions from `from_id` on, until one of the limits."""

    partition: Count
    from_id: Id
    transactions_max: Count = 0
    bytes_max: Id = 0


class Survey(Message, frozen=True):
    """How far can be read in each partition, and how much would that be? The answer is a `Surveyed`.

    Without limits nothing is counted, and it costs next to nothing.
    """

    stream: Id
    wants: list[SurveyWant]


class StretchInfo(Message, frozen=True):
    """A stretch of a partition: up to the transaction `last_id`, or 0 if there is none. `more`: there is
    more behind it. What it holds was counted only if a limit was given; `bytes` as they are stored."""

    partition: Count
    last_id: Id
    transactions: Count = 0
    items: Id = 0
    bytes: Id = 0
    more: bool = False


class Surveyed(Message, frozen=True, tag=10):
    """The answer to `Survey`."""

    stretches: list[StretchInfo]


class Subscribe(Message, frozen=True):
    """Visible transactions of many partitions, now and from now on, without asking again.

    The answer is a stream of `Fetched`, each of at most `bytes_max` unless one batch is larger. The
    stream's credit says how much may be under way. In each partition transactions come in the order of
    their ids, without a gap, from the `Want` on. Of a transaction that does not fit its first batches
    come; whoever wants the others fetches them. `agent`: the reader that this is for, if it has a name;
    the stream ends with `fenced` when it does not hold it any more, or, if it has lost it with its `session`,
    with the same error as all else that is asked for in that session.
    """

    stream: Id
    wants: list[Want]
    bytes_max: Count
    agent: Id = 0
    session: Id = 0


class FetchedTransaction(Message, frozen=True):
    """One transaction, or a part of it: batches [first_batch, first_batch + len(sizes)) of `batches`."""

    partition: Count
    id: Id
    items: Id
    batches: Count
    first_batch: Count
    sizes: list[Count]


class Fetched(Message, frozen=True, tag=8):
    """The answer to `Fetch` and `FetchLast`; the batches follow, in this order: as the second part, or, if there
    are more parts, one for each transaction.

    Transactions of one partition come in the order of their ids, without a gap.
    """

    transactions: list[FetchedTransaction]


ChangeRequest: TypeAlias = (
    CreateStream
    | AlterStream
    | DeleteStream
    | PurgeStream
    | OpenAgent
    | CloseAgent
    | OpenTransaction
    | SendItems
    | Instant
    | Commit
    | CancelTransactions
    | Stage
    | CommitStep
    | CancelStep
)
ReadRequest: TypeAlias = (
    GetStream | ListStreams | GetPositions | GetJob | Fetch | FetchLast | Survey
)
Reply: TypeAlias = SessionOpened | StreamInfo | AgentOpened | Done
"""What a change is answered with."""
AnyReply: TypeAlias = Reply | NodeInfo | StreamList | Positions | JobInfo | Surveyed | Fetched

_encoder = msgspec.msgpack.Encoder()
_reply_decoder: msgspec.msgpack.Decoder[AnyReply] = msgspec.msgpack.Decoder(AnyReply)

encode = _encoder.encode

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoders of msgspec raise for bytes that are no message."""


def decode_reply(data: bytes | bytearray | memoryview) -> AnyReply:
    """A reply. `Corrupt` if the bytes are none."""
    try:
        return _reply_decoder.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"an answer of {len(data)} bytes cannot be read: {error}") from None
