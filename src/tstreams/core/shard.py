"""The state machine of a shard: requests in, records and replies out.

`handle` checks a request against the state, decides on a record, applies it, and gives the reply; the
caller makes the record durable before it lets the reply out. `apply` alone replays a record after a
restart. Both lead to the same state, because `handle` changes it through `apply` only.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Error, Expired, InvalidState, TooLarge
from ..limits import SESSION_REPLIES_MAX, SESSION_TTL_MS, SESSIONS_MAX
from ..protocol import (
    AskDecision,
    Change,
    Decision,
    Done,
    KeepAlive,
    Reply,
    SessionOpened,
    Settle,
    StreamInfo,
    TellStream,
)
from .copying import Copying
from .facts import Facts, Session
from .overruling import Overruling
from .preparing import Preparing
from .records import AnyRecord, CopiesForgotten, Ended, SessionBegun, SessionsEnded, Told
from .rules import Rules
from .staging import Staging
from .state import State
from .transitions import Transitions
from .waits import CopyNeeded, InDoubt

_SESSIONS_EVERY_MS = 10_000
"""How often silent sessions are looked for: they may live a little longer, and there may be many."""


class Shard:
    """A shard's state, and all that can happen to it."""

    def __init__(
        self,
        facts: Facts,
        *,
        last_id: int,
        last_number: int,
        now_ms: int,
        number: int = 0,
        shards: int = 1,
    ) -> None:
        """`number` is which of so many `shards` it is."""
        self.state = State(facts, last_id, last_number, now_ms, number, shards)
        self._rules = Rules(self.state)
        self._preparing = Preparing(self.state, self._rules)
        self._copying = Copying(self.state)
        Staging(self.state, self._rules, self._preparing)
        Overruling(self.state, self._rules)
        self._transitions = Transitions(self.state)
        self._decide = self._rules.by_type
        self._bringing = self._rules.bringing
        self._apply = self._transitions.by_type
        self._sessions_due_ms = 0
        self._ticked_at_ms = now_ms

    def handle(
        self, now_ms: int, request: Change, items: int = 0, brought: Sequence[int] = ()
    ) -> tuple[tuple[AnyRecord, ...], Reply]:
        """A request that changes something; `items` is the number of items that came with it, and
        `brought` those of each batch that came with a commit.

        The records to be made durable, as one group (none: this request took effect before), and the
        reply to be sent then. Batches belong to the first of the records, in their order. Raises the
        typed error that the client gets; nothing has changed then. `InDoubt` and `CopyNeeded`: it cannot be
        decided on yet. It has not even been counted, and can be handed in again before later ones.
        """
        session = self.state.sessions.get(request.session)
        if session is None or request.acked != session.acked + 1:
            session = self._session(now_ms, request.session, request.acked)
        else:  # `_session`, without the calls: most clients acknowledge one answer with each request
            session.expires_at_ms = now_ms + SESSION_TTL_MS
            session.acked += 1
            session.replies.pop(session.acked, None)
        sequence = request.sequence
        if sequence <= session.last:
            return (), _repeated(session, sequence)
        if len(session.replies) >= SESSION_REPLIES_MAX:
            raise TooLarge(
                f"{SESSION_REPLIES_MAX} answers are not acknowledged: say with each request which "
                "of them have come"
            )
        try:
            if brought:
                records = self._bringing[type(request)](now_ms, request, brought)
            else:
                decided = self._decide[type(request)](now_ms, request, items)
                records = decided if isinstance(decided, tuple) else (decided,)
        except (InDoubt, CopyNeeded):
            raise
        except Error as error:
            session.last = sequence
            session.replies[sequence] = error
            raise
        session.last = sequence
        for record in records:
            self._apply[type(record)](now_ms, record)
        reply = session.replies[sequence] = self._rules.reply_to(records[-1])
        return records, reply

    def refuse(self, now_ms: int, request: Change, error: Error) -> None:
        """A request that could not be decided on is refused: what it waited for will not come."""
        session = self._session(now_ms, request.session, request.acked)
        if request.sequence > session.last:
            session.last = request.sequence
            session.replies[request.sequence] = error

    # Between shards.

    def settle(self, now_ms: int, request: Settle) -> tuple[tuple[AnyRecord, ...], Reply]:
        """The decision on a group that was prepared here. Said again, it is `Done` without a record."""
        return self._applied(now_ms, self._preparing.settle(now_ms, request)), Done()

    def decide(self, now_ms: int, request: AskDecision) -> tuple[tuple[AnyRecord, ...], Decision]:
        """Whether a group has happened that is decided on here: now it is decided."""
        records, committed = self._preparing.decide(request)
        return self._applied(now_ms, records), Decision(committed)

    def tell(self, now_ms: int, request: TellStream) -> tuple[tuple[AnyRecord, ...], Reply]:
        """What the home of a stream says. `InDoubt`: it is to be told again when the groups are settled."""
        return self._applied(now_ms, self._copying.tell(now_ms, request)), Done()

    def copy(self, now_ms: int, info: StreamInfo) -> tuple[AnyRecord, ...]:
        """A stream as its home has it, which was asked. May raise `InDoubt` as well."""
        return self._applied(now_ms, self._copying.copy(now_ms, info))

    def told(
        self,
        now_ms: int,
        groups: list[tuple[int, int, int]],
        streams: list[tuple[int, int, int]],
    ) -> tuple[AnyRecord, ...]:
        """Others know, and have confirmed it: see `Told`."""
        return self._applied(now_ms, (Told(0, 0, groups, streams),))

    def _applied(self, now_ms: int, records: tuple[AnyRecord, ...]) -> tuple[AnyRecord, ...]:
        for record in records:
            self.apply(now_ms, record)
        return records

    # One record.

    def apply(self, now_ms: int, record: AnyRecord) -> None:
        """Let a record take effect: one just decided on, or one read from the log."""
        self._apply[type(record)](now_ms, record)

    def replay(self, now_ms: int, record: AnyRecord) -> None:
        """A record from the log, after a restart: its request must not take effect again."""
        self.apply(now_ms, record)
        session = self.state.sessions.get(record.session)
        if session is not None and record.sequence > session.last:
            session.last = record.sequence
            session.replies[record.sequence] = self._rules.reply_to(record)

    def open_session(self, now_ms: int) -> tuple[AnyRecord, Reply]:
        """Begin a session."""
        if len(self.state.sessions) >= SESSIONS_MAX:
            raise TooLarge(f"there are {SESSIONS_MAX} sessions already; close some clients")
        record = SessionBegun(self.state.last_number + 1, 0)
        self.apply(now_ms, record)
        return record, SessionOpened(record.session, SESSION_TTL_MS)

    def keep_alive(self, now_ms: int, request: KeepAlive) -> None:
        """Extend a session and the leases of what it has open. Nothing of this is logged."""
        session = self._session(now_ms, request.session, request.acked)
        self.state.extend_leases(session, now_ms)

    def tick(self, now_ms: int) -> list[AnyRecord]:
        """What the passing of time changes: leases and sessions that ran out."""
        records: list[AnyRecord] = []
        if now_ms < self._ticked_at_ms:
            self.state.clock_went_back(now_ms)
            self._sessions_due_ms = min(self._sessions_due_ms, now_ms + _SESSIONS_EVERY_MS)
        self._ticked_at_ms = now_ms
        if late := self.state.groups.take_expired(now_ms):
            self.state.groups.ask(late, Expired.code)
        if expired := self.state.take_expired(now_ms):
            records.append(Ended(0, 0, expired, True))
            self.apply(now_ms, records[-1])
        if now_ms < self._sessions_due_ms:
            return records
        self._sessions_due_ms = now_ms + _SESSIONS_EVERY_MS
        if forgotten := self.state.long_deleted(now_ms):
            records.append(CopiesForgotten(0, 0, forgotten))
            self.apply(now_ms, records[-1])
        if silent := self._silent(now_ms):
            agents = sorted(agent for session in silent for agent in session.agents)
            left_open = [it for agent in agents for it in self.state.open_of(agent)]
            ids = [session.id for session in silent]
            records.append(SessionsEnded(0, 0, ids, agents, left_open))
            self.apply(now_ms, records[-1])
        return records

    def _silent(self, now_ms: int) -> list[Session]:
        """Sessions that were not heard of for too long. One with an agent in a group ends after that is decided."""
        groups = self.state.groups
        silent = []
        for session in self.state.sessions.values():
            if session.expires_at_ms <= now_ms:
                if doubts := groups.of_agents(session.agents):
                    groups.ask(doubts, Expired.code)
                else:
                    silent.append(session)
        return silent

    def _session(self, now_ms: int, session_id: int, acked: int) -> Session:
        session = self.state.sessions.get(session_id)
        if session is None:
            raise session_ended()
        session.expires_at_ms = now_ms + SESSION_TTL_MS
        if acked > session.acked:
            _forget_replies(session, acked)
        return session


def session_ended() -> InvalidState:
    """The refusal of a client whose session is no more."""
    return InvalidState("the session has ended: it was not heard of for too long")


def _forget_replies(session: Session, acked: int) -> None:
    """Drop the answers that the client has. Not by looking for the first that is left: a dictionary that was
    large once looks at each place that is empty since."""
    replies = session.replies
    if acked - session.acked <= len(replies):
        for number in range(session.acked + 1, acked + 1):
            replies.pop(number, None)
    else:
        for number in [it for it in replies if it <= acked]:
            del replies[number]
    session.acked = acked


def _repeated(session: Session, sequence: int) -> Reply:
    """The answer to a request that was handled before."""
    answer = session.replies.get(sequence)
    if sequence <= session.acked:
        raise InvalidState(f"request {sequence} came again after its answer was acknowledged")
    if answer is None:
        # What took effect has an answer, until that was acknowledged. So this one did not: it was
        # refused, and the reason is forgotten since a restart, or it came out of order.
        raise InvalidState(f"request {sequence} was refused before, or came out of order")
    if isinstance(answer, Error):
        raise answer
    return answer
