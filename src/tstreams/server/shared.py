"""A shard whose log an engine keeps for several nodes: it follows, or it leads.

Whoever leads decides, and the log answers later. Until then nothing is decided: what comes meanwhile waits, and is the next
turn. So the core is never ahead of the log by more than the group that is under way, and what holds for a local log
holds here. Whoever follows applies the groups of the leader, to the same index to the byte.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from moebius import LATER, Request
from moebius.errors import Error as WireError

from ..core.facts import Session
from ..core.records import (
    AnyRecord,
    LedgersDropped,
    SessionsNoted,
    Swept,
    decode_record,
    encode_record,
)
from ..errors import Error, NotLeader, Unavailable
from ..index import Index
from ..items import Buffer
from ..ledger.format import (
    GROUP_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    SECTOR_BYTES,
    sectors_up,
)
from ..ledger.port import (
    DiskFull,
    Group,
    LogFailed,
    LogFenced,
    Record,
    position_of,
    split_position,
)
from ..ledger.replicated import ReplicatedLog
from ..limits import TURN_WAITING_BYTES_MAX, TURN_WAITING_MAX
from ..protocol import AnyReply, Change, Done, KeepAlive
from .kin import Caller
from .shard import _ENCODED, _REPLAY_RECORDS, Answer, Read, Shard
from .wire import wire_error

log = logging.getLogger("tstreams.server")

Pending = list[tuple[AnyRecord, Record, Buffer | None]]


@dataclass(slots=True)
class Turn:
    """What was decided, and who asked: under way to the log."""

    pending: Pending
    answers: list[Answer]
    reads: list[Read]
    touched: dict[int, Session]
    begun_ns: int
    landing: asyncio.Future[list[int]] | None = None


class Written:
    """Stands where a request stands, for a record that nobody asked for: what it waits for comes when that is confirmed."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.client = self

    def answer(self, result: object) -> None:
        """It is confirmed."""
        if not self.future.done():
            self.future.set_result(None)

    def fail(self, error: Exception) -> None:
        """It is not, as far as is known."""
        if not self.future.done():
            self.future.set_exception(error)

    def flush(self) -> None:
        """Nobody is far away."""


