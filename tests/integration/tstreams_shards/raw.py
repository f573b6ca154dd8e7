"""A client below the client library: it sends the messages that it is told to, each to the shard that it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import moebius
from tstreams.errors import Error
from tstreams.items import pack, read
from tstreams.protocol import (
    AgentOpened,
    Brought,
    Change,
    Commit,
    CreateStream,
    Describe,
    Fetch,
    Fetched,
    GetPositions,
    Group,
    Message,
    NodeInfo,
    OpenAgent,
    OpenSession,
    Prepare,
    ReadPosition,
    SessionOpened,
    Settle,
    StreamInfo,
    Want,
    decode_reply,
    encode,
)
from tstreams.sharding import home_of, shard_of, shards_of

SHARDS = 3
LEASE_MS = 30_000
HOUR_MS = 3_600_000


class Raw:
    """One client: a connection to each process, and a session in each shard that it changes something in."""

    def __init__(self, locate: str | Callable[[int], str], **options: Any) -> None:
        """`locate` is the address of a server, which says where its shards are, or says which node leads a shard."""
        self._options = options
        self._locate = locate if callable(locate) else self._ask_where(locate).__getitem__
        self._wires: dict[str, moebius.Client] = {}
        self.sessions: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._groups = 0

    def _ask_where(self, address: str) -> list[str]:
        with moebius.Client(address, **self._options) as first:
            node = decode_reply(first.call("Describe", encode(Describe())))
        assert isinstance(node, NodeInfo)
        return [address if it.leader is None else it.leader.addresses[0] for it in node.map]

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, shard: int, message: Message, *batches: bytes, timeout: float = 20) -> Any:
        """Send a message: the reply, or the typed error."""
        parts = self._ask(shard, message, batches, timeout)
        return decode_reply(parts[0])

    def _ask(self, shard: int, message: Message, batches: Sequence[bytes], timeout: float) -> Any:
        command = f"{shard}:{type(message).__name__}"
        address = self._locate(shard)
        if address not in self._wires:
            self._wires[address] = moebius.Client(address, **self._options)
        try:
            return self._wires[address].call_parts(
                command, (encode(message), *batches), timeout=timeout, repeat=True
            )
        except moebius.Error as error:
            raise Error.from_wire(error.code, error.message) from None

    def numbered(self, shard: int, kind: type[Change], *fields: Any) -> Change:
        """The next change of the session in a shard."""
        if shard not in self.sessions:
            reply = self.ask(shard, OpenSession())
            assert isinstance(reply, SessionOpened)
            self.sessions[shard] = reply.session
            self._sequences[shard] = 0
        self._sequences[shard] += 1
        return kind(self.sessions[shard], self._sequences[shard], 0, *fields)

    def change(
        self,
        shard: int,
        kind: type[Change],
        *fields: Any,
        batches: Sequence[bytes] = (),
        timeout: float = 20,
    ) -> Any:
        """Change something."""
        return self.ask(shard, self.numbered(shard, kind, *fields), *batches, timeout=timeout)

    def later(self, shard: int, kind: type[Change], *fields: Any) -> Later:
        """The same in a thread: what may have to wait."""
        return Later(self, shard, self.numbered(shard, kind, *fields))

    def asked_later(self, shard: int, message: Message, timeout: float = 20) -> Later:
        return Later(self, shard, message, timeout)

    # What tests do often.

    def create(self, name: str, partitions: int, ttl_ms: int = HOUR_MS) -> StreamInfo:
        reply = self.change(home_of(name, SHARDS), CreateStream, name, partitions, ttl_ms)
        assert isinstance(reply, StreamInfo)
        return reply

    def agent(self, kind: str, stream: str, name: str, partitions: int) -> Agent:
        """Open an agent in all shards of a stream, the home first."""
        home, *others = shards_of(stream, partitions, SHARDS)
        opened = self.change(home, OpenAgent, kind, stream, name)
        assert isinstance(opened, AgentOpened)
        agent = Agent(stream, opened.stream.id, opened.stream.version, {home: opened.agent}, home)
        for shard in others:
            reply = self.change(shard, OpenAgent, kind, stream, name, *agent.rank)
            assert isinstance(reply, AgentOpened)
            agent.numbers[shard] = reply.agent
        return agent

    def group(self, decider: int) -> Group:
        """A new group, to be decided in this shard."""
        self.numbered(decider, Commit, [], [])
        self._sequences[decider] -= 1
        self._groups += 1
        return Group(decider, self.sessions[decider], self._groups)

    def prepare(
        self,
        shard: int,
        group: Group,
        agents: list[int],
        *,
        transactions: Sequence[int] = (),
        positions: Sequence[ReadPosition] = (),
        brought: Sequence[tuple[Brought, bytes]] = (),
        lease_ms: int = LEASE_MS,
    ) -> Any:
        return self.change(
            shard,
            Prepare,
            group,
            lease_ms,
            agents,
            list(transactions),
            list(positions),
            [it for it, _ in brought],
            batches=[pack([item]) for _, item in brought],
        )

    def decide(
        self,
        group: Group,
        others: list[int],
        agents: list[int],
        *,
        positions: Sequence[ReadPosition] = (),
        brought: Sequence[tuple[Brought, bytes]] = (),
    ) -> Any:
        return self.change(
            group.shard,
            Commit,
            agents,
            [],
            list(positions),
            [it for it, _ in brought],
            others,
            group.number,
            batches=[pack([item]) for _, item in brought],
        )

    def give_up(self, shard: int, group: Group) -> Any:
        return self.ask(shard, Settle(self.sessions[shard], group))

    def fetched(self, shard: int, fetch: Fetch) -> list[bytes]:
        parts = self._ask(shard, fetch, (), 20)
        reply = decode_reply(parts[0])
        assert isinstance(reply, Fetched)
        return _items(reply, b"".join(bytes(it) for it in parts[1:]))

    def read(self, agent: Agent, partition: int, wait_ms: int = 0) -> list[bytes]:
        """All items that are visible in a partition."""
        shard = shard_of(agent.stream, partition, SHARDS)
        return self.fetched(shard, Fetch(agent.number, [Want(partition, 0)], 2**20, wait_ms))

    def positions(self, agent: Agent, shard: int, reader: str) -> Any:
        return self.ask(shard, GetPositions(agent.number, reader))


class Agent:
    """A producer or a reader, with its numbers in all shards of its stream."""

    def __init__(
        self, stream: str, number: int, version: int, numbers: dict[int, int], home: int
    ) -> None:
        self.stream = stream
        self.number = number
        self.numbers = numbers
        self.home = home
        self.rank = (numbers[home], number, version)

    def in_shard_of(self, partition: int) -> int:
        return self.numbers[shard_of(self.stream, partition, SHARDS)]

    def brings(self, partition: int, item: bytes) -> tuple[Brought, bytes]:
        return Brought(self.in_shard_of(partition), partition), item


class Later:
    """A request that was sent, and whose answer may take a while."""

    def __init__(self, client: Raw, shard: int, message: Message, timeout: float = 20) -> None:
        self._outcome: list[Any] = []
        self._timeout = timeout
        self._thread = threading.Thread(target=self._run, args=(client, shard, message))
        self._thread.start()

    def _run(self, client: Raw, shard: int, message: Message) -> None:
        try:
            if isinstance(message, Fetch):
                self._outcome.append(client.fetched(shard, message))
            else:
                self._outcome.append(client.ask(shard, message, timeout=self._timeout))
        except Error as error:
            self._outcome.append(error)

    @property
    def waits(self) -> bool:
        return not self._outcome

    def result(self) -> Any:
        self._thread.join(30)
        (outcome,) = self._outcome
        if isinstance(outcome, Error):
            raise outcome
        return outcome


def _items(fetched: Fetched, data: bytes) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    for transaction in fetched.transactions:
        for size in transaction.sizes:
            found += [bytes(it) for items in read([data[at : at + size]]) for it in items]
            at += size
    return found
