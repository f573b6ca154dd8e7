"""Subscriptions of a shard, with everything that can become visible in any order, against what can be fetched."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.simulation.client import SimulatedRequest
from tests.simulation.storage import SimulatedStorage
from tstreams.items import pack
from tstreams.protocol import (
    AgentOpened,
    CancelTransactions,
    Change,
    Commit,
    CreateStream,
    Done,
    Fetch,
    Fetched,
    Instant,
    OpenAgent,
    OpenSession,
    OpenTransaction,
    SendItems,
    SessionOpened,
    Subscribe,
    Want,
    decode_reply,
)
from tstreams.server.handlers import Handlers
from tstreams.server.local import LocalShard
from tstreams.server.shard import Shard

PARTITIONS = 3
ANSWER_BYTES = 64 * 1024
LEASE_MS = 3_600_000
SEEDS = 150
STEPS = 60


class Writer:
    """Everything that writers do, by chance."""

    def __init__(self, shard: Shard, rng: random.Random) -> None:
        self._shard = shard
        self._handlers = Handlers(shard)
        self._rng = rng
        self._sequence = 0
        self._waiting: list[SimulatedRequest] = []
        self.open: dict[int, int] = {}
        session = self._send(OpenSession())
        self.commit()
        assert isinstance(session.reply, SessionOpened)
        self._session = session.reply.session
        self.change(CreateStream, "stream", PARTITIONS, 86_400_000)
        agent = self.change(OpenAgent, "producer", "stream", "writer")
        self.commit()
        assert isinstance(agent.reply, AgentOpened)
        self._agent, self.stream = agent.reply.agent, agent.reply.stream.id

    def change(self, kind: type[Change], *fields: Any, batch: bytes | None = None) -> Any:
        self._sequence += 1
        message = kind(self._session, self._sequence, self._sequence - 1, *fields)
        return self._send(message, *([] if batch is None else [batch]))

    def _send(self, message: Any, *batches: bytes) -> SimulatedRequest:
        request = SimulatedRequest(message, *batches).send(self._handlers)
        self._waiting.append(request)
        return request

    def commit(self) -> None:
        """The end of a turn: all is answered."""
        self._shard.commit()
        assert not any(it.unanswered for it in self._waiting)
        self._waiting.clear()

    def fetch(self, partition: int) -> list[int]:
        """What is visible in a partition, one at a time: no answer is too small for it."""
        found: list[int] = []
        while True:
            want = Want(partition, found[-1] + 1 if found else 0)
            request = SimulatedRequest(Fetch(self.stream, [want], 1, 0)).send(self._handlers)
            if not (some := request.transactions()):
                return found
            found += [transaction for _, transaction, _ in some]

    def step(self) -> None:
        """One thing that a writer may do; sometimes it is the last one of its turn."""
        rng = self._rng
        what = rng.choice(["instant", "instant", "instant", "open", "send", "commit", "cancel"])
        batch = pack([rng.randbytes(rng.choice([1, 100, 20_000, 60_000]))])
        partition = rng.randrange(PARTITIONS)
        if what == "instant":
            self.change(Instant, self._agent, partition, batch=batch)
        elif what == "open":
            self._open(partition)
        elif self.open:
            transaction = rng.choice(list(self.open))
            if what == "send":
                self.change(SendItems, self._agent, transaction, batch=batch)
            else:
                kind = Commit if what == "commit" else CancelTransactions
                self.change(kind, [self._agent], [transaction])
                del self.open[transaction]
        if rng.random() < 0.5:
            self.commit()

    def _open(self, partition: int) -> None:
        request = self.change(OpenTransaction, self._agent, partition, LEASE_MS)
        self.commit()
        assert isinstance(request.reply, Done)
        self.open[request.reply.id] = partition


class Reader:
    """A subscriber that has room at some times and none at others."""

    def __init__(self, shard: Shard, stream: int, partitions: list[int]) -> None:
        self._shard = shard
        self.request = Subscribe(stream, [Want(it, 0) for it in partitions], ANSWER_BYTES)
        self.got: dict[int, list[int]] = {it: [] for it in partitions}
        self.room = asyncio.Event()
        self.room.set()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        serve = self._shard.subscriptions.serve
        async for answer in serve(self.request, self._emit, self._shard.when_settled):
            self._take(answer)
            await self.room.wait()

    def _emit(self, answer: Any) -> bool:
        if not self.room.is_set():
            return False
        self._take(answer)
        return True

    def _take(self, answer: Any) -> None:
        fetched = decode_reply(answer[0])
        assert isinstance(fetched, Fetched)
        assert sum(sum(it.sizes) for it in fetched.transactions) == sum(map(len, answer[1:]))
        for it in fetched.transactions:
            self.got[it.partition].append(it.id)


async def settle() -> None:
    """Let the readers do what they can."""
    for _ in range(50):
        await asyncio.sleep(0)


async def play(seed: int) -> None:
    rng = random.Random(seed)
    local = LocalShard(0, SimulatedStorage(), schedule=lambda commit: None)
    shard = local.shard
    writer = Writer(shard, rng)
    readers: list[Reader] = []
    for _ in range(STEPS):
        if rng.random() < 0.1 and len(readers) < 12:  # more than are told before writers are
            chosen = rng.sample(range(PARTITIONS), rng.randint(1, PARTITIONS))
            readers.append(Reader(shard, writer.stream, chosen))
        writer.step()
        if readers and rng.random() < 0.2:
            reader = rng.choice(readers)
            reader.room.clear() if reader.room.is_set() else reader.room.set()
        if rng.random() < 0.3:
            await settle()
    writer.commit()
    for reader in readers:
        reader.room.set()
    await settle()
    for partition in range(PARTITIONS):
        visible = writer.fetch(partition)
        for reader in readers:
            assert reader.got.get(partition, visible) == visible
    for reader in readers:
        reader.task.cancel()
    await asyncio.gather(*(it.task for it in readers), return_exceptions=True)
    local.close()


@pytest.mark.parametrize("first", range(0, SEEDS, 25))
def test_subscribers_get_all_that_is_visible_in_order_and_once(first: int) -> None:
    for seed in range(first, first + 25):
        asyncio.run(play(seed))
