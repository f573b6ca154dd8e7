"""The place of one shard on a node of a cluster: sees to it that the replica there does what coordination says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ..cluster.coordination import Coordination, Leader, leader_among
from ..cluster.succession import Duty, Standpoint, duty_of
from ..errors import Error, Unavailable
from ..limits import HANDOVER_ASK_S, HANDOVERS_MAX
from ..logs import fields
from ..protocol import AnyReply, HandOver
from .replica import Replica

log = logging.getLogger("tstreams.server")

LOOK_EVERY_S = 1.0
"""How often a seat looks whether all is as it should be if nothing has changed: what has failed is tried again."""

AskLeader: TypeAlias = Callable[[int, HandOver], Awaitable[AnyReply]]
"""Sends a message to whoever leads a shard."""


class Handovers:
    """How the seats of a node ask for shards that other nodes lead: a few at a time, so that none has to wait for long
    in the middle of it."""

    def __init__(self, ask: AskLeader | None = None) -> None:
        self.ask = ask
        """None: there is no way to other nodes. Then they give up what others should lead by themselves."""
        self.turns = asyncio.Semaphore(HANDOVERS_MAX)


class Seat:
    """One shard on this node.

    Invariants: it leads only in the epoch that coordination gave it in the present session. A leadership that is lost in the
    log is given back there, so that others may have it. It never takes the place of a node whose session lasts before that
    one has said that it leads no more.
    """

    def __init__(
        self, node: str, replica: Replica, coordination: Coordination, handovers: Handovers
    ) -> None:
        self._node = node
        self._replica = replica
        self._coordination = coordination
        self._handovers = handovers
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._started = False
        self._asked: tuple[str, asyncio.Future[None]] | None = None
        """Who wants to lead, and waits until this node does not."""
        self._wanted_at: float | None = None
        """Since when another should lead what is led here."""
        self._stopped_at: float | None = None
        """When it stopped leading because its heir had asked."""
        self.settled = False
        """Whether all was as it should be when it was looked at last."""
        self.tried = False
        """Whether it has looked once: what can be opened is open."""
        replica.on_lost = self.look
        replica.shared.alive = coordination.alive

    @property
    def number(self) -> int:
        """Which shard it is."""
        return self._replica.number

    def look(self) -> None:
        """Something may have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            self._changed.clear()
            try:
                await self._arrange()
                self.settled = True
            except Error as error:
                self.settled = False
                log.warning("shard %d: %s; trying again", self.number, error)
            self.tried = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):  # `wait_for` may lose a cancel
                    await self._changed.wait()

    async def hand_over(self, heir: str) -> None:
        """Let another node lead. Returns when this one does not; `Unavailable` if it does not see it that way in time."""
        stopped: asyncio.Future[None] = self._loop.create_future()
        self._asked = heir, stopped
        self.look()
        try:
            async with asyncio.timeout(HANDOVER_ASK_S):
                await stopped
        except TimeoutError:
            raise Unavailable(
                f"shard {self.number} is led by {self._node}, as far as that knows"
            ) from None
        finally:
            if self._asked is not None and self._asked[1] is stopped:
                self._asked = None

    # Inside.

    async def _arrange(self) -> None:
        replica = self._replica
        places = self._coordination.view.placement.shards[self.number]
        if self._node in places and not self._started:
            await self._start()
        while True:
            here = self._look_around()
            duty = duty_of(here)
            replica.shared.expect(
                duty in (Duty.TAKE, Duty.HAND_OVER, Duty.AWAIT_HEIR)
                or (duty is Duty.LEAD and here.first == self._node)
            )
            if duty is Duty.HAND_OVER:
                await self._stop_for(here.first)
            elif duty is Duty.GIVE_UP:
                await self._give_up(here.first)
            else:
                break
        self._answer_heir()
        if duty is Duty.TAKE:
            await self._take()
        elif duty is Duty.FOLLOW and self._started and self._is_elsewhere():
            self._started = False
            await replica.close()

    def _is_elsewhere(self) -> bool:
        return self._node not in self._coordination.view.placement.shards[self.number]

    def _look_around(self) -> Standpoint:
        coordination, number, now = self._coordination, self.number, self._loop.time()
        view = coordination.view
        leader = view.leaders.get(number)
        led_by = None if leader is None else leader.node
        first = leader_among(view.placement.shards[number], view.nodes, number, led_by)
        granted = coordination.leads(number)
        leading = self._replica.shard.epoch if self._replica.leading else None
        if leading is None or first == self._node:
            self._wanted_at = None
        elif self._wanted_at is None:
            self._wanted_at = now
        if granted is None or leading is not None:
            self._stopped_at = None
        return Standpoint(
            node=self._node,
            first=first,
            alive=coordination.alive(),
            granted=granted,
            leading=leading,
            asked_by=None if self._asked is None else self._asked[0],
            wanted_s=0.0 if self._wanted_at is None else now - self._wanted_at,
            stopped_s=None if self._stopped_at is None else now - self._stopped_at,
        )

    async def _start(self) -> None:
        try:
            await self._replica.start()
        except BaseException:
            await self._replica.close()
            raise
        self._started = True

    # Leading no longer.

    async def _stop_for(self, heir: str | None) -> None:
        """The heir takes the leader's entry when it hears that this node has stopped."""
        await self._step_down(heir)
        self._stopped_at = self._loop.time()
        self._answer_heir()

    async def _give_up(self, heir: str | None) -> None:
        if self._replica.leading:
            await self._step_down(heir)
        self._stopped_at = None
        if self._coordination.leads(self.number) is not None:
            await self._coordination.release(self.number)

    async def _step_down(self, heir: str | None) -> None:
        epoch, begun_at = self._replica.shard.epoch, self._loop.time()
        await self._replica.step_down()
        log.info(
            "leads shard %d no longer",
            self.number,
            extra=fields(epoch=epoch, heir=heir, took_ms=self._ms_since(begun_at)),
        )

    def _answer_heir(self) -> None:
        if self._asked is not None and not self._replica.leading:
            _, stopped = self._asked
            if not stopped.done():
                stopped.set_result(None)

    # Leading.

    async def _take(self) -> None:
        leader = self._coordination.view.leaders.get(self.number)
        if leader is None or leader.node == self._node:
            await self._lead(None)
            return
        async with self._handovers.turns:
            if await self._ask(leader):
                await self._lead(leader)

    async def _ask(self, leader: Leader) -> bool:
        """Have all that the log has, and then ask the node that leads to stop; whether it did."""
        if self._handovers.ask is None:
            return False
        try:
            async with asyncio.timeout(HANDOVER_ASK_S):
                await self._replica.catch_up()
                await self._handovers.ask(self.number, HandOver(self._node))
        except (Error, TimeoutError) as error:
            log.info(
                "shard %d is not handed over yet: %s",
                self.number,
                error or "no answer",
                extra=fields(leader=leader.node),
            )
            return False
        return True

    async def _lead(self, instead_of: Leader | None) -> None:
        """Lead, if nobody else does but who has stopped."""
        replica, number = self._replica, self.number
        begun_at = self._loop.time()
        epoch = await self._coordination.lead(
            number, above=replica.shard.epoch, instead_of=instead_of
        )
        if epoch is None:
            return
        claimed_ms = self._ms_since(begun_at)
        try:
            await replica.lead(epoch)
        except BaseException:
            with contextlib.suppress(Error):
                await self._coordination.release(number)
            raise
        log.info(
            "leads shard %d",
            number,
            extra=fields(
                epoch=epoch,
                after=None if instead_of is None else instead_of.node,
                claimed_ms=claimed_ms,
                took_ms=self._ms_since(begun_at),
            ),
        )

    def _ms_since(self, moment: float) -> int:
        return round(1000 * (self._loop.time() - moment))
