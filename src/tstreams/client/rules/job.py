"""What a job does: producers stage transactions for a step, and a coordinator commits the step, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ...errors import BadRequest, Error, Unavailable
from ...limits import LEASE_MS_MAX, LEASE_MS_MIN
from ...model import Ttl, check_name, milliseconds
from ...protocol import CancelStep, CommitStep, Done, GetJob, JobInfo, PrepareStep, Stage
from . import spanning
from .agent import Seat
from .draft import Draft
from .link import Link
from .producer import Producer
from .session import Session
from .streams import find_stream
from .ticket import Steps, Ticket, answer


@dataclass(frozen=True, slots=True)
class Staged:
    """Transactions that a producer has handed over: for the coordinator, wherever it is. Can be pickled."""

    parts: tuple[tuple[int, tuple[int, ...]], ...]
    """Shards, each with the ids of the transactions in it."""

    @property
    def transactions(self) -> tuple[int, ...]:
        """The ids of all of them."""
        return tuple(it for _, transactions in self.parts for it in transactions)


class Job:
    """Stages and commits the steps of one job."""

    def __init__(self, link: Link, name: str, staging_ttl: Ttl) -> None:
        self.name = check_name(name, "job")
        self._link = link
        self._home = link.shards.home_of_job(name)
        self._lease_ms = milliseconds(staging_ttl)
        if not LEASE_MS_MIN <= self._lease_ms <= LEASE_MS_MAX:
            raise BadRequest(
                f"a staging ttl is {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, not {self._lease_ms}"
            )

    # For those who write.

    def stage(self, producer: Producer, step: int) -> Steps[Staged]:
        """Hand over all open transactions of a producer, with all that was sent into them.

        If they are in several shards and one of those refuses, nobody will ask for what the others have.
        """
        producer.agent.check()
        _check_step(step)
        producer.own_up(lambda _: True)
        drafts = producer.claim(lambda _: True)
        tickets = yield from self._send(producer, drafts, step)
        try:
            for ticket in tickets:
                yield from answer(ticket, Done)
        except BaseException:
            for draft in drafts:
                producer.abandon(draft)  # staged or not, nobody will ask for it
            raise
        for draft in drafts:
            draft.staged()
        by_seat = _by_seat(producer, drafts)
        ids = ((seat.shard, tuple(it.id for it in some)) for seat, some in by_seat.items())
        return Staged(tuple(ids))

    def _send(self, producer: Producer, drafts: list[Draft], step: int) -> Steps[list[Ticket]]:
        tickets: list[Ticket] = []
        try:
            for draft in drafts:
                yield from draft.finish(may_bring=False)
            yield from producer.turns.enter()
            try:
                for draft in drafts:
                    yield from draft.settle()
                for seat, some in _by_seat(producer, drafts).items():
                    tickets.append(self._stage(seat, [draft.id for draft in some], step))
                return tickets
            finally:
                producer.turns.leave()
        except BaseException:
            for draft in drafts:
                if tickets:
                    producer.abandon(draft)
                else:
                    draft.unseal()
            raise

    def _stage(self, seat: Seat, ids: list[int], step: int) -> Ticket:
        return seat.session.start(Stage, seat.number, ids, self.name, step, self._lease_ms)

    def renew(self, producer: Producer, step: int) -> Steps[None]:
        """Somebody still works for a step: what it has staged lives on."""
        producer.agent.check()
        _check_step(step)
        for ticket in [self._stage(seat, [], step) for seat in producer.agent.seats]:
            yield from answer(ticket, Done)

    # For the coordinator.

    def commit(
        self, step: int, staged: Iterable[Staged], replace: Iterable[str], final: bool
    ) -> Steps[None]:
        """Make what was staged visible, all at once. A step that was committed before is done.

        The home of the job decides. If somebody is interrupted in here, the step may be committed or not.
        """
        _check_step(step)
        ids: dict[int, list[int]] = {self._home: []}
        replaced: dict[int, list[str]] = {}
        for it in staged:
            for shard, transactions in it.parts:
                if transactions:
                    ids.setdefault(shard, []).extend(transactions)
        for name in replace:
            for shard in (yield from self._shards_of(name)):
                ids.setdefault(shard, [])
                replaced.setdefault(shard, []).append(name)
        sessions = yield from self._link.sessions_in(ids)
        home = sessions.pop(self._home)
        fields = {
            shard: (self.name, step, ids[shard], replaced.get(shard, []), final) for shard in ids
        }
        if sessions:
            yield from self._commit_over(home, sessions, fields)
        else:
            yield from answer(home.start(CommitStep, *fields[self._home]), Done)
        yield from self._sweep(step, [it for it in self._link.shards.numbers if it not in ids])

    def _shards_of(self, stream: str) -> Steps[list[int]]:
        if len(self._link.shards) == 1:
            return [self._home]
        info = yield from find_stream(self._link, stream)
        return self._link.shards.ring_of(stream, info.partitions)

    def _commit_over(
        self, home: Session, others: dict[int, Session], fields: Mapping[int, tuple[object, ...]]
    ) -> Steps[None]:
        group = home.name_group()
        lease_ms = spanning.patience_ms(self._link)
        asked: dict[int, Ticket] = {}
        try:
            for shard, session in others.items():
                asked[shard] = session.start(PrepareStep, group, lease_ms, *fields[shard])
            for ticket in asked.values():
                yield from answer(ticket, Done)
            decisive = home.start(CommitStep, *fields[home.shard], list(others), group.number)
        except BaseException:
            for shard, session in others.items():
                spanning.settle_asked(self._link, group, session, asked.get(shard))
            raise
        try:
            yield from answer(decisive, Done)
        except Unavailable:
            raise
        except Error:
            for session in others.values():
                spanning.settle(self._link, group, session)
            raise

    def _sweep(self, step: int, shards: list[int]) -> Steps[None]:
        """Drop what attempts that did not count have staged in shards that had no part in the commit. Nobody
        waits for that: it would end by itself."""
        with suppress(Error):
            for session in (yield from self._link.sessions_in(shards)).values():
                session.start(CancelStep, self.name, step)

    def cancel(self, step: int) -> Steps[None]:
        """Drop what was staged for a step, unless it was committed."""
        _check_step(step)
        sessions = yield from self._link.sessions_in(self._link.shards.numbers)
        tickets = [it.start(CancelStep, self.name, step) for it in sessions.values()]
        for ticket in tickets:
            yield from answer(ticket, Done)

    def last_step(self) -> Steps[int | None]:
        """The step that was committed last."""
        ticket = self._link.ask(GetJob(self.name), shard=self._home)
        info = yield from answer(ticket, JobInfo)
        return None if info.last_step < 0 else info.last_step


def _by_seat(producer: Producer, drafts: list[Draft]) -> dict[Seat, list[Draft]]:
    """Transactions by the shard they are in. If there are none the home is told, which knows the step."""
    found: dict[Seat, list[Draft]] = {}
    for draft in drafts:
        found.setdefault(draft.seat, []).append(draft)
    return found or {producer.agent.seats[0]: []}


def _check_step(step: int) -> None:
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 1 << 62:
        raise BadRequest(f"a step is a number from 0 on, not {step!r}")
