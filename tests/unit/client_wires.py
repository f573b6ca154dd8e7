"""Connections for the client's rules: to a real shard without a network, and to a script."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, TypeVar

import msgspec

import moebius
from moebius.messages import ITEM_OVERHEAD_BYTES
from tstreams import protocol
from tstreams.client.rules.link import Link
from tstreams.client.rules.ticket import AnyOf, Steps, Ticket
from tstreams.core.records import Filled, ItemsSent
from tstreams.core.shard import Shard
from tstreams.errors import Error
from tstreams.items import check
from tstreams.protocol import Done, KeepAlive, NodeInfo, OpenSession, encode

from .core_client import NoFacts

T = TypeVar("T")


class Asked:
    """A request that came to a wire."""

    def __init__(self, sink: Any, command: str, parts: tuple[bytes, ...], one_way: bool) -> None:
        self.sink = sink
        self.command = command
        self.shard, _, self.name = command.rpartition(":")
        kind = getattr(protocol, self.name)
        self.message: Any = msgspec.msgpack.decode(parts[0], type=kind)
        brings = self.name in ("Commit", "Prepare")
        self.batch = parts[1] if len(parts) > 1 and not brings else None
        self.brought = parts[1:] if brings else ()
        self.one_way = one_way
        self.number = getattr(self.message, "sequence", 0)
        self.timeout: float | None = -1
        self.credit = 0

    @property
    def sent(self) -> bytes:
        """The batch that came along, where one must."""
        assert self.batch is not None
        return self.batch

    def push(self, message: Any, data: bytes) -> None:
        """One answer of many."""
        parts = (encode(message), data)
        self.credit -= sum(map(len, parts)) + ITEM_OVERHEAD_BYTES
        self.sink.item(parts)

    def answer(self, message: Any, data: bytes = b"") -> None:
        self.sink.done((encode(message), data) if data else (encode(message),))

    def fail(self, code: str, text: str = "") -> None:
        self.sink.fail(moebius.Error.from_wire(code, text))


class Script:
    """A connection on which nothing is answered until a test does."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.cancelled: list[Asked] = []
        self.hurried = 0

    def begin(
        self,
        sink: Any,
        command: str,
        parts: Any,
        *,
        timeout: float | None = -1,
        repeat: bool = False,
        one_way: bool = False,
        credit: int | None = None,
    ) -> Any:
        assert repeat or one_way or credit, "what is not repeated must be begun anew"
        asked = Asked(sink, command, parts, one_way)
        asked.timeout = timeout
        asked.credit = credit or 0
        self.asked.append(asked)
        return asked

    def cancel(self, pending: Any) -> None:
        self.cancelled.append(pending)

    def hurry(self) -> None:
        self.hurried += 1

    def go_on(self) -> None:
        """Answers come when a test gives them."""

    def grant(self, pending: Any, credit_bytes: int) -> None:
        pending.credit += credit_bytes

    def take(self, name: str) -> Asked:
        """The oldest request of this name that was not taken."""
        asked = next(it for it in self.asked if it.name == name)
        self.asked.remove(asked)
        return asked

    @property
    def names(self) -> list[str]:
        return [it.name for it in self.asked]


class ShardWire:
    """A connection to a shard. What it is told to hold back is handled when it is released."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.shard = Shard(NoFacts(), last_id=0, last_number=0, now_ms=self.now_ms)
        self.held: deque[Asked] = deque()
        self.hold: set[str] = set()
        self.log: list[str] = []
        self.counts: Counter[int] = Counter()
        """Items that came, by transaction; instant ones are not in it."""

    def begin(self, sink: Any, command: str, parts: Any, **options: Any) -> Any:
        asked = Asked(sink, command, parts, options.get("one_way", False))
        if asked.name in self.hold or self.held:
            self.held.append(asked)
        else:
            self._handle(asked)
        return asked

    def cancel(self, pending: Any) -> None:
        self.held.remove(pending)

    def go_on(self) -> None:
        """They have come already."""

    def release(self) -> None:
        """Handle what was held back, in its order."""
        self.hold.clear()
        while self.held:
            self._handle(self.held.popleft())

    def _handle(self, asked: Asked) -> None:
        self.log.append(asked.name)
        try:
            reply = self._reply(asked)
        except Error as error:
            asked.sink.fail(moebius.RemoteError(error.message, error.code))
        else:
            asked.sink.done(None if asked.one_way else (encode(reply),))

    def _reply(self, asked: Asked) -> Any:
        match asked.message:
            case protocol.Describe():
                return NodeInfo("test", [0])
            case OpenSession():
                return self.shard.open_session(self.now_ms)[1]
            case KeepAlive():
                self.shard.keep_alive(self.now_ms, asked.message)
                return Done()
        items = 0 if asked.batch is None else check(asked.batch)
        brought = [check(batch) for batch in asked.brought]
        records, reply = self.shard.handle(self.now_ms, asked.message, items, brought)
        for record in records:
            if isinstance(record, Filled | ItemsSent):
                self.counts[record.transaction] += record.count
        return reply


def link_to(wire: Any, shards: int = 1) -> Link:
    link = Link(wire, timeout_s=30.0)
    link.shards.learn(NodeInfo("test", list(range(shards)), total=shards))
    return link


def run(steps: Steps[T]) -> T:
    """Run an operation all of whose answers are there at once, or come when it has waited long enough."""
    try:
        target = next(steps)
        while True:
            if isinstance(target, Ticket):
                assert target.ended, "this would wait for ever"
            target = next(steps)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


class Waiting:
    """An operation that waits: a test lets it go on."""

    def __init__(self, steps: Steps[Any]) -> None:
        self._steps = steps
        self.target: Ticket | AnyOf | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.go_on()

    @property
    def ended(self) -> bool:
        return self.target is None

    def go_on(self) -> None:
        """As far as it gets."""
        try:
            self.target = next(self._steps)
            while isinstance(self.target, Ticket) and self.target.ended:
                self.target = next(self._steps)
        except StopIteration as stop:
            self.target, self.result = None, stop.value
        except BaseException as error:
            self.target, self.error = None, error

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        try:
            self.target = self._steps.throw(KeyboardInterrupt())
        except BaseException as error:
            self.target, self.error = None, error
