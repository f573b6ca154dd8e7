"""A shard whose log an engine keeps for several nodes: it follows, or it leads.

Whoever leads decides, and the log answers later. Until then nothing is decided: what comes meanwhile waits, and is the next
turn. So the core is never ahead of the log by more than the group that is under way, and what holds for a local log
holds here. Whoever follows applies the groups of the leader, to the same index to the byte.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from moebius import Request

from ..core.records import AnyRecord, SessionsNoted, encode_record
from ..errors import Error, NotLeader, Unavailable
from ..index import Index
from ..items import Buffer
from ..ledger.format import RECORD_OVERHEAD_BYTES, sectors_up
from ..ledger.port import Group, LogFenced, position_of, split_position
from ..ledger.replicated import ReplicatedLog
from ..limits import PAYLOAD_CACHE_BYTES
from ..protocol import Change
from .following import check_follows, replay
from .kin import Caller
from .line import Line
from .local import ENCODED
from .patience import Patience
from .shard import Clock, Shard, system_clock
from .storage import Storage
from .turn import Turn, Written
from .wire import wire_error

log = logging.getLogger("tstreams.server")

Landing = asyncio.Future[list[int]]
"""Where the records of a group lie, when the log has confirmed it."""


class SharedShard:
    """One shard on one node. It is opened, told to lead and told to follow from outside: see `Replica`.

    States: following -> `begin_leading` -> leading -> `follow`, or fenced by the log -> following; `failed`, from any:
    it must be opened anew. Who asks a node that is about to lead waits until it does. Invariants: `_turn` is None while following;
    while it is not None nothing is decided; whoever waits is let in in the order of arrival, after those who wait for
    other shards and can go on now.
    """

    log: ReplicatedLog

    def __init__(
        self,
        number: int,
        storage: Storage,
        *,
        clock: Clock = system_clock,
        cache_bytes: int = PAYLOAD_CACHE_BYTES,
        shards: int = 1,
    ) -> None:
        self.number = number
        self._patience = Patience()
        self.shard = Shard(
            number,
            self,
            storage.room(),
            clock=clock,
            cache_bytes=cache_bytes,
            schedule=self._patience.schedule,
            shards=shards,
            barrier=self,
        )
        self._patience.turns = self.shard.turns
        self.shard.parking.is_open = lambda: not self._holds_back
        self._contents = self.shard.contents
        self._turns = self.shard.turns
        self._condition = self.shard.condition
        self._condition.failed = f"shard {number} is being opened"
        self.leading = False
        self.leader: Callable[[], NotLeader] = lambda: NotLeader(number, self.shard.epoch)
        """Says who leads, for those who ask the wrong node."""
        self.changed: Callable[[], None] = lambda: None
        """Is called when it has failed, or was fenced."""
        self.dropped: Callable[[], None] = lambda: None
        """Is called when the leader has deleted ledgers."""
        self.alive: Callable[[], bool] = lambda: True
        """Whether this node may still believe that it leads. Nothing depends on that but how fresh its answers are."""
        self.expecting = False
        """Whether this node is about to lead: see `expect`."""
        self.records_replayed = 0
        self._is_open = False
        self._turn: tuple[Turn, Landing] | None = None
        """What is under way to the log."""
        self._line = Line(number)
        self._decided = asyncio.Event()
        """Set while it is clear whether this node leads."""
        self._entering = False
        """Whether somebody who has waited is being let in."""

    # Opening.

    def recover(self, index: Index, log_: ReplicatedLog) -> None:
        """Take an index and a log that were opened, and apply what the index has not. Follows from then on."""
        self.log = log_
        self._contents.adopt(index, log_)
        now_ms = self.shard.clock()
        replayed = replay(self._contents, log_.scan(index.applied), now_ms, self.dropped)
        self._contents.settle_replayed()
        self.records_replayed = self._contents.records_since_flush = replayed
        self.shard.epoch = log_.epoch
        self._condition.failed = None
        self._is_open = True

    # Following.

    def told(self, group: Group) -> None:
        """A group that another has written, and that is confirmed."""
        if self.leading or self._turn is not None or not self._turns.are_settled:
            self.fenced("another node leads")  # the core must not be ahead of the index here
        check_follows(self._contents, group)
        count = replay(self._contents, [group], self.shard.clock(), self.dropped)
        self._contents.records_since_flush += count
        self._contents.index.applier.shown.clear()
        self._contents.wake()
        self.shard.parking.look()  # those who are content with what this node has

    def begin_leading(self, epoch: int) -> None:
        """The log is ours. Leases and sessions begin anew, as after a restart: nobody could keep them meanwhile. What is
        prepared, decided and untold is in the index, and errands go on with it."""
        assert self._turn is None, "what was decided before is confirmed, or given up"
        self._contents.make_core()
        self.shard.epoch = epoch
        self.leading = True
        if self.shard.errands is not None:
            self.shard.errands.start()
        self._let_in()

    def expect(self, expecting: bool) -> None:
        """Whether this node is about to lead, or to know who does: then who asks waits for that, and is not sent
        elsewhere."""
        self.expecting = expecting
        self._let_in()

    async def admit(self) -> None:
        """See `Barrier.admit`."""
        while self.expecting and not self.leading:
            await self._decided.wait()
        self.check()

    def retire(self) -> Landing | None:
        """Take nothing more. What is under way, if anything is, has been answered when this is done; `follow` then."""
        self._turns.commit()
        self.leading = False
        self._end_errands()
        self._let_in()
        return None if self._turn is None else self._turn[1]

    def follow(self) -> None:
        """Lead no longer. What is under way ends with "not known"; who waits is told who leads now."""
        self.leading = False
        self._end_errands()
        self._end_turn(self.elsewhere("whether this took effect is not known here"))
        self._let_in()
        self.shard.end_waits(self.leader())
        self._turns.forget_settled()
        self._contents.make_readers()
        self._contents.make_core()

    def fenced(self, text: str) -> None:
        """The log is another's."""
        log.warning("shard %d leads no more: %s", self.number, text)
        self.follow()
        self.changed()

    def _end_errands(self) -> None:
        if self.shard.errands is not None:
            self.shard.errands.rest()

    def _end_turn(self, refusal: Error) -> None:
        """Nothing is known of what is under way, and what was decided and not sent is forgotten."""
        turns = [self._turns.gather()]
        if self._turn is not None:
            turns.insert(0, self._turn[0])
            self._turn = None
            self._turns.writing = False
        for turn in turns:
            for request, _ in turn.answers:
                request.fail(wire_error(refusal))
            for request, _ in turn.reads:
                request.fail(wire_error(self.leader()))

    # What comes in.

    def check(self) -> None:
        """Refuse everything that only a leader does."""
        if not self.leading or not self.alive():
            raise wire_error(self.leader())
        self._condition.check()

    def check_order(self, message: Change) -> None:
        """Refuse a change if its client waits for the answer to one before it that did not come here. That may be
        under way to another node, or be refused there; it could not be done any more after this one."""
        session, sequence = self.shard.core.state.sessions.get(message.session), message.sequence
        if (
            session is not None
            and sequence > session.last + 1
            and sequence > message.acked + 1
            and sequence > session.acked + 1
            and message.session not in self.shard.parking.sessions
        ):
            raise wire_error(self.elsewhere(f"request {sequence} came before those ahead of it"))

    def elsewhere(self, reason: str) -> NotLeader:
        """See `Barrier.elsewhere`."""
        leader = self.leader()
        return NotLeader(leader.shard, leader.epoch, leader.addresses, reason)

    @property
    def _holds_back(self) -> bool:
        return self._turn is not None or (self.expecting and not self.leading)

    def holds(self, request: Request | Caller, again: Callable[[], object], size: int = 0) -> bool:
        """Whether a request has to wait: a group is under way, or others wait already."""
        if self._entering or not (self._line or self._holds_back):
            self.check()
            return False
        self._line.add(request, again, size)
        return True

    def _let_in(self) -> None:
        """The next turn: what has waited, until so much is decided that it goes to the log."""
        if self.leading or not self.expecting:
            self._decided.set()
        else:
            self._decided.clear()
        if self._entering:
            return
        self._entering = True
        try:
            if self.leading and not self._holds_back:
                self.shard.parking.look()
            self._line.let_in(lambda: not self._holds_back)
        finally:
            self._entering = False

    def tick(self) -> None:
        """See `Shard.tick`: in the next turn, if a group is under way."""
        if not self.leading:
            return
        if self._turn is None:
            self.shard.tick()
        else:
            self._line.add_call(self.tick)

    def write_record(
        self, record: AnyRecord, batch: Buffer | None = None, *, alone: bool = False
    ) -> asyncio.Future[None]:
        """Write a record that nobody asked for, in the next turn; `alone` in its group, if that is said. It is done when
        that is confirmed; raises what the request of a client would get."""
        written = Written()

        def add() -> None:
            if not self.leading:
                written.fail(wire_error(self.leader()))
            elif alone and not self._turns.are_settled:
                self._turns.commit()
                self._line.add_call(add, first=True)
            else:
                self.shard.core.apply(self.shard.clock(), record)
                self._turns.add(record, batch, written)
                if alone:
                    self._turns.commit()

        if self._turn is None:
            add()
        else:
            self._line.add_call(add)
        return written.future

    @property
    def is_settled(self) -> bool:
        """Whether all that was decided is confirmed, and nobody waits for a turn."""
        return self._turns.are_settled and not self._line

    # The turn.

    def write(self, turn: Turn) -> None:
        """See `Keeper.write`: it is sent to the log. When it is confirmed everyone is told."""
        try:
            self._condition.check_room(turn.pending_bytes)
            self._note_sessions(turn)
            now_ms = turn.decided_ms or self.shard.clock()
            landing = self.log.append(list(map(ENCODED, turn.pending)), now_ms)
        except Exception as error:
            self._refuse(turn, error)
            return
        self._turn = (turn, landing)
        self._turns.writing = True
        landing.add_done_callback(partial(self._landed, turn))

    def _note_sessions(self, turn: Turn) -> None:
        sessions = self._contents.core.state.sessions
        alive = [it for it in turn.touched.values() if it.id in sessions]
        if alive:
            noted = SessionsNoted(0, 0, [(it.id, it.last, it.acked) for it in alive])
            turn.pending.append((noted, encode_record(noted, None), None))

    def _landed(self, turn: Turn, landing: Landing) -> None:
        """The log has answered."""
        error = asyncio.CancelledError() if landing.cancelled() else landing.exception()
        if self._turn is None or self._turn[0] is not turn:
            return  # it has ended: somebody else leads
        self._turn = None
        self._turns.writing = False
        try:
            if error is not None:
                raise error
            positions = landing.result()
            end = _end_of(turn, positions)
            self._contents.take(
                turn.pending, positions, end, turn.touched, turn.begun_ns, self.log.synced_ns
            )
        except asyncio.CancelledError:
            self._refuse(turn, Unavailable("the log was closed"))
        except Exception as failure:
            self._refuse(turn, failure)
        else:
            self._patience.confirmed(len(turn.answers) + len(self._line), self.log.synced_ns / 1e9)
            self._finish(turn)
        self._let_in()

    def _refuse(self, turn: Turn, error: Exception) -> None:
        """A turn was not confirmed. Fenced: whether it took effect is for the next leader to say."""
        answers, turn.answers = turn.answers, []
        if isinstance(error, LogFenced):
            self.fenced(error.message)
            unknown = wire_error(self.elsewhere("whether this took effect is not known here"))
            for request, _ in answers:
                request.fail(unknown)
        else:
            self.shard.refuse(answers, error)
        self._finish(turn)

    def _finish(self, turn: Turn) -> None:
        """Who wanted to read from the leader is sent there, if that is another now."""
        reads = turn.reads
        if not self.leading and self._condition.failed is None:
            for request, _ in reads:
                request.fail(wire_error(self.leader()))
            reads = []
        self.shard.finish(turn.answers, reads)

    def take_back(self) -> None:
        """See `Keeper.take_back`. No id is kept: what others do not know must not be in the index."""
        self._contents.make_core()

    # The end.

    def stopped(self, error: Error) -> None:
        """See `Keeper.stopped`. It has to be opened anew."""
        if self._close(self.elsewhere(self._condition.failed or error.message)):
            self.changed()

    def shut(self) -> None:
        """Stop, because it is closed or opened anew. The index and the log are closed by whoever opened them."""
        if self._condition.failed is None:
            failed = self._condition.failed = f"shard {self.number} is being opened, or closed"
            self._close(self.elsewhere(f"{failed}: whether this took effect is not known"))
            self.shard.end_waits()
            self._turns.forget_settled()

    def _close(self, refusal: Error) -> bool:
        """Take nothing more; whether it did until now."""
        was_open, self._is_open = self._is_open, False
        if was_open:
            self.leading = False
            self._end_errands()
            self._end_turn(refusal)
            self._let_in()
        return was_open

    def look_at_disk(self) -> None:
        """See whether there is room. What has failed is opened anew by `Replica`."""
        if self._condition.failed is None:
            self._condition.look_at_room()


def _end_of(turn: Turn, positions: list[int]) -> int:
    """Where a group ends. Not where the log does: a new ledger may have been begun meanwhile."""
    ledger_id, offset = split_position(positions[-1])
    size = sum(map(len, turn.pending[-1][1]))
    return position_of(ledger_id, sectors_up(offset + RECORD_OVERHEAD_BYTES + size))
