"""A node's part in its cluster: it tells the others what it has and how busy it is, and directs them if it is its turn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial

from ..cluster.coordination import Coordination, Outdated
from ..cluster.director import Director
from ..cluster.view import Changes, Watch
from ..errors import Error
from .load import LoadMeter, work_of
from .replica import Replica
from .seat import LOOK_EVERY_S, Seat

log = logging.getLogger("tstreams.server")

REPORT_EVERY_S = 1.0
"""How often a node looks how busy it is. It is told only if that has changed."""

OPENING_S = 10.0
"""A node that opens shards tells that it has them when all are open, or after so long. What is led by others is left to them
until then: opening the rest would hold up whoever writes."""


class Membership:
    """Runs beside the seats of a node. Each of its methods is a task, until it is cancelled."""

    def __init__(
        self, coordination: Coordination, replicas: Mapping[int, Replica], seats: Sequence[Seat]
    ) -> None:
        self._coordination = coordination
        self._replicas = replicas
        self._seats = seats
        self._director = Director()
        self._told: tuple[int, ...] = ()
        """The shards that it told the others to have."""

    async def watch(self) -> None:
        """Wake the seats with every change. It waits for nothing else: whoever is to lead should know at once."""
        watch = self._coordination.watch()
        while True:
            for seat in self._seats:
                seat.look()
            await _changed(watch)

    async def arrange(self) -> None:
        """Tell the others what this node has, and direct them, if it is the one that does."""
        coordination = self._coordination
        watch = coordination.watch()
        told = partial(watch.tell, Changes())
        for replica, seat in zip(self._replicas.values(), self._seats, strict=True):
            replica.on_opened = seat.on_opened = told
        while True:
            await self._tell_what_it_holds()
            if coordination.directing:
                await self._direct()
            else:
                self._director.rest(coordination.view)
            await _changed(watch)

    async def report(self) -> None:
        """Tell the others how busy this node is."""
        coordination, meter = self._coordination, LoadMeter()
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            led = [it.shard for it in self._replicas.values() if it.leading]
            work = {it.number: work_of(it.metrics) for it in led}
            load = meter.look(asyncio.get_running_loop().time(), time.thread_time(), work)
            if load is not None and coordination.alive():
                try:
                    await coordination.update(load=load.node, shard_loads=load.shards)
                    meter.told(load)
                except Error as error:
                    log.warning("how busy this node is could not be told: %s", error)

    # Inside.

    def _is_opening(self) -> bool:
        since = asyncio.get_running_loop().time() - OPENING_S
        return any(it.opening_since is not None and it.opening_since > since for it in self._seats)

    async def _tell_what_it_holds(self) -> None:
        """So that others let it lead when it can, and not before."""
        holds = tuple(it.number for it in self._replicas.values() if it.is_open)
        lost = not set(self._told) <= set(holds)
        if holds == self._told or (self._is_opening() and not lost):
            return
        try:
            await self._coordination.update(holds=holds)
            self._told = holds
        except Error as error:
            log.warning("what this node has could not be told: %s", error)

    async def _direct(self) -> None:
        """Say where shards should be, if that is another place than before. Who leads meanwhile what a node led that is
        gone needs no word: the next in the list does."""
        coordination = self._coordination
        before = coordination.view.placement
        now_s = asyncio.get_running_loop().time()
        after = self._director.decide(coordination.cluster, coordination.view, now_s)
        if after != before.shards:
            try:
                await coordination.place(after, version=before.version)
            except Outdated:
                pass  # somebody else did
            except Error as error:
                log.warning("where shards should be could not be said: %s", error)


async def _changed(watch: Watch) -> None:
    """Wait until something changes; but now and then look all the same."""
    with contextlib.suppress(TimeoutError, StopAsyncIteration):
        async with asyncio.timeout(LOOK_EVERY_S):
            await anext(watch)
