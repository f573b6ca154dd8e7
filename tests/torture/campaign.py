"""The campaign: all work, everything fails, and in the end all is looked at."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.checker.recording import Recorder
from tests.torture import shim
from tests.torture.crew import stop_file
from tests.torture.failpoints import POINTS
from tests.torture.faults import KINDS, Deal
from tests.torture.namespace import OURS, disk, veth
from tests.torture.panel import Panel
from tests.torture.plan import Plan, Step
from tests.torture.proxy import Proxy
from tests.torture.resources import LIFE_S_MIN, Sampler, connections_left, report
from tests.torture.verdict import Verdict, conclude, judge
from tests.torture.world import FLAGS, Incident, TorturedServer, World, tell
from tstreams.server.verify import verify

MORTAL_PART = 0.5
"""For this part of the time the server may die; then it lives on, so that leaks can be seen."""
SHORT_S = 2 * LIFE_S_MIN
"""In a shorter campaign it may die all the time: it is too short for leaks anyway."""
WORKS_S_MAX = 90.0
"""How long it may take until everybody works, when nothing is wrong."""
END_S_MAX = 60.0
DISK_MB, DISK_MB_PER_MINUTE, DISK_MB_MAX = 256, 48, 4096
QUERY_S_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for."""

    minutes: float
    seed: int
    spark: bool = False
    mistake: str = ""
    """What the server does wrong, by its name in the simulation."""
    only: tuple[str, ...] = ()
    """Kinds of faults; empty: all."""
    barriers: dict[str, str] = field(default_factory=dict)
    """What cannot be had here ("disk", "cable", "shim", "spark"), and why."""

    def kinds(self) -> tuple[list[str], dict[str, str]]:
        """The faults that are made, and why others are not."""
        made, skipped = [], {}
        for name, kind in KINDS.items():
            if kind.needs in self.barriers:
                skipped[name] = self.barriers[kind.needs]
            elif self.only and name not in self.only:
                skipped[name] = "not asked for"
            else:
                made.append(name)
        return made, skipped


class Campaign:
    """Makes the faults of a plan."""

    def __init__(self, settings: Settings, world: World) -> None:
        self.settings = settings
        self.world = world
        self.kinds, self.skipped = settings.kinds()
        self.plan = Plan(settings.seed, self.kinds)
        self.steps = 0

    def run(self) -> None:
        """Every kind once, at least; then go on until the time is over."""
        self.world.start()
        self._wait_until_all_work("at the beginning")
        self._wait_for_query()
        tell("all are at work")
        began = time.monotonic()
        length_s = self.settings.minutes * 60
        for step in self.plan.first():
            self._make(step)
        while self.kinds and (spent_s := time.monotonic() - began) < length_s:
            mortal = length_s < SHORT_S or spent_s < MORTAL_PART * length_s
            self._make(self.plan.next(mortal=mortal))
        self.world.rest(max(0.0, began + length_s - time.monotonic()))

    def _make(self, step: Step) -> None:
        self.steps += 1
        self.world.rest(step.pause_s)
        with ExitStack() as stack:
            for deal in step.deals:
                stack.enter_context(self._incident(deal))
            self.world.rest(step.length_s)

    @contextmanager
    def _incident(self, deal: Deal) -> Iterator[None]:
        begin_s = time.monotonic()
        with KINDS[deal.kind].body(self.world, deal) as detail:
            tell(f"step {self.steps}: {deal.kind} {detail}")
            yield
        self.world.incidents.append(Incident(deal.kind, begin_s, time.monotonic(), detail))

    def _wait_until_all_work(self, when: str) -> None:
        """Nothing is wrong now: whoever does nothing is stuck."""
        healed_at, until = time.time(), time.monotonic() + WORKS_S_MAX
        while True:
            idle = [it for it in self.world.posts if not it.has_worked_since(healed_at)]
            if not idle or time.monotonic() > until:
                break
            self.world.rest(0.1)
        for post in idle:
            self.world.complain(
                f"stuck: {post.name} did nothing for {WORKS_S_MAX} s {when}: {post.log_tail()}"
            )

    def _wait_for_query(self) -> None:
        until = time.monotonic() + QUERY_S_MAX
        while self.world.spark is not None and not self.world.spark.is_at_work:
            if time.monotonic() > until:
                self.world.complain(f"stuck: the query: {self.world.spark.log_tail()}")
                return
            self.world.rest(0.1)

    def finish(self) -> Verdict:
        """Everything is well again: let all come to an end, and judge."""
        world = self.world
        world.heal()
        tell("all is healed")
        self._wait_until_all_work("after all was healed")
        world.told_to_end_s = time.monotonic()
        stop_file(world.folder).touch()
        tell("all are told to end")
        until = time.monotonic() + END_S_MAX
        for post in world.posts:
            post.finish(until)
        verdict = Verdict()
        if world.spark is not None:
            tell("the query does what is left")
            world.spark.drain(QUERY_S_MAX)
        if left := connections_left(world.server.pid):
            world.complain(f"leak: {left} connections are left, and nobody is there any more")
        tell("all is read, and judged")
        conclude(world)
        judge(world, verdict)
        if (status := world.server.stop()) != 0:
            verdict.add(f"SIGTERM ended the server with {status}: {world.server.log_tail()}")
        verdict.findings += verify(world.server.data).problems
        return verdict

    def report(self, verdict: Verdict) -> dict[str, Any]:
        """What was done, and what it came to."""
        world = self.world
        never = sorted(set(POINTS) - set(world.hits))
        return {
            "faults": dict(sorted(Counter(it.kind for it in world.incidents).items())),
            "failpoints": {
                "hit": dict(sorted(world.hits.items())),
                "deaths": world.hits.total(),
                "not_reached_in_time": world.missed.total(),
                "never_hit": never,
            },
            "skipped": self.skipped,
            "client_lives": {post.name: post.lives for post in world.posts},
            "clients_fenced": sum(post.fenced for post in world.posts),
            **asdict(verdict),
        }


