"""Every message between a tstreams client and a server, in one place.

A request is one moebius call. Its command is the shard's number, a colon, and the message's class name
(`0:Instant`); `Describe`, `Measure`, `GetConfig` and what is about the cluster are asked of the node and have no number. The first part is the message in
MessagePack, and an item batch, if there is one, is the second. Requests that change anything carry the
session and a sequence number in it: sent again, they take effect once.

With several shards, names say where everything is (`sharding.py`): a stream is made, changed, deleted and looked up at
its home; transactions, positions and reads of a partition are with the shard of that partition; a step of a job is
committed at the home of the job. A client has a session in each shard that it writes to.

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
    """A stream, in replies.

    `version`: its home counts it up with each change, from 1 on. 0: told by a server that does not know of versions.
    """

    id: Id
    name: str
    partitions: Count
    ttl_ms: Id
    description: str
    schema: bytes | None
    purged_before: Id = 0
    version: Id = 0


# Agents.


class OpenAgent(Change, frozen=True):
    """Register a producer or a reader under its name; an older one of that name is fenced.

    An agent is opened at the home of its stream first, without the last three fields. Then, in the other shards in which
    it has partitions, with what the home answered: `rank` is the agent's number there, `number` that of the stream,
    `version` that of the `StreamInfo`. Those shards refuse (`Fenced`) whoever ranks below the holder of the name.
    `NotFound` if a stream of this number is no more. The answer may take a while: somebody may have to ask the home,
    or, if the one before is part of a group that is prepared, its decider.
    """

    kind: str
    stream: str
    name: str
    rank: Id = 0
    number: Id = 0
    version: Id = 0


class AgentOpened(Message, frozen=True, tag=3):
    """The answer to `OpenAgent`. `agent`: its number in this shard; that of the home is its rank everywhere."""

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

    `others`: the shards in which the rest of the group is prepared (`Prepare`). Then this commit is what decides on all
    of it, and `group` is the number in the group's name. When it is answered the group has happened, and this shard tells
    the others. If it is refused, nothing has happened, and the client lets the others know (`Settle`).
    """

    agents: list[Id]
    transactions: list[Id]
    positions: list[ReadPosition] = []
    brought: list[Brought] = []
    others: list[Count] = []
    group: Id = 0


class Group(Message, frozen=True):
    """The name of a group that spans shards: the shard that decides, the client's session there, and a number.

    The client counts these numbers up, from 1, in each session for itself. They are not sequence numbers: one of those
    would have to be set aside until all have prepared, and all that the session wants meanwhile would have to wait.
    """

    shard: Count
    session: Id
    number: Id


class Prepare(Change, frozen=True):
    """The part of a checkpoint that is in this shard, if another shard decides: the same fields as in `Commit`.

    When it is answered this part can be committed, and nothing but the decision ends it: what it names holds readers
    back, and whoever wants to change it waits. Send it to all participants, and when all have answered, the `Commit` to
    the decider, with their shards as `others`. If one refuses, tell all that may have prepared with `Settle`.
    `session` and `sequence` are those of this shard, as always; `group` is what the decision will be known by.

    `lease_ms`: how long to wait for the decision before the decider is asked, which then refuses the group if it has
    not decided. If the group does not happen, all that was prepared is cancelled, also transactions that had been
    open before. With `give_back` those are open again, as they were: batches that came along with this are cut off, and
    their leases begin anew. `InvalidState` if this group is prepared here already.
    """

    group: Group
    lease_ms: Count
    agents: list[Id]
    transactions: list[Id]
    positions: list[ReadPosition] = []
    brought: list[Brought] = []
    give_back: bool = False


class Settle(Message, frozen=True):
    """The decision on a group, for a shard that has prepared. Not numbered: once settled, it is `Done` again.

    From a client: it gives the group up. It has not sent the decisive request, and never will, or it was told that this
    was refused. `session`: that in which it prepared; `committed` is false: only the decider says that a group has
    happened. From the decider: `session` is 0.
    """

    session: Id
    group: Group
    committed: bool = False


class CancelTransactions(Change, frozen=True):
    """Drop open transactions and what was sent into them."""

    agents: list[Id]
    transactions: list[Id]


# For operators.


