"""A small streams system in memory. It is right, unless it is given a fault."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from random import Random

from tests.checker.digest import Content, content_of
from tests.checker.history import OK, UNKNOWN, Key

BASE_MS = 1_700_000_000_000
IDS_PER_MS = 100_000
LEASE_US = 3_000_000
LONG_MS = 86_400_000

OPENED, CHECKPOINTED, CANCELLED, INVALID, FORGOTTEN = range(5)


class Transaction:
    """One of them."""

    __slots__ = ("agent", "batches", "epoch", "hidden_until", "id", "lease_us", "state")

    def __init__(self, number: int, agent: str, epoch: int, lease_us: int) -> None:
        self.id = number
        self.agent = agent
        self.epoch = epoch
        self.lease_us = lease_us
        self.batches: list[list[bytes]] = []
        self.state = OPENED
        self.hidden_until = 0

    def content(self) -> Content:
        return content_of(item for batch in self.batches for item in batch)


class Stream:
    """A stream: its ttl, what was purged, and its partitions."""

    def __init__(self, partitions: int, ttl_ms: int) -> None:
        self.ttl_ms = ttl_ms
        self.purged_before = 0
        self.deleted = False
        self.partitions: list[list[Transaction]] = [[] for _ in range(partitions)]


class Server:
    """Requests in, outcomes out. `fault` names the bug that it has; `strikes` counts what came of it."""

    def __init__(self, random: Random, fault: str | None) -> None:
        self.random = random
        self.fault = fault
        self.strikes = 0
        self.now_us = 0
        self.streams: dict[str, Stream] = {}
        self.epochs: dict[str, int] = defaultdict(int)
        self.closed: set[tuple[str, int]] = set()
        self.offsets: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        self._last_id = 0
        self._unsynced: list[Transaction] = []
        self._open: dict[str, list[Transaction]] = defaultdict(list)
        self._haunted: set[str] = set()
        self._crossed: int | None = None
        self._late: dict[int, int] = {}
        self._owed: dict[tuple[str, str, int], int] = {}

    def hit(self, fault: str, chance: float = 1.0) -> bool:
        """Whether this bug strikes now."""
        if self.fault != fault or self.random.random() >= chance:
            return False
        self.strikes += 1
        return True

    @property
    def now_ms(self) -> int:
        return BASE_MS + self.now_us // 1000

    # Agents and streams.

    def begin(self, agent: str) -> int:
        self._drop_open(agent)
        self.epochs[agent] += 1
        return self.epochs[agent]

    def close(self, agent: str, epoch: int) -> str:
        if self.is_fenced(agent, epoch):
            return "fenced"
        self._drop_open(agent)
        self.closed.add((agent, epoch))
        return OK

    def _drop_open(self, agent: str) -> None:
        for it in self._open.pop(agent, ()):
            if it.state == OPENED:
                it.state = CANCELLED

    def is_fenced(self, agent: str, epoch: int) -> bool:
        return self.epochs[agent] != epoch or (agent, epoch) in self.closed

    def purge(self, stream: str, before: int) -> str:
        if not self.hit("forget-purge"):
            extra = before and self.hit("purge-one-too-many")
            found = self.streams[stream]
            found.purged_before = max(
                found.purged_before, before + (2 * IDS_PER_MS if extra else 0)
            )
        return OK

    def crash(self) -> None:
        """Everything that was not synced is gone; what is open stays open."""
        if self.fault == "ack-before-fsync":
            for it in self._unsynced[-3:]:
                self.strikes += 1
                it.state = FORGOTTEN
        self._unsynced.clear()

    # Writing.

    def _next_id(self) -> int:
        fresh = self.now_ms * IDS_PER_MS
        if self._last_id and self.hit("ids-follow-the-clock", 0.02):
            return self._last_id - self.random.randrange(1, 3) * IDS_PER_MS
        self._last_id = max(fresh, self._last_id + 1)
        return self._last_id

    def _add(self, stream: str, partition: int, it: Transaction) -> None:
        held = self.streams[stream].partitions[partition]
        if held and held[-1].id > it.id:
            insort(held, it, key=lambda other: other.id)
        else:
            held.append(it)

    def find(self, key: Key) -> Transaction | None:
        held = self.streams[key[0]].partitions[key[1]]
        at = bisect_right(held, key[2], key=lambda it: it.id) - 1
        return held[at] if at >= 0 and held[at].id == key[2] else None

    def open(self, agent: str, epoch: int, stream: str, partition: int) -> tuple[str, int]:
        if self._refuses(agent, epoch, "forget-writer-epoch"):
            return "fenced", 0
        held = self.streams[stream].partitions[partition]
        if held and self.hit("reuse-id", 0.05):
            return OK, held[-1].id
        it = Transaction(self._next_id(), agent, epoch, self.now_us + LEASE_US)
        self._add(stream, partition, it)
        self._open[agent].append(it)
        return OK, it.id

    def _refuses(self, agent: str, epoch: int, fault: str) -> bool:
        return self.is_fenced(agent, epoch) and not self.hit(fault)

    def send(self, key: Key, items: list[bytes]) -> None:
        it = self.find(key)
        careless = self.fault in ("late-checkpoint", "forget-writer-epoch")
        if it is None or (it.state != OPENED and not careless):
            return
        if it.batches and self.hit("forget-batch", 0.3):
            return
        it.batches.append(items)
        if self.hit("store-batch-twice", 0.1):
            it.batches.append(items)
        if it.agent in self._haunted:
            self._haunted.discard(it.agent)
            self.strikes += 1
            it.state = CHECKPOINTED

    def instant(
        self, agent: str, epoch: int, key: tuple[str, int], items: list[bytes]
    ) -> tuple[str, int]:
        if self._refuses(agent, epoch, "forget-writer-epoch"):
            return "fenced", 0
        stream, partition = key
        it = Transaction(self._next_id(), agent, epoch, 0)
        it.batches = [items]
        it.state = CHECKPOINTED
        if self.hit("forget-instant", 0.05):
            return OK, it.id
        if self.hit("wrong-partition", 0.05):
            partition = 1 - partition
        self._add(stream, partition, it)
        self._unsynced = [*self._unsynced[-20:], it]
        if self.hit("apply-instant-twice", 0.05):
            again = Transaction(self._next_id(), agent, epoch, 0)
            again.batches, again.state = it.batches, CHECKPOINTED
            self._add(stream, partition, again)
        if self.hit("invent", 0.02):
            again = Transaction(self._next_id(), agent, epoch, 0)
            again.batches, again.state = [[b"invented"]], CHECKPOINTED
            self._add(stream, partition, again)
        return OK, it.id

    def commit(
        self,
        members: list[tuple[str, int]],
        keys: list[Key],
        offsets: list[tuple[str, str, int, int]],
    ) -> str:
        group = len(members) > 1
        for agent, epoch in members:
            fault = "forget-reader-epoch" if agent.startswith("reader") else "forget-writer-epoch"
            if self._refuses(agent, epoch, "forget-group-epoch" if group else fault):
                return "fenced"
        found = [it for key in keys if (it := self.find(key)) is not None]
        for it in found:
            if it.state == OPENED and self.now_us > it.lease_us:
                if self.hit("revive-expired"):
                    it.lease_us = self.now_us + LEASE_US
                else:
                    it.state = CHECKPOINTED if self.hit("checkpoint-expired") else INVALID
                return "expired"
        careless = self.fault in ("forget-writer-epoch", "forget-group-epoch", "late-checkpoint")
        if any(it.state != OPENED for it in found) and not careless:
            return "invalid_state"
        return self._apply(found, offsets, group)

    def _apply(
        self, found: list[Transaction], offsets: list[tuple[str, str, int, int]], group: bool
    ) -> str:
        if found and self.hit("forget-checkpoint", 0.1):
            return OK
        if found and self.hit("late-checkpoint", 0.3):
            self._haunted.add(found[0].agent)
            return UNKNOWN
        if found and self.hit("late-cancel", 0.1):
            for it in found:
                it.state = CANCELLED
            return OK
        crashes = None
        if group and len(found) > 1 and self.hit("crash-inside-group", 0.3):
            crashes, found, offsets = UNKNOWN, found[:1], []
        elif group and found and offsets and self.hit("offsets-first", 0.3):
            crashes, found = UNKNOWN, []
        if len(found) > 1 and self.hit("drop-group-member", 0.3):
            found = found[:-1]
        if group and offsets and found and self.hit("drop-group-offset", 0.3):
            offsets = []
        if len(found) > 1 and self.hit("swap-contents", 0.3):
            found[0].batches, found[1].batches = found[1].batches, found[0].batches
        if len(found) > 1 and self.hit("half-a-view", 0.5):
            found[-1].hidden_until = self.now_us + 300_000
        if len(found) > 1 and self.hit("late-half", 0.5):
            self._late[found[-1].id] = self.now_us + 10_000_000
        for it in found:
            if len(it.batches) > 1 and self.hit("forget-last-batch", 0.3):
                it.batches.pop()
            it.state = CHECKPOINTED if it.batches else CANCELLED
        self._unsynced = [*self._unsynced[-20:], *found]
        for reader, stream, partition, last_id in offsets:
            self._save((reader, stream, partition), last_id)
        if found and self.hit("refuse-and-apply", 0.1):
            return "invalid_state"
        return crashes or OK

    def _save(self, place: tuple[str, str, int], last_id: int) -> None:
        if self.hit("forget-offset", 0.2):
            return
        if self.fault == "save-the-end":
            held = self.streams[place[1]].partitions[place[2]]
            done = [it.id for it in held if it.state == CHECKPOINTED]
            if done and done[-1] > last_id:
                self.strikes += 1
                last_id = done[-1]
        self.offsets[place].append(last_id)

    def commit_at_once(
        self, member: tuple[str, int], stream: str, contents: list[list[bytes]]
    ) -> tuple[str, list[int]]:
        """One transaction in each partition, opened and checkpointed together."""
        if self.is_fenced(*member):
            return "fenced", []
        if self._crossed is not None:
            ids = [self._crossed + 1, self._crossed]
            self._crossed = None
            self.strikes += 1
        elif self.fault == "crossed-group":
            first = self._next_id()
            self._crossed, self._last_id = first + 1, first + 3
            ids = [first, first + 3]
        else:
            ids = [self._next_id() for _ in contents]
        for partition, (number, items) in enumerate(zip(ids, contents, strict=True)):
            it = Transaction(number, *member, 0)
            it.batches, it.state = [items], CHECKPOINTED
            self._add(stream, partition, it)
        return OK, ids

    def cancel(self, agent: str, epoch: int, keys: list[Key]) -> str:
        if self.is_fenced(agent, epoch):
            return "fenced"
        found = [it for key in keys if (it := self.find(key)) is not None]
        if any(it.state != OPENED for it in found):
            late = [it for it in found if it.state == CHECKPOINTED]
            if late and self.hit("cancel-after-checkpoint"):
                return OK
            return "invalid_state"
        if any(self.now_us > it.lease_us for it in found):
            return "expired"
        for it in found:
            it.state = CHECKPOINTED if it.batches and self.hit("read-cancelled", 0.5) else CANCELLED
        return OK

    # Reading.

    def _is_alive(self, stream: Stream, it: Transaction) -> bool:
        ttl_ms = stream.ttl_ms
        if ttl_ms < LONG_MS and self.fault in ("expire-early", "expire-late"):
            factor = 0.2 if self.fault == "expire-early" else 100
            died = it.id // IDS_PER_MS + ttl_ms <= self.now_ms
            ttl_ms = int(ttl_ms * factor)
            self.strikes += died != (it.id // IDS_PER_MS + ttl_ms <= self.now_ms)
        return it.id >= stream.purged_before and it.id // IDS_PER_MS + ttl_ms > self.now_ms

    def visible(self, name: str, partition: int, after: int) -> Transaction | None:
        """The first visible one after an id."""
        stream = self.streams[name]
        held = stream.partitions[partition]
        passed = 0
        if self.fault not in ("expire-early", "expire-late"):
            dead = (self.now_ms - stream.ttl_ms) * IDS_PER_MS
            after = max(after, dead, stream.purged_before - 1)
        for at in range(bisect_right(held, after, key=lambda it: it.id), len(held)):
            it = held[at]
            if it.state == OPENED:
                if self.now_us > it.lease_us:
                    continue
                if it.batches and self.hit("read-uncommitted", 0.3):
                    return it
                if self.hit("ignore-open-head") or (
                    not passed and self.hit("open-head-off-by-one")
                ):
                    passed += 1
                    continue
                return None
            if it.hidden_until > self.now_us:
                return None
            if it.state == CHECKPOINTED and self._is_alive(stream, it):
                return it
        return None

    def deliver(self, reader: str, name: str, partition: int, after: int) -> Transaction | None:
        """What a reader is handed next."""
        place = (reader, name, partition)
        if place in self._owed:
            return self.find((name, partition, self._owed.pop(place)))
        if self.fault == "circular-flow" and "/g" in reader:
            for other in self.streams[name].partitions[partition][-10:]:
                if (
                    other.state == OPENED
                    and other.id > after
                    and "/g" in other.agent
                    and other.batches
                ):
                    self.strikes += 1
                    return other
        it = self.visible(name, partition, after)
        if it is None:
            return None
        late = "/g" in reader and self._late.get(it.id, 0) > self.now_us
        if late or self.hit("stale-follower", 0.1):
            return None
        if self.fault in ("skip-delivery", "swap-deliveries"):
            behind = self.visible(name, partition, it.id)
            if behind is not None and self.hit(self.fault, 0.1):
                if self.fault == "swap-deliveries":
                    self._owed[place] = it.id
                return behind
        if self.hit("deliver-twice", 0.1):
            self._owed[place] = it.id
        return it

    def lookup(self, name: str, partition: int, number: int) -> Transaction | None:
        """A transaction by its id, if it is visible."""
        it = self.visible(name, partition, number - 1)
        if it is None or it.id != number:
            other = self.find((name, partition, number))
            if other is not None and other.state == CANCELLED and other.batches:
                return other if self.hit("lookup-cancelled") else None
            return None
        if not all(
            before.state != OPENED or self.now_us > before.lease_us
            for before in self.streams[name].partitions[partition][-50:]
            if before.id < number
        ):
            return None
        return it

    def content_for(self, it: Transaction) -> Content:
        """What a reader gets of it."""
        if len(it.batches) > 1 and self.hit("torn-read", 0.2):
            return content_of(item for batch in it.batches[1:] for item in batch)
        if self.hit("skip-checksum", 0.05):
            return content_of([b"flipped", *it.batches[0][1:]])
        if self.hit("two-replicas", 0.1):
            return content_of([b"another", *it.batches[0][1:]])
        return it.content()

    def saved(self, place: tuple[str, str, int]) -> int:
        """Where a reader left off."""
        values = self.offsets[place]
        if len(values) > 1 and values[-2] != values[-1] and self.hit("old-offset", 0.5):
            return values[-2]
        return values[-1] if values else 0
