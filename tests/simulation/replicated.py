"""Shards that have replicas on several nodes, whose leaders change at any moment, and a network between them that loses
and repeats: what `test_replicated_groups.py` plays with."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.simulation import engine
from tests.simulation.client import Answer, Refused, SimulatedRequest
from tests.simulation.engine import Faults, MemoryEngine
from tstreams.errors import Error, Unavailable
from tstreams.items import Items, pack
from tstreams.ledger.engine import Engine
from tstreams.limits import KIB
from tstreams.protocol import (
    AgentOpened,
    AnyReply,
    Brought,
    Commit,
    CreateStream,
    Done,
    Fetch,
    Group,
    OpenAgent,
    OpenSession,
    Prepare,
    SessionOpened,
    Settle,
    StreamInfo,
    Want,
)
from tstreams.server.errands import Errands
from tstreams.server.handlers import Handlers
from tstreams.server.kin import Caller, KinMessage
from tstreams.server.replica import Replica
from tstreams.server.storage import LocalStorage
from tstreams.sharding import shards_of

NODES = 3
SHARDS = 3
LEASE_MS = 1000
PLACES = shards_of("clicks", SHARDS, SHARDS)
"""The shards of the partitions 0, 1 and 2: the home first."""


@dataclass
class Attempt:
    """A client that tries to commit a group: one new transaction in each of its shards."""

    item: bytes
    shards: list[int]
    """The decider first."""
    outcome: bool | None = None
    """What the client was told: that it has happened, or that it was refused."""


class Unreliable:
    """The way from the shards of a node to all others."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ask(self, shard: int, message: KinMessage) -> AnyReply:
        rng = self._world.rng
        await asyncio.sleep(rng.random() * 0.004)
        if rng.random() < self._world.loss:
            raise Unavailable("the message is lost")
        again = rng.random() < self._world.loss
        answer = await self._deliver(shard, message)
        if again:
            answer = await self._deliver(shard, message)
        if rng.random() < self._world.loss:
            raise Unavailable("the answer is lost")
        return answer

    async def _deliver(self, shard: int, message: KinMessage) -> AnyReply:
        """To somebody who believes to lead: that may be a mistake."""
        leaders = self._world.leaders(shard)
        if not leaders:
            raise Unavailable("nobody leads")
        caller = Caller()
        self._world.rng.choice(leaders).shard.kinship.from_kin(caller, message)
        async with asyncio.timeout(5):
            return await caller.wait()


