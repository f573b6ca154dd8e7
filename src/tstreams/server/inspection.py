"""What operators see of a shard. Every answer is bounded, by what it shows and by what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from ..core.facts import READER, Cancelled, OpenTransactionState, Session
from ..core.rules import no_partition
from ..errors import BadRequest, Expired, Fenced, NotFound
from ..index import ListedReader, Looks, floor_of
from ..index.keys import unpack_transaction
from ..limits import (
    INSPECT_LOOKS_MAX,
    INSPECT_MAX,
    LIST_NUMBERS_MAX,
    READER_POSITIONS_SHOWN_MAX,
    SESSION_TTL_MS,
)
from ..model import TransactionState
from ..protocol import (
    AgentInfo,
    AgentList,
    Browse,
    Browsed,
    GetReaders,
    GetTransaction,
    JobEntry,
    JobList,
    LedgerInfo,
    LedgerList,
    ListAgents,
    ListJobs,
    ListLedgers,
    ListNumbers,
    ListOpen,
    ListReaders,
    ListSessions,
    NumberedStream,
    NumberList,
    OpenInfo,
    OpenList,
    ReaderInfo,
    ReaderList,
    SessionInfo,
    SessionList,
    TransactionInfo,
    TransactionStatus,
)
from ..sharding import job_home
from .shard import Shard

T = TypeVar("T")


class Inspection:
    """Answers operators. To be asked only when all that the core has decided is durable: the index says which
    things there are, the core how each of them is."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.by_type: dict[type, Callable[[Any], Any]] = {
            ListNumbers: self._numbers,
            ListOpen: self._open,
            ListReaders: self._readers,
            GetReaders: self._readers_named,
            ListAgents: self._agents,
            ListSessions: self._sessions,
            ListLedgers: self._ledgers,
            ListJobs: self._jobs,
            Browse: self._browse,
            GetTransaction: self._transaction,
        }

    # Lists.

    def _numbers(self, message: ListNumbers) -> NumberList:
        found = self._shard.index.listing.streams(message.after, self._shard.number)
        streams, more = _page(found, message.limit, LIST_NUMBERS_MAX)
        return NumberList([NumberedStream(*it) for it in streams], more)

    def _open(self, message: ListOpen) -> OpenList:
        _check_limit(message.limit, INSPECT_MAX)
        state = self._shard.core.state
        shown: list[OpenInfo] = []
        place = message.after
        looks = Looks(INSPECT_LOOKS_MAX)
        for transaction_id in self._shard.index.listing.open_ids(message.after):
            if len(shown) == message.limit or not looks.take():
                return OpenList(shown, True, place)
            place = transaction_id
            it = state.open[transaction_id]
            if message.stream in (0, it.stream):
                shown.append(self._open_info(it))
        return OpenList(shown, False, place)

    def _open_info(self, it: OpenTransactionState) -> OpenInfo:
        state = self._shard.core.state
        agent = state.agent(it.agent) if it.agent else None
        return OpenInfo(
            it.id,
            it.stream,
            self._name_of(it.stream),
            it.partition,
            it.agent,
            agent.name if agent else "",
            agent.session if agent else 0,
            self._last_seen_ms(agent.session) if agent else 0,
            it.lease_ms,
            it.expires_at_ms,
            it.items,
            it.batches,
            it.job,
            it.step,
            state.frontier(it.stream, it.partition) == it.id,
        )

    def _readers(self, message: ListReaders) -> ReaderList:
        _check_limit(message.limit, INSPECT_MAX)
        looks = Looks(INSPECT_LOOKS_MAX)
        found = self._shard.index.listing.readers(
            message.stream, message.after, looks, READER_POSITIONS_SHOWN_MAX
        )
        shown: list[ReaderInfo] = []
        place = message.after
        for it, behind in found:
            if len(shown) == message.limit:
                return ReaderList(shown, True, place)
            place = behind
            name = self._name_of(it.stream) if it else ""
            if it is None or not name:  # what a deleted stream has left is still to be removed
                continue
            shown.append(self._reader_info(it, name))
        return ReaderList(shown, looks.left <= 0, place)

    def _readers_named(self, message: GetReaders) -> ReaderList:
        _check_limit(len(message.names), INSPECT_MAX)
        stream = self._shard.core.state.stream(message.stream)
        shown: list[ReaderInfo] = []
        for name in message.names:
            it = self._shard.index.listing.reader(stream.id, name, READER_POSITIONS_SHOWN_MAX)
            info = self._reader_info(it or ListedReader(stream.id, name, []), stream.name)
            if info.positions or info.agent:
                shown.append(info)
        return ReaderList(shown, False, b"")

    def _reader_info(self, it: ListedReader, stream_name: str) -> ReaderInfo:
        state = self._shard.core.state
        agent = state.agent(state.holder(READER, it.stream, it.name))
        return ReaderInfo(
            it.stream,
            stream_name,
            it.name,
            agent.id if agent else 0,
            agent.session if agent else 0,
            self._last_seen_ms(agent.session) if agent else 0,
            it.positions,
            it.positions_more,
        )

    def _agents(self, message: ListAgents) -> AgentList:
        _check_limit(message.limit, INSPECT_MAX)
        state = self._shard.core.state
        shown: list[AgentInfo] = []
        place = message.after
        looks = Looks(INSPECT_LOOKS_MAX)
        for number, kind, stream, name, session in self._shard.index.listing.agents(message.after):
            if len(shown) == message.limit or not looks.take():
                return AgentList(shown, True, place)
            place = number
            if message.stream in (0, stream):
                seen_ms, count = self._last_seen_ms(session), state.count_open_of(number)
                shown.append(
                    AgentInfo(
                        number, kind, stream, self._name_of(stream), name, session, seen_ms, count
                    )
                )
        return AgentList(shown, False, place)

    def _sessions(self, message: ListSessions) -> SessionList:
        found = self._shard.index.listing.sessions(message.after)
        numbers, more = _page(found, message.limit, INSPECT_MAX)
        sessions = self._shard.core.state.sessions
        return SessionList([_session_info(sessions[number]) for number in numbers], more)

    def _ledgers(self, message: ListLedgers) -> LedgerList:
        _check_limit(message.limit, INSPECT_MAX)
        live = self._shard.index.live
        found = self._shard.log.ledgers(message.after, message.limit + 1)
        shown = [
            LedgerInfo(
                it.id,
                it.epoch,
                it.created_ms,
                it.size_bytes,
                live.live(it.id),
                live.dead(it.id),
                it.closed,
            )
            for it in found[: message.limit]
        ]
        return LedgerList(shown, len(found) > message.limit)

    def _jobs(self, message: ListJobs) -> JobList:
        shards, number = self._shard.shards, self._shard.number
        everything = self._shard.index.listing.jobs(message.after)
        found = (it for it in everything if job_home(it[0], shards) == number)
        jobs, more = _page(found, message.limit, INSPECT_MAX)
        return JobList([JobEntry(*it) for it in jobs], more)

    # Transactions.

    def _browse(self, message: Browse) -> Browsed:
        _check_limit(message.limit, INSPECT_MAX)
        state, facts = self._shard.core.state, self._shard.index.facts
        stream, partition = message.stream, message.partition
        first_open = state.frontier(stream, partition) or 0
        from_id = max(message.from_id, self._floor(stream, partition))
        to_id = min(message.to_id, first_open - 1 if first_open else state.last_id)
        walk = facts.transactions_back if message.newest_first else facts.transactions
        found = list(islice(walk(stream, partition, from_id, to_id), message.limit + 1))
        shown = [TransactionInfo(number, *_sizes(value)) for number, value in found]
        return Browsed(shown[: message.limit], len(found) > message.limit, first_open)

    def _transaction(self, message: GetTransaction) -> TransactionStatus:
        state, facts = self._shard.core.state, self._shard.index.facts
        stream, partition, number = message.stream, message.partition, message.transaction
        floor = self._floor(stream, partition)
        first_open = state.frontier(stream, partition) or 0
        it = state.open.get(number)
        if it is not None and (it.stream, it.partition) == (stream, partition):
            behind = facts.transactions(stream, partition, number, state.last_id)
            held_back = sum(1 for _ in islice(behind, INSPECT_LOOKS_MAX))
            return TransactionStatus(
                number,
                TransactionState.OPENED.value,
                False,
                it.items,
                it.batches,
                0,
                first_open,
                self._open_info(it),
                held_back,
            )
        value = facts.transaction(stream, partition, number) if number >= floor else None
        if value is not None:
            visible = not first_open or number < first_open
            state_now = TransactionState.CHECKPOINTED.value
            return TransactionStatus(
                number, state_now, visible, *_sizes(value), first_open, None, 0
            )
        return TransactionStatus(number, self._past(number), False, 0, 0, 0, first_open, None, 0)

    def _past(self, number: int) -> str:
        """What became of a transaction that has left nothing, if it is not too long ago."""
        reason = self._shard.core.state.ended.get(number)
        if reason is Expired:
            return TransactionState.INVALID.value
        if reason is not None and issubclass(reason, Cancelled | Fenced):
            return TransactionState.CANCELLED.value
        return "unknown"

    # Inside.

    def _floor(self, stream_id: int, partition: int) -> int:
        """The first id of a partition that is not dead; refuses what there is not."""
        stream = self._shard.core.state.stream(stream_id)
        if partition not in stream.local:
            raise no_partition(stream, partition, self._shard.number)
        return floor_of(stream.purged_before, stream.ttl_ms, self._shard.clock())

    def _name_of(self, stream_id: int) -> str:
        """A stream's name; "" if it was deleted."""
        try:
            return self._shard.core.state.stream(stream_id).name
        except NotFound:
            return ""

    def _last_seen_ms(self, session_id: int) -> int:
        session = self._shard.core.state.sessions.get(session_id)
        return 0 if session is None else max(0, session.expires_at_ms - SESSION_TTL_MS)


def _sizes(value: bytes) -> tuple[int, int, int]:
    """Of a transaction in the index: items, batches, bytes."""
    items, places = unpack_transaction(value)
    return items, len(places), sum(place.size for place in places)


def _session_info(session: Session) -> SessionInfo:
    return SessionInfo(
        session.id,
        max(0, session.expires_at_ms - SESSION_TTL_MS),
        session.expires_at_ms,
        len(session.agents),
        session.last,
        len(session.replies),
    )


def _page(found: Iterator[T], limit: int, limit_max: int) -> tuple[list[T], bool]:
    """The first of these, and whether there are more."""
    _check_limit(limit, limit_max)
    shown = list(islice(found, limit + 1))
    return shown[:limit], len(shown) > limit


def _check_limit(limit: int, limit_max: int) -> None:
    if not 0 < limit <= limit_max:
        raise BadRequest(f"a page has 1 to {limit_max} entries, not {limit}")
