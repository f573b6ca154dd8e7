"""What jobs may do: transactions that many producers fill are staged, and a coordinator commits them, once.

A job has steps, numbered upwards. What was staged for a step waits until somebody commits the step, or
until its lease ends. The last step that was committed is remembered, so that a coordinator which died
before it heard the answer may ask again.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import BadRequest, InvalidState
from ..limits import LEASE_MS_MAX, LEASE_MS_MIN
from ..model import check_name
from ..protocol import CancelStep, CommitStep, PrepareStep, Stage
from ..sharding import job_home
from .facts import OpenTransactionState
from .preparing import Preparing
from .records import AnyRecord, Ended, Refused, Staged, StepCommitted, StepPrepared
from .rules import Decision, Rules
from .state import State
from .waits import InDoubt


class Staging:
    """Decides on requests about jobs. Nothing here changes the state."""

    def __init__(self, state: State, rules: Rules, preparing: Preparing) -> None:
        self._state = state
        self._rules = rules
        self._preparing = preparing
        rules.register(Stage, self._stage)
        rules.register(CommitStep, self._commit)
        rules.register(PrepareStep, self._prepare)
        rules.register(CancelStep, self._cancel)

    def _stage(self, now_ms: int, request: Stage, items: int) -> AnyRecord:
        check_name(request.job, "job")
        self._rules.check_members([request.agent], request.transactions, 0)
        agent = self._rules.agent(request.agent)
        if not LEASE_MS_MIN <= request.lease_ms <= LEASE_MS_MAX:
            text = f"a lease is {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, not {request.lease_ms}"
            raise BadRequest(text)
        last = self._state.last_step(request.job)
        if request.step <= last:
            raise InvalidState(
                f"step {request.step} of job {request.job!r} is over: step {last} was committed"
            )
        for transaction in self._open(now_ms, request.transactions):
            if transaction.agent != agent.id:
                raise BadRequest(f"transaction {transaction.id} belongs to another producer")
        return Staged(
            request.session,
            request.sequence,
            request.job,
            request.step,
            request.lease_ms,
            request.transactions,
        )

    def _commit(self, now_ms: int, request: CommitStep, items: int) -> Decision:
        check_name(request.job, "job")
        if (home := job_home(request.job, self._state.shards)) != self._state.number:
            raise BadRequest(f"the steps of job {request.job!r} are committed in shard {home}")
        if request.step <= self._state.last_step(request.job):
            return self._over(request)
        committed = self._committed(now_ms, request)
        return (committed, self._rules.decided(request)) if request.others else committed

    def _prepare(self, now_ms: int, request: PrepareStep, items: int) -> AnyRecord:
        check_name(request.job, "job")
        self._preparing.check(request.group, request.lease_ms)
        if request.step <= self._state.last_step(request.job):
            return _nothing(request)
        it = self._committed(now_ms, request)
        return StepPrepared(
            request.session,
            request.sequence,
            request.group,
            request.lease_ms,
            request.job,
            request.step,
            it.transactions,
            it.empty,
            it.dropped,
            it.replaced,
            request.final,
        )

    def _committed(self, now_ms: int, request: CommitStep | PrepareStep) -> StepCommitted:
        self._rules.check_members([], request.transactions, len(request.replace))
        self._check_settled(it for it in self._state.staged(request.job) if it.step <= request.step)
        full: list[int] = []
        empty: list[int] = []
        firsts: dict[int, int] = {}
        for transaction in self._open(now_ms, request.transactions):
            if (transaction.job, transaction.step) != (request.job, request.step):
                raise BadRequest(
                    f"transaction {transaction.id} was not staged for step {request.step} of job "
                    f"{request.job!r}"
                )
            (full if transaction.batches else empty).append(transaction.id)
            first = firsts.get(transaction.stream, transaction.id)
            firsts[transaction.stream] = min(first, transaction.id)
        after_all = self._state.last_id + 1
        streams = [self._state.stream_named(name).id for name in request.replace]
        return StepCommitted(
            request.session,
            request.sequence,
            request.job,
            request.step,
            full,
            empty,
            self._others(request),
            [(stream, firsts.get(stream, after_all)) for stream in streams],
            request.final,
            now_ms,
        )

    def _over(self, request: CommitStep) -> Decision:
        """A step that was committed before. What was prepared to go along with it now is not needed."""
        if not request.others or self._rules.refusal(request) is not None:
            return _nothing(request)
        decided = self._rules.decided(request)
        refused = Refused(request.session, 0, decided.number, InvalidState.code, decided.others)
        return _nothing(request), refused

    def _check_settled(self, transactions: Iterable[OpenTransactionState]) -> None:
        """What an earlier attempt at a step has prepared has to be decided first."""
        if doubts := self._state.groups_of(it.id for it in transactions):
            raise InDoubt(doubts, InvalidState.code)

    def _others(self, request: CommitStep | PrepareStep) -> list[int]:
        """What attempts that did not count have left behind."""
        counted = set(request.transactions)
        return [
            it.id
            for it in self._state.staged(request.job)
            if it.step <= request.step and it.id not in counted
        ]

    def _cancel(self, now_ms: int, request: CancelStep, items: int) -> AnyRecord:
        check_name(request.job, "job")
        staged = [it for it in self._state.staged(request.job) if it.step == request.step]
        self._check_settled(staged)
        return Ended(request.session, request.sequence, [it.id for it in staged], False)

    def _open(self, now_ms: int, transactions: list[int]) -> list[OpenTransactionState]:
        found = [self._rules.open_transaction(now_ms, it) for it in transactions]
        for transaction in found:
            if transaction.unfinished:
                raise BadRequest(
                    f"transaction {transaction.id} ends in the middle of an item: send its other pieces"
                )
        return found


def _nothing(request: CommitStep | PrepareStep) -> AnyRecord:
    """Done before, perhaps in another session. Recorded, so that this request keeps its answer."""
    return Ended(request.session, request.sequence, [], False)