class SharedShard(Shard):
    """One shard on one node. It is opened, told to lead and told to follow from outside: see `Replica`.

    States: following -> `begin_leading` -> leading -> `follow`, or fenced by the log -> following; `failed`, from any:
    it must be opened anew. Who asks a node that is about to lead waits until it does. Invariants: `_turn` is None while following; while it is not None nothing is decided, and
    `_pending` is empty; `_waiting` is in the order of arrival.
    """

    log: ReplicatedLog  # type: ignore[assignment]  # what only local files have is not used here

    def _open(self) -> None:
        """Opening has to wait for the engine: `recover` does it."""
        self.leading = False
        self.epoch = 0
        self.failed = f"shard {self.number} is being opened"
        self.leader: Callable[[], NotLeader] = lambda: NotLeader(self.number, self.epoch)
        """Says who leads, for those who ask the wrong node."""
        self.changed: Callable[[], None] = lambda: None
        """Is called when it has failed, or was fenced."""
        self.dropped: Callable[[], None] = lambda: None
        """Is called when the leader has deleted ledgers."""
        self.alive: Callable[[], bool] = lambda: True
        """Whether this node may still believe that it leads. Nothing depends on that but how fresh its answers are."""
        self.expecting = False
        """Whether this node is about to lead: see `expect`."""
        self._turn: Turn | None = None
        self._waiting: deque[tuple[Request | Caller | None, Callable[[], object], int]] = deque()
        self._waiting_bytes = 0

    # Opening.

    def recover(self, index: Index, log_: ReplicatedLog) -> None:
        """Take an index and a log that were opened, and apply what the index has not. Follows from then on."""
        self.index, self.log = index, log_
        self._make_readers()
        now_ms = self.clock()
        self._make_core(now_ms)
        replayed = self._replay_groups(log_.scan(index.applied), now_ms)
        self._settle_followed()
        self.records_replayed = self.records_since_flush = replayed
        self.epoch = log_.epoch
        self.failed = None

    def _replay_groups(self, groups: Iterable[Group], now_ms: int) -> int:
        """Apply groups, many at a time. How many records it were."""
        entries: list[tuple[AnyRecord, int, int]] = []
        sessions: dict[int, Session] = {}
        count, until = 0, 0
        for end, group in groups:
            decoded = [(decode_record(data)[0], at, len(data)) for at, data in group]
            alone = type(decoded[0][0]) is Swept  # it reads the database
            if entries and (alone or len(entries) >= _REPLAY_RECORDS):
                self._apply(entries, until, sessions)
                entries, sessions = [], {}
            for record, _, _ in decoded:
                self.core.replay(now_ms, record)
                if type(record) is SessionsNoted:
                    for number, _, _ in record.sessions:
                        sessions[number] = self.core.state.sessions[number]
                elif type(record) is LedgersDropped:
                    self.dropped()
            count += len(decoded)
            until = end
            entries += decoded
            if alone:
                self._apply(entries, until, sessions)
                entries, sessions = [], {}
        if entries:
            self._apply(entries, until, sessions)
        return count

    def _settle_followed(self) -> None:
        self.index.applier.shown.clear()
        self._visible.settle()
        self.core.state.lost.clear()

    # Following.

    def told(self, group: Group) -> None:
        """A group that another has written, and that is confirmed."""
        if self.leading or self._turn is not None or self._pending:
            self.fenced("another node leads")  # the core must not be ahead of the index here
        self._check_follows(group)
        self.records_since_flush += self._replay_groups([group], self.clock())
        self.index.applier.shown.clear()
        self._wake()

    def _check_follows(self, group: Group) -> None:
        """Refuse a group if one before it is missing here."""
        ledger_id, offset = split_position(group[1][0][0] - GROUP_OVERHEAD_BYTES)
        applied_id, applied_offset = split_position(self.index.applied)
        if ledger_id == applied_id:
            follows = offset == applied_offset
        else:  # all ledgers from there up to this one end where the index says, or are empty
            ledgers = self.log.ledgers(applied_id - 1 if applied_id else 0)
            ends = {it.id: it.size_bytes for it in ledgers if it.id < ledger_id}
            first = ends.pop(applied_id, SECTOR_BYTES)
            follows = offset == SECTOR_BYTES and first in (SECTOR_BYTES, applied_offset)
            follows = follows and all(size == SECTOR_BYTES for size in ends.values())
        if not follows:
            raise LogFailed(
                f"a group at offset {offset} of ledger {ledger_id:x} does not follow on what was applied: "
                f"offset {applied_offset} of ledger {applied_id:x}"
            )

    def begin_leading(self, epoch: int) -> None:
        """The log is ours. Leases and sessions begin anew, as after a restart: nobody could keep them meanwhile."""
        assert self._turn is None, "what was decided before is confirmed, or given up"
        self._make_core(self.clock())
        self.epoch = epoch
        self.leading = True
        self._let_in()

    def expect(self, expecting: bool) -> None:
        """Whether this node is about to lead: then who asks waits for that, and is not sent elsewhere."""
        self.expecting = expecting
        self._let_in()

    @property
    def _holds_back(self) -> bool:
        return self._turn is not None or (self.expecting and not self.leading)

    def retire(self) -> asyncio.Future[list[int]] | None:
        """Take nothing more. What is under way, if anything is, has been answered when this is done; `follow` then."""
        self.commit()
        self.leading = False
        self._let_in()
        return None if self._turn is None else self._turn.landing

    def follow(self) -> None:
        """Lead no longer. What is under way ends with "not known"; who waits is told who leads now."""
        self.leading = False
        self._end_turn(
            Unavailable(
                f"shard {self.number} is led by another node now: whether this took effect is not known here"
            )
        )
        self._let_in()
        self.end_waits(self.leader())
        self._settled.clear()
        self._make_readers()
        self._make_core(self.clock())

    def fenced(self, text: str) -> None:
        """The log is another's."""
        log.warning("shard %d leads no more: %s", self.number, text)
        self.follow()
        self.changed()

    def _end_turn(self, refusal: Error) -> None:
        """Nothing is known of what is under way, and what was decided and not sent is forgotten."""
        turns = [] if self._turn is None else [self._turn]
        self._turn = None
        if self._pending:
            turns.append(self._gather())
        for turn in turns:
            for request, _ in turn.answers:
                request.fail(wire_error(refusal))
            for request, _ in turn.reads:
                request.fail(wire_error(self.leader()))

    # What comes in.

    def check_usable(self) -> None:
        """Refuse everything that only a leader does."""
        if not self.leading or not self.alive():
            raise wire_error(self.leader())
        super().check_usable()

    def check_readable(self) -> None:
        """Refuse readers, also those that are content with what this node has confirmed, if it has nothing."""
        Shard.check_usable(self)

    def change(
        self,
        request: Request,
        message: Change,
        items: int = 0,
        batches: Sequence[Buffer] = (),
        brought: Sequence[int] = (),
    ) -> object:
        """See `Shard.change`."""
        call = partial(super().change, request, message, items, batches, brought)
        return self._in_turn(request, call, sum(map(len, batches)))

    def open_session(self, request: Request) -> object:
        """See `Shard.open_session`."""
        return self._in_turn(request, partial(super().open_session, request))

    def keep_alive(self, request: Request, message: KeepAlive) -> object:
        """See `Shard.keep_alive`."""
        return self._in_turn(request, partial(super().keep_alive, request, message))

    def read(self, request: Request | Caller, answer: Callable[[Any], Any]) -> object:
        """See `Shard.read`."""
        return self._in_turn(request, partial(super().read, request, answer))

    def read_any(self, request: Request | Caller, answer: Callable[[Any], Any]) -> object:
        """The same for a reader that is content with what this node has confirmed: at once, if it follows."""
        if self.leading:
            return self.read(request, answer)
        self.check_readable()
        self._answer_read(request, answer)
        return LATER

    def hear(
        self,
        request: Request | Caller,
        decide: Callable[[], tuple[tuple[AnyRecord, ...], AnyReply]],
    ) -> object:
        """See `Shard.hear`."""
        return self._in_turn(request, partial(super().hear, request, decide))

    def tick(self) -> None:
        """See `Shard.tick`: in the next turn, if a group is under way."""
        if not self.leading:
            return
        if self._turn is None:
            super().tick()
        else:
            self._waiting.append((None, self.tick, 0))

    def write(
        self, record: AnyRecord, batch: Buffer | None = None, *, alone: bool = False
    ) -> asyncio.Future[None]:
        """Write a record that nobody asked for, in the next turn; `alone` in its group, if that is said. It is done when
        that is confirmed; raises what the request of a client would get."""
        written = Written()

        def add() -> None:
            if not self.leading:
                written.fail(wire_error(self.leader()))
                return
            if alone and self._pending:
                self.commit()
                self._waiting.appendleft((None, add, 0))
                return
            self.core.apply(self.clock(), record)
            self._add(record, batch)
            self._answers.append((written, Done()))  # type: ignore[arg-type]
            if alone:
                self.commit()

        if self._turn is None:
            add()
        else:
            self._waiting.append((None, add, 0))
        return written.future

    def when_settled(self, callback: Callable[[], None]) -> None:
        """See `Shard.when_settled`."""
        if self._pending or self._turn is not None:
            self._settled.append(callback)
        else:
            callback()

    @property
    def is_settled(self) -> bool:
        """Whether all that was decided is confirmed, and nobody waits for a turn."""
        return self._turn is None and not self._pending and not self._waiting

    def _in_turn(
        self, request: Request | Caller, call: Callable[[], object], size_bytes: int = 0
    ) -> object:
        """Do this now, or in the next turn, if a group is under way or others wait already."""
        if not self._waiting and not self._holds_back:
            self.check_usable()
            return call()
        if (
            len(self._waiting) >= TURN_WAITING_MAX
            or self._waiting_bytes + size_bytes > TURN_WAITING_BYTES_MAX
        ):
            raise wire_error(
                Unavailable(
                    f"shard {self.number}: {len(self._waiting)} requests wait for the log already"
                )
            )
        self._waiting.append((request, call, size_bytes))
        self._waiting_bytes += size_bytes
        return LATER

    def _let_in(self) -> None:
        """The next turn: what has waited, until so much is decided that it goes to the log."""
        while self._waiting and not self._holds_back:
            request, call, size_bytes = self._waiting.popleft()
            self._waiting_bytes -= size_bytes
            if request is None:
                call()
                continue
            try:
                self.check_usable()
                result = call()
            except WireError as error:
                request.fail(error)
            else:
                if result is not LATER:
                    request.answer(result)
                    request.client.flush()

    # The turn.

    def _gather(self) -> Turn:
        turn = Turn(self._pending, self._answers, self._reads, self._touched, self._begun_ns)
        self._pending, self._answers, self._reads, self._touched = [], [], [], {}
        self._pending_bytes = 0
        return turn

    def commit(self) -> None:
        """Send what was decided in this turn to the log. When it is confirmed everyone is told."""
        self._scheduled = False
        if self._turn is not None or not self._pending:
            return
        pending_bytes = self._pending_bytes
        turn = self._gather()
        try:
            self._check_room(pending_bytes)
            self._note_sessions(turn)
            now_ms, self._decided_ms = self._decided_ms or self.clock(), 0
            landing = self.log.append(list(map(_ENCODED, turn.pending)), now_ms)
        except Exception as error:
            self._tell(self._refuse(turn.answers, error), turn.reads)
            return
        self._turn = turn
        turn.landing = landing
        landing.add_done_callback(partial(self._landed, turn))

    def _tell(
        self,
        answers: list[Answer],
        reads: list[Read],
    ) -> None:
        """See `Shard._tell`. Who wanted to read from the leader is sent there."""
        if not self.leading and self.failed is None:
            for request, _ in reads:
                request.fail(wire_error(self.leader()))
            reads = []
        super()._tell(answers, reads)

    def _note_sessions(self, turn: Turn) -> None:
        alive = [it for it in turn.touched.values() if it.id in self.core.state.sessions]
        if alive:
            noted = SessionsNoted(0, 0, [(it.id, it.last, it.acked) for it in alive])
            turn.pending.append((noted, encode_record(noted, None), None))

    def _landed(self, turn: Turn, landing: asyncio.Future[list[int]]) -> None:
        """The log has answered."""
        error: BaseException | None
        error = asyncio.CancelledError() if landing.cancelled() else landing.exception()
        if self._turn is not turn:
            return  # it has ended: somebody else leads
        self._turn = None
        answers = turn.answers
        try:
            if error is not None:
                raise error
            self._begun_ns = turn.begun_ns
            self._take(turn.pending, landing.result(), _end_of(turn, landing), turn.touched)
        except asyncio.CancelledError:
            closed = Unavailable("the log was closed: whether this took effect is not known")
            answers = self._refuse(answers, self.fail(closed))
        except Exception as failure:
            answers = self._refuse(answers, failure)
        self._tell(answers, turn.reads)
        self._let_in()

    def _write_failed(self, error: Exception) -> Unavailable:
        """See `Shard._write_failed`. Fenced: whether it took effect is for the next leader to say."""
        if isinstance(error, LogFenced):
            self.fenced(error.message)
            return Unavailable(f"{error.message}. Whether this took effect is not known here.")
        if isinstance(error, DiskFull):
            self.note_full(error.message)
            self._make_core(self.clock())
            return Unavailable(self.full or error.message)
        return super()._write_failed(error)

    def fail(self, error: Error) -> Unavailable:
        """Stop, until it is opened anew."""
        if self.failed is not None:
            return Unavailable(self.failed)
        refusal = super().fail(error)
        self.leading = False
        self._end_turn(refusal)
        self._let_in()
        self.changed()
        return refusal

    def shut(self) -> None:
        """Stop, because it is closed or opened anew. The index and the log are closed by whoever opened them."""
        if self.failed is None:
            self.failed = f"shard {self.number} is being opened, or closed"
            self.leading = False
            refusal = Unavailable(f"{self.failed}: whether this took effect is not known")
            self._end_turn(refusal)
            self._let_in()
            self.end_waits(Unavailable(self.failed))
            self._settled.clear()

    def look_at_disk(self) -> None:
        """See `Shard.look_at_disk`. What has failed is opened anew by `Replica`."""
        if self.failed is None:
            super().look_at_disk()

    def reopen(self) -> None:
        """Not from here."""
        raise NotImplementedError

    def close(self) -> None:
        """Not from here."""
        raise NotImplementedError


def _end_of(turn: Turn, landing: asyncio.Future[list[int]]) -> int:
    """Where a group ends. Not where the log does: a new ledger may have been begun meanwhile."""
    ledger_id, offset = split_position(landing.result()[-1])
    size = sum(map(len, turn.pending[-1][1]))
    return position_of(ledger_id, sectors_up(offset + RECORD_OVERHEAD_BYTES + size))
