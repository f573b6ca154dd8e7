"""Who runs next: simulated processes take turns on one thread, and time passes when all of them wait."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tests.simulation.system.loop import ProcessLoop, running

if TYPE_CHECKING:
    from tests.simulation.system.network import Network

TRACE_KEPT = 4000
"""Lines of the trace that are kept in words. All of them are in its digest."""


TURNS_MAX = 100_000
"""Turns of one run. A program that goes round in circles must not keep us from the next."""

LOOKS_MAX = 20_000
"""Looks at the clock within one turn."""


class Stuck(Exception):
    """Something that had to happen did not, within the time that it was given."""


class Process:
    """A program that runs: its loop, and whether it is alive.

    `machine` is what it runs on: when the power of a machine fails, nobody is told. `rests_until_us` is
    set while it is stopped, or waits for its disk.
    """

    def __init__(self, scheduler: Scheduler, name: str, machine: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.machine = machine
        self.alive = True
        self.rests_until_us = 0
        self.loop = ProcessLoop(self)

    def rest(self, duration_us: int) -> None:
        """Do nothing for so long, beginning with the next turn."""
        self.rests_until_us = max(self.rests_until_us, self.scheduler.now_us) + duration_us

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Begin a task in it."""
        self.loop.create_task(coroutine)

    def __repr__(self) -> str:
        return self.name


class Scheduler:
    """Virtual time, and all that is to happen in it.

    Everything that is left to chance is drawn from `random`, or from generators that `random_for` has made of
    the same seed. Whatever happens is written to the trace; two runs are the same if their digests are.
    """

    network: Network

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 1_000_000
        self.random = self.random_for("turns")
        self.processes: dict[str, Process] = {}
        self.current: Process | None = None
        self._entered: Process | None = None
        """Whose loop is the running one: the last that had its turn."""
        self.complaints: list[str] = []
        self.turns = 0
        self.trace: list[str] = []
        self._digest = blake2b(digest_size=16)
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._event_number = 0
        self._graves: list[ProcessLoop] = []
        self._moment_us = 0
        self._looks = 0

    def random_for(self, purpose: str) -> random.Random:
        """A generator of its own for one purpose, so that others are not disturbed by it."""
        return random.Random(f"{self.seed}/{purpose}")

    # Time.

    def moment_us(self) -> int:
        """The time, but never the same twice: for histories, in which things are before each other."""
        self._moment_us = max(self._moment_us + 1, self.now_us)
        return self._moment_us

    def look_at_clock(self) -> None:
        """Somebody asks for the time; who does it for ever within one turn is stuck."""
        self._looks += 1
        if self._looks > LOOKS_MAX:
            raise Stuck(f"{self.current} goes round in circles")

    def at(self, when_us: int, action: Callable[[], object]) -> None:
        """Do this at a time."""
        self._event_number += 1
        heapq.heappush(self._events, (max(when_us, self.now_us), self._event_number, action))

    def after(self, delay_us: int, action: Callable[[], object]) -> None:
        """Do this in so many microseconds."""
        self.at(self.now_us + delay_us, action)

    # Processes.

    def start(self, name: str, machine: str) -> Process:
        """Begin a process. There must be none of its name."""
        assert name not in self.processes, name
        process = self.processes[name] = Process(self, name, machine)
        return process

    def end(self, process: Process) -> None:
        """A process is no more; what it was about to do never happens."""
        if process.alive:
            process.alive = False
            del self.processes[process.name]
            self._graves.append(process.loop)

    def bury(self) -> None:
        """End everything, at the end of a run."""
        for process in list(self.processes.values()):
            self.end(process)
        for loop in self._graves:
            loop.bury()
        self._graves.clear()

    # Running.

    def run_until(self, done: Callable[[], bool], within_s: float, what: str) -> None:
        """Let things happen until `done`; `Stuck` if that takes too long."""
        until_us = self.now_us + round(within_s * 1e6)
        with running():
            self._entered = None
            while not done():
                if self.turns > TURNS_MAX:
                    raise Stuck(f"{what}: {TURNS_MAX} turns were not enough")
                if self.now_us > until_us:
                    raise Stuck(f"{what} took more than {within_s:g} s")
                if not self._step():
                    raise Stuck(f"{what}: nothing will ever happen again")

    def _step(self) -> bool:
        """One turn of a process, or the next event; False if there is neither."""
        ready, due_us = self._look()
        if ready:
            self._turn(ready[self.random.randrange(len(ready))] if len(ready) > 1 else ready[0])
            return True
        if self._events and (due_us is None or self._events[0][0] <= due_us):
            when_us, _, action = heapq.heappop(self._events)
            self.now_us = max(self.now_us, when_us)
            action()
            return True
        if due_us is None:
            return False
        self.now_us = max(self.now_us, due_us)
        return True

    def _look(self) -> tuple[list[Process], int | None]:
        """The processes that can run now, and else when the first of them can."""
        ready: list[Process] = []
        first_us: int | None = None
        now_us = self.now_us
        if self._events and self._events[0][0] <= now_us:
            return ready, now_us
        for process in self.processes.values():
            due_us = process.loop.due_us(now_us)
            if due_us is None:
                continue
            if due_us < process.rests_until_us:
                due_us = process.rests_until_us
            if due_us <= now_us:
                ready.append(process)
            elif first_us is None or due_us < first_us:
                first_us = due_us
        return ready, first_us

    def _turn(self, process: Process) -> None:
        self.turns += 1
        self._looks = 0
        self.now_us += 1  # nothing takes no time at all
        self.current = process
        if self._entered is not process:
            process.loop.enter()
            self._entered = process
        try:
            process.loop.turn()
        finally:
            self.current = None

    # What is written down.

    def note(self, text: str) -> None:
        """A line of the trace."""
        line = f"{self.now_us / 1e6:12.6f} {text}"
        self._digest.update(line.encode())
        self.trace.append(line)
        if len(self.trace) > 2 * TRACE_KEPT:
            del self.trace[:TRACE_KEPT]

    def complain(self, text: str, error: BaseException | None = None) -> None:
        """Something happened that must never happen, whatever else goes wrong."""
        self.note(f"complaint: {text}")
        self.complaints.append(text)

    def digest(self) -> str:
        """Of all that has happened."""
        return self._digest.hexdigest()
