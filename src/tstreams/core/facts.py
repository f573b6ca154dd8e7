"""What a shard knows of things, and the port through which it asks the index for what it does not hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import Error, InvalidState
from ..protocol import Group, Reply


@dataclass(slots=True)
class StreamState:
    """A stream as the shard keeps it: its own, or a copy of what its home says."""

    id: int
    name: str
    partitions: int
    ttl_ms: int
    description: str
    schema: bytes | None
    purged_before: int = 0
    version: int = 1
    """Counted up by its home with each change."""
    local: range = range(0)
    """Its partitions that are in this shard."""


PRODUCER = "producer"
READER = "reader"


@dataclass(frozen=True, slots=True)
class Agent:
    """A producer or a reader that holds its name. One that lost it is not kept: unknown means fenced."""

    id: int
    kind: str
    stream: int
    name: str
    session: int
    given_rank: int
    """Its number at the home of its stream; 0 at the home itself."""

    @property
    def rank(self) -> int:
        """Of two agents of one name, that with the higher rank is the newer one."""
        return self.given_rank or self.id


@dataclass(slots=True)
class OpenTransactionState:
    """A transaction that has not ended.

    Invariant: it is in `State.open` and in its partition's entry of `State.heads`, or in neither.
    """

    id: int
    stream: int
    partition: int
    agent: int
    """Its producer; 0 once it was staged."""
    lease_ms: int
    expires_at_ms: int = 0
    """When its lease runs out, or the stream's ttl, whichever comes first. 0: it is prepared, and never will."""
    items: int = 0
    batches: int = 0
    unfinished: bool = False
    """The last batch is a piece of an item whose other pieces are still to come."""
    job: str = ""
    """The job that it was handed over to, if it was."""
    step: int = 0
    group: Group | None = None
    """The group whose decision it waits for, if it is prepared."""

    def cut(self, items: int, unfinished: bool) -> None:
        """It loses its last batch, of so many items; `unfinished` as it was before."""
        self.items -= items
        self.batches -= 1
        self.unfinished = unfinished


class Cancelled(InvalidState):
    """Why a transaction has ended: without becoming visible. For its owner that is `InvalidState`."""


class CancelledByOperator(Cancelled):
    """The same, and its owner did not ask for it."""


@dataclass(slots=True)
class Session:
    """One client's requests, so that each takes effect once.

    Invariant: `replies` holds the answers to requests in (acked, last], errors among them.
    """

    id: int
    last: int = 0
    acked: int = 0
    expires_at_ms: int = 0
    replies: dict[int, Reply | Error] = field(default_factory=dict)
    agents: set[int] = field(default_factory=set)
    """The agents that it opened and that still hold their names."""
    refused: dict[int, str] = field(default_factory=dict)
    """Groups that it was to decide on and that were refused, by their numbers, and the code of the reason."""
    refused_to: int = 0
    """Groups up to this number are refused as well, unless they were decided."""


@dataclass(slots=True)
class PreparedGroup:
    """The part of a group that is in this shard, until it is decided elsewhere.

    Invariant: all its transactions are open, and say so (`OpenTransactionState.group`).
    """

    group: Group
    session: int
    lease_ms: int
    agents: list[int] = field(default_factory=list)
    transactions: list[int] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)
    positions: list[tuple[int, str, int, int]] = field(default_factory=list)
    job: str = ""
    """The job that it is a step of, if it is one."""
    step: int = 0
    dropped: list[int] = field(default_factory=list)
    """What other attempts at the step have staged: dropped with the commit, else as it was."""
    replaced: list[tuple[int, int]] = field(default_factory=list)
    final: bool = False
    kept: list[int] = field(default_factory=list)
    """Its transactions that are open again if it is refused."""
    cut: list[tuple[int, int, bool]] = field(default_factory=list)
    """Those of them that lose their last batch then: see `records.Prepared`."""
    expires_at_ms: int = 0
    """When the decider is asked."""

    @property
    def cancelled(self) -> list[int]:
        """The transactions that end if it is refused."""
        kept = set(self.kept)
        return [it for it in (*self.transactions, *self.empty) if it not in kept]

    @property
    def held(self) -> list[int]:
        """All transactions whose fate hangs on it."""
        return [*self.transactions, *self.empty, *self.dropped]


@dataclass(slots=True)
class DecidedGroup:
    """A group that was decided here, and the shards that have not confirmed yet that they know."""

    committed: bool
    others: set[int]


@dataclass(slots=True)
class Untold:
    """A change of a stream that other shards have still to be told. `version` 0: the stream is deleted."""

    version: int
    shards: set[int]


class Facts(Protocol):
    """What the index knows, for what the shard does not keep in memory."""

    def stream_named(self, name: str) -> StreamState | None:
        """A stream by its name."""

    def stream(self, stream_id: int) -> StreamState | None:
        """A stream by its number."""

    def agent(self, agent_id: int) -> Agent | None:
        """An agent that holds its name."""

    def agent_named(self, kind: str, stream_id: int, name: str) -> int | None:
        """The agent that holds a name."""

    def position(self, stream_id: int, reader: str, partition: int) -> int | None:
        """What a reader has checkpointed in a partition."""

    def open_transactions(self) -> Iterable[OpenTransactionState]:
        """All that were open, in the order of their ids."""

    def last_step(self, job: str) -> int | None:
        """The step of a job that was committed last."""

    def sessions(self) -> Iterable[Session]:
        """All sessions."""

    def prepared(self) -> Iterable[PreparedGroup]:
        """All groups that wait for their decision."""

    def decided(self) -> Iterable[tuple[tuple[int, int], DecidedGroup]]:
        """The groups that were decided here and of which not all know, by session and number."""

    def untold(self) -> Iterable[tuple[int, Untold]]:
        """Streams of which other shards have something to be told."""

    def dropped_copies(self) -> Iterable[tuple[int, int]]:
        """Streams of other shards that were deleted lately, and when."""
