"""A shard at work: requests come in, the core decides, and answers go out when what they say is durable.

All that happens within one turn of the loop becomes one group in the log and one sync. Until that is done
nobody is told anything that it decided: neither answers nor refusals nor what readers see. Who keeps the log, and how a group
becomes durable there, is not known here: see `LocalShard` and `SharedShard`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from moebius import LATER, Request

from ..core.records import AnyRecord, Told, ToTell
from ..core.shard import Shard as Core
from ..core.waits import CopyNeeded
from ..errors import Error, Expired, NotLeader, Unavailable
from ..index import Index
from ..items import Buffer
from ..ledger.port import DiskFull, Readable
from ..limits import PAYLOAD_CACHE_BYTES
from ..protocol import AnyReply, Change, CreateStream, Done, KeepAlive, OpenTransaction, encode
from .condition import Condition
from .contents import FEW_SUBSCRIPTIONS, Contents
from .errands import Errands
from .kin import Caller
from .kinship import Held, Kinship
from .metrics import Metrics
from .parking import WAITS, Parking, Waits
from .reads import Reads
from .room import Room
from .subscriptions import Subscriptions
from .turn import Answer, Barrier, Keeper, Read
from .turns import Schedule, Turns
from .wire import wire_error

log = logging.getLogger("tstreams.server")

Clock = Callable[[], int]
"""Milliseconds since the epoch."""

_ADDING = frozenset({CreateStream, OpenTransaction})
"""What is refused while the disk is full, and whatever comes with a batch. The others are small, readers
need some of them, and some make room."""

_NOTHING = Told(0, 0, [], [])
"""A record that changes nothing."""


def system_clock() -> int:
    """The time of the day."""
    return time.time_ns() // 1_000_000


class Shard:
    """One shard, served by one thread.

    States: serving; `full` (no room: what only adds is refused, reading goes on); `failed` (everything is refused until
    it is opened again). Invariant: `core` runs ahead of the log by exactly what is pending in its turn, and
    by the group that is under way, while which nothing is decided.
    """

    def __init__(
        self,
        number: int,
        keeper: Keeper,
        room: Room,
        *,
        clock: Clock = system_clock,
        cache_bytes: int = PAYLOAD_CACHE_BYTES,
        schedule: Schedule | None = None,
        shards: int = 1,
        barrier: Barrier | None = None,
    ) -> None:
        self.number = number
        self.shards = shards
        self.clock = clock
        self.epoch = 0
        self.contents = Contents(number, shards, clock, cache_bytes)
        self.condition = Condition(number, room, self.contents)
        self.turns = Turns(keeper, lambda: self.finish([], []), schedule)
        self.commit = self.turns.commit
        self.when_settled = self.turns.when_settled
        self._add = self.turns.add
        self._answer = self.turns.answer
        self._keeper = keeper
        self._barrier = barrier
        self.errands: Errands | None = None
        """What it asks and tells the other shards, if there are any."""
        self.parking = Parking(lambda: self.contents.core, self._need)
        self.kinship = Kinship(self)

    # What it is made of. Whoever is in a hurry looks into `contents` itself.

    @property
    def core(self) -> Core:
        """What decides."""
        return self.contents.core

    @property
    def index(self) -> Index:
        """What is where."""
        return self.contents.index

    @property
    def log(self) -> Readable:
        """What has happened."""
        return self.contents.log

    @property
    def reads(self) -> Reads:
        """Readers."""
        return self.contents.reads

    @property
    def subscriptions(self) -> Subscriptions:
        """Readers that are called."""
        return self.contents.subscriptions

    @property
    def metrics(self) -> Metrics:
        """What is counted."""
        return self.contents.metrics

    @property
    def failed(self) -> str | None:
        """Why it has stopped, if it has."""
        return self.condition.failed

    @property
    def full(self) -> str | None:
        """Why nothing can be added, if that is so."""
        return self.condition.full

    @property
    def stands_alone(self) -> bool:
        """Whether nobody else can lead it, and it needs nothing of other shards."""
        return self._barrier is None and self.shards == 1

    # Changes.

    def change(
        self,
        request: Request,
        message: Change,
        items: int = 0,
        batches: Sequence[Buffer] = (),
        brought: Sequence[int] = (),
    ) -> object:
        """A request that changes something, with the item batches that came with it: one of so many
        `items`, or those that a commit has `brought`."""
        if self._barrier is not None:
            again = partial(self.change, request, message, items, batches, brought)
            if self._barrier.holds(request, again, sum(map(len, batches))):
                return LATER
            self._barrier.check_order(message)
        elif self.condition.failed is not None:
            self.condition.check()
        if self.parking.sessions and self.parking.is_behind(request, message):
            return self._park(request, message, items, batches, brought, None)
        adds = batches or type(message) in _ADDING
        if self.condition.full is not None and adds and self._is_new(message):
            raise wire_error(Unavailable(self.condition.full))
        core = self.contents.core
        try:
            now_ms = self.turns.decided_ms = self.clock()
            records, reply = core.handle(now_ms, message, items, brought)
        except Error as error:
            if isinstance(error, WAITS):
                return self._park(request, message, items, batches, brought, error)
            if isinstance(error, Expired):
                self.tick()  # who is told so must not find it open after a restart
            return self._refuse(request, error)
        if records:
            self.turns.touched[message.session] = core.state.sessions[message.session]
            for record, batch in zip_longest(records, batches):
                self._add(record, batch)
            first = records[0]
            if type(first) is ToTell and self.errands is not None:
                return self._answer(Held(request, self.errands, first.stream), reply)
        return self._answer(request, reply)

    def _park(
        self,
        request: Request,
        message: Change,
        items: int,
        batches: Sequence[Buffer],
        brought: Sequence[int],
        waits: Waits | None,
    ) -> object:
        """Have a change wait until it can be decided on."""
        again = partial(self.change, request, message, items, batches, brought)
        return self.parking.park(request, again, message, batches, waits)

    def _need(self, waits: Waits) -> None:
        if self.errands is not None:
            self.errands.need(waits)

    def open_session(self, request: Request) -> object:
        """Begin a session."""
        if self._held_back(request, partial(self.open_session, request)):
            return LATER
        try:
            record, reply = self.core.open_session(self.clock())
        except Error as error:
            return self._answer(request, error)
        self._add(record)
        return self._answer(request, reply)

    def keep_alive(self, request: Request, message: KeepAlive) -> object:
        """A client is still there."""
        if self._held_back(request, partial(self.keep_alive, request, message)):
            return LATER
        try:
            self.core.keep_alive(self.clock(), message)
        except Error as error:
            return self._refuse(request, error)
        return self._answer(request, Done())

    def hear(
        self,
        request: Request | Caller,
        decide: Callable[[], tuple[tuple[AnyRecord, ...], AnyReply]],
        *,
        confirmed: bool = False,
    ) -> object:
        """Something that has no number, and is decided on when it can be: the answer, or `LATER`. `confirmed`: whoever
        hears the answer forgets something for ever. So where others could lead meanwhile, it goes through the log, also
        if it changes nothing."""
        if self._held_back(request, partial(self.hear, request, decide, confirmed=confirmed)):
            return LATER
        try:
            records, reply = decide()
        except WAITS as waits:
            again = partial(self.hear, request, decide, confirmed=confirmed)
            return self.parking.park_other(request, again, waits)
        except Error as error:
            return self._refuse(request, error)
        if confirmed and not records:
            self._confirm()
        for record in records:
            self._add(record)
            session = self.core.state.sessions.get(record.session)
            if session is not None:
                self.turns.touched[record.session] = session
        return self._answer(request, reply)

    def _refuse(self, request: Request | Caller, error: Error) -> object:
        """A refusal is final for whoever gets it, so it is confirmed."""
        self._confirm()
        return self._answer(request, error)

    def _confirm(self) -> None:
        """Have the answer that comes next go through the log, where others could lead by now and know better."""
        if self._barrier is not None and not self.turns.pending:
            self._add(_NOTHING)

    def tick(self) -> None:
        """Time passes: leases and sessions run out. Not while a group is under way."""
        if self.condition.failed is None:
            for record in self.core.tick(self.clock()):
                self._add(record)
            if self.errands is not None:
                self.errands.look()

    def move(self, record: AnyRecord, batch: Buffer) -> None:
        """A batch that is copied forward. It may use the reserve: it is done to make room."""
        self.core.apply(self.clock(), record)
        self._add(record, batch)
        self.turns.pending_bytes -= len(batch)

    def _is_new(self, message: Change) -> bool:
        """Whether this request was not handled before: if it was, its answer is known."""
        session = self.core.state.sessions.get(message.session)
        return session is None or message.sequence > session.last

    def check_usable(self) -> None:
        """Refuse everything that cannot be done now, or not here."""
        if self._barrier is None:
            self.condition.check()
        else:
            self._barrier.check()

    async def admit(self) -> None:
        """The same for those who can wait as long as a node is about to lead."""
        if self._barrier is None:
            self.condition.check()
        else:
            await self._barrier.admit()

    def _held_back(self, request: Request | Caller, again: Callable[[], object]) -> bool:
        if self._barrier is not None:
            return self._barrier.holds(request, again)
        self.condition.check()
        return False

    # Reading.

    def read(self, request: Request | Caller, answer: Callable[[Any], Any]) -> object:
        """Call `answer` once everything decided so far is durable. It returns the answer, or None if it
        has answered, or will. `InDoubt` and `CopyNeeded`: it is called again later."""
        if self._barrier is not None:
            if self._barrier.holds(request, partial(self.read, request, answer)):
                return LATER
        elif self.condition.failed is not None:
            self.condition.check()
        if self.turns.pending:
            self.turns.read(request, answer)
        else:
            self._answer_read(request, answer, self.read)
        return LATER

    def _answer_read(
        self,
        request: Request | Caller,
        answer: Callable[[Any], Any],
        read: Callable[[Request | Caller, Callable[[Any], Any]], object],
    ) -> None:
        try:
            try:
                result = answer(request)
            except WAITS as waits:
                if self._barrier is not None and isinstance(waits, CopyNeeded):
                    self._barrier.check()  # only who leads can ask for it
                self.parking.park_other(request, partial(read, request, answer), waits)
                return
        except Error as error:
            request.fail(wire_error(error))
        except Exception as error:
            if not request.unanswered:
                raise
            request.fail(error)
        else:
            if result is not None:
                request.answer(result)

    def read_any(self, request: Request | Caller, answer: Callable[[Any], Any]) -> object:
        """The same for a reader that is content with what this node has confirmed: at once, if it follows."""
        if self._barrier is None or self._barrier.leading:
            return self.read(request, answer)
        self.condition.check()
        self._answer_read(request, answer, self.read_any)
        return LATER

    def end_waits(self, error: Error | None = None) -> None:
        """Answer the readers that wait, and end subscriptions: the server stops, or we do. Where others can go on with
        what waits here, they are told who."""
        if self._barrier is not None and not isinstance(error, NotLeader):
            text = "this node is stopping" if error is None else error.message
            error = self._barrier.elsewhere(text)
        self.parking.end_all(error or Unavailable("the server is stopping"))
        if self.errands is not None:
            self.errands.let_all_out()
        if not self.contents.is_empty:
            self.contents.reads.end_waits(error)
            self.contents.subscriptions.end_all(error)

    # The end of a turn.

    def finish(self, answers: list[Answer], reads: list[Read]) -> None:
        """A turn is over: let its answers out, and tell those who wait."""
        contents, condition = self.contents, self.condition
        for request, answer in answers:
            if isinstance(answer, Error):
                request.fail(wire_error(answer))
            else:
                request.answer(encode(answer))
        if condition.failed is None and contents.subscriptions.count <= FEW_SUBSCRIPTIONS:
            contents.wake()
        # Now, and not after the next requests have been read: their senders wait for these answers.
        for client in dict.fromkeys(request.client for request, _ in answers):
            client.flush()
        for request, read in reads:
            if condition.failed is None:
                self._answer_read(request, read, self.read)
            else:
                request.fail(wire_error(Unavailable(condition.failed)))
        if condition.failed is None:
            contents.wake()
            self.turns.call_settled()
            if self.errands is not None:
                self.errands.look()
                if self._barrier is None:
                    self.parking.look()

    def refuse(self, answers: list[Answer], error: Exception) -> None:
        """A turn did not become durable, or the index did not take it: tell those who asked."""
        refusal = wire_error(self._write_failed(error))
        for request, _ in answers:
            request.fail(refusal)

    def _write_failed(self, error: Exception) -> Error:
        if isinstance(error, DiskFull):
            self.condition.note_full(error.message)
            self._keeper.take_back()
            return Unavailable(self.condition.full or error.message)
        if isinstance(error, Error):
            return self.fail(error)
        # The log may hold what the index has missed. Going on would hide that for ever.
        log.critical("a mistake in the program", exc_info=error)
        text = f"a mistake in the program ({type(error).__name__}: {error})"
        return self.fail(Error(f"{text}. Nothing is lost: start the server again."))

    def fail(self, error: Error) -> Error:
        """Stop: nothing is done any more until it is opened again."""
        if self.condition.failed is None:
            refusal = self.condition.fail(error)
            self.end_waits(refusal)
            if self.errands is not None:
                self.errands.reset()
            self.turns.forget_settled()
        self._keeper.stopped(error)
        text = self.condition.failed or error.message
        return Unavailable(text) if self._barrier is None else self._barrier.elsewhere(text)
