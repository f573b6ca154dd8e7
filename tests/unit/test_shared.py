"""The turn of a shard whose log answers later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.simulation.client import Refused, SimulatedRequest
from tests.simulation.engine import MemoryEngine, Sequence
from tstreams.errors import Error, NotLeader, Unavailable
from tstreams.ledger.engine import Engine
from tstreams.protocol import (
    CreateStream,
    GetStream,
    KeepAlive,
    OpenSession,
    SessionOpened,
    StreamInfo,
)
from tstreams.server import line
from tstreams.server import replica as replica_module
from tstreams.server.handlers import Handlers
from tstreams.server.replica import Replica
from tstreams.server.storage import LocalStorage


class Leader:
    """A replica that leads, and the engine between it and the others."""

    def __init__(self, path: Path) -> None:
        self.engine = MemoryEngine(Sequence())

        async def connect() -> Engine:
            return self.engine

        self.replica = Replica(0, LocalStorage(path), connect)
        self.handlers = Handlers(self.replica.shard)
        self.session = 0

    async def start(self) -> None:
        await self.replica.start()
        await self.replica.lead(1)
        opened = await self.answer(OpenSession())
        assert isinstance(opened.reply, SessionOpened)
        self.session = opened.reply.session

    def send(self, message: object) -> SimulatedRequest:
        return SimulatedRequest(message).send(self.handlers)  # type: ignore[arg-type]

    def create(self, number: int, acked: int = 0) -> SimulatedRequest:
        return self.send(CreateStream(self.session, number, acked, f"s{number}", 1, 10**9))

    async def answer(self, message: object) -> SimulatedRequest:
        return await answered(self.send(message))


async def answered(request: SimulatedRequest) -> SimulatedRequest:
    async with asyncio.timeout(20):
        while request.reply is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return request


def with_leader(path: Path, test: Callable[[Leader], Awaitable[None]]) -> None:
    async def main() -> None:
        leader = Leader(path)
        await leader.start()
        try:
            await test(leader)
        finally:
            await leader.replica.close()

    asyncio.run(main())


def test_while_a_group_is_under_way_nothing_is_decided(tmp_path: Path) -> None:
    async def test(leader: Leader) -> None:
        core = leader.replica.shard.core
        leader.engine.cut_off = True
        first = leader.create(1)
        await asyncio.sleep(0)  # the turn ends
        number = core.state.last_number
        waiting = [
            leader.create(2),
            leader.send(GetStream("s1")),
            leader.send(KeepAlive(leader.session, 0)),
            leader.create(3),
        ]
        await asyncio.sleep(0.05)
        assert core.state.last_number == number
        assert all(it.reply is None for it in [first, *waiting])
        groups = leader.replica.shard.metrics.groups
        leader.engine.cut_off = False
        for request in [first, *waiting]:
            assert not isinstance((await answered(request)).reply, Refused)
        assert isinstance(waiting[1].reply, StreamInfo)
        assert leader.replica.shard.metrics.groups == groups + 2  # all that waited are one turn

    with_leader(tmp_path, test)


def test_who_waits_for_a_turn_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "TURN_WAITING_MAX", 2)

    async def test(leader: Leader) -> None:
        leader.engine.cut_off = True
        first = leader.create(1)
        await asyncio.sleep(0)
        waiting = [leader.create(number) for number in (2, 3)]
        refused = leader.create(4)
        assert isinstance(refused.reply, Refused)
        assert refused.reply.code == Unavailable.code
        assert "wait for the log" in refused.reply.message
        leader.engine.cut_off = False
        for request in [first, *waiting]:
            assert isinstance((await answered(request)).reply, StreamInfo)

    with_leader(tmp_path, test)


def test_closing_does_not_wait_for_an_engine_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "LANDING_S", 0.05)

    async def test(leader: Leader) -> None:
        leader.engine.cut_off = True
        under_way = leader.create(1)
        await asyncio.sleep(0)
        waiting = leader.create(2)
        await leader.replica.close()
        assert isinstance(under_way.reply, Refused)
        assert "not known" in under_way.reply.message
        assert isinstance(waiting.reply, Refused)  # and everyone else is told, too
        assert isinstance(leader.create(3).reply, Refused)

    with_leader(tmp_path, test)


def test_closing_answers_what_is_under_way(tmp_path: Path) -> None:
    async def test(leader: Leader) -> None:
        under_way = leader.create(1)
        await leader.replica.close()
        assert isinstance(under_way.reply, StreamInfo)

    with_leader(tmp_path, test)


def test_without_room_at_the_engine_nothing_has_happened(tmp_path: Path) -> None:
    async def test(leader: Leader) -> None:
        leader.engine.sequence.room_bytes = 0
        refused = await answered(leader.create(1))
        assert isinstance(refused.reply, Refused)
        assert leader.replica.leading
        leader.engine.sequence.room_bytes = 1 << 60
        assert isinstance((await leader.answer(GetStream("s1"))).reply, Refused)
        leader.replica.shared.look_at_disk()
        assert isinstance((await answered(leader.create(2, acked=1))).reply, StreamInfo)

    with_leader(tmp_path, test)


def test_who_asks_a_node_that_is_about_to_lead_waits(tmp_path: Path) -> None:
    async def test(leader: Leader) -> None:
        shared = leader.replica.shared
        await leader.replica.step_down()
        assert isinstance(leader.create(1).reply, Refused)
        shared.expect(True)
        held = leader.create(1)
        assert held.reply is None
        await leader.replica.lead(2)
        assert isinstance((await answered(held)).reply, StreamInfo)
        await leader.replica.step_down()
        held = leader.create(2)
        assert held.reply is None
        shared.expect(False)
        assert isinstance(held.reply, Refused)

    with_leader(tmp_path, test)


def test_what_was_refused_here_is_not_overtaken_by_what_was_sent_behind_it(tmp_path: Path) -> None:
    async def test(leader: Leader) -> None:
        await leader.replica.step_down()
        assert isinstance(leader.create(1).reply, Refused)
        await leader.replica.lead(2)
        early = leader.create(2)  # it was under way when this node began to lead again
        assert isinstance(early.reply, Refused)
        assert isinstance(Error.from_wire(early.reply.code, early.reply.message), NotLeader)
        assert isinstance((await answered(leader.create(1))).reply, StreamInfo)
        assert isinstance((await answered(leader.create(2))).reply, StreamInfo)
        assert isinstance(leader.create(4).reply, Refused)
        leader.send(KeepAlive(leader.session, 3))  # the client has given 3 up
        assert isinstance((await answered(leader.create(4))).reply, StreamInfo)
        assert isinstance((await answered(leader.create(6, acked=5))).reply, StreamInfo)

    with_leader(tmp_path, test)


def test_not_leader_says_who_leads_also_to_those_who_do_not_know_it() -> None:
    error = NotLeader(3, 7, ["tcp://a:1", "tcp://b:2"])
    assert error.code == Unavailable.code
    read = Error.from_wire(error.code, error.message)
    assert isinstance(read, NotLeader)
    assert (read.shard, read.epoch, read.addresses) == (3, 7, ("tcp://a:1", "tcp://b:2"))
    nobody = Error.from_wire(error.code, NotLeader(3, 7).message)
    assert isinstance(nobody, NotLeader)
    assert nobody.addresses == ()
    why = NotLeader(3, 7, ["tcp://[::1]:1"], "shard 3 has stopped: a disk (sda) is broken")
    again = Error.from_wire(error.code, why.message)
    assert isinstance(again, NotLeader)
    assert (again.addresses, again.reason) == (why.addresses, why.reason)
    assert type(Error.from_wire(error.code, "the disk is full")) is Unavailable