class ResetReader(Change, frozen=True):
    """Put a reader elsewhere: in each of these partitions it has read up to this transaction, and no further.

    `positions` are (partition, transaction); 0 forgets that there was any. Other partitions stay as they
    are. `InvalidState` while an agent holds the name, unless `force` is said: then that agent is fenced in
    the same moment. `BadRequest` for an id that has not been given out yet.
    """

    stream: str
    reader: str
    positions: list[tuple[Count, Id]]
    force: bool = False


class EndTransactions(Change, frozen=True):
    """Cancel open transactions, whoever they belong to, staged ones too: all of them or, if one is not open,
    none. Whoever goes on with one is told `InvalidState`, and that an operator cancelled it."""

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

    With several shards it goes to the home of the job (`sharding.job_home`), with what is staged there. `others`: the
    shards in which the rest is prepared (`PrepareStep`), as in `Commit`. `Done` if the step was committed before: then
    what was prepared for this request is given up, without the client's doing.
    """

    job: str
    step: Id
    transactions: list[Id]
    replace: list[str] = []
    final: bool = False
    others: list[Count] = []
    group: Id = 0


class PrepareStep(Change, frozen=True):
    """The part of a step that is in this shard, if that is not the home of the job: to `CommitStep` what `Prepare` is to
    `Commit`.

    It goes to each shard in which something was staged for the step, and to each that holds partitions of a stream in
    `replace`, which are replaced shard by shard. `Done` also if it is known here that the step was committed before;
    nothing is prepared then. A coordinator that died may have left a group behind in which this is prepared: then its
    decider is asked first.
    """

    group: Group
    lease_ms: Count
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
    """What node is this, and which shards does it serve? And where are all shards?"""


class ReplicaInfo(Message, frozen=True):
    """A node that has a shard: its id, and where it listens."""

    node: str
    addresses: list[str]


class ShardInfo(Message, frozen=True):
    """Where a shard is: who leads it, in which epoch, and who follows. `leader` is None while nobody leads it, or nobody
    is known to."""

    number: Count
    epoch: Id
    leader: ReplicaInfo | None
    followers: list[ReplicaInfo] = []


class NodeInfo(Message, frozen=True, tag=5):
    """The answer to `Describe`.

    `id`: made once, and kept in the data folder. `addresses`: where it listens, as it was told; `http`: the
    URL of its front door, or "". `epochs`: of each of the shards, in their order. `started_ms`: when this
    process began to serve. A server that is older than these fields leaves them out.

    `total`: how many shards there are, in all nodes together: what placement is reckoned with. `map`: where they are, in
    the order of their numbers. An older server leaves out both: it has shard 0 only, and leads it.
    """

    version: str
    shards: list[Count]
    id: str = ""
    addresses: list[str] = []
    http: str = ""
    epochs: list[Id] = []
    started_ms: Id = 0
    total: Count = 1
    map: list[ShardInfo] = []


class GetStream(Message, frozen=True):
    """A stream by its name or, if that is "", by its number; the answer is a `StreamInfo`. Ask its home."""

    name: str
    number: Id = 0


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
    """Where a reader of this name stands, and what `newest` means now: in the partitions of this shard."""

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


# Between shards. Nobody else sends these; in one process they are not sent at all. `Settle` is one of them too.


class TellStream(Message, frozen=True):
    """A stream has changed, says its home to a shard that may have a copy. None: the stream of this number is deleted,
    and must not come back. Answered with `Done`; told again until it is."""

    number: Id
    stream: StreamInfo | None


class AskDecision(Message, frozen=True):
    """What has become of a group? A decider that has not decided refuses it now, for good. The answer is a `Decision`.

    `reason`: the code of the error that the client's `Commit` is refused with, should it still come: `expired` or
    `fenced`.
    """

    group: Group
    reason: str


class HandOver(Message, frozen=True):
    """A node that should lead a shard is ready to, and asks the one that leads it. Without an epoch: whether it may.
    With one: it does by what the coordination service says, and the other is to stop. Answered with `HandedOver` when that
    is so: then it decides nothing more, and answers no reader. Sealed, as what shards say to each other is."""

    node: str
    """Who asks."""
    epoch: Id = 0


class HandedOver(Message, frozen=True, tag=43):
    """The answer to `HandOver`."""

    place: Id
    """Up to where the node that answers has the log: all that it ever confirmed lies before that."""


class Decision(Message, frozen=True, tag=22):
    """The answer to `AskDecision`. It never changes."""

    committed: bool


# Inspection: what operators see. Nothing here changes anything, and every answer is bounded: a list comes in
# pages of at most `limit`. A page may be shorter than that, even empty, and yet not be the last one, because
# a look at the index has its bounds too: go on as long as `more` is true, from where the page ends.


class Measure(Message, frozen=True):
    """Ask the node what it has counted since it started. The answer is a `Measured`."""


class Histogram(Message, frozen=True):
    """How often something was how much.

    `counts` has one number more than `bounds`: how often it was at most the bound (and more than the one
    before), and last how often it was more than all of them. `sum`: all of it together, in the same unit.
    """

    name: str
    bounds: list[float]
    counts: list[Id]
    sum: float


class StreamTraffic(Message, frozen=True):
    """What has been written to a stream and read from it since `since_ms`: totals, that only grow.

    `since_ms` is when counting began, at the start of the server or later: only the busiest streams are
    counted, and one that was not among them for a while begins anew. A transaction counts as written when
    it is checkpointed, its items and bytes when they are sent. What many readers read counts for each.
    """

    stream: Id
    name: str
    since_ms: Id
    transactions: Id
    items: Id
    bytes: Id
    transactions_read: Id
    items_read: Id
    bytes_read: Id


class Measured(Message, frozen=True, tag=11):
    """The answer to `Measure`: all numbers of the node, its shards taken together, by name.

    Counters end with `_total` and only grow; gauges may be anything. Names end with their unit.
    `busiest`: the streams with the most traffic lately, the busiest first.
    """

    now_ms: Id
    counters: dict[str, int]
    gauges: dict[str, float]
    histograms: list[Histogram]
    busiest: list[StreamTraffic]


class GetConfig(Message, frozen=True):
    """Ask the node how it was set up. The answer is a `ConfigInfo`."""


class SettingInfo(Message, frozen=True):
    """One setting: its value as people write it (a token only as being there), and whether it is the default."""

    name: str
    value: str
    is_default: bool


class ConfigInfo(Message, frozen=True, tag=12):
    """The answer to `GetConfig`: all settings, in the order of the documentation."""

    settings: list[SettingInfo]


class ListNumbers(Message, frozen=True):
    """Streams in the order of their numbers, those after `after`: new ones are at the end. The answer is a
    `NumberList`. A stream that was deleted is left out; there is no other way to hear of that."""

    after: Id
    limit: Count


class NumberedStream(Message, frozen=True):
    """A stream's number and its name."""

    id: Id
    name: str


