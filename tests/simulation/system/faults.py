"""Lets things go wrong, as a plan says, and makes all of them good again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.system import actor
from tests.simulation.system.plan import Fault

if TYPE_CHECKING:
    from tests.simulation.system.run import Run


class Faults:
    """What is wrong now. `heal` ends all of it, and from then on nothing goes wrong any more."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._scheduler = run.scheduler
        self._network = run.network
        self._machine = run.machine
        self._remedies: dict[int, Callable[[], object]] = {}
        self._over = False
        self._planned = sorted(run.plan.faults, key=lambda it: it.deed)
        self._kinds: dict[str, Callable[[Fault], None]] = {
            "kill": self._kill,
            "cut-power": self._cut_power,
            "restart": self._restart,
            "stop": self._stop,
            "cut-off": self._cut,
            "cut-from": self._cut,
            "cut-to": self._cut,
            "lose-answer": lambda fault: self._network.set_trap(fault.who, fault.count),
            "reset": lambda fault: self._network.reset(fault.who),
            "slow-network": self._slow_network,
            "slow-disk": self._slow_disk,
            "fail-syncs": self._fail_syncs,
            "fill": self._fill,
            "fill-suddenly": self._fill,
            "set-clock": self._set_clock,
            "kill-client": self._kill_client,
        }

    def come_to(self, deed: int) -> None:
        """Somebody begins this deed: have those happen that are due then."""
        while self._planned and self._planned[0].deed <= deed:
            fault = self._planned.pop(0)
            self._scheduler.after(fault.delay_ms * 1000, partial(self._happen, fault))

    def _happen(self, fault: Fault) -> None:
        if not self._over:
            self._scheduler.note(f"fault: {fault}")
            self._run.faults_seen[fault.kind] += 1
            self._kinds[fault.kind](fault)

    def _later(self, fault: Fault, remedy: Callable[[], object]) -> None:
        """Make it good after its time, or when all is healed."""
        number = len(self._remedies)
        self._remedies[number] = remedy
        self._scheduler.after(fault.for_ms * 1000, lambda: self._repair(number))

    def _repair(self, number: int) -> None:
        remedy = self._remedies.get(number)
        if remedy is not None:
            self._remedies[number] = lambda: None
            remedy()

    def heal(self) -> None:
        """All is well from now on."""
        self._over = True
        for number in list(self._remedies):
            self._repair(number)
        self._network.clear_traps()
        machine = self._machine
        machine.fill(full=False, suddenly=False)
        machine.slow_disk = False
        machine.steps_left = None
        if machine.node is not None and not machine.node.ready:
            machine.kill()

    # One by one.

    def _kill(self, fault: Fault) -> None:
        self._machine.down_us = fault.for_ms * 1000
        self._machine.kill()

    def _cut_power(self, fault: Fault) -> None:
        """At a step of the disk, or, if none comes soon, between two of them."""
        machine = self._machine
        machine.down_us = fault.for_ms * 1000
        if fault.count == 0:
            machine.lose_power("between two steps")
            return
        machine.steps_left = fault.count

    def _restart(self, fault: Fault) -> None:
        self._machine.down_us = fault.for_ms * 1000
        self._machine.stop()

    def _stop(self, fault: Fault) -> None:
        process = self._scheduler.processes.get(fault.who)
        if process is not None:
            process.rest(fault.for_ms * 1000)

    def _cut(self, fault: Fault) -> None:
        away, back = (fault.who, "server"), ("server", fault.who)
        ways = {"cut-off": [away, back], "cut-from": [back], "cut-to": [away]}[fault.kind]
        self._network.cut(ways)
        self._later(fault, lambda: self._network.heal(ways))

    def _slow_network(self, fault: Fault) -> None:
        self._network.slow(fault.who, 1)
        self._later(fault, lambda: self._network.slow(fault.who, -1))

    def _slow_disk(self, fault: Fault) -> None:
        self._machine.slow_disk = True

        def quicken() -> None:
            self._machine.slow_disk = False

        self._later(fault, quicken)

    def _fail_syncs(self, fault: Fault) -> None:
        """Until somebody looks after it, and starts the server again."""
        machine = self._machine
        machine.fail_syncs()
        starts = machine.starts

        def restart() -> None:
            if machine.starts == starts:
                machine.down_us = 300_000
                machine.kill()

        self._later(fault, restart)

    def _fill(self, fault: Fault) -> None:
        suddenly = fault.kind == "fill-suddenly"
        self._machine.fill(full=True, suddenly=suddenly)
        self._later(fault, lambda: self._machine.fill(full=False, suddenly=suddenly))

    def _set_clock(self, fault: Fault) -> None:
        self._machine.offset_ms += fault.count
        self._run.recorder.clock(self._machine.clock())

    def _kill_client(self, fault: Fault) -> None:
        process = self._scheduler.processes.get(fault.who)
        if process is None:
            return
        self._network.process_died(process, loudly=fault.for_ms % 200 == 100)
        self._scheduler.end(process)

        def again() -> None:
            if fault.who not in self._scheduler.processes and self._run.left[fault.who]:
                actor.start(self._run, fault.who)
            elif not self._run.left[fault.who]:
                self._run.finished(fault.who)

        self._later(fault, again)
