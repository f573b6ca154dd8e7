"""The place of one shard on a node of a cluster: sees to it that the replica there does what coordination says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ..cluster.coordination import Coordination, Leader, Node, leader_among
from ..cluster.succession import Duty, Standpoint, duty_of
from ..errors import Error, Unavailable
from ..ledger.engine import Place
from ..limits import HANDOVER_ASK_S, HANDOVER_STOP_S, HANDOVERS_MAX
from ..logs import fields
from ..protocol import AnyReply, HandedOver, HandOver
from .replica import Replica

log = logging.getLogger("tstreams.server")

LOOK_EVERY_S = 1.0
"""How often a seat looks whether all is as it should be if nothing has changed: what has failed is tried again."""

_STOP_PAUSE_S = 0.05

AskNode: TypeAlias = Callable[[Sequence[str], int, HandOver], Awaitable[AnyReply]]
"""Sends a message of a shard to the node with these addresses."""


class Handovers:
    """How the seats of a node ask for shards that other nodes lead: a few at a time, so that none has to wait for long
    in the middle of it. Without a way to other nodes those give up by themselves what others should lead."""

    def __init__(self, ask: AskNode | None = None) -> None:
        self._ask = ask
        self.turns = asyncio.Semaphore(HANDOVERS_MAX)

    async def ask(self, node: Node | None, shard: int, message: HandOver) -> Place:
        """Wait for the word of a node, and up to where it has the log; `Unavailable` if it does not say it in time."""
        if node is None or self._ask is None:
            raise Unavailable("there is no way to the node that leads")
        try:
            async with asyncio.timeout(HANDOVER_ASK_S):
                answer = await self._ask(node.addresses, shard, message)
        except TimeoutError:
            raise Unavailable(f"{node.id} does not answer") from None
        return answer.place if isinstance(answer, HandedOver) else 0


class Seat:
    """One shard on this node.

    Invariants: it leads only in the epoch that coordination gave it in the present session. A leadership that is lost in the
    log is given back there, so that others may have it. It does not take the log over from a node whose session lasts before
    that one has said that it leads no more.
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
        self._looked = asyncio.Condition()
        """Told after each look."""
        self._heir: str | None = None
        """Who should lead, as it was seen then."""
        self._wanted_at: float | None = None
        """Since when another should lead what is led here."""
        self.settled = False
        """Whether all was as it should be when it was looked at last."""
        self.opening_since: float | None = None
        """When it began to open what is being opened."""
        self.on_opened: Callable[[], None] = lambda: None
        """Is called when that is open."""
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
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):  # `wait_for` may lose a cancel
                    await self._changed.wait()

    async def hand_over(self, heir: str, epoch: int) -> Place:
        """Another node wants to lead. Without an epoch it asks whether this one agrees; with one it leads by what the
        coordination service says, and this one has stopped when it returns. Up to where it has the log; `Unavailable` if
        it takes too long."""
        if epoch:
            self._coordination.note_leader(self.number, Leader(heir, epoch))
        self.look()
        try:
            async with asyncio.timeout(HANDOVER_ASK_S):
                async with self._looked:
                    await self._looked.wait_for(
                        lambda: not self._replica.leading or (not epoch and self._heir == heir)
                    )
        except TimeoutError:
            raise Unavailable(
                f"shard {self.number} is led by {self._node}, as far as that knows"
            ) from None
        return self._replica.place

    # Inside.

    async def _arrange(self) -> None:
        replica = self._replica
        places = self._coordination.view.placement.of(self.number)
        if self._node in places and not self._started:
            await self._start()
        while (duty := duty_of(here := self._look_around())) is Duty.GIVE_UP:
            replica.shared.expect(False)
            await self._give_up(here.first)
        leads_elsewhere = duty is Duty.TAKE and self._leader_elsewhere() is not None
        replica.shared.expect(here.first == self._node and here.alive and not leads_elsewhere)
        self._heir = here.first
        async with self._looked:
            self._looked.notify_all()
        if duty is Duty.TAKE:
            await self._take()
        elif duty is Duty.FOLLOW and self._started and self._is_elsewhere():
            self._started = False
            await replica.close()

    def _is_elsewhere(self) -> bool:
        return self._node not in self._coordination.view.placement.of(self.number)

    def _leader_elsewhere(self) -> Leader | None:
        """The leader, if that is another node."""
        leader = self._coordination.view.leaders.get(self.number)
        return None if leader is None or leader.node == self._node else leader

    def _look_around(self) -> Standpoint:
        coordination, number, now = self._coordination, self.number, self._loop.time()
        view = coordination.view
        leader = view.leaders.get(number)
        led_by = None if leader is None else leader.node
        first = leader_among(view.placement.of(number), view.nodes, number, led_by)
        leading = self._replica.shard.epoch if self._replica.leading else None
        if leading is None or first == self._node:
            self._wanted_at = None
        elif self._wanted_at is None:
            self._wanted_at = now
        return Standpoint(
            node=self._node,
            first=first,
            alive=coordination.alive(),
            granted=coordination.leads(number),
            leading=leading,
            wanted_s=0.0 if self._wanted_at is None else now - self._wanted_at,
        )

    async def _start(self) -> None:
        self.opening_since = self._loop.time()
        try:
            await self._replica.start()
        except BaseException:
            await self._replica.close()
            raise
        finally:
            self.opening_since = None
        self._started = True
        self.on_opened()

    async def _give_up(self, heir: str | None) -> None:
        """Lead no longer, and keep nobody else from it."""
        replica, begun_at = self._replica, self._loop.time()
        if replica.leading:
            epoch = replica.shard.epoch
            await replica.step_down()
            log.info(
                "leads shard %d no longer",
                self.number,
                extra=fields(epoch=epoch, heir=heir, took_ms=self._ms_since(begun_at)),
            )
        if self._coordination.leads(self.number) is not None:
            await self._coordination.release(self.number)

    # Leading.

    async def _take(self) -> None:
        """Lead, if nobody else does, or only one that agrees."""
        leader = self._leader_elsewhere()
        if leader is None:
            await self._lead(None)
            return
        async with self._handovers.turns:
            if await self._is_agreed(leader):
                await self._lead(leader)

    async def _is_agreed(self, leader: Leader) -> bool:
        """Have all that the log has, and ask the node that leads whether it lets us lead."""
        node = self._coordination.view.nodes.get(leader.node)
        try:
            await self._replica.catch_up()
            await self._handovers.ask(node, self.number, HandOver(self._node))
        except Error as error:
            extra = fields(leader=leader.node)
            log.info("shard %d is not handed over yet: %s", self.number, error, extra=extra)
            return False
        return True

    async def _lead(self, old: Leader | None) -> None:
        """Lead, if nobody else does but `old`, who has agreed to it."""
        number, times = self.number, dict[str, int]()
        begun_at = self._loop.time()
        epoch = await self._coordination.lead(
            number, above=self._replica.shard.epoch, instead_of=old
        )
        if epoch is None:
            return
        self._replica.shared.expect(True)  # those who hear of it come here from now on
        try:
            times["claimed_ms"] = self._ms_since(begun_at)
            end = 0
            if old is not None:
                stopping_at = self._loop.time()
                end = await self._until_stopped(old, epoch)
                times["handed_over_ms"] = self._ms_since(stopping_at)
            taking_at = self._loop.time()
            await self._replica.lead(epoch, end)
            times["taken_over_ms"] = self._ms_since(taking_at)
        except BaseException:
            with contextlib.suppress(Error):
                await self._coordination.release(number)
            raise
        log.info(
            "leads shard %d",
            number,
            extra=fields(epoch=epoch, took_ms=self._ms_since(begun_at), **times),
        )

    async def _until_stopped(self, old: Leader, epoch: int) -> Place:
        """Tell the leader before to stop, until it says that it has, or is not there any more: where its log ended, or 0. One
        that neither answers nor sees that its entry is another's has lost its session long before we stop waiting."""
        until = self._loop.time() + HANDOVER_STOP_S
        nodes = self._coordination.view.nodes
        while (node := nodes.get(old.node)) is not None and self._loop.time() < until:
            try:
                return await self._handovers.ask(node, self.number, HandOver(self._node, epoch))
            except Error as error:
                extra = fields(leader=old.node)
                log.info("shard %d is not free yet: %s", self.number, error, extra=extra)
            await asyncio.sleep(_STOP_PAUSE_S)
        return 0

    def _ms_since(self, moment: float) -> int:
        return round(1000 * (self._loop.time() - moment))
