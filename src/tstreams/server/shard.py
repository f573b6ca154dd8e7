"""A shard at work: the core decides, the log makes it durable, the index takes it, the answers go out.

All that happens within one turn of the loop becomes one group in the log and one sync. Until that is done
nobody is told anything that it decided: neither answers nor refusals nor what readers see.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from operator import itemgetter
from typing import Any, TypeAlias

from moebius import LATER, Request

from ..core.facts import Session, StreamState
from ..core.records import (
    AnyRecord,
    InstantMade,
    SessionsNoted,
    ToTell,
    decode_record,
    encode_record,
)
from ..core.shard import Shard as Core
from ..errors import Error, Expired, Unavailable
from ..index import Index, IndexFailed
from ..items import Buffer
from ..ledger.local import LEDGER_AGE_MS, LEDGER_BYTES, LocalLog
from ..ledger.port import DiskFull, LogFailed, Record
from ..limits import KIB, MIB, PAYLOAD_CACHE_BYTES
from ..protocol import (
    AnyReply,
    Change,
    CreateStream,
    Done,
    KeepAlive,
    OpenTransaction,
    Want,
    encode,
)
from .errands import Errands
from .kin import Caller
from .kinship import Held, Kinship
from .metrics import Metrics
from .parking import WAITS, Parking, Waits
from .payloads import Payloads
from .reads import Reads
from .storage import Storage
from .subscriptions import Subscriptions
from .visible import Visible
from .wire import wire_error

log = logging.getLogger("tstreams.server")

Clock = Callable[[], int]
"""Milliseconds since the epoch."""

GROUP_BYTES_MAX = 8 * MIB
"""A group that has grown to this is written without waiting for the end of the turn."""

_ADDING = frozenset({CreateStream, OpenTransaction})
"""What is refused while the disk is full, and whatever comes with a batch. The others are small, readers
need some of them, and some make room."""

_FEW_SUBSCRIPTIONS = 8
"""Up to so many hear of something new before its writer hears that it is durable: what is sent first wakes
its receiver, which then has the processor. Of many, the writer should not have to wait for all."""

_ENCODED = itemgetter(1)

_yield_processor = getattr(os, "sched_yield", lambda: None)
"""Who was just sent something often waits for this very processor, where its data is. After a sync it would get it
only at the end of the turn: a fifth of the time between a write and a callback. Nobody waits: it costs nothing."""

_INDEX_BYTES_PER_RECORD = 150
_FLUSH_BYTES_MIN = 256 * KIB
"""What a flush of the index takes of the disk, at most: some for each record, and some at all."""

_REPLAY_RECORDS = 10_000
"""Records that are taken from the log in one step after a restart."""


Answer: TypeAlias = tuple[Request | Caller | Held, AnyReply | Error]
"""Who asked, and what for an answer: it goes out when the turn is over."""

Read: TypeAlias = tuple[Request | Caller, Callable[[Any], Any]]
"""Who reads, and what answers it then."""

Schedule = Callable[[Callable[[], None]], object]
"""How the end of a turn is asked for."""


def system_clock() -> int:
    """The time of the day."""
    return time.time_ns() // 1_000_000


class Shard:
    """One shard, served by one thread.

    States: serving; `full` (no room: what only adds is refused, reading goes on); `failed` (a sync failed,
    or the index cannot be written: everything is refused until the server is started again).
    Invariant: `_pending` and `_answers` are empty outside of a turn; `core` runs ahead of the log by
    exactly `_pending`.
    """

    def __init__(
        self,
        number: int,
        storage: Storage,
        *,
        clock: Clock = system_clock,
        ledger_bytes: int = LEDGER_BYTES,
        ledger_age_ms: int = LEDGER_AGE_MS,
        cache_bytes: int = PAYLOAD_CACHE_BYTES,
        fsync: bool = True,
        schedule: Schedule | None = None,
        shards: int = 1,
    ) -> None:
        self.number = number
        self.shards = shards
        self._storage = storage
        self.room = storage.room()
        self.clock = clock
        self.full: str | None = None
        self.failed: str | None = None
        self._can_reopen = False
        self._ledger_bytes = ledger_bytes
        self._ledger_age_ms = ledger_age_ms
        self._cache_bytes = cache_bytes
        self._fsync = fsync
        self._scheduled = False
        self._decided_ms = 0
        """When the last change of this turn was decided on; 0 if there was none."""
        self._pending: list[tuple[AnyRecord, Record, Buffer | None]] = []
        self._pending_bytes = 0
        self._answers: list[Answer] = []
        self._reads: list[Read] = []
        self._settled: list[Callable[[], None]] = []
        self._touched: dict[int, Session] = {}
        self._begun_ns = 0
        """When the first record of this turn was decided on, on the clock that only runs forward."""
        self.metrics = Metrics(clock())
        self.records_replayed = 0
        self.records_since_flush = 0
        self._schedule = schedule or asyncio.get_running_loop().call_soon
        self.errands: Errands | None = None
        """What it asks and tells the other shards, if there are any."""
        self.parking = Parking(lambda: self.core, self._need)
        self.kinship = Kinship(self)
        self._open()

    # Opening, and recovery.

    def _open(self) -> None:
        now_ms = self.clock()
        self.index = Index(self._storage.store())
        try:
            self.log = LocalLog(
                self._storage.folder(),
                applied=self.index.applied,
                ledger_bytes=self._ledger_bytes,
                ledger_age_ms=self._ledger_age_ms,
                fsync=self._fsync,
            )
        except BaseException:
            self.index.store.close()
            raise
        self._make_readers()
        try:
            self._make_core(now_ms)
            self._replay(now_ms)
            self.epoch = self.log.epoch + 1
            self.log.take_over(self.epoch, now_ms)
        except BaseException:
            self.log.close()
            self.index.store.close()
            raise

    def _make_readers(self) -> None:
        self.payloads = Payloads(self.log, self._cache_bytes, self.metrics)
        self._visible = Visible(self.index, self.payloads, self.metrics)
        self.reads = Reads(self._visible)
        self.subscriptions = Subscriptions(self._visible, self.clock)

    def _make_core(self, now_ms: int) -> None:
        index = self.index
        self.core = Core(
            index.facts,
            last_id=index.last_id,
            last_number=index.last_number,
            now_ms=now_ms,
            number=self.number,
            shards=self.shards,
        )
        self._visible.follow(self.core)

    def _replay(self, now_ms: int) -> None:
        """Take what the log has and the index has not."""
        entries: list[tuple[AnyRecord, int, int]] = []
        sessions: dict[int, Session] = {}
        replayed = 0
        for end, group in self.log.scan(self.index.applied):
            for position, data in group:
                record, _ = decode_record(data)
                self.core.replay(now_ms, record)
                if record.session in self.core.state.sessions:
                    sessions[record.session] = self.core.state.sessions[record.session]
                entries.append((record, position, len(data)))
            replayed += len(group)
            if len(entries) >= _REPLAY_RECORDS:
                self._apply(entries, end, sessions)
                entries = []
                sessions.clear()
        if entries:
            self._apply(entries, end, sessions)
        self.index.applier.shown.clear()
        self._visible.settle()
        self.core.state.lost.clear()
        self.records_replayed = self.records_since_flush = replayed

    def _apply(
        self,
        entries: list[tuple[AnyRecord, int, int]],
        end: int,
        sessions: dict[int, Session],
    ) -> None:
        state, index = self.core.state, self.index
        alive = [it for it in sessions.values() if it.id in state.sessions]
        index.apply(entries, end, state.last_id, state.last_number, alive)
        state.evict()

    def reopen(self) -> None:
        """Forget what is in memory and recover from the disk, as after a restart."""
        self.index.store.close()
        self.log.close()
        try:
            self._open()
        except Error as error:
            log.error("recovery failed: %s", error)  # it will be tried again
        else:
            self.failed = None

    def close(self) -> None:
        """Stop: flush the index and close the files."""
        self.commit()
        self.end_waits()
        try:
            if self.failed is None and self.can_flush():
                self.log.sync()
                self.index.store.flush()
        except (IndexFailed, LogFailed) as error:
            log.warning("the log will be replayed: %s", error)
        finally:
            self.index.store.close()
            self.log.close()

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
        if self.failed is not None:
            self.check_usable()
        if self.parking.sessions and self.parking.is_behind(request, message):
            return self._park(request, message, items, batches, brought, None)
        adds = batches or type(message) in _ADDING
        if self.full is not None and adds and self._is_new(message):
            raise wire_error(Unavailable(self.full))
        core = self.core
        try:
            now_ms = self._decided_ms = self.clock()
            records, reply = core.handle(now_ms, message, items, brought)
        except Error as error:
            if isinstance(error, WAITS):
                return self._park(request, message, items, batches, brought, error)
            if isinstance(error, Expired):
                self.tick()  # who is told so must not find it open after a restart
            return self._answer(request, error)
        if records:
            self._touched[message.session] = core.state.sessions[message.session]
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

    def open_session(self, request: Request) -> object:
        """Begin a session."""
        self.check_usable()
        try:
            record, reply = self.core.open_session(self.clock())
        except Error as error:
            return self._answer(request, error)
        self._add(record)
        return self._answer(request, reply)

    def keep_alive(self, request: Request, message: KeepAlive) -> object:
        """A client is still there."""
        self.check_usable()
        try:
            self.core.keep_alive(self.clock(), message)
        except Error as error:
            return self._answer(request, error)
        return self._answer(request, Done())

    def tick(self) -> None:
        """Time passes: leases and sessions run out."""
        if self.failed is None:
            for record in self.core.tick(self.clock()):
                self._add(record)
            if self.errands is not None:
                self.errands.look()

    # Between shards.

    def hear(
        self,
        request: Request | Caller,
        decide: Callable[[], tuple[tuple[AnyRecord, ...], AnyReply]],
    ) -> object:
        """Something that has no number, and is decided on when it can be: the answer, or `LATER`."""
        self.check_usable()
        try:
            records, reply = decide()
        except WAITS as waits:
            return self.parking.park_other(request, partial(self.hear, request, decide), waits)
        except Error as error:
            return self._answer(request, error)
        self.write_down(records)
        return self._answer(request, reply)

    def write_down(self, records: Sequence[AnyRecord]) -> None:
        """Records that the core has decided on without a client's request."""
        for record in records:
            self._add(record)
            session = self.core.state.sessions.get(record.session)
            if session is not None:
                self._touched[record.session] = session

    def _need(self, waits: Waits) -> None:
        if self.errands is not None:
            self.errands.need(waits)

    def move(self, record: AnyRecord, batch: Buffer) -> None:
        """A batch that is copied forward. It may use the reserve: it is done to make room."""
        self.core.apply(self.clock(), record)
        self._add(record, batch)
        self._pending_bytes -= len(batch)

    def _is_new(self, message: Change) -> bool:
        """Whether this request was not handled before: if it was, its answer is known."""
        session = self.core.state.sessions.get(message.session)
        return session is None or message.sequence > session.last

    def check_usable(self) -> None:
        """Refuse everything once the shard has stopped."""
        if self.failed is not None:
            raise wire_error(Unavailable(self.failed))

    def _add(self, record: AnyRecord, batch: Buffer | None = None) -> None:
        self._pending.append((record, encode_record(record, batch), batch))
        if batch is not None:
            self._pending_bytes += len(batch)
        if not self._scheduled:
            self._scheduled = True
            self._begun_ns = time.perf_counter_ns()
            self._schedule(self.commit)

    def _answer(self, request: Request | Caller | Held, answer: AnyReply | Error) -> object:
        """Let an answer out when what came before it is durable: at once, if all is."""
        if not self._pending:
            if isinstance(answer, Error):
                raise wire_error(answer)
            return encode(answer)
        self._answers.append((request, answer))
        if self._pending_bytes > GROUP_BYTES_MAX:
            self.commit()
        return LATER

    # Reading.

    def read(self, request: Request | Caller, answer: Callable[[Any], Any]) -> object:
        """Call `answer` once everything decided so far is durable. It returns the answer, or None if it
        has answered, or will. `InDoubt` and `CopyNeeded`: it is called again later."""
        self.check_usable()
        if self._pending:
            self._reads.append((request, answer))
        else:
            self._answer_read(request, answer)
        return LATER

    def _answer_read(self, request: Request | Caller, answer: Callable[[Any], Any]) -> None:
        try:
            try:
                result = answer(request)
            except WAITS as waits:
                self.parking.park_other(request, partial(self.read, request, answer), waits)
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

    def check_heads(self, stream: StreamState) -> None:
        """`InDoubt` if what could be read next of a stream is in doubt, in any partition."""
        if self.core.state.groups.prepared:
            self._visible.check_settled(stream.id, [Want(it, 0) for it in stream.local])

    def read_any(self, request: Request | Caller, answer: Callable[[Any], Any]) -> object:
        """The same for a reader that is content with what any node has confirmed."""
        return self.read(request, answer)

    def check_readable(self) -> None:
        """Refuse readers of that kind once the shard has stopped."""
        self.check_usable()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call this when everything decided so far is durable: now, if it is."""
        if self._pending:
            self._settled.append(callback)
        else:
            callback()

    def end_waits(self, error: Error | None = None) -> None:
        """Answer the readers that wait, and end subscriptions: the server stops, or we do."""
        self.parking.end_all(error or Unavailable("the server is stopping"))
        if self.errands is not None:
            self.errands.let_all_out()
        self.reads.end_waits(error)
        self.subscriptions.end_all(error)

    # The end of a turn.

    def commit(self) -> None:
        """Make what was decided in this turn durable, then tell everyone."""
        self._scheduled = False
        pending, self._pending = self._pending, []
        pending_bytes, self._pending_bytes = self._pending_bytes, 0
        answers, self._answers = self._answers, []
        reads, self._reads = self._reads, []
        touched, self._touched = self._touched, {}
        if pending:
            try:
                self._write(pending, pending_bytes, touched)
            except Exception as error:
                answers = self._refuse(answers, error)
        self._tell(answers, reads)

    def _refuse(self, answers: list[Answer], error: Exception) -> list[Answer]:
        """A turn did not become durable: tell those who asked. No answer is left."""
        refusal = wire_error(self._write_failed(error))
        for request, _ in answers:
            request.fail(refusal)
        return []

    def _tell(
        self,
        answers: list[Answer],
        reads: list[Read],
    ) -> None:
        """A turn is over: let its answers out, and tell those who wait."""
        for request, answer in answers:
            if isinstance(answer, Error):
                request.fail(wire_error(answer))
            else:
                request.answer(encode(answer))
        if self.failed is None and self.subscriptions.count <= _FEW_SUBSCRIPTIONS:
            self._wake()
        # Now, and not after the next requests have been read: their senders wait for these answers.
        for client in dict.fromkeys(request.client for request, _ in answers):
            client.flush()
        for request, read in reads:
            if self.failed is None:
                self._answer_read(request, read)
            else:
                request.fail(wire_error(Unavailable(self.failed)))
        if self.failed is None:
            self._wake()
            settled, self._settled = self._settled, []
            for callback in settled:
                callback()
            if self.errands is not None:
                self.errands.look()
                self.parking.look()

    def _wake(self) -> None:
        """Tell those who wait what has become visible."""
        state = self.core.state
        if state.lost:
            self.subscriptions.fence()
            state.lost.clear()
        if state.stirred:
            self.reads.wake(self.clock())
            self.subscriptions.wake()
            self._visible.settle()

    def _write(
        self,
        pending: list[tuple[AnyRecord, Record, Buffer | None]],
        pending_bytes: int,
        touched: dict[int, Session],
    ) -> None:
        self._check_room(pending_bytes)
        now_ms, self._decided_ms = self._decided_ms or self.clock(), 0
        positions = self.log.append(list(map(_ENCODED, pending)), now_ms)
        self._take(pending, positions, self.log.end, touched)

    def _check_room(self, pending_bytes: int) -> None:
        unflushed_bytes = self.records_since_flush * _INDEX_BYTES_PER_RECORD
        if pending_bytes and not self.room.fits(pending_bytes + unflushed_bytes):
            raise DiskFull(self.room.text())

    def _take(
        self,
        pending: list[tuple[AnyRecord, Record, Buffer | None]],
        positions: list[int],
        end: int,
        touched: dict[int, Session],
    ) -> None:
        """A group is durable, up to `end`: the index takes it."""
        if 0 < self.subscriptions.count <= _FEW_SUBSCRIPTIONS:
            self._push(pending)
        entries = []
        remember = self.payloads.remember
        for (record, encoded, batch), position in zip(pending, positions, strict=True):
            entries.append((record, position, sum(map(len, encoded))))
            if batch is not None:
                remember(position, batch)
        self._apply(entries, end, touched)
        self.records_since_flush += len(entries)
        shown = self.index.applier.shown
        commit_ns = time.perf_counter_ns() - self._begun_ns
        self.metrics.wrote(entries, shown, commit_ns, self.log.synced_ns)
        shown.clear()

    def _push(self, pending: list[tuple[AnyRecord, Record, Buffer | None]]) -> None:
        """Send what is durable now to subscribers, while the index does not have it yet. Only of a turn in
        which instant transactions were made and nothing else: those follow on what was visible before."""
        made = []
        for record, _, batch in pending:
            if type(record) is not InstantMade or batch is None:
                if type(record) is SessionsNoted:
                    continue
                return
            made.append((record, batch))
        try:
            if self.subscriptions.push(made):
                _yield_processor()
        except Exception:  # it is durable, and they will get it from the index
            log.exception("what is new could not be pushed")

    def _write_failed(self, error: Exception) -> Unavailable:
        """A turn did not become durable, or the index did not take it: the core goes back to what is."""
        if isinstance(error, DiskFull):
            self.note_full(error.message)
            last_id = self.core.state.last_id
            self._make_core(self.clock())
            self.core.state.last_id = max(last_id, self.core.state.last_id)
            return Unavailable(self.full or error.message)
        if isinstance(error, Error):
            return self.fail(error)
        # The log may hold what the index has missed. Going on would hide that for ever.
        log.critical("a mistake in the program", exc_info=error)
        text = f"a mistake in the program ({type(error).__name__}: {error})"
        return self.fail(Error(f"{text}. Nothing is lost: start the server again."))

    def fail(self, error: Error) -> Unavailable:
        """Stop: nothing is done any more, until a restart or, if only the index failed, until there is
        room for it again."""
        self._can_reopen = isinstance(error, IndexFailed)
        self.failed = f"shard {self.number} has stopped: {error.message}"
        log.critical(self.failed, extra={"tstreams": {"shard": self.number}})
        self.end_waits(Unavailable(self.failed))
        if self.errands is not None:
            self.errands.reset()
        self._settled.clear()  # of subscriptions, which have ended
        return Unavailable(self.failed)

    def can_flush(self) -> bool:
        """Whether there is room for what the index holds in memory."""
        unflushed_bytes = self.records_since_flush * _INDEX_BYTES_PER_RECORD
        return self.room.has(unflushed_bytes + _FLUSH_BYTES_MIN)

    def note_full(self, text: str) -> None:
        """There is no room: refuse what adds to it."""
        if self.full is None:
            log.error(text, extra={"tstreams": {"shard": self.number}})
        self.full = f"{text}. Make room; writing goes on by itself then."

    def look_at_disk(self) -> None:
        """See whether there is room: writing stops before the last of it is used, and goes on after."""
        if self.failed is not None:
            if self._can_reopen and self.room.is_ample():
                log.info("trying to recover", extra={"tstreams": {"shard": self.number}})
                self.reopen()
            return
        if self.full is None and not self.room.fits(0):
            self.note_full(self.room.text())
        elif self.full is not None and self.room.is_ample():
            self.full = None
            log.info("there is room again", extra={"tstreams": {"shard": self.number}})
