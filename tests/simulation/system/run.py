"""A run: a plan is carried out, and what came of it is judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.checker.check import check
from tests.checker.history import AnyOperation
from tests.simulation.system import actor, audit
from tests.simulation.system.faults import Faults
from tests.simulation.system.machine import ServerMachine
from tests.simulation.system.network import Network
from tests.simulation.system.plan import Plan
from tests.simulation.system.recording import Recorder
from tests.simulation.system.scheduler import Scheduler, Stuck
from tests.simulation.system.stand_ins import stand_ins

DEEDS_S_MAX = 900.0
"""How long all deeds may take, whatever goes wrong meanwhile: every wait has an end."""


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    findings: list[str]
    """All that is wrong, each beginning with what kind of thing it is."""
    digest: str
    trace: list[str]
    history: list[AnyOperation]
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def kinds(self) -> set[str]:
        return {it.split(":")[0] for it in self.findings}


class Run:
    """Everything that there is in a run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.scheduler = Scheduler(plan.seed)
        self.network = Network(self.scheduler)
        self.machine = ServerMachine(self.scheduler, plan.shards)
        self.recorder = Recorder(self.scheduler)
        self.faults = Faults(self)
        self.left = {name: plan.deeds_of(name) for name in plan.clients}
        self.labels: dict[str, str] = {}
        self.names: dict[tuple[str, str], None] = {}
        """Producers that there were: stream and name."""
        self.refusals: Counter[str] = Counter()
        self.faults_seen: Counter[str] = Counter()
        self.problems: list[str] = []
        self._finished: set[str] = set()

    def finished(self, client: str) -> None:
        self._finished.add(client)

    def carry_out(self) -> Outcome:
        """Do all of it."""
        scheduler = self.scheduler
        with stand_ins(scheduler, self.machine):
            try:
                self._play()
            except Stuck as error:
                self.problems.append(f"stuck: {error}")
            finally:
                history = self.recorder.conclude()
                scheduler.bury()
        findings = self.problems + [f"complaint: {it}" for it in scheduler.complaints]
        findings += [str(it) for it in check(history).shown]
        return Outcome(
            self.plan, findings, scheduler.digest(), scheduler.trace, history, self._figures()
        )

    def _play(self) -> None:
        scheduler = self.scheduler
        self.recorder.clock(self.machine.clock())
        self.machine.start()
        audit.prepare(self)
        for name in self.left:
            actor.start(self, name)
        everyone = set(self.left)
        scheduler.run_until(lambda: self._finished >= everyone, DEEDS_S_MAX, "doing all deeds")
        self.faults.heal()
        scheduler.note("all is healed")
        audit.conclude(self)

    def _figures(self) -> dict[str, Any]:
        kinds = Counter(type(it).__name__ for it in self.recorder.operations)
        outcomes = Counter(it.outcome for it in self.recorder.operations)
        return {
            "virtual_s": round(self.scheduler.now_us / 1e6, 1),
            "turns": self.scheduler.turns,
            "operations": len(self.recorder.operations),
            "server_starts": self.machine.starts,
            "faults": self.faults_seen.total(),
            "faults_by_kind": dict(sorted(self.faults_seen.items())),
            "operations_by_kind": dict(sorted(kinds.items())),
            "outcomes": dict(sorted(outcomes.items())),
            "refusals": dict(sorted(self.refusals.items())),
            **self.network.statistics(),
        }


def carry_out(plan: Plan) -> Outcome:
    """Run a plan."""
    return Run(plan).carry_out()
