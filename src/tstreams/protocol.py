"""Every message between a tstreams client and a server, in one place.

A request is one moebius call: its command is the message's class name, the first part is the message in
MessagePack, and an item batch, if there is one, is the second. Requests that change anything carry the
session and a sequence number in it: sent again, they take effect once.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

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


class SessionOpened(Message, frozen=True):
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
    """Change what can be changed of a stream; None leaves it as it is."""

    name: str
    ttl_ms: Id | None = None
    description: str | None = None


class DeleteStream(Change, frozen=True):
    """Delete a stream with all it holds."""

    name: str


class PurgeStream(Change, frozen=True):
    """Drop what was opened before this id."""

    name: str
    before_id: Id


class StreamInfo(Message, frozen=True):
    """A stream, in replies."""

    id: Id
    name: str
    partitions: Count
    ttl_ms: Id
    description: str
    schema: bytes | None


# Agents.


class OpenAgent(Change, frozen=True):
    """Register a producer or a reader under its name; an older one of that name is fenced."""

    kind: str
    stream: str
    name: str


class AgentOpened(Message, frozen=True):
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
    """How far a reader has come in a partition."""

    agent: Id
    partition: Count
    transaction: Id


class Commit(Change, frozen=True):
    """Checkpoint transactions and readers' positions, all or nothing.

    `agents` are all members, also those with nothing to commit: each must still hold its name.
    """

    agents: list[Id]
    transactions: list[Id]
    positions: list[ReadPosition] = []


class CancelTransactions(Change, frozen=True):
    """Drop open transactions and what was sent into them."""

    agents: list[Id]
    transactions: list[Id]


class Done(Message, frozen=True):
    """It is done. `id`: of the transaction that was opened, where one was."""

    id: Id = 0


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
)
Reply: TypeAlias = SessionOpened | StreamInfo | AgentOpened | Done
