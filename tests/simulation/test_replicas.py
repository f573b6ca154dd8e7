"""Replicas of a shard whose leaders change at random, over an engine that loses, delays and forgets.

Clients repeat what was not answered to whoever leads. In the end everything that they sent is there once, in the order
in which they sent it, and all nodes hold the same facts to the byte.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.simulation.client import Answer, Refused, SimulatedRequest
from tests.simulation.engine import Faults, MemoryEngine, Sequence
from tstreams.errors import Error
from tstreams.items import Items, pack
from tstreams.ledger.engine import Engine
from tstreams.limits import KIB
from tstreams.protocol import (
    AgentOpened,
    CreateStream,
    Done,
    Fetch,
    Instant,
    OpenAgent,
    OpenSession,
    SessionOpened,
    StreamInfo,
    Want,
)
from tstreams.server import upkeep
from tstreams.server.handlers import Handlers
from tstreams.server.replica import Replica
from tstreams.server.snapshots import write_snapshot
from tstreams.server.storage import LocalStorage

NODES = 3
WRITERS = 3
WRITES = 40
UPHEAVALS = 14


class World:
    """The nodes, and what happens to them."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.sequence = Sequence(random.Random(seed))
        faults = Faults(
            lost_request=0.02,
            lost_answer=0.05,
            late_request=0.02,
            undecided=0.02,
            stale=0.05,
            ended=0.02,
        )
        self.engines: dict[int, MemoryEngine] = {}
        self._faults = faults
        self._path = path
        self._ahead_ms = 0
        self._epoch = 0
        self.replicas = [self._make(number) for number in range(NODES)]
        self.loaded = 0

    def _make(self, number: int) -> Replica:
        async def connect() -> Engine:
            engine = self.engines[number] = MemoryEngine(self.sequence, self._faults)
            return engine

        return Replica(
            0,
            LocalStorage(self._path / str(number)),
            connect,
            clock=self._clock,
            ledger_bytes=4 * KIB,
            snapshot_bytes_min=4 * KIB,
        )

    def _clock(self) -> int:
        return 1_700_000_000_000 + self._ahead_ms

    async def start(self) -> None:
        await asyncio.gather(*(it.start() for it in self.replicas))

    async def upheave(self) -> None:
        """Something happens."""
        number = self.rng.randrange(NODES)
        match self.rng.choice(
            ["lead", "lead", "lead", "step down", "restart", "cut off", "snapshot", "time"]
        ):
            case "lead":
                await self.lead(number)
            case "step down":
                await self.replicas[number].step_down()
            case "restart":
                await self.replicas[number].close()
                self.loaded += self.replicas[number].snapshots_loaded
                self.replicas[number] = self._make(number)
                await self.replicas[number].start()
            case "cut off":
                self.engines[number].cut_off = True
                await asyncio.sleep(0.05)
                self.engines[number].cut_off = False
            case "snapshot":
                for replica in self.replicas:
                    if replica.leading:
                        try:
                            await asyncio.wait_for(write_snapshot(replica.shared), 5)
                        except Exception as error:
                            assert not isinstance(error, AssertionError), error
            case "time":
                self._ahead_ms += self.rng.randrange(20_000)

    async def lead(self, number: int) -> None:
        """Somebody takes over; whoever led before is not told."""
        self._epoch += 1
        try:
            await asyncio.wait_for(self.replicas[number].lead(self._epoch), 10)
        except (Error, TimeoutError):
            return

    async def ask(self, request: SimulatedRequest) -> Answer:
        """Ask somebody who believes to lead, until somebody answers."""
        while True:
            leaders = [it for it in self.replicas if it.leading]
            if leaders:
                shard = self.rng.choice(leaders).shard
                again = SimulatedRequest(request.message, *request.parts[1:])
                again.send(Handlers(shard))
                while again.reply is None:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                if not (isinstance(again.reply, Refused) and again.reply.code == "unavailable"):
                    return again.reply
            await asyncio.sleep(0.002)

    async def write(self, writer: int) -> int:
        """A client's work; its partition."""
        session = await self.ask(SimulatedRequest(OpenSession()))
        assert isinstance(session, SessionOpened)
        agent = await self.ask(
            SimulatedRequest(OpenAgent(session.session, 1, 0, "producer", "s", f"w{writer}"))
        )
        assert isinstance(agent, AgentOpened), agent
        for number in range(WRITES):
            message = Instant(session.session, number + 2, number + 1, agent.agent, writer)
            reply = await self.ask(SimulatedRequest(message, pack([b"%d" % number])))
            assert isinstance(reply, Done), reply
        return writer

    async def settle(self) -> None:
        """All is well again; one leads, and the others have caught up."""
        self._faults.__init__()  # type: ignore[misc]
        self.sequence.decide(False)
        self.sequence.late.clear()
        for replica in self.replicas:
            await replica.step_down()
        await self.lead(0)
        leader = self.replicas[0]
        while (  # noqa: ASYNC110
            len({it.shard.index.applied for it in self.replicas}) > 1 or not leader.leading
        ):
            await asyncio.sleep(0.01)

    def items(self, replica: Replica, stream: int, partition: int) -> list[bytes]:
        request = SimulatedRequest(Fetch(stream, [Want(partition, 0)], 1 << 20, 0))
        Handlers(replica.shard).router.commands["any:Fetch"].function(request)  # type: ignore[arg-type]
        found = request.transactions()
        return [item for _, _, batches in found for batch in batches for item in Items(batch)]


@pytest.mark.parametrize("seed", range(4))
def test_leaders_change_and_nothing_is_lost_or_done_twice(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "FLUSH_TO_TRIM_MS", 50)
    monkeypatch.setattr(upkeep, "TICK_S", 0.01)

    async def main() -> None:
        world = World(tmp_path, seed)
        await world.start()
        while not any(it.leading for it in world.replicas):
            await world.lead(0)
        session = await world.ask(SimulatedRequest(OpenSession()))
        assert isinstance(session, SessionOpened)
        create = CreateStream(session.session, 1, 0, "s", WRITERS, 10**12)
        made = await world.ask(SimulatedRequest(create))
        assert isinstance(made, StreamInfo), made
        writers = [asyncio.ensure_future(world.write(number)) for number in range(WRITERS)]
        for _ in range(UPHEAVALS):
            await asyncio.sleep(world.rng.random() * 0.05)
            await world.upheave()
        while not all(it.done() for it in writers):
            await world.lead(world.rng.randrange(NODES))
            await asyncio.wait(writers, timeout=1.0)
        for writer in writers:
            writer.result()
        await world.settle()
        expected = [b"%d" % number for number in range(WRITES)]
        facts = [list(it.shard.index.store.scan(b"")) for it in world.replicas]
        for replica in world.replicas:
            for partition in range(WRITERS):
                assert world.items(replica, made.id, partition) == expected
        assert facts[0] == facts[1] == facts[2]
        await asyncio.gather(*(it.close() for it in world.replicas))

    asyncio.run(asyncio.wait_for(main(), 100))
