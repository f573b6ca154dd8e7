"""Makes a plan that fails shorter, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.simulation.system.plan import Deed, Fault, Plan
from tests.simulation.system.run import Outcome, carry_out

T = TypeVar("T")

RUNS_MAX = 400
"""Runs that shrinking may take."""


class Shrinking:
    """Leaves out deeds and faults, first many, then few, and keeps what is needed. Ends after so many runs, or
    when somebody says that it is enough."""

    def __init__(
        self,
        outcome: Outcome,
        runs_max: int = RUNS_MAX,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> None:
        self.best = outcome
        self._kinds = outcome.kinds
        self._runs_max = runs_max
        self._is_enough = is_enough
        self.runs = 0

    def shrink(self) -> Outcome:
        """The shortest that was found."""
        size = -1
        while size != self._size() and not self._is_over():
            size = self._size()
            self._leave_out(self.best.plan.faults, self._with_faults)
            self._leave_out(self.best.plan.clients, self._with_clients)
            self._leave_out(self.best.plan.deeds, self._with_deeds)
        return self.best

    def _is_over(self) -> bool:
        return self.runs >= self._runs_max or self._is_enough()

    def _size(self) -> int:
        return len(self.best.plan.deeds) + len(self.best.plan.faults)

    def _with_faults(self, faults: list[Fault]) -> Plan:
        return self.best.plan.with_only(self.best.plan.deeds, faults)

    def _with_deeds(self, deeds: list[Deed]) -> Plan:
        return self.best.plan.with_only(deeds, self.best.plan.faults)

    def _with_clients(self, clients: list[str]) -> Plan:
        plan = self.best.plan
        return plan.with_only(
            [it for it in plan.deeds if it.client in clients],
            [it for it in plan.faults if it.who in (*clients, "server")],
        )

    def _leave_out(self, things: Sequence[T], make: Callable[[list[T]], Plan]) -> None:
        """Try without each part of them, in ever smaller parts."""
        kept, size = list(things), max(1, len(things) // 2)
        while kept:
            at = 0
            while at < len(kept):
                fewer = kept[:at] + kept[at + size :]
                if self._fails(make(fewer)):
                    kept = fewer
                else:
                    at += size
            if size == 1:
                return
            size //= 2

    def _fails(self, plan: Plan) -> bool:
        """Whether this plan goes wrong in the same way. Then it is the best so far."""
        if self._is_over() or not plan.deeds:
            return False
        self.runs += 1
        outcome = carry_out(plan)
        if not outcome.kinds & self._kinds:
            return False
        self.best = outcome
        return True
