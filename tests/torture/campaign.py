"""The campaign: all work, everything fails, and in the end all is looked at."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from tests.torture.crew import stop_file
from tests.torture.kinds import Catalogue, Deal, Kind
from tests.torture.plan import Plan, Step, Tempo
from tests.torture.resources import LIFE_S_MIN
from tests.torture.scene import Incident, Scene, tell
from tests.torture.verdict import Verdict

MORTAL_PART = 0.5
"""For this part of the time the server may die; then it lives on, so that leaks can be seen."""
SHORT_S = 2 * LIFE_S_MIN
"""In a shorter campaign it may die all the time: it is too short for leaks anyway."""
WORKS_S_MAX = 90.0
"""How long it may take until everybody works, when nothing is wrong."""
END_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for."""

    minutes: float
    seed: int
    spark: bool = False
    mistake: str = ""
    """What the server does wrong, by its name."""
    only: tuple[str, ...] = ()
    """Kinds of faults; empty: all."""
    barriers: dict[str, str] = field(default_factory=dict)
    """What cannot be had here ("disk", "cable", "shim", "spark"), and why."""
    log: str = "jetstream"
    """What keeps the logs of a cluster."""


class Stage(Protocol):
    """What a campaign has under it."""

    @property
    def scene(self) -> Scene:
        """The clients, and what was noticed."""

    def start(self) -> None:
        """Start the servers, and all clients."""

    def wait_for_others(self) -> None:
        """Wait until those who are no clients work. Whoever does not is complained of."""

    def heal(self) -> None:
        """See that nothing goes wrong any more."""

    def finish(self, verdict: Verdict) -> None:
        """All clients have ended: read all that is there, judge, and end the servers."""

    def report(self) -> dict[str, Any]:
        """What of it is not in every campaign."""


W = TypeVar("W", bound=Stage)


def choose(
    settings: Settings, catalogue: Catalogue[W]
) -> tuple[dict[str, Kind[W]], dict[str, str]]:
    """The faults that are made, and why others are not."""
    made: dict[str, Kind[W]] = {}
    skipped: dict[str, str] = {}
    for name, kind in catalogue.kinds.items():
        if kind.needs in settings.barriers:
            skipped[name] = settings.barriers[kind.needs]
        elif settings.only and name not in settings.only:
            skipped[name] = "not asked for"
        else:
            made[name] = kind
    return made, skipped


class Campaign(Generic[W]):
    """Makes the faults of a plan."""

    def __init__(
        self, settings: Settings, world: W, catalogue: Catalogue[W], tempo: Tempo | None = None
    ) -> None:
        self.settings = settings
        self.world = world
        self.scene = world.scene
        self.kinds: Mapping[str, Kind[W]]
        self.kinds, self.skipped = choose(settings, catalogue)
        self.plan = Plan(settings.seed, self.kinds, tempo)
        self.steps = 0

    def run(self) -> None:
        """Every kind once, at least; then go on until the time is over."""
        self.world.start()
        self._wait_until_all_work("at the beginning")
        self.world.wait_for_others()
        tell("all are at work")
        began = time.monotonic()
        length_s = self.settings.minutes * 60
        for step in self.plan.first():
            self._make(step)
        while self.kinds and (spent_s := time.monotonic() - began) < length_s:
            mortal = length_s < SHORT_S or spent_s < MORTAL_PART * length_s
            self._make(self.plan.next(mortal=mortal))
        self.scene.rest(max(0.0, began + length_s - time.monotonic()))

    def _make(self, step: Step) -> None:
        self.steps += 1
        self.scene.rest(step.pause_s)
        with ExitStack() as stack:
            for deal in step.deals:
                stack.enter_context(self._incident(deal))
            self.scene.rest(step.length_s)

    @contextmanager
    def _incident(self, deal: Deal) -> Iterator[None]:
        begin_s = time.monotonic()
        with self.kinds[deal.kind].body(self.world, deal) as detail:
            tell(f"step {self.steps}: {deal.kind} {detail}")
            yield
        self.scene.incidents.append(Incident(deal.kind, begin_s, time.monotonic(), detail))

    def _wait_until_all_work(self, when: str) -> None:
        """Nothing is wrong now: whoever does nothing is stuck."""
        healed_at = time.time()
        idle = self.scene.posts

        def all_work() -> bool:
            nonlocal idle
            idle = [it for it in self.scene.posts if not it.has_worked_since(healed_at)]
            return not idle

        if self.scene.rest_until(all_work, WORKS_S_MAX):
            return
        for post in idle:
            self.scene.complain(
                f"stuck: {post.name} did nothing for {WORKS_S_MAX} s {when}: {post.log_tail()}"
            )

    def finish(self) -> Verdict:
        """Everything is well again: let all come to an end, and judge."""
        self.world.heal()
        tell("all is healed")
        self._wait_until_all_work("after all was healed")
        self.scene.told_to_end_s = time.monotonic()
        stop_file(self.scene.folder).touch()
        tell("all are told to end")
        until = time.monotonic() + END_S_MAX
        for post in self.scene.posts:
            post.finish(until)
        verdict = Verdict()
        self.world.finish(verdict)
        return verdict

    def report(self, verdict: Verdict) -> dict[str, Any]:
        """What was done, and what it came to."""
        return {
            "faults": dict(sorted(Counter(it.kind for it in self.scene.incidents).items())),
            **self.world.report(),
            "skipped": self.skipped,
            "client_lives": {post.name: post.lives for post in self.scene.posts},
            "clients_fenced": sum(post.fenced for post in self.scene.posts),
            **asdict(verdict),
        }