class NumberList(Message, frozen=True, tag=13):
    """The answer to `ListNumbers`. Go on after the last number."""

    streams: list[NumberedStream]
    more: bool


class ListOpen(Message, frozen=True):
    """Open transactions in the order of their ids: of a stream, or of all if that is 0. The answer is an
    `OpenList`."""

    stream: Id
    after: Id
    limit: Count


class OpenInfo(Message, frozen=True):
    """An open transaction.

    `agent`, its name and `session`: who holds it; 0 and "" once it was staged for a `step` of a `job`.
    `last_seen_ms`: when the session was heard of last; 0 if there is none. `first`: no other is open before
    it in its partition, so it is the one that readers wait for.
    """

    id: Id
    stream: Id
    stream_name: str
    partition: Count
    agent: Id
    agent_name: str
    session: Id
    last_seen_ms: Id
    lease_ms: Id
    expires_at_ms: Id
    items: Id
    batches: Count
    job: str
    step: Id
    first: bool


class OpenList(Message, frozen=True, tag=14):
    """The answer to `ListOpen`. `next`: the `after` of the next page."""

    transactions: list[OpenInfo]
    more: bool
    next: Id


class ListReaders(Message, frozen=True):
    """Readers of a stream, or of all if that is 0: those that have saved a position, and those that hold a
    name. The answer is a `ReaderList`. `after`: the `next` of the page before, b"" for the first."""

    stream: Id
    after: bytes
    limit: Count


class GetReaders(Message, frozen=True):
    """Those of these readers of a stream that there are in this shard. The answer is a `ReaderList`."""

    stream: Id
    names: list[str]