@contextmanager
def _world(settings: Settings, folder: Path) -> Iterator[World]:
    """All parts, until the end."""
    with ExitStack() as stack:
        small = None
        if "disk" not in settings.barriers:
            megabytes = DISK_MB + int(DISK_MB_PER_MINUTE * settings.minutes)
            small = stack.enter_context(disk(folder / "disk", min(megabytes, DISK_MB_MAX)))
        cable = None if "cable" in settings.barriers else stack.enter_context(veth())
        panel = Panel(folder / "panel")
        server = TorturedServer((small or folder) / "data", *FLAGS, papers=folder)
        if cable is not None:
            server.flags += ("--listen", server.url.replace("127.0.0.1", OURS), "--insecure")
        server.command = [] if "shim" in settings.barriers else shim.build(folder, panel)
        server.command += [sys.executable, "-m", "tests.torture.server"]
        server.command += ["--panel", str(panel.path)]
        server.command += ["--mistake", settings.mistake]
        port = int(server.url.rpartition(":")[2])
        proxy = stack.enter_context(Proxy("127.0.0.1", port, settings.seed))
        recorder = Recorder(folder / "campaign.jsonl")
        world = World(folder, settings.seed, server, panel, proxy, recorder, small, cable)
        stack.callback(world.close)
        if settings.spark:
            from tests.crash.spark.post import Post

            (folder / "tmp").mkdir()
            rng = random.Random(f"{settings.seed} spark")
            world.spark = Post(server.url, folder, rng)
        yield world


def run(settings: Settings, folder: Path) -> dict[str, Any]:
    """Do it. The report."""
    began = time.monotonic()
    with _world(settings, folder) as world:
        campaign = Campaign(settings, world)
        with Sampler(lambda: world.server.pid) as sampler:
            campaign.run()
            verdict = campaign.finish()
        resources = report(sampler.samples, world.told_to_end_s)
        verdict.findings += [f"leak: {it}: {resources[it]}" for it in resources["leaks"]]
        return {
            **campaign.report(verdict),
            "resources": resources,
            "minutes": settings.minutes,
            "seconds": round(time.monotonic() - began, 1),
            "seed": settings.seed,
        }
