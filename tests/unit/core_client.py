"""A shard without I/O, and a client that makes its requests: for tests of the rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tstreams.core.facts import (
    Agent,
    DecidedGroup,
    OpenTransactionState,
    PreparedGroup,
    Session,
    StreamState,
    Untold,
)
from tstreams.core.records import AnyRecord
from tstreams.core.shard import Shard
from tstreams.errors import Error
from tstreams.protocol import (
    AgentOpened,
    CreateStream,
    Done,
    OpenAgent,
    OpenTransaction,
    SendItems,
    SessionOpened,
    StreamInfo,
)


class NoFacts:
    """An index that knows nothing: all that happens is in memory."""

    def stream_named(self, name: str) -> StreamState | None:
        return None

    def stream(self, stream_id: int) -> StreamState | None:
        return None

    def agent(self, agent_id: int) -> Agent | None:
        return None

    def agent_named(self, kind: str, stream_id: int, name: str) -> int | None:
        return None

    def position(self, stream_id: int, reader: str, partition: int) -> int | None:
        return None

    def open_transactions(self) -> Iterable[OpenTransactionState]:
        return []

    def last_step(self, job: str) -> int | None:
        return None

    def sessions(self) -> Iterable[Session]:
        return []

    def prepared(self) -> Iterable[PreparedGroup]:
        return []

    def decided(self) -> Iterable[tuple[tuple[int, int], DecidedGroup]]:
        return []

    def untold(self) -> Iterable[tuple[int, Untold]]:
        return []

    def dropped_copies(self) -> Iterable[tuple[int, int]]:
        return []


class Client:
    """Makes requests of one session against a shard, and keeps the records."""

    def __init__(self, shard: Shard | None = None, log: list[AnyRecord] | None = None) -> None:
        self.shard = shard or Shard(NoFacts(), last_id=0, last_number=0, now_ms=0)
        self.log = [] if log is None else log
        self.now_ms = 1_000
        record, reply = self.shard.open_session(self.now_ms)
        self.log.append(record)
        assert isinstance(reply, SessionOpened)
        self.session = reply.session
        self.sequence = 0

    def ask(self, kind: type, *fields: Any, items: int = 0, brought: Sequence[int] = ()) -> Any:
        self.sequence += 1
        request = kind(self.session, self.sequence, 0, *fields)
        records, reply = self.shard.handle(self.now_ms, request, items, brought)
        assert records
        self.log += records
        return reply

    def create(self, name: str = "clicks", partitions: int = 2) -> StreamInfo:
        reply = self.ask(CreateStream, name, partitions, 60_000)
        assert isinstance(reply, StreamInfo)
        return reply

    def agent(self, name: str = "p1", stream: str = "clicks", kind: str = "producer") -> int:
        reply = self.ask(OpenAgent, kind, stream, name)
        assert isinstance(reply, AgentOpened)
        return reply.agent

    def open(self, agent: int, partition: int = 0, lease_ms: int = 1000) -> int:
        reply = self.ask(OpenTransaction, agent, partition, lease_ms)
        assert isinstance(reply, Done)
        return reply.id

    def send(self, agent: int, transaction: int, items: int = 1) -> None:
        self.ask(SendItems, agent, transaction, items=items)

    def frontier(self, partition: int = 0, stream: str = "clicks") -> int | None:
        state = self.shard.state
        return state.frontier(state.stream_named(stream).id, partition)

    def tick(self) -> None:
        self.log += self.shard.tick(self.now_ms)


def stream_id(client: Client) -> int:
    """The number of the stream that tests use."""
    return client.shard.state.stream_named("clicks").id


def ended(client: Client) -> dict[int, type[Error]]:
    """Why transactions have ended."""
    return dict(client.shard.state.ended)