class ReaderInfo(Message, frozen=True):
    """A reader, as one shard knows it: its positions in other shards are there.

    `agent` and `session`: who holds its name now; 0 if nobody does. `last_seen_ms`: when the session was
    heard of last. `positions`: (partition, transaction) that it has saved, the first of them;
    `positions_more`: there are others, which `GetPositions` has.
    """

    stream: Id
    stream_name: str
    name: str
    agent: Id
    session: Id
    last_seen_ms: Id
    positions: list[tuple[Count, Id]]
    positions_more: bool


class ReaderList(Message, frozen=True, tag=15):
    """The answer to `ListReaders`: by stream, first those with positions, then those without. And to
    `GetReaders`: in the order of the names, without those that there are not."""

    readers: list[ReaderInfo]
    more: bool
    next: bytes


class ListAgents(Message, frozen=True):
    """Agents that hold their names, in the order of their numbers: of a stream, or of all if that is 0. The
    answer is an `AgentList`."""

    stream: Id
    after: Id
    limit: Count


class AgentInfo(Message, frozen=True):
    """A producer or a reader (`kind`), and how many transactions it has `open`. `stream_name` is "" if the
    stream was deleted."""

    id: Id
    kind: str
    stream: Id
    stream_name: str
    name: str
    session: Id
    last_seen_ms: Id
    open: Count


class AgentList(Message, frozen=True, tag=16):
    """The answer to `ListAgents`. `next`: the `after` of the next page."""

    agents: list[AgentInfo]
    more: bool
    next: Id


class ListSessions(Message, frozen=True):
    """Sessions in the order of their numbers. The answer is a `SessionList`."""

    after: Id
    limit: Count


class SessionInfo(Message, frozen=True):
    """A client's session: when it was heard of last and when it would end if it is not heard of again, how
    many agents it has, how many changes it has asked for, and how many answers to them wait to be
    acknowledged."""

    id: Id
    last_seen_ms: Id
    expires_at_ms: Id
    agents: Count
    requests: Id
    unacknowledged: Count


class SessionList(Message, frozen=True, tag=17):
    """The answer to `ListSessions`. Go on after the last number."""

    sessions: list[SessionInfo]
    more: bool


class ListLedgers(Message, frozen=True):
    """Ledgers of the shard's log, oldest first. The answer is a `LedgerList`."""

    after: Id
    limit: Count


class LedgerInfo(Message, frozen=True):
    """A ledger: its size in bytes, and how much payload in it is `live` and how much is `dead`. The two do
    not make up the size: a log holds more than payload. The last one is not `closed`: it is written to."""

    id: Id
    epoch: Id
    created_ms: Id
    size: Id
    live: Id
    dead: Id
    closed: bool


class LedgerList(Message, frozen=True, tag=18):
    """The answer to `ListLedgers`. Go on after the last number."""

    ledgers: list[LedgerInfo]
    more: bool


class ListJobs(Message, frozen=True):
    """Jobs of which a step was committed, in the order of their names. The answer is a `JobList`."""

    after: str
    limit: Count


class JobEntry(Message, frozen=True):
    """A job, the step of it that was committed last, and when."""

    name: str
    last_step: Id
    committed_ms: Id


class JobList(Message, frozen=True, tag=19):
    """The answer to `ListJobs`. Go on after the last name."""

    jobs: list[JobEntry]
    more: bool


class Browse(Message, frozen=True):
    """Visible transactions of a partition with ids in [from_id, to_id], without their items: the oldest
    first, or the newest. The answer is a `Browsed`."""

    stream: Id
    partition: Count
    from_id: Id
    to_id: Id
    limit: Count
    newest_first: bool = False


class TransactionInfo(Message, frozen=True):
    """A checkpointed transaction: how many items and batches it has, and its bytes as they are stored."""

    id: Id
    items: Id
    batches: Count
    bytes: Id


class Browsed(Message, frozen=True, tag=20):
    """The answer to `Browse`. Go on behind the last id (before it, if the newest come first).

    `first_open`: the transaction that holds back those behind it in this partition; 0: nothing is open.
    """

    transactions: list[TransactionInfo]
    more: bool
    first_open: Id


class GetTransaction(Message, frozen=True):
    """What has become of a transaction? The answer is a `TransactionStatus`."""

    stream: Id
    partition: Count
    transaction: Id


