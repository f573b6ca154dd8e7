"""What a shard knows of things, and the port through which it asks the index for what it does not hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import Error, InvalidState
from ..protocol import Reply


@dataclass(slots=True)
class StreamState:
    """A stream as the shard keeps it."""

    id: int
    name: str
    partitions: int
    ttl_ms: int
    description: str
    schema: bytes | None
    purged_before: int = 0


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
    """When its lease runs out, or the stream's ttl, whichever comes first."""
    items: int = 0
    batches: int = 0
    unfinished: bool = False
    """The last batch is a piece of an item whose other pieces are still to come."""
    job: str = ""
    """The job that it was handed over to, if it was."""
    step: int = 0


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
