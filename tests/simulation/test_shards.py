"""Groups and streams that span shards, with a network that loses, repeats and reorders, and shards that die at any point:
a group happens everywhere or nowhere, and nothing stays in doubt for ever."""

from __future__ import annotations

import contextlib
import os
import random

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
from tstreams.protocol import AlterStream, CreateStream, DeleteStream
from tstreams.sharding import home_of

EXAMPLES = int(os.environ.get("TSTREAMS_SIMULATIONS", "100"))
PICK = st.integers(0, 10_000)
SHARD = st.integers(0, SHARDS - 1)
HOME = home_of("other", SHARDS)


class Shards(RuleBasedStateMachine):
    """Whatever happens to messages and shards."""

    @initialize()
    def begin(self) -> None:
        self.world = World()

    # Clients.

    @rule(name=st.sampled_from("pq"), decider=SHARD, other=SHARD, both=st.booleans())
    def prepare(self, name: str, decider: int, other: int, both: bool) -> None:
        others = [it for it in range(SHARDS) if it != decider]
        self.world.begin(name, decider, others if both else [others[other % len(others)]])

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

    @precondition(lambda self: self.world.flights)
    @rule()
    def all_messages_arrive(self) -> None:
        flights, self.world.flights = self.world.flights, []
        for flight in flights:
            self.world.arrive(flight)

    @precondition(lambda self: self.world.flights)
    @rule(pick=PICK)
    def message_is_lost(self, pick: int) -> None:
        flights = self.world.flights
        del flights[pick % len(flights)]

    # Shards.

    @rule(shard=SHARD)
    def turn_ends(self, shard: int) -> None:
        self.world.shards[shard].commit()

    @rule()
    def all_turns_end(self) -> None:
        for shard in self.world.shards:
            shard.commit()

    @rule(shard=SHARD, seed=PICK)
    def shard_dies(self, shard: int, seed: int) -> None:
        self.world.shards[shard].crash(random.Random(seed))

    @rule(shard=SHARD)
    def errands(self, shard: int) -> None:
        self.world.errands(shard)

    @rule(by_ms=st.sampled_from([1, LEASE_MS // 2, LEASE_MS, 20 * 60_000]))
    def time_passes(self, by_ms: int) -> None:
        self.world.now_ms += by_ms
        for shard in self.world.shards:
            shard.add(shard.core.tick(self.world.now_ms))

    # Streams.

    @rule(ttl_ms=st.integers(10**6, 10**7))
    def alter(self, ttl_ms: int) -> None:
        with contextlib.suppress(NotFound):
            self.world.now(HOME, AlterStream, "other", ttl_ms)

    @rule()
    def delete(self) -> None:
        with contextlib.suppress(NotFound):
            self.world.now(HOME, DeleteStream, "other")

    @rule()
    def create(self) -> None:
        with contextlib.suppress(AlreadyExists):
            self.world.now(HOME, CreateStream, "other", SHARDS, 10**9)

    @rule(shard=SHARD)
    def copy(self, shard: int) -> None:
        if shard != HOME:
            self.world.ask_for_copy(shard, "other")

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
            stateful_step_count=60,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