class TransactionStatus(Message, frozen=True, tag=21):
    """The answer to `GetTransaction`.

    `state`: "opened", "checkpointed", "cancelled", "invalid" (its time ran out), or "unknown": there never was
    one of this id in this partition, or it is long gone. `visible`: readers can see it; one that is
    checkpointed and not visible is held back by `first_open`, an open one before it. `open`: who holds it,
    if it is open. `held_back`: how many checkpointed ones wait behind it then, counted up to a limit.
    """

    id: Id
    state: str
    visible: bool
    items: Id
    batches: Count
    bytes: Id
    first_open: Id
    open: OpenInfo | None
    held_back: Count


# Clusters.


class DescribeCluster(Message, frozen=True):
    """Ask a node what it knows of its cluster. The answer is a `ClusterInfo`. A server that stands alone is a cluster of
    one node, without a name."""


class MemberInfo(Message, frozen=True):
    """A node, as it tells of itself. One that is not `live` should have shards, or is wanted to drain, and is not there.

    `load`: how busy it is, of 1.0. `draining`: operators want it to hold nothing. `leaving`: it is about to end. `holds`: the
    shards that it has open."""

    id: str
    live: bool
    addresses: list[str]
    http: str
    load: float
    draining: bool
    leaving: bool
    holds: list[Count]


class PlacedShard(Message, frozen=True):
    """A shard: who leads it in which epoch ("": nobody), which nodes it should be on, the one that should lead first, who
    was chosen to lead it by operators ("": nobody), and how much it has to do."""

    number: Count
    epoch: Id
    leader: str
    places: list[str]
    chosen: str
    load: float


class ReplicaState(Message, frozen=True):
    """A shard on the node that answers: whether it leads it, and up to where it has applied the log. `ledgers`: the last
    ones of its log, id and size."""

    number: Count
    leading: bool
    ledger: Id
    offset: Id
    ledgers: list[tuple[Id, Id]]


class ClusterInfo(Message, frozen=True, tag=40):
    """The answer to `DescribeCluster`. `node` is who answers, `state` how it stands with the coordination service. `version`
    is that of what operators want: who changes it names what they have seen."""

    name: str
    id: str
    engine: str
    settings: dict[str, str]
    replicas: Count
    node: str
    state: str
    director: str
    version: int
    removed: list[str]
    rebalances: Count
    placement: int
    members: list[MemberInfo]
    shards: list[PlacedShard]
    here: list[ReplicaState]


class Intend(Message, frozen=True):
    """Say what operators want, all of it, in the place of what has this version. The answer is an `Intended`.
    `InvalidState` if it has another version by now, or makes no sense for the nodes that are there."""

    version: int
    draining: list[str]
    leaders: list[tuple[Count, str]]
    removed: list[str]
    rebalances: Count


class Intended(Message, frozen=True, tag=41):
    """The answer to `Intend`: the version of what is wanted now."""

    version: int


class CheckCluster(Message, frozen=True):
    """Let a node look after the servers that the cluster stands on. The answer is a `ClusterChecked`; it takes some seconds
    if servers do not answer."""


class ServerState(Message, frozen=True):
    """A server of another kind. `problem` is empty if it is well."""

    address: str
    name: str
    version: str
    problem: str


class ClusterChecked(Message, frozen=True, tag=42):
    """The answer to `CheckCluster`: the servers that keep the logs, and those of the coordination service."""

    engine: list[ServerState]
    coordination: list[ServerState]


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
    | ResetReader
    | EndTransactions
    | Prepare
    | PrepareStep
)
ReadRequest: TypeAlias = (
    GetStream | ListStreams | GetPositions | GetJob | Fetch | FetchLast | Survey
)
InspectRequest: TypeAlias = (
    ListNumbers
    | ListOpen
    | ListReaders
    | GetReaders
    | ListAgents
    | ListSessions
    | ListLedgers
    | ListJobs
    | Browse
    | GetTransaction
)
"""What operators ask a shard."""
Reply: TypeAlias = SessionOpened | StreamInfo | AgentOpened | Done
"""What a change is answered with."""
AnyReply: TypeAlias = (
    Reply
    | NodeInfo
    | StreamList
    | Positions
    | JobInfo
    | Surveyed
    | Fetched
    | Measured
    | ConfigInfo
    | NumberList
    | OpenList
    | ReaderList
    | AgentList
    | SessionList
    | LedgerList
    | JobList
    | Browsed
    | TransactionStatus
    | Decision
    | ClusterInfo
    | Intended
    | ClusterChecked
    | HandedOver
)

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
