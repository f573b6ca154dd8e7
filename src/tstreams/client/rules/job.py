"""What a job does: producers stage transactions for a step, and a coordinator commits the step, once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import BadRequest, InvalidState
from ...limits import LEASE_MS_MAX, LEASE_MS_MIN
from ...model import Ttl, check_name, milliseconds
from ...protocol import CancelStep, Change, CommitStep, Done, GetJob, JobInfo, Stage
from .draft import Draft
from .link import Link
from .producer import Producer
from .session import Session
from .ticket import Steps, Ticket, answer


@dataclass(frozen=True, slots=True)
class Staged:
    """Transactions that a producer has handed over: for the coordinator, wherever it is. Can be pickled."""

    shard: int
    transactions: tuple[int, ...]


class Job:
    """Stages and commits the steps of one job."""

    def __init__(self, link: Link, name: str, staging_ttl: Ttl) -> None:
        self.name = check_name(name, "job")
        self._link = link
        self._lease_ms = milliseconds(staging_ttl)
        if not LEASE_MS_MIN <= self._lease_ms <= LEASE_MS_MAX:
            raise BadRequest(
                f"a staging ttl is {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, not {self._lease_ms}"
            )

    # For those who write.

    def stage(self, producer: Producer, step: int) -> Steps[Staged]:
        """Hand over all open transactions of a producer, with all that was sent into them."""
        producer.agent.check()
        _check_step(step)
        producer.own_up(lambda _: True)
        drafts = producer.claim(lambda _: True)
        session = producer.agent.session
        ticket = yield from self._send(session, producer, drafts, step)
        try:
            yield from answer(ticket, Done)
        except BaseException:
            for draft in drafts:
                producer.abandon(draft)  # staged or not, nobody will ask for it
            raise
        for draft in drafts:
            draft.staged()
        return Staged(session.shard, tuple(draft.id for draft in drafts))

    def _send(
        self, session: Session, producer: Producer, drafts: list[Draft], step: int
    ) -> Steps[Ticket]:
        try:
            for draft in drafts:
                yield from draft.finish(may_bring=False)
            yield from producer.turns.enter()
            try:
                for draft in drafts:
                    yield from draft.settle()
                ids = [draft.id for draft in drafts]
                return session.start(Stage, producer.agent.id, ids, self.name, step, self._lease_ms)
            finally:
                producer.turns.leave()
        except BaseException:
            for draft in drafts:
                draft.unseal()
            raise

    def renew(self, producer: Producer, step: int) -> Steps[None]:
        """Somebody still works for a step: what it has staged lives on."""
        producer.agent.check()
        _check_step(step)
        session, nothing = producer.agent.session, list[int]()
        ticket = session.start(Stage, producer.agent.id, nothing, self.name, step, self._lease_ms)
        yield from answer(ticket, Done)

    # For the coordinator.

    def commit(
        self, step: int, staged: Iterable[Staged], replace: Iterable[str], final: bool
    ) -> Steps[None]:
        """Make what was staged visible, all at once. A step that was committed before is done."""
        _check_step(step)
        parts = list(staged)
        shards = {it.shard for it in parts if it.transactions} or {self._shard}
        if len(shards) > 1:
            raise InvalidState(f"the transactions of job {self.name!r} are in several shards")
        ids = [transaction for it in parts for transaction in it.transactions]
        yield from self._change(
            shards.pop(), CommitStep, self.name, step, ids, list(replace), final
        )

    def cancel(self, step: int) -> Steps[None]:
        """Drop what was staged for a step, unless it was committed."""
        _check_step(step)
        for shard in self._link.shards:
            yield from self._change(shard, CancelStep, self.name, step)

    def last_step(self) -> Steps[int | None]:
        """The step that was committed last."""
        last = -1
        for shard in self._link.shards:
            info = yield from answer(self._link.ask(GetJob(self.name), shard=shard), JobInfo)
            last = max(last, info.last_step)
        return None if last < 0 else last

    @property
    def _shard(self) -> int:
        return self._link.shard_of(self.name)

    def _change(self, shard: int, kind: type[Change], *fields: object) -> Steps[None]:
        session = yield from self._link.session(shard)
        yield from answer(session.start(kind, *fields), Done)


def _check_step(step: int) -> None:
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 1 << 62:
        raise BadRequest(f"a step is a number from 0 on, not {step!r}")
