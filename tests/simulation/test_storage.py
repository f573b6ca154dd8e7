"""A shard against a model, with power cuts between any two writes, flushes, trims and repeated requests."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.simulation import checks
from tests.simulation.choices import (
    AGAIN,
    HOUSEKEEPING,
    LEASES_MS,
    MORE,
    PICK,
    REPLACED,
    SEED,
    SIZES,
    SOME_TIME_MS,
    STEPS,
    STREAM_CHANGES,
    STREAMS,
    TTLS_MS,
)
from tests.simulation.client import Refused
from tests.simulation.disk import PowerCut
from tests.simulation.model import Stream
from tests.simulation.world import Client, World
from tstreams.index import IndexFailed
from tstreams.model import ID_MAX
from tstreams.protocol import (
    AlterStream,
    Brought,
    CancelStep,
    CancelTransactions,
    Change,
    CloseAgent,
    Commit,
    CommitStep,
    CreateStream,
    DeleteStream,
    EndTransactions,
    Fetch,
    GetStream,
    Instant,
    OpenAgent,
    OpenTransaction,
    PurgeStream,
    ReadPosition,
    ResetReader,
    SendItems,
    Stage,
    Want,
)

EXAMPLES = int(os.environ.get("TSTREAMS_SIMULATIONS", "100"))
"""How many lives of a shard are played; a few thousand find what takes several coincidences."""


class Storage(RuleBasedStateMachine):
    """Whatever happens, what was acknowledged is there, and nothing else is."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.number = 0
        self.power_cut: tuple[int, int | None, bool] = (0, None, True)
        for _ in range(2):
            self.world.open_session()
        self.world.end_turn()
        self.settle(0, False)

    # Helpers.

    def do(self, action: Callable[[], object], more: bool = False) -> None:
        """Do something, after which the turn may end; if the power fails, recover."""
        try:
            action()
            if not more:
                self.world.end_turn()
        except PowerCut:
            self.world.crash(*self.power_cut)

    def ask(self, pick: int, more: bool, kind: type[Change], *fields: Any, items: Any = ()) -> None:
        client = self.client(pick)
        self.do(lambda: self.world.ask(client, kind, *fields, items=items), more)

    def client(self, pick: int) -> Client:
        """A client, mostly one whose session lives."""
        clients = self.world.clients
        alive = [it for it in clients if it.session in self.world.model.sessions]
        among = clients if pick % 16 == 15 or not alive else alive
        return among[pick % len(among)]

    def agent(self, pick: int, kind: str) -> int:
        """An agent of this kind, mostly one that lives."""
        agents = [it.id for it in self.world.model.agents.values() if it.kind == kind]
        if not agents or pick % 16 == 15:
            return pick % (self.world.model.last_number + 1)
        return agents[pick % len(agents)]

    def transactions(self, picks: Sequence[int]) -> list[int]:
        """Some transactions, mostly open ones."""
        open_ones = sorted(it.id for it in self.world.model.open())
        all_of_them = sorted(self.world.model.transactions)
        found = []
        for pick in picks:
            among = all_of_them if pick % 16 == 15 or not open_ones else open_ones
            if among:
                found.append(among[pick % len(among)])
        return list(dict.fromkeys(found))

    def agents_of(self, transactions: Sequence[int]) -> list[int]:
        known = self.world.model.transactions
        return list(dict.fromkeys(known[it].agent for it in transactions))

    def items(self, sizes: Sequence[int]) -> list[bytes]:
        """Items that are like no others, and nowhere like a sector that was never written."""
        self.number += len(sizes)
        return [b"%d " % (self.number - n) * (size // 2) for n, size in enumerate(sizes)]

    def stream(self, pick: int) -> Stream | None:
        streams = list(self.world.model.streams.values())
        return streams[pick % len(streams)] if streams else None

    # Streams, agents, sessions.

    @rule(pick=PICK, more=MORE)
    def settle(self, pick: int, more: bool) -> None:
        """Two streams, each with a producer and a reader, as far as they are missing."""
        model = self.world.model
        names = {it.name for it in model.streams.values()}
        for name, partitions, ttl_ms in (("a", 2, 20_000), ("b", 1, 10**9)):
            if name not in names:
                self.ask(pick, False, CreateStream, name, partitions, ttl_ms)
        model = self.world.model
        streams = {it.id: it.name for it in model.streams.values()}
        held = {(it.kind, streams.get(it.stream)) for it in model.agents.values()}
        for stream in "ab":
            for kind in ("producer", "reader"):
                if (kind, stream) not in held:
                    self.ask(pick, more, OpenAgent, kind, stream, "x")

    @rule(pick=PICK, more=MORE, name=STREAMS, ttl_ms=TTLS_MS, kind=STREAM_CHANGES)
    def change_stream(self, pick: int, more: bool, name: str, ttl_ms: int, kind: Any) -> None:
        ids = [0, ID_MAX, *sorted(self.world.model.transactions)]
        found = [it.schema for it in self.world.model.streams.values() if it.name == name]
        schemas: list[bytes | None] = [None, b"one", b"two", *found]
        grown = schemas[pick % 3], schemas[pick % len(schemas)]
        fields: dict[type[Change], tuple[Any, ...]] = {
            CreateStream: (name, pick % 2 + 1, ttl_ms, "", schemas[pick % 3]),
            AlterStream: (name, ttl_ms, f"since {self.world.now_ms}", *grown),
            DeleteStream: (name,),
            PurgeStream: (name, ids[pick % len(ids)]),
        }
        self.ask(pick, more, kind, *fields[kind])

    @rule(pick=PICK, more=MORE, stream=STREAMS, name=st.sampled_from("xy"), leave=st.booleans())
    def change_agent(self, pick: int, more: bool, stream: str, name: str, leave: bool) -> None:
        kind = ("producer", "reader")[pick % 2]
        if leave:
            self.ask(pick, more, CloseAgent, self.agent(pick, kind))
        else:
            self.ask(pick, more, OpenAgent, kind, stream, name)

    @rule(pick=PICK, more=MORE, acknowledge=st.booleans())
    def keep_alive(self, pick: int, more: bool, acknowledge: bool) -> None:
        client = self.client(pick)
        if acknowledge:
            while client.acked < client.sequence and client.acked + 1 in client.answers:
                client.acked += 1
                del client.sent[client.acked]
        self.do(lambda: self.world.keep_alive(client), more)

    @precondition(lambda self: len(self.world.clients) < 6)
    @rule(more=MORE)
    def another_client(self, more: bool) -> None:
        self.do(self.world.open_session, more)

    # Transactions.

    @rule(pick=PICK, more=MORE, partition=st.integers(0, 2), lease_ms=LEASES_MS)
    def open_transaction(self, pick: int, more: bool, partition: int, lease_ms: int) -> None:
        agent = self.agent(pick, "producer")
        self.ask(pick, more, OpenTransaction, agent, partition, lease_ms)

    @rule(pick=PICK, more=MORE, sizes=SIZES)
    def send(self, pick: int, more: bool, sizes: list[int]) -> None:
        for transaction in self.transactions([pick]):
            agent = self.world.model.transactions[transaction].agent
            self.ask(pick, more, SendItems, agent, transaction, items=self.items(sizes))

    @rule(pick=PICK, more=MORE, partition=st.integers(0, 2), sizes=SIZES)
    def instant(self, pick: int, more: bool, partition: int, sizes: list[int]) -> None:
        agent = self.agent(pick, "producer")
        self.ask(pick, more, Instant, agent, partition, items=self.items(sizes))

    @rule(pick=PICK, sizes=st.lists(SIZES, min_size=1, max_size=4), more=MORE)
    def work(self, pick: int, sizes: list[list[int]], more: bool) -> None:
        """All producers make some transactions, side by side, some of them long ones."""
        producers = [it.id for it in self.world.model.agents.values() if it.kind == "producer"]
        before = sorted(it.id for it in self.world.model.open())
        self.ask(pick, False, OpenTransaction, self.agent(pick, "producer"), 0, 15_000)
        for size in sizes:
            for agent in producers:
                self.ask(pick, more, Instant, agent, 0, items=self.items(size))
            for it in self.world.model.open():
                self.ask(pick, more, SendItems, it.agent, it.id, items=self.items(size))
        self.ask(pick, more, Commit, self.agents_of(before), before)

    @rule(pick=PICK, more=MORE, picks=st.lists(PICK, max_size=3), moves=st.lists(PICK, max_size=2))
    def commit(self, pick: int, more: bool, picks: list[int], moves: list[int]) -> None:
        """Several transactions and readers' positions, all or nothing."""
        transactions = self.transactions(picks)
        positions = [
            ReadPosition(self.agent(it, "reader"), it % 2, self.world.model.last_id + it % 5)
            for it in moves
        ]
        agents = self.agents_of(transactions) + [it.agent for it in positions]
        self.ask(pick, more, Commit, agents, transactions, positions)

    @rule(
        pick=PICK,
        more=MORE,
        picks=st.lists(PICK, max_size=3),
        new=st.lists(PICK, min_size=1, max_size=3),
        moves=st.lists(PICK, max_size=2),
        sizes=SIZES,
    )
    def commit_with_batches(
        self,
        pick: int,
        more: bool,
        picks: list[int],
        new: list[int],
        moves: list[int],
        sizes: list[int],
    ) -> None:
        """The same with batches that come along: the last of some transactions, and all of new ones."""
        transactions = list(dict.fromkeys(self.transactions(picks)))
        owners = [self.world.model.transactions[it].agent for it in transactions]
        brought = [
            Brought(agent, 0, it) for agent, it in zip(owners, transactions, strict=True) if it % 3
        ]
        brought += [Brought(self.agent(it, "producer"), it % 3) for it in new]
        positions = [
            ReadPosition(self.agent(it, "reader"), it % 2, self.world.model.last_id + it % 5)
            for it in moves
        ]
        agents = owners + [it.agent for it in brought] + [it.agent for it in positions]
        members = list(dict.fromkeys(agents))
        items = self.items(sizes)
        self.ask(pick, more, Commit, members, transactions, positions, brought, items=items)

    @rule(pick=PICK, more=MORE, picks=st.lists(PICK, min_size=1, max_size=3))
    def cancel(self, pick: int, more: bool, picks: list[int]) -> None:
        transactions = self.transactions(picks)
        self.ask(pick, more, CancelTransactions, self.agents_of(transactions), transactions)

    # Jobs.

    @rule(pick=PICK, more=MORE, picks=st.lists(PICK, max_size=3), step=STEPS, lease_ms=LEASES_MS)
    def stage(self, pick: int, more: bool, picks: list[int], step: int, lease_ms: int) -> None:
        """Hand transactions of one producer over to a job, mostly to the step that is due."""
        transactions = self.transactions(picks)
        job = "uv"[pick % 2]
        step = max(0, self.world.model.last_steps.get(job, -1) + step)
        agents = self.agents_of(transactions) or [self.agent(pick, "producer")]
        known = self.world.model.transactions
        if pick % 16 != 15:
            transactions = [it for it in transactions if known[it].agent == agents[0]]
        self.ask(pick, more, Stage, agents[0], transactions, job, step, lease_ms)

    @rule(pick=PICK, more=MORE, step=STEPS, all_of_it=st.booleans(), replace=REPLACED)
    def commit_step(
        self, pick: int, more: bool, step: int, all_of_it: bool, replace: list[str]
    ) -> None:
        """Commit what was staged, or a part of it; now and then something else."""
        job = "uv"[pick % 2]
        step = max(0, self.world.model.last_steps.get(job, -1) + step)
        staged = [it.id for it in self.world.model.open() if it.staged == (job, step)]
        chosen = staged if all_of_it else staged[pick % 3 :]
        if pick % 16 == 15:
            chosen = self.transactions([pick, pick // 2])
        self.ask(pick, more, CommitStep, job, step, chosen, replace, pick % 7 == 6)

    @rule(pick=PICK, more=MORE, step=STEPS)
    def cancel_step(self, pick: int, more: bool, step: int) -> None:
        job = "uv"[pick % 2]
        step = max(0, self.world.model.last_steps.get(job, -1) + step)
        self.ask(pick, more, CancelStep, job, step)

    # Operators.

    @rule(
        pick=PICK, more=MORE, stream=STREAMS, moves=st.lists(PICK, max_size=2), force=st.booleans()
    )
    def reset_reader(
        self, pick: int, more: bool, stream: str, moves: list[int], force: bool
    ) -> None:
        """Put a reader elsewhere, mostly where it may be put, and forget some of its positions."""
        ids = [0, *sorted(self.world.model.transactions)]
        positions = [(it % 2, ids[it % len(ids)] + (it % 16 == 15) * 10**9) for it in moves]
        self.ask(pick, more, ResetReader, stream, "xy"[pick % 2], positions, force)

    @rule(pick=PICK, more=MORE, picks=st.lists(PICK, max_size=3))
    def overrule(self, pick: int, more: bool, picks: list[int]) -> None:
        """Cancel what others have open."""
        self.ask(pick, more, EndTransactions, self.transactions(picks))

    @rule(pick=PICK, which=PICK, more=MORE)
    def send_again(self, pick: int, which: int, more: bool) -> None:
        """A request that was sent before, answered or not."""
        client = self.client(pick)
        if client.sent:
            message, items = client.sent[sorted(client.sent)[which % len(client.sent)]]
            self.do(lambda: self.world.send(client, message, items), more)

    # Time, and what a server does by itself.

    @rule(ms=SOME_TIME_MS, more=MORE)
    def time_passes(self, ms: int, more: bool) -> None:
        self.world.now_ms += ms
        self.world.model.now_ms = self.world.now_ms
        self.do(self.world.tick, more)
        if not self.world.model.sessions:
            self.do(self.world.open_session)

    @rule(budget=st.integers(1, 4), more=MORE)
    def sweep(self, budget: int, more: bool) -> None:
        self.do(lambda: self.world.sweep(budget), more)

    @rule(job=HOUSEKEEPING, more=MORE)
    def keep_house(self, job: str, more: bool) -> None:
        self.do(getattr(self.world, job), more)

    @rule()
    def tidy_up(self) -> None:
        self.do(self.world.tidy_up)

    @rule(pick=PICK, sizes=st.lists(SIZES, min_size=2, max_size=3), more=MORE, alter=st.booleans())
    def let_some_die(self, pick: int, sizes: list[list[int]], more: bool, alter: bool) -> None:
        """Much is written, half of it dies, and what lives has to be moved."""
        self.settle(pick, False)
        for _ in range(2):
            self.work(pick, sizes, more)
        self.keep_alive(pick, False, False)
        self.time_passes(11_000, False)
        self.keep_alive(pick, False, False)
        self.time_passes(11_000, False)
        if alter:
            self.change_stream(pick, False, "a", 10**9, AlterStream)
        self.tidy_up()

    # What goes wrong.

    @rule(steps=st.integers(0, 12), seed=SEED, again_after=AGAIN, resend=st.booleans())
    def the_power_will_fail(
        self, steps: int, seed: int, again_after: int | None, resend: bool
    ) -> None:
        self.power_cut = seed, again_after, resend
        self.world.storage.steps_left = steps

    @rule(
        steps=st.integers(0, 3),
        seed=SEED,
        again_after=AGAIN,
        resend=st.booleans(),
        pick=PICK,
        sizes=st.lists(SIZES, min_size=1, max_size=4),
    )
    def the_power_fails_while_writing(
        self,
        steps: int,
        seed: int,
        again_after: int | None,
        resend: bool,
        pick: int,
        sizes: list[list[int]],
    ) -> None:
        """Any sectors of the group may be on the disk, or none, or all."""
        for size in sizes:
            self.instant(pick, True, 0, size)
        self.the_power_will_fail(steps, seed, again_after, resend)
        self.do(lambda: None)

    @rule(seed=SEED, again_after=AGAIN, resend=st.booleans())
    def the_power_fails(self, seed: int, again_after: int | None, resend: bool) -> None:
        self.world.crash(seed, again_after, resend)

    @rule()
    def restart(self) -> None:
        self.do(self.world.restart, True)

    @rule(full=st.booleans(), looks=st.booleans())
    def the_disk_fills(self, full: bool, looks: bool) -> None:
        self.world.storage.room().full = full
        if looks:
            self.world.look_at_disk()

    @precondition(lambda self: self.world.storage.steps_left is None)
    @rule(pick=PICK, seed=SEED, resend=st.booleans(), sizes=SIZES)
    def a_sync_fails(self, pick: int, seed: int, resend: bool, sizes: list[int]) -> None:
        """Nothing is acknowledged after it, and nothing that was before it is lost."""
        world = self.world
        if not self.something_is_under_way(pick, sizes):
            return
        world.storage.disk.sync_error = OSError(errno.EIO, "Input/output error")
        world.shard.commit()
        world.storage.disk.sync_error = None
        refused = [it.request for it in world.turn]
        refused.append(world.read(GetStream("a")))
        for request in refused:
            assert isinstance(request.reply, Refused)
            assert request.reply.code == "unavailable"
            assert "check the disk" in request.reply.message
        world.local.look_at_disk()
        assert world.shard.failed, "it takes a restart"
        world.crash(seed, None, resend)

    @precondition(lambda self: self.world.storage.steps_left is None)
    @rule(pick=PICK, seed=SEED, resend=st.booleans(), sizes=SIZES, is_full=st.booleans())
    def the_index_fails(
        self, pick: int, seed: int, resend: bool, sizes: list[int], is_full: bool
    ) -> None:
        """The log has it. If there was no room, the shard opens both again by itself once there is; if it
        was anything else, the shard does no more, because the index has missed something."""
        world = self.world
        if not self.something_is_under_way(pick, sizes):
            return
        world.storage.database.fails = (
            IndexFailed("no room") if is_full else RuntimeError("a mistake in the program")
        )
        world.shard.commit()
        world.storage.database.fails = None
        failure = world.shard.failed
        assert failure is not None
        for asked in world.turn:
            assert isinstance(asked.request.reply, Refused)
            assert asked.request.reply.code == "unavailable"
        world.storage.database.close_badly(seed)
        world.waiting = []
        world.flushing = None
        world.local.look_at_disk()
        if not is_full:
            assert world.shard.failed, "it takes a restart"
            world.open_shard()
        assert world.shard.failed is None
        world.recovered(resend)

    def something_is_under_way(self, pick: int, sizes: list[int]) -> bool:
        agent = self.agent(pick, "producer")
        if not self.world.storage.room().full:
            self.world.ask(self.client(pick), Instant, agent, 0, items=self.items(sizes))
        return bool(self.world.shard.turns.pending) and not self.world.storage.room().full

    # Reading.

    def turn_is_over(self) -> bool:
        return not self.world.turn and not self.world.shard.turns.pending

    @rule(pick=PICK)
    def wait_for_something(self, pick: int) -> None:
        """A reader that has seen everything waits for more."""
        stream = self.stream(pick)
        if stream is not None and self.turn_is_over():
            wants = []
            for partition in range(stream.partitions):
                visible = self.world.model.visible(stream, partition)
                wants.append(Want(partition, visible[-1].id + 1 if visible else 0))
            self.world.wait_for(Fetch(stream.id, wants, 10**6, 1_000))

    @rule(pick=PICK, bytes_max=st.integers(1, 1500))
    def read_in_small_bites(self, pick: int, bytes_max: int) -> None:
        stream = self.stream(pick)
        if stream is not None and self.turn_is_over():
            checks.read_in_small_bites(self.world, stream, bytes_max)

    # What must hold after every step.

    @invariant()
    def readers_see_what_they_should(self) -> None:
        if self.turn_is_over():
            checks.readers_see_what_they_should(self.world)

    @invariant()
    def live_bytes_are_what_is_referred_to(self) -> None:
        checks.live_bytes_are_what_is_referred_to(self.world.shard)

    def teardown(self) -> None:
        if hasattr(self, "world") and sys.exc_info()[0] is None:
            checks.in_the_end_nothing_is_left(self.world)


@pytest.mark.slow
@pytest.mark.timeout(120 + EXAMPLES)
def test_a_shard_keeps_its_promises_whatever_happens(small_limits: None, quiet: None) -> None:
    run_state_machine_as_test(
        Storage,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