class World:
    """Everything there is."""

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loss = 0.1
        self.attempts: list[Attempt] = []
        self.changes = 0
        """How many times somebody else began to lead."""
        self._path = path
        self._faults = Faults(lost_request=0.01, lost_answer=0.02, late_request=0.01, stale=0.02)
        self._sequences = [engine.Sequence(random.Random(seed + it)) for it in range(SHARDS)]
        self._ahead_ms = 0
        self._epochs = [0] * SHARDS
        self.replicas = [
            [self._make(node, shard) for shard in range(SHARDS)] for node in range(NODES)
        ]

    def _make(self, node: int, shard: int) -> Replica:
        async def connect() -> Engine:
            return MemoryEngine(self._sequences[shard], self._faults)

        replica = Replica(
            shard,
            LocalStorage(self._path / f"{node}-{shard}"),
            connect,
            clock=lambda: 1_700_000_000_000 + self._ahead_ms,
            ledger_bytes=16 * KIB,
            snapshot_bytes_min=1 << 40,
            shards=SHARDS,
        )
        replica.shard.errands = Errands(replica.shard, Unreliable(self), resting=True)
        return replica

    @property
    def all_replicas(self) -> list[Replica]:
        return [it for replicas in self.replicas for it in replicas]

    def leaders(self, shard: int) -> list[Replica]:
        return [it[shard] for it in self.replicas if it[shard].leading]

    async def start(self) -> None:
        await asyncio.gather(*(it.start() for it in self.all_replicas))
        for shard in range(SHARDS):
            while not self.leaders(shard):
                await self.lead(shard)

    async def close(self) -> None:
        await asyncio.gather(*(it.close() for it in self.all_replicas))
        for it in self.all_replicas:
            assert it.shard.errands is not None
            await it.shard.errands.stop()

    # What happens to nodes.

    async def lead(self, shard: int, node: int | None = None) -> None:
        """Somebody takes a shard over; whoever led it before is not told."""
        self._epochs[shard] += 1
        replica = self.replicas[self.rng.randrange(NODES) if node is None else node][shard]
        try:
            await asyncio.wait_for(replica.lead(self._epochs[shard]), 10)
            self.changes += 1
        except (Error, TimeoutError):
            return

    async def between_steps(self, shards: Sequence[int]) -> None:
        """Something may happen to the leaders of these shards, or time passes."""
        for shard in shards:
            if self.rng.random() < 0.3:
                await self.lead(shard)
            elif self.rng.random() < 0.1:
                for replica in self.leaders(shard):
                    await replica.step_down()
                await self.lead(shard)
        if self.rng.random() < 0.1:
            self._ahead_ms += self.rng.randrange(2 * LEASE_MS)

    # Clients.

    async def ask(self, shard: int, message: msgspec.Struct, *batches: bytes) -> Answer:
        """Ask somebody who believes to lead, again and again, until somebody answers."""
        while True:
            leaders = self.leaders(shard)
            if leaders:
                request = SimulatedRequest(message, *batches)
                request.send(Handlers(self.rng.choice(leaders).shard))
                for _ in range(200):
                    if request.reply is not None:
                        break
                    await asyncio.sleep(0.001)
                reply = request.reply
                if reply is not None and getattr(reply, "code", "") != Unavailable.code:
                    return reply
            else:
                await self.lead(shard)
            await asyncio.sleep(0.002)

    async def open_session(self, shard: int) -> int:
        opened = await self.ask(shard, OpenSession())
        assert isinstance(opened, SessionOpened), opened
        return opened.session

    async def create(self) -> StreamInfo:
        session = await self.open_session(PLACES[0])
        made = await self.ask(PLACES[0], CreateStream(session, 1, 0, "clicks", SHARDS, 10**12))
        assert isinstance(made, StreamInfo), made
        return made

    async def attempt(self, number: int) -> None:
        """A client commits a group, or dies on the way."""
        shards = self.rng.sample(PLACES, self.rng.randint(2, SHARDS))
        it = Attempt(b"%d" % number, shards)
        self.attempts.append(it)
        sessions = {shard: await self.open_session(shard) for shard in {PLACES[0], *shards}}
        agents = await self._open_agents(f"p{number}", sessions)
        if agents is None:
            return
        decider, *others = shards
        group = Group(decider, sessions[decider], 1)
        for shard in others:
            await self.between_steps(shards)
            message = Prepare(
                sessions[shard],
                2,
                1,
                group,
                LEASE_MS,
                [agents[shard]],
                [],
                [],
                [Brought(agents[shard], PLACES.index(shard))],
            )
            reply = await self.ask(shard, message, pack([it.item]))
            if not isinstance(reply, Done):
                await self._give_up(it, group, sessions)
                return
        await self.between_steps(shards)
        if self.rng.random() < 0.15:
            return  # it dies
        await self._decide(it, group, sessions, agents)

    async def _decide(
        self, it: Attempt, group: Group, sessions: dict[int, int], agents: dict[int, int]
    ) -> None:
        decider, *others = it.shards
        brought = [Brought(agents[decider], PLACES.index(decider))]
        commit = Commit(
            sessions[decider], 2, 1, [agents[decider]], [], [], brought, others, group.number
        )
        asking = asyncio.ensure_future(self.ask(decider, commit, pack([it.item])))
        await asyncio.sleep(self.rng.random() * 0.01)
        await self.between_steps(it.shards)  # also while it is under way
        reply = await asking
        if isinstance(reply, Done):
            it.outcome = True
        elif isinstance(reply, Refused) and "was refused" in reply.message:
            await self._give_up(it, group, sessions)

    async def _give_up(self, it: Attempt, group: Group, sessions: dict[int, int]) -> None:
        it.outcome = False
        for shard in it.shards[1:]:
            if self.rng.random() < 0.5:
                await self.ask(shard, Settle(sessions[shard], group))

    async def _open_agents(self, name: str, sessions: dict[int, int]) -> dict[int, int] | None:
        home = PLACES[0]
        opened = await self.ask(home, OpenAgent(sessions[home], 1, 0, "producer", "clicks", name))
        assert isinstance(opened, AgentOpened), opened
        agents = {home: opened.agent}
        info = opened.stream
        for shard in sessions:
            if shard != home:
                rank: Any = (opened.agent, info.id, info.version)
                message = OpenAgent(sessions[shard], 1, 0, "producer", "clicks", name, *rank)
                reply = await self.ask(shard, message)
                assert isinstance(reply, AgentOpened), reply
                agents[shard] = reply.agent
        return agents

    # The end.

    async def come_to_rest(self) -> None:
        """Everything is well again, and one leads each shard: nothing may stay in doubt."""
        self.loss = 0.0
        self._faults.__init__()  # type: ignore[misc]
        for sequence in self._sequences:
            sequence.decide(False)
            sequence.late.clear()
        for replica in self.all_replicas:
            await replica.step_down()
        for shard in range(SHARDS):
            while not self.leaders(shard):
                await self.lead(shard, 0)
        for _ in range(200):
            self._ahead_ms += LEASE_MS // 10
            await asyncio.sleep(0.05)
            if all(self._is_at_rest(it) for it in self.replicas[0]):
                break
        else:
            raise AssertionError("something stays in doubt for ever")
        for shard in range(SHARDS):
            while len({it[shard].shard.index.applied for it in self.replicas}) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def _is_at_rest(self, replica: Replica) -> bool:
        state = replica.shard.core.state
        return not (state.groups.prepared or state.groups.decided or state.untold)

    async def items(self, node: int, stream: int) -> dict[int, list[bytes]]:
        """What is visible on a node, by shard."""
        found = {}
        for partition, shard in enumerate(PLACES):
            request = SimulatedRequest(Fetch(stream, [Want(partition, 0)], 1 << 20, 0))
            handlers = Handlers(self.replicas[node][shard].shard)
            handlers.router.commands["any:Fetch"].function(request)  # type: ignore[arg-type]
            while request.reply is None:  # noqa: ASYNC110 - whoever leads may be in a turn
                await asyncio.sleep(0.001)
            found[shard] = [
                item
                for _, _, batches in request.transactions()
                for batch in batches
                for item in Items(batch)
            ]
        return found

    def facts(self, node: int, shard: int) -> list[tuple[bytes, bytes]]:
        return list(self.replicas[node][shard].shard.index.store.scan(b""))
