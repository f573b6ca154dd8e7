"""Groups and streams that span shards, with a network that loses, repeats and reorders, and shards that die at any point:
a group happens everywhere or nowhere, and nothing stays in doubt for ever."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.simulation.shards import LEASE_MS, SHARDS, World
from tstreams.core.waits import InDoubt
from tstreams.errors import AlreadyExists, NotFound
from tstreams.protocol import (
    AlterStream,
    AskDecision,
    Commit,
    CreateStream,
    Decision,
    DeleteStream,
    Prepare,
    Settle,
    StreamInfo,
    TellStream,
)
from tstreams.sharding import home_of

KINDS = (None, Prepare, Commit, Settle, AskDecision, TellStream, StreamInfo, Decision)
EXAMPLES = int(os.environ.get("TSTREAMS_SIMULATIONS", "100"))
PICK = st.integers(0, 10_000)
SHARD = st.integers(0, SHARDS - 1)
HOME = home_of("other", SHARDS)


def alter(world: World) -> None:
    with contextlib.suppress(NotFound):
        world.now(HOME, AlterStream, "other", 10**6)


def create(world: World) -> None:
    with contextlib.suppress(AlreadyExists):
        world.now(HOME, CreateStream, "other", SHARDS, 10**9)


def delete(world: World) -> None:
    with contextlib.suppress(NotFound):
        world.now(HOME, DeleteStream, "other")


class Shards(RuleBasedStateMachine):
    """Whatever happens to messages and shards."""

    @initialize()
    def begin(self) -> None:
        self.world = World()

    # Clients.

    @rule(
        name=st.sampled_from("pq"),
        decider=SHARD,
        other=SHARD,
        both=st.booleans(),
        before=st.booleans(),
    )
    def prepare(self, name: str, decider: int, other: int, both: bool, before: bool) -> None:
        others = [it for it in range(SHARDS) if it != decider]
        chosen = others if both else [others[other % len(others)]]
        self.world.begin(name, decider, chosen, before)

    @precondition(lambda self: self.world.attempts)
    @rule(pick=PICK)
    def client_dies(self, pick: int) -> None:
        self.world.attempts[pick % len(self.world.attempts)].dead = True

    @rule(name=st.sampled_from("pq"))
    def fence(self, name: str) -> None:
        with contextlib.suppress(InDoubt):
            self.world.open_agents(name)

    # The network.

    @precondition(lambda self: self.world.flights)
    @rule(pick=PICK, again=st.booleans())
    def message_arrives(self, pick: int, again: bool) -> None:
        flights = self.world.flights
        at = pick % len(flights)
        self.world.arrive(flights[at] if again else flights.pop(at))

    @rule(slow=st.sampled_from(KINDS), rounds=st.integers(1, 6), late=st.booleans())
    def rounds_pass(self, slow: type | None, rounds: int, late: bool) -> None:
        """All goes well for a while, but one kind of message is slow. Most stories need several such rounds."""
        world = self.world
        for _ in range(rounds):
            if late:
                self.time_passes(LEASE_MS)
            flights = world.flights
            world.flights = [it for it in flights if type(it.message) is slow]
            for flight in flights:
                if type(flight.message) is not slow:
                    world.arrive(flight)
            for shard in world.shards:
                world.errands(shard.number)
                shard.commit()

    @precondition(lambda self: self.world.flights)
    @rule(pick=PICK)
    def message_is_lost(self, pick: int) -> None:
        flights = self.world.flights
        del flights[pick % len(flights)]

    # Shards.

    @rule(shard=SHARD)
    def turn_ends(self, shard: int) -> None:
        self.world.shards[shard].commit()

    @rule(shard=SHARD, seed=PICK)
    def shard_dies(self, shard: int, seed: int) -> None:
        self.world.shards[shard].crash(random.Random(seed))

    @rule(by_ms=st.sampled_from([1, LEASE_MS // 2, LEASE_MS, 20 * 60_000]))
    def time_passes(self, by_ms: int) -> None:
        self.world.now_ms += by_ms
        for shard in self.world.shards:
            shard.add(shard.core.tick(self.world.now_ms))

    # Streams.

    @rule(what=st.sampled_from([alter, create, delete]), copies=st.lists(SHARD, max_size=2))
    def stream_changes(self, what: Callable[[World], None], copies: list[int]) -> None:
        """A stream is changed; shards that have asked for it a moment ago may get the answer long after."""
        for shard in set(copies) - {HOME}:
            self.world.ask_for_copy(shard, "other")
        if copies:
            self.rounds_pass(StreamInfo, 1, False)
        what(self.world)

    # The end.

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.come_to_rest()
        shown = [shard.visible() for shard in world.shards]
        for attempt in world.attempts:
            places = [attempt.group.shard, *attempt.participants]
            there = [
                (attempt.group, it) in world.made
                and set(world.made[attempt.group, it]) <= shown[it]
                for it in places
            ]
            assert all(there) or not any(there), f"{attempt.group} is there in part"
            if attempt.outcome is not None:
                assert all(there) == attempt.outcome, f"{attempt.group}: not what was said"
        home, *copies = world.stream_versions("other")
        assert all(it in (None, home) for it in copies), "a copy is not what its home says"


@pytest.mark.slow
@pytest.mark.timeout(120 + EXAMPLES)
def test_what_spans_shards_happens_everywhere_or_nowhere() -> None:
    run_state_machine_as_test(
        Shards,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
