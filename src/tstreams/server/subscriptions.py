"""Subscriptions: visible transactions sent as they come, as fast as the reader takes them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable

from moebius import Stopping

from ..core.transitions import WHOLE_STREAM
from ..errors import BadRequest, Error, TooLarge
from ..items import Buffer
from ..limits import SUBSCRIPTION_LOOKS_MAX, SUBSCRIPTIONS_MAX
from ..protocol import Subscribe, Want
from .visible import Chosen, Visible, check_partition
from .wire import wire_error


class Subscription:
    """One reader's place in each of its partitions.

    Invariants: `_places` is where each partition goes on: the next id. Every partition in which something
    may be visible is in `_ready`. `_waiter` is set while the reader has room and nothing was found for it.

    What becomes visible then is sent at once, with `emit`; if there is more of it, the rest goes through
    `next`, so that others have their turn.
    """

    def __init__(
        self,
        visible: Visible,
        clock: Callable[[], int],
        request: Subscribe,
        emit: Callable[[tuple[Buffer, ...]], bool],
    ) -> None:
        self._emit = emit
        self._visible = visible
        self._clock = clock
        self._bytes_max = request.bytes_max
        self.stream = request.stream
        self.agent = request.agent
        self._places = {it.partition: it.from_id for it in request.wants}
        self._ready: OrderedDict[int, None] = OrderedDict.fromkeys(self._places)
        self._waiter: asyncio.Future[tuple[Buffer, ...]] | None = None
        self._over: BaseException | None = None
        """Why nothing more will come."""
        if len(self._places) < len(request.wants):
            raise BadRequest("a partition stands twice in one subscription")
        partitions = visible.stream(request.stream).partitions
        for partition in self._places:
            check_partition(partitions, partition)

    async def next(self, when_settled: Callable[[Callable[[], None]], None]) -> tuple[Buffer, ...]:
        """The next answer; it waits for one. `when_settled` calls back when reading is allowed."""
        if self._over is not None:  # since the answer before this one, which its reader took late
            raise self._over
        self._waiter = asyncio.get_running_loop().create_future()
        when_settled(self.try_now)
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def stir(self, partitions: set[int]) -> None:
        """Something may have become visible in these; reading is allowed now."""
        if WHOLE_STREAM in partitions:
            self._ready.update(OrderedDict.fromkeys(self._places))
        else:
            self._ready.update((it, None) for it in partitions if it in self._places)
        self.try_now()

    def end(self, error: BaseException) -> None:
        """Nothing more will come."""
        self._over = error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def try_now(self) -> None:
        """Answer a reader that waits, if there is something for it."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        sent = False
        try:
            if self.agent:
                self._visible.check_agent(self.agent)
            while self._ready:
                found = self._collect()
                if found:
                    packed, answer = self._visible.pack_some(found)
                    for it in found[len(packed) :]:  # what is damaged must not be skipped
                        self._ready[it.partition] = None
                    for it in packed:
                        self._places[it.partition] = it.transaction + 1
                    if sent or not self._emit(answer):
                        waiter.set_result(answer)
                        return
                    sent = True
        except Error as error:
            waiter.set_exception(wire_error(error))

    def _collect(self) -> list[Chosen]:
        """What is visible in the partitions that are ready; those that have nothing are ready no more."""
        looked_at = list(zip(self._ready, range(SUBSCRIPTION_LOOKS_MAX), strict=False))
        wants = [Want(partition, self._places[partition]) for partition, _ in looked_at]
        found, looked, more = self._visible.collect(
            self._clock(), self.stream, wants, self._bytes_max, len(wants)
        )
        for want in wants[:looked]:
            del self._ready[want.partition]
        for it in found if more else ():
            self._ready[it.partition] = None  # it goes to the end of the queue
        return found


class Subscriptions:
    """All subscriptions of a shard."""

    def __init__(self, visible: Visible, clock: Callable[[], int]) -> None:
        self._visible = visible
        self._clock = clock
        self._by_stream: dict[int, set[Subscription]] = {}
        self._by_agent: dict[int, set[Subscription]] = {}
        self.count = 0

    async def serve(
        self,
        request: Subscribe,
        emit: Callable[[tuple[Buffer, ...]], bool],
        when_settled: Callable[[Callable[[], None]], None],
    ) -> AsyncIterator[tuple[Buffer, ...]]:
        """The answers to a subscription, for ever; those that `emit` has sent are not among them."""
        if self.count >= SUBSCRIPTIONS_MAX:
            raise wire_error(TooLarge(f"there are {SUBSCRIPTIONS_MAX} subscriptions already"))
        try:
            subscription = Subscription(self._visible, self._clock, request, emit)
        except Error as error:
            raise wire_error(error) from None
        self.count += 1
        self._by_stream.setdefault(request.stream, set()).add(subscription)
        self._by_agent.setdefault(request.agent, set()).add(subscription)
        try:
            while True:
                yield await subscription.next(when_settled)
        finally:
            self.count -= 1
            _discard(self._by_stream, request.stream, subscription)
            _discard(self._by_agent, request.agent, subscription)

    def wake(self) -> None:
        """Something may have become visible, and reading is allowed now."""
        if not self._by_stream:
            return
        stirred: dict[int, set[int]] = {}
        for stream_id, partition in self._visible.stirred():
            if stream_id in self._by_stream:
                stirred.setdefault(stream_id, set()).add(partition)
        for stream_id, partitions in stirred.items():
            for subscription in list(self._by_stream[stream_id]):
                subscription.stir(partitions)

    def fence(self) -> None:
        """Some agents hold their names no more: their subscriptions end."""
        for agent in self._visible.lost() & self._by_agent.keys():
            for subscription in self._by_agent[agent]:
                subscription.try_now()

    def end_all(self, error: Error | None = None) -> None:
        """End them: the server stops, or this shard did."""
        failure = Stopping("the server is stopping") if error is None else wire_error(error)
        for subscriptions in self._by_stream.values():
            for subscription in subscriptions:
                subscription.end(failure)


def _discard(table: dict[int, set[Subscription]], key: int, subscription: Subscription) -> None:
    others = table[key]
    others.discard(subscription)
    if not others:
        del table[key]
