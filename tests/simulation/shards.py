"""Several shards without I/O, a network between them that loses, repeats and reorders, and clients of groups that span
them: what the state machine in `test_shards.py` plays with."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from tests.simulation.database import SimulatedDatabase, SimulatedStore
from tstreams.core.records import (
    AnyRecord,
    Committed,
    Decided,
    Prepared,
    Settled,
    decode_record,
    encode_record,
)
from tstreams.core.rules import info_of
from tstreams.core.shard import Shard
from tstreams.core.waits import CopyNeeded, InDoubt
from tstreams.errors import Error, NotFound
from tstreams.index import Index, Store
from tstreams.ledger.port import position_of
from tstreams.protocol import (
    AskDecision,
    Brought,
    Change,
    Commit,
    CreateStream,
    GetStream,
    Group,
    Message,
    OpenAgent,
    OpenTransaction,
    Prepare,
    SendItems,
    SessionOpened,
    Settle,
    StreamInfo,
    TellStream,
)
from tstreams.sharding import home_of, shards_of

SHARDS = 3
LEASE_MS = 1000
Reply = Any
Then = Callable[[Reply], None]


class SimulatedShard:
    """A core, its log and its index. What was decided is durable, and answers leave, when `commit` is called."""

    def __init__(self, number: int, world: World) -> None:
        self.number = number
        self._world = world
        self._database = SimulatedDatabase(lambda: None)
        self._log: list[tuple[int, bytes]] = []
        self._pending: list[AnyRecord] = []
        self._leaving: list[Callable[[], None]] = []
        self.open()

    def open(self) -> None:
        """Begin with what is on the disk."""
        self.index = Index(cast(Store, SimulatedStore(self._database)))
        self.core = Shard(
            self.index.facts,
            last_id=self.index.last_id,
            last_number=self.index.last_number,
            now_ms=self._world.now_ms,
            number=self.number,
            shards=SHARDS,
        )
        behind = [it for it in self._log if it[0] >= self.index.applied]
        self._pending, self._leaving = [], []
        records = [(position, decode_record(memoryview(data))[0]) for position, data in behind]
        for _, record in records:
            self.core.replay(self._world.now_ms, record)
        self._apply(records)

    def crash(self, rng: random.Random) -> None:
        """Lose what is not durable, and some of the index."""
        self._database.lose_power(rng)
        self.open()

    def add(self, records: Iterable[AnyRecord]) -> None:
        self._pending += records

    def leave(self, what: Callable[[], None]) -> None:
        """Let something out when all that was decided is durable."""
        self._leaving.append(what)

    def commit(self) -> None:
        """The end of a turn."""
        written = []
        for record in self._pending:
            position = position_of(1, 512 * (len(self._log) + 1))
            self._log.append((position, b"".join(encode_record(record, None))))
            written.append((position, record))
            self._world.durable(self.number, record)
        leaving, self._leaving = self._leaving, []
        self._pending = []
        self._apply(written)
        for let_out in leaving:
            let_out()

    def _apply(self, records: Sequence[tuple[int, AnyRecord]]) -> None:
        if not records:
            return
        state = self.core.state
        touched = {record.session for _, record in records}
        sessions = [it for it in state.sessions.values() if it.id in touched]
        entries = [(record, position, 100) for position, record in records]
        end = records[-1][0] + 512
        self.index.apply(entries, end, state.last_id, state.last_number, sessions)
        state.evict()

    def visible(self) -> set[int]:
        """The transactions that are checkpointed."""
        return {int.from_bytes(key[11:], "big") for key, _ in self.index.store.scan(b"T")}


@dataclass
class Flight:
    """A message that is under way; to no shard (-1): an answer."""

    shard: int
    message: Any
    then: Then | None
    counts: Sequence[int] = ()


@dataclass
class Attempt:
    """A client that tries to commit a group."""

    group: Group
    sessions: dict[int, int]
    participants: list[int]
    agents: dict[int, int]
    opened: dict[int, int] = field(default_factory=dict)
    """Transactions that were open before, by shard: they have one batch, and get another with the group."""
    waiting: set[int] = field(default_factory=set)
    dead: bool = False
    outcome: bool | None = None
    """What the client was told: that it has happened, or that it was refused."""


class World:
    """Everything there is."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.flights: list[Flight] = []
        self.attempts: list[Attempt] = []
        self.made: dict[tuple[Group, int], list[int]] = {}
        """The transactions of each group in each shard, as they were prepared or committed."""
        self.verdicts: dict[tuple[Group, int], bool] = {}
        self.agents: dict[str, dict[int, int]] = {}
        self._committed: dict[int, Committed] = {}
        self._numbers: dict[int, int] = {}
        self.shards = [SimulatedShard(it, self) for it in range(SHARDS)]
        for name in ("clicks", "other"):
            self.now(home_of(name, SHARDS), CreateStream, name, SHARDS, 10**9)
        for name in ("p", "q"):
            self.open_agents(name)

    def durable(self, shard: int, record: AnyRecord) -> None:
        """A record is on the disk: what was decided once is never decided otherwise."""
        if isinstance(record, Committed):
            self._committed[shard] = record
        elif isinstance(record, Decided):
            group = Group(shard, record.session, record.number)
            self.made[group, shard] = self._committed[shard].transactions
            self._decide(group, shard, True)
        elif isinstance(record, Prepared):
            self.made[record.group, shard] = record.transactions
        elif isinstance(record, Settled):
            self._decide(record.group, shard, record.committed)
            if not record.committed:
                self._check_given_back(record.group, shard)

    def _decide(self, group: Group, shard: int, committed: bool) -> None:
        assert (group, shard) not in self.verdicts, "a group is decided once in each shard"
        self.verdicts[group, shard] = committed
        verdicts = {it for (other, _), it in self.verdicts.items() if other == group}
        assert len(verdicts) == 1, f"{group} is committed in one shard, and not in another"

    def _check_given_back(self, group: Group, shard: int) -> None:
        """What was open before is as it was, unless something else has ended it in the same turn."""
        for attempt in self.attempts:
            number = attempt.opened.get(shard)
            it = self.shards[shard].core.state.open.get(number or 0)
            if attempt.group == group and it is not None:
                assert (it.items, it.batches, it.group) == (3, 1, None), f"{it} is not as it was"

    # What happens at once, and surely.

    def open_session(self, shard: int) -> int:
        it = self.shards[shard]
        record, reply = it.core.open_session(self.now_ms)
        it.add([record])
        it.commit()
        assert isinstance(reply, SessionOpened)
        return reply.session

    def now(self, shard: int, kind: type[Change], *fields: Any, items: int = 0) -> Any:
        """A request in a session of its own. Raises whatever it is refused with."""
        it = self.shards[shard]
        request = kind(self.open_session(shard), 1, 0, *fields)
        records, reply = it.core.handle(self.now_ms, request, items)
        it.add(records)
        it.commit()
        return reply

    def open_agents(self, name: str) -> None:
        """Open a producer in all shards; one that has to wait has its groups asked about, and nobody comes back."""
        home, *others = shards_of("clicks", SHARDS, SHARDS)
        opened = self.now(home, OpenAgent, "producer", "clicks", name)
        numbers = {home: opened.agent}
        info: StreamInfo = opened.stream
        for shard in others:
            core = self.shards[shard].core
            self.shards[shard].add(core.copy(self.now_ms, info))
            rank = (opened.agent, info.id, info.version)
            try:
                reply = self.now(shard, OpenAgent, "producer", "clicks", name, *rank)
            except InDoubt as waits:
                core.state.groups.ask(waits.groups, waits.reason)
                return
            numbers[shard] = reply.agent
        self.agents[name] = numbers

    # The network.

    def send(
        self, shard: int, message: Message, then: Then | None = None, counts: Sequence[int] = ()
    ) -> None:
        self.flights.append(Flight(shard, message, then, counts))

    def deliver(self, flight: Flight) -> None:
        """A message arrives. Its answer leaves with the end of the turn, and is a message too."""
        it = self.shards[flight.shard]
        try:
            records, reply = self._take(it.core, flight)
        except InDoubt as waits:
            if waits.reason:
                it.core.state.groups.ask(waits.groups, waits.reason)
            self.flights.append(flight)  # it waits, and is handed in again
            return
        except CopyNeeded:
            return
        except Error as error:
            records, reply = (), error
        it.add(records)
        if (then := flight.then) is not None:
            it.leave(lambda: self.flights.append(Flight(-1, reply, then)))

    def _take(self, core: Shard, flight: Flight) -> tuple[Sequence[AnyRecord], Any]:
        message, now_ms = flight.message, self.now_ms
        match message:
            case Change():
                return core.handle(now_ms, message, 0, flight.counts)
            case Settle():
                return core.settle(now_ms, message)
            case AskDecision():
                return core.decide(now_ms, message)
            case TellStream():
                return core.tell(now_ms, message)
            case GetStream():
                return (), info_of(core.state.stream_named(message.name))
        raise AssertionError(f"nobody sends {message}")

    def arrive(self, flight: Flight) -> None:
        """A message, or an answer, arrives."""
        if flight.shard >= 0:
            self.deliver(flight)
        elif flight.then is not None:
            flight.then(flight.message)

    # Clients.

    def begin(self, name: str, decider: int, participants: list[int], before: bool = False) -> None:
        """A client prepares a group: one new transaction in each shard; and `before` that it opens one in each of the
        participants, which is to be given back if the group does not happen."""
        sessions = {it: self.open_session(it) for it in (decider, *participants)}
        group = Group(decider, sessions[decider], 1)
        attempt = Attempt(
            group, sessions, participants, self.agents[name], waiting=set(participants)
        )
        self.attempts.append(attempt)
        for shard in participants:
            agent = attempt.agents[shard]
            new = _brought(agent, shard)
            brought = [new]
            if before and (number := self._open(shard, agent, new.partition)):
                attempt.opened[shard] = number
                brought.append(Brought(agent, new.partition, number))
            message = Prepare(
                sessions[shard],
                1,
                0,
                group,
                LEASE_MS,
                [agent],
                [it.transaction for it in brought[1:]],
                [],
                brought,
                True,
            )
            then = partial(self._prepared, attempt, shard)
            self.send(shard, message, then, [1] * len(brought))

    def _open(self, shard: int, agent: int, partition: int) -> int:
        """A transaction with a batch of three items; 0 if its producer may not, because another has its name."""
        try:
            opened = self.now(shard, OpenTransaction, agent, partition, 100 * LEASE_MS)
            self.now(shard, SendItems, agent, opened.id, items=3)
        except Error:
            return 0
        return int(opened.id)

    def _prepared(self, attempt: Attempt, shard: int, reply: Reply) -> None:
        if attempt.dead or attempt.outcome is not None or shard not in attempt.waiting:
            return
        if isinstance(reply, Error):
            attempt.waiting.clear()
            self._give_up(attempt)
            return
        attempt.waiting.remove(shard)
        if not attempt.waiting:
            decider = attempt.group.shard
            agent = attempt.agents[decider]
            message = Commit(
                attempt.sessions[decider],
                1,
                0,
                [agent],
                [],
                [],
                [_brought(agent, decider)],
                attempt.participants,
                1,
            )
            self.send(decider, message, partial(self._answered, attempt), [1])

    def _answered(self, attempt: Attempt, reply: Reply) -> None:
        if attempt.dead or attempt.outcome is not None:
            return
        if isinstance(reply, Error):
            self._give_up(attempt)
        else:
            attempt.outcome = True

    def _give_up(self, attempt: Attempt) -> None:
        attempt.outcome = False
        for shard in attempt.participants:
            self.send(shard, Settle(attempt.sessions[shard], attempt.group))

    # What shards do by themselves.

    def errands(self, shard: int) -> None:
        """Ask and tell what is to be asked and told, once."""
        it = self.shards[shard]
        it.leave(lambda: self._errands(it))

    def _errands(self, it: SimulatedShard) -> None:
        state = it.core.state
        for group, reason in list(state.groups.due.items()):
            self.send(
                group.shard,
                AskDecision(group, reason),
                partial(self._heard, it, group),
            )
        for (session, number), decided in state.groups.decided.items():
            settle = Settle(0, Group(it.number, session, number), decided.committed)
            for other in sorted(decided.others):
                told: Any = ([(session, number, other)], [])
                self.send(other, settle, partial(self._told, it, told))
        for stream, untold in state.untold.items():
            info = None
            if untold.version:
                info = info_of(state.stream(stream))
            for other in sorted(untold.shards):
                told = ([], [(stream, untold.version, other)])
                tell = TellStream(stream, info)
                self.send(other, tell, partial(self._told, it, told))

    def _heard(self, it: SimulatedShard, group: Group, reply: Reply) -> None:
        if not isinstance(reply, Error):
            records, _ = it.core.settle(self.now_ms, Settle(0, group, reply.committed))
            it.add(records)

    def _told(self, it: SimulatedShard, told: Any, reply: Reply) -> None:
        if not isinstance(reply, Error):
            it.add(it.core.told(self.now_ms, *told))

    def ask_for_copy(self, shard: int, name: str) -> None:
        """A shard asks a home for a stream. The answer may be old when it comes."""
        it = self.shards[shard]

        def copy(reply: Reply) -> None:
            if isinstance(reply, StreamInfo):
                with contextlib.suppress(InDoubt):
                    it.add(it.core.copy(self.now_ms, reply))

        self.send(home_of(name, SHARDS), GetStream(name), copy)

    # The end.

    def come_to_rest(self) -> None:
        """Everybody dies but the shards; the network is good. Nothing may stay in doubt."""
        for attempt in self.attempts:
            attempt.dead = True
        for _ in range(20):
            flights, self.flights = self.flights, []
            for flight in flights:
                self.arrive(flight)
            self.now_ms += 2 * LEASE_MS
            for it in self.shards:
                it.add(it.core.tick(self.now_ms))
                self.errands(it.number)
                it.commit()
            if not self.flights and all(_is_at_rest(it.core) for it in self.shards):
                return
        raise AssertionError("something stays in doubt for ever")

    def stream_versions(self, name: str) -> list[tuple[int, int] | None]:
        """The number and the version of a stream, as all shards have it; the home first."""
        found: list[tuple[int, int] | None] = []
        for shard in shards_of(name, SHARDS, SHARDS):
            try:
                stream = self.shards[shard].core.state.stream_named(name)
                found.append((stream.id, stream.version))
            except NotFound:
                found.append(None)
        return found


def _brought(agent: int, shard: int) -> Brought:
    """One new transaction in the partition of "clicks" that is in this shard."""
    return Brought(agent, shards_of("clicks", SHARDS, SHARDS).index(shard))


def _is_at_rest(core: Shard) -> bool:
    state = core.state
    return not (state.groups.prepared or state.groups.decided or state.untold)
