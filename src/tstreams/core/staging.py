"""What jobs may do: transactions that many producers fill are staged, and a coordinator commits them, once.

A job has steps, numbered upwards. What was staged for a step waits until somebody commits the step, or
until its lease ends. The last step that was committed is remembered, so that a coordinator which died
before it heard the answer may ask again.
"""

from __future__ import annotations

from ..errors import BadRequest, InvalidState
from ..limits import LEASE_MS_MAX, LEASE_MS_MIN
from ..model import check_name
from ..protocol import CancelStep, CommitStep, Stage
from .facts import OpenTransactionState
from .records import AnyRecord, Ended, Staged, StepCommitted
from .rules import Rules
from .state import State


class Staging:
    """Decides on requests about jobs. Nothing here changes the state."""

    def __init__(self, state: State, rules: Rules) -> None:
        self._state = state
        self._rules = rules
        rules.register(Stage, self._stage)
        rules.register(CommitStep, self._commit)
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

    def _commit(self, now_ms: int, request: CommitStep, items: int) -> AnyRecord:
        check_name(request.job, "job")
        self._rules.check_members([], request.transactions, len(request.replace))
        if request.step <= self._state.last_step(request.job):
            return _nothing(request)
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

    def _others(self, request: CommitStep) -> list[int]:
        """What attempts that did not count have left behind."""
        counted = set(request.transactions)
        return [
            it.id
            for it in self._state.staged(request.job)
            if it.step <= request.step and it.id not in counted
        ]

    def _cancel(self, now_ms: int, request: CancelStep, items: int) -> AnyRecord:
        check_name(request.job, "job")
        staged = self._state.staged(request.job)
        ids = [it.id for it in staged if it.step == request.step]
        return Ended(request.session, request.sequence, ids, False)

    def _open(self, now_ms: int, transactions: list[int]) -> list[OpenTransactionState]:
        found = [self._rules.open_transaction(now_ms, it) for it in transactions]
        for transaction in found:
            if transaction.unfinished:
                raise BadRequest(
                    f"transaction {transaction.id} ends in the middle of an item: send its other pieces"
                )
        return found


def _nothing(request: CommitStep) -> AnyRecord:
    """Done before, perhaps in another session. Recorded, so that this request keeps its answer."""
    return Ended(request.session, request.sequence, [], False)
