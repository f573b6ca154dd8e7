"""Histories of a small system in memory, made from a seed: right ones, and ones with a planted fault."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from random import Random
from typing import TypeAlias

from tests.checker.digest import content_of
from tests.checker.history import (
    OK,
    UNKNOWN,
    AnyOperation,
    Begin,
    Cancel,
    Clock,
    Close,
    Commit,
    Created,
    Deleted,
    Empty,
    Instant,
    Key,
    Open,
    Purged,
    Read,
    Send,
    Stand,
)
from tests.checker.model import BASE_MS, LONG_MS, Server, Stream

Step: TypeAlias = tuple[AnyOperation, Callable[[AnyOperation], AnyOperation | None]]
"""An operation, and what the server makes of it: the operation to record, if it is another one."""
Script: TypeAlias = Generator[Step, AnyOperation, None]

PARTITIONS = 2
SHORT_TTL_MS = 4_000


class Client:
    """One client: it has one request under way at most."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.step: Step | None = None
        self.answered = False
        self.last: AnyOperation | None = None


class Reference:
    """A server, its clients, and what they recorded."""

    def __init__(self, seed: int, fault: str | None = None) -> None:
        self.random = Random(seed)
        self.server = Server(self.random, fault)
        self.history: list[AnyOperation] = [Clock(0, 0, wall_ms=BASE_MS)]
        self._items = 0
        self.stopping = False
        self.temporary = 0
        for name, ttl_ms in (("a#1", LONG_MS), ("b#2", LONG_MS), ("short#3", SHORT_TTL_MS)):
            self._create(name, ttl_ms)

    def _create(self, name: str, ttl_ms: int) -> None:
        self.server.streams[name] = Stream(PARTITIONS, ttl_ms)
        now = self.server.now_us
        self.history.append(Created(now, now, stream=name, ttl_ms=ttl_ms))

    # The schedule.

    def run(self, operations: int) -> list[AnyOperation]:
        """About so many operations, and a look at everything in the end."""
        scripts = [
            self.writer("a#1", "p0"),
            self.writer("a#1", "p0"),
            self.writer("b#2", "p1"),
            self.writer("short#3", "p2"),
            self.reader("a#1", "r0"),
            self.reader("b#2", "r1"),
            self.reader("short#3", "r2"),
            self.reader("a#1", "r0"),
            self.processor("a#1", "b#2", "g0"),
            self.processor("a#1", "b#2", "g0"),
            self.processor("b#2", "a#1", "g1"),
            self.at_once("b#2", "p3"),
            self.admin(),
        ]
        clients = [Client(script) for script in scripts]
        while len(self.history) < operations:
            self.advance(self.random.choice(clients))
            if self.random.random() < 0.002:
                self._crash(clients)
            if self.random.random() < 0.001:
                self.server.now_us += self.random.randrange(4_000_000)
        self.stopping = True
        self.finish(clients)
        self.finish([Client(self.fence(it)) for it in sorted(self.server.epochs) if it[0] == "p"])
        self.finish([Client(self.auditor(name)) for name in list(self.server.streams)])
        return self.history

    def finish(self, clients: list[Client]) -> None:
        """Let them all come to their end."""
        while clients:
            client = self.random.choice(clients)
            if not self.advance(client):
                clients.remove(client)

    def advance(self, client: Client) -> bool:
        """One little step: it asks, or the server answers, or it hears the answer. False: it is done."""
        self.server.now_us += self.random.randrange(1, 2_000)
        if client.step is None:
            try:
                client.step = client.script.send(client.last)  # type: ignore[arg-type]
            except StopIteration:
                return False
            client.step[0].start = self.server.now_us
            client.answered = False
        elif not client.answered:
            self._answer(client)
        else:
            operation = client.step[0]
            operation.end = self.server.now_us
            self.history.append(operation)
            client.last, client.step = operation, None
        return True

    def _answer(self, client: Client) -> None:
        assert client.step is not None
        operation, apply = client.step
        client.answered = True
        fate = (
            1.0 if self.stopping or isinstance(operation, Send | Purged) else self.random.random()
        )
        if fate < 0.01:
            operation.outcome = UNKNOWN  # the request was lost
            return
        made = apply(operation) or operation
        made.start = operation.start
        client.step = (made, apply)
        if fate < 0.02 or made.outcome == UNKNOWN:  # the answer was lost
            client.step = (self._unanswered(operation), apply)

    def _unanswered(self, operation: AnyOperation) -> AnyOperation:
        operation.outcome = UNKNOWN
        if isinstance(operation, Open | Instant):
            operation.id = 0
        return operation

    def _crash(self, clients: list[Client]) -> None:
        self.server.crash()
        for client in clients:
            if client.step is None or client.answered:
                continue
            if not isinstance(client.step[0], Send | Purged):
                self._unanswered(client.step[0])
                client.answered = True

    # What clients do.

    def items(self) -> list[bytes]:
        """Some items that nobody wrote before."""
        self._items += 1
        return [b"%d-%d" % (self._items, at) for at in range(self.random.randrange(1, 4))]

    def _begin(self, agent: str) -> Generator[Step, AnyOperation, int]:
        """Take a name; try until it works."""

        def apply(it: AnyOperation) -> None:
            it.epoch = self.server.begin(agent)

        while True:
            done = yield Begin(0, 0, agent=agent), apply
            if done.outcome == OK:
                return done.epoch
            done.epoch = 0

    def _open(
        self, agent: str, epoch: int, stream: str, partition: int
    ) -> Generator[Step, AnyOperation, Open]:
        def apply(it: AnyOperation) -> None:
            assert isinstance(it, Open)
            it.outcome, it.id = self.server.open(agent, epoch, stream, partition)

        operation = Open(0, 0, OK, agent, epoch, stream, partition)
        done = yield operation, apply
        assert isinstance(done, Open)
        return done

    def _send(self, opened: Open) -> Generator[Step, AnyOperation, None]:
        items = self.items()
        key = (opened.stream, opened.partition, opened.id)
        count, digest = content_of(items)
        operation = Send(0, 0, OK, opened.agent, opened.epoch, *key, count, digest)
        yield operation, lambda _: self.server.send(key, items)

    def _commit(
        self,
        members: list[tuple[str, int]],
        keys: list[Key],
        offsets: list[tuple[str, str, int, int]],
    ) -> Generator[Step, AnyOperation, str]:
        def apply(it: AnyOperation) -> None:
            it.outcome = self.server.commit(members, keys, offsets)

        agent, epoch = members[0]
        done = yield Commit(0, 0, OK, agent, epoch, keys, offsets, members), apply
        return done.outcome

    def _cancel(
        self, agent: str, epoch: int, keys: list[Key]
    ) -> Generator[Step, AnyOperation, str]:
        def apply(it: AnyOperation) -> None:
            it.outcome = self.server.cancel(agent, epoch, keys)

        done = yield Cancel(0, 0, OK, agent, epoch, keys), apply
        return done.outcome

    def writer(self, stream: str, name: str) -> Script:
        """Instants, and transactions of several sends, one or two at a time."""
        agent = f"producer:{stream}/{name}"
        while not self.stopping:
            epoch = yield from self._begin(agent)
            outcome = OK
            while outcome == OK and not self.stopping:
                if self.random.random() < 0.4:
                    outcome = yield from self._instant(agent, epoch, stream)
                else:
                    outcome = yield from self._transactions(agent, epoch, stream)

    def _instant(self, agent: str, epoch: int, stream: str) -> Generator[Step, AnyOperation, str]:
        items, partition = self.items(), self.random.randrange(PARTITIONS)

        def apply(it: AnyOperation) -> None:
            assert isinstance(it, Instant)
            it.outcome, it.id = self.server.instant(agent, epoch, (stream, partition), items)

        operation = Instant(0, 0, OK, agent, epoch, stream, partition, 0, *content_of(items))
        return (yield operation, apply).outcome

    def _transactions(
        self, agent: str, epoch: int, stream: str
    ) -> Generator[Step, AnyOperation, str]:
        keys: list[Key] = []
        for partition in self.random.sample(range(PARTITIONS), self.random.choice((1, 1, 2))):
            opened = yield from self._open(agent, epoch, stream, partition)
            if opened.outcome != OK:
                return opened.outcome
            keys.append((stream, partition, opened.id))
            for _ in range(self.random.randrange(4)):
                yield from self._send(opened)
        if self.random.random() < 0.2:
            outcome = yield from self._cancel(agent, epoch, keys)
        else:
            outcome = yield from self._commit([(agent, epoch)], keys, [])
            if outcome == "expired" and self.random.random() < 0.5:
                outcome = yield from self._commit([(agent, epoch)], keys, [])
            elif outcome == OK and self.random.random() < 0.1:
                yield from self._cancel(agent, epoch, keys)
        return OK if outcome in (OK, "expired", "invalid_state") else outcome

    def at_once(self, stream: str, name: str) -> Script:
        """Commits of a transaction in each partition, opened by the commit."""
        agent = f"producer:{stream}/{name}"
        epoch = yield from self._begin(agent)
        while not self.stopping:
            contents = [self.items() for _ in range(PARTITIONS)]

            def apply(
                it: AnyOperation, contents: list[list[bytes]] = contents, epoch: int = epoch
            ) -> None:
                assert isinstance(it, Commit)
                it.outcome, ids = self.server.commit_at_once((agent, epoch), stream, contents)
                it.transactions = [(stream, at, number) for at, number in enumerate(ids)]
                for key, items in zip(it.transactions, contents, strict=True):
                    now = self.server.now_us
                    self.history.append(Send(now, now, OK, agent, epoch, *key, *content_of(items)))

            members = [(agent, epoch)]
            done = yield Commit(0, 0, OK, agent, epoch, members=members, at_once=True), apply
            if done.outcome != OK:
                epoch = yield from self._begin(agent)

    def _stand(
        self, agent: str, epoch: int, stream: str, at: dict[int, int], resumed: bool
    ) -> Generator[Step, AnyOperation, bool]:
        """Ask where to go on (or say it), in all partitions. Whether there was an answer."""
        for partition in range(PARTITIONS):

            def apply(it: AnyOperation, partition: int = partition) -> None:
                assert isinstance(it, Stand)
                it.after = at[partition]
                if resumed:
                    it.after = self.server.saved((agent, stream, partition))

            done = yield Stand(0, 0, OK, agent, epoch, stream, partition, -1, resumed), apply
            assert isinstance(done, Stand)
            if done.outcome != OK:
                return False
            at[partition] = done.after
        return True

    def _next(
        self, agent: str, epoch: int, stream: str, partition: int, at: dict[int, int]
    ) -> Generator[Step, AnyOperation, AnyOperation]:
        def apply(it: AnyOperation) -> AnyOperation | None:
            found = self.server.deliver(agent, stream, partition, at[partition])
            if found is None:
                return None
            content = self.server.content_for(found)
            return Read(0, 0, OK, agent, epoch, stream, partition, found.id, *content)

        operation = Empty(0, 0, OK, agent, epoch, stream, partition, at[partition])
        done = yield operation, apply
        if isinstance(done, Read):
            at[partition] = max(done.id, at[partition])
        return done

    def _lookup(self, agent: str, epoch: int, stream: str) -> Generator[Step, AnyOperation, None]:
        """Look for any transaction that there is, or was."""
        partition = self.random.randrange(PARTITIONS)
        held = self.server.streams[stream].partitions[partition]
        if not held:
            return
        number = self.random.choice(held[-20:]).id

        def apply(it: AnyOperation) -> AnyOperation | None:
            if self.server.streams[stream].deleted and not self.server.hit("read-deleted"):
                it.outcome = "not_found"
                return None
            found = self.server.lookup(stream, partition, number)
            if found is None:
                return None
            content = self.server.content_for(found)
            return Read(0, 0, OK, agent, epoch, stream, partition, number, *content, False)

        yield Empty(0, 0, OK, agent, epoch, stream, partition, number - 1, number, False), apply

    def reader(self, stream: str, name: str) -> Script:
        """Reads on, saves where it stands, begins anew, goes back, looks things up."""
        agent = f"reader:{stream}/{name}"
        while not self.stopping:
            epoch = yield from self._begin(agent)
            at = dict.fromkeys(range(PARTITIONS), 0)
            if not (yield from self._stand(agent, epoch, stream, at, True)):
                continue
            outcome = OK
            while outcome == OK and not self.stopping:
                choice = self.random.random()
                if choice < 0.75:
                    partition = self.random.randrange(PARTITIONS)
                    yield from self._next(agent, epoch, stream, partition, at)
                elif choice < 0.85:
                    offsets = [(agent, stream, p, it) for p, it in at.items() if it]
                    outcome = yield from self._commit([(agent, epoch)], [], offsets)
                elif choice < 0.95:
                    names = [it for it in self.server.streams if it.startswith("temp")]
                    where = self.random.choice([stream, *names[-2:]])
                    yield from self._lookup(agent, epoch, where)
                elif choice < 0.96:
                    at = dict.fromkeys(at, 0)
                    outcome = (
                        OK if (yield from self._stand(agent, epoch, stream, at, False)) else ""
                    )
                elif choice < 0.98:
                    break

    def processor(self, source: str, target: str, name: str) -> Script:
        """Reads from one stream, writes into another, and checkpoints both together."""
        reader, writer = f"reader:{source}/{name}", f"producer:{target}/{name}"
        while not self.stopping:
            epochs = ((yield from self._begin(reader)), (yield from self._begin(writer)))
            members = [(reader, epochs[0]), (writer, epochs[1])]
            at = dict.fromkeys(range(PARTITIONS), 0)
            if not (yield from self._stand(reader, epochs[0], source, at, True)):
                continue
            outcome = OK
            while outcome == OK and not self.stopping:
                keys: list[Key] = []
                for partition in range(self.random.randrange(1, PARTITIONS + 1)):
                    opened = yield from self._open(writer, epochs[1], target, partition)
                    outcome = opened.outcome
                    if outcome != OK:
                        break
                    keys.append((target, partition, opened.id))
                    yield from self._send(opened)
                for partition in range(PARTITIONS):
                    found: AnyOperation = Read(0, 0)
                    for _ in range(10):
                        if isinstance(found, Read):
                            found = yield from self._next(reader, epochs[0], source, partition, at)
                if outcome != OK:
                    break
                offsets = [(reader, source, p, it) for p, it in at.items() if it]
                outcome = yield from self._commit(members, keys, offsets)

    def admin(self) -> Script:
        """Purges now and then; makes and deletes a stream."""
        while not self.stopping:
            for _ in range(self.random.randrange(20, 60)):
                yield Created(0, 0, OK, stream="a#1", ttl_ms=LONG_MS), lambda _: None
            if self.random.random() < 0.3:
                held = self.server.streams["b#2"].partitions[0]
                before = held[len(held) // 2].id + 1 if held else 0

                def purge(it: AnyOperation, before: int = before) -> None:
                    it.outcome = self.server.purge("b#2", before)

                yield Purged(0, 0, OK, stream="b#2", before=before), purge
            yield from self._short_life()

    def _short_life(self) -> Script:
        self.temporary += 1
        name = f"temp#{10 + self.temporary}"
        self._create(name, LONG_MS)
        agent = f"producer:{name}/t"
        epoch = yield from self._begin(agent)
        for _ in range(5):
            yield from self._instant(agent, epoch, name)

        def delete(_: AnyOperation) -> None:
            self.server.streams[name].deleted = True

        yield Deleted(0, 0, OK, stream=name), delete

    # The end.

    def fence(self, agent: str) -> Script:
        """Take the name of a client that is gone, so that nothing of it is open any more."""
        epoch = yield from self._begin(agent)

        def close(it: AnyOperation) -> None:
            it.outcome = self.server.close(agent, epoch)

        yield Close(0, 0, OK, agent, epoch), close

    def auditor(self, stream: str) -> Script:
        """Reads all that there is."""
        agent = f"reader:{stream}/auditor"
        if self.server.streams[stream].deleted:
            return
        epoch = yield from self._begin(agent)
        at = dict.fromkeys(range(PARTITIONS), 0)
        yield from self._stand(agent, epoch, stream, at, False)
        for reader in sorted(it for it in self.server.epochs if it.startswith(f"reader:{stream}")):
            number = yield from self._begin(reader)
            yield from self._stand(reader, number, stream, dict(at), True)
        for partition in range(PARTITIONS):
            found: AnyOperation = Read(0, 0)
            while isinstance(found, Read):
                found = yield from self._next(agent, epoch, stream, partition, at)


def generate(seed: int, operations: int, fault: str | None = None) -> Iterator[AnyOperation]:
    """A history of about so many operations."""
    yield from Reference(seed, fault).run(operations)
