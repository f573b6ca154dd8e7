"""Subscriptions: visible transactions sent as they come, as fast as the reader takes them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import moebius

from ..core.records import InstantMade
from ..core.transitions import WHOLE_STREAM
from ..errors import BadRequest, Error, TooLarge
from ..items import Buffer
from ..limits import (
    FETCH_BYTES_MAX,
    FETCH_TRANSACTIONS_MAX,
    SUBSCRIPTION_LOOKS_MAX,
    SUBSCRIPTIONS_MAX,
)
from ..protocol import Subscribe, Want
from .visible import Chosen, Visible, pack_fresh
from .wire import wire_error

Answer: TypeAlias = tuple[Buffer, ...]


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
        emit: Callable[[Answer], bool],
    ) -> None:
        self._emit = emit
        self._visible = visible
        self._clock = clock
        self._bytes_max = min(request.bytes_max, FETCH_BYTES_MAX)
        self.stream = request.stream
        self.agent = request.agent
        self._session = request.session
        self._places = {it.partition: it.from_id for it in request.wants}
        self._ready: OrderedDict[int, None] = OrderedDict.fromkeys(self._places)
        self._waiter: asyncio.Future[Answer] | None = None
        self._over: BaseException | None = None
        """Why nothing more will come."""
        if len(self._places) < len(request.wants):
            raise BadRequest("a partition stands twice in one subscription")
        stream = visible.stream(request.stream)
        for partition in self._places:
            visible.check_partition(stream, partition)

    async def next(self, when_settled: Callable[[Callable[[], None]], None]) -> Answer:
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

    def push(
        self, partition: int, made: list[tuple[InstantMade, Buffer]], items: int, answer: Answer
    ) -> bool:
        """Transactions of a partition were made that follow on what is visible there, and are in this
        answer. Whether the reader has them now, or does not want them."""
        place = self._places.get(partition)
        if place is None:
            return True
        waiter = self._waiter
        size = sum(map(len, answer))
        if (
            waiter is None
            or waiter.done()
            or partition in self._ready
            or made[0][0].transaction < place
            or size > self._bytes_max
            or (self.agent and self._visible.agent(self.agent) is None)
            or not self._emit(answer)
        ):
            return False  # it gets them from the index
        self._places[partition] = made[-1][0].transaction + 1
        self._visible.metrics.sent(self.stream, len(made), items, size - len(answer[0]))
        return True

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
                self._visible.check_agent(self.agent, self._session)
            while self._ready:
                found = self._collect()
                if found:
                    packed, answer = self._visible.pack_some(found)
                    self._visible.metrics.read(self.stream, packed, sum(map(len, answer[1:])))
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
        except moebius.Error as error:  # it cannot be sent
            waiter.set_exception(error)

    def _collect(self) -> list[Chosen]:
        """What is visible in the partitions that are ready; those that have nothing are ready no more."""
        looked_at = list(zip(self._ready, range(SUBSCRIPTION_LOOKS_MAX), strict=False))
        wants = [Want(partition, self._places[partition]) for partition, _ in looked_at]
        found, looked, left = self._visible.collect(
            self._clock(), self.stream, wants, self._bytes_max, len(wants)
        )
        for want in wants[:looked]:
            del self._ready[want.partition]
        for partition in left:
            self._ready[partition] = None  # it goes to the end of the queue
        return found


class Subscriptions:
    """All subscriptions of a shard."""

    def __init__(self, visible: Visible, clock: Callable[[], int]) -> None:
        self._visible = visible
        self._clock = clock
        # Dictionaries, because a set of objects has another order each time.
        self._by_stream: dict[int, dict[Subscription, None]] = {}
        self._by_agent: dict[int, dict[Subscription, None]] = {}
        self._told: set[tuple[int, int]] = set()
        """Partitions of which everyone has all that is new."""
        self.count = 0
        self._over: BaseException | None = None
        """Why there are none any more."""

    async def serve(
        self,
        request: Subscribe,
        emit: Callable[[Answer], bool],
        when_settled: Callable[[Callable[[], None]], None],
    ) -> AsyncIterator[Answer]:
        """The answers to a subscription, for ever; those that `emit` has sent are not among them."""
        if self._over is not None:  # since it was asked for
            raise self._over
        if self.count >= SUBSCRIPTIONS_MAX:
            raise wire_error(TooLarge(f"there are {SUBSCRIPTIONS_MAX} subscriptions already"))
        try:
            subscription = Subscription(self._visible, self._clock, request, emit)
        except Error as error:
            raise wire_error(error) from None
        self.count += 1
        self._by_stream.setdefault(request.stream, {})[subscription] = None
        self._by_agent.setdefault(request.agent, {})[subscription] = None
        try:
            while True:
                yield await subscription.next(when_settled)
        finally:
            self.count -= 1
            _discard(self._by_stream, request.stream, subscription)
            _discard(self._by_agent, request.agent, subscription)

    def push(self, made: list[tuple[InstantMade, Buffer]]) -> bool:
        """These are durable, and all that has happened since everyone was told: send them to those who have
        all that was visible before, without the index, which does not have them yet. Whether there are any."""
        by_partition: dict[tuple[int, int], list[tuple[InstantMade, Buffer]]] = {}
        for record, batch in made:
            if record.stream in self._by_stream:
                key = (record.stream, record.partition)
                by_partition.setdefault(key, []).append((record, batch))
        for (stream_id, partition), some in by_partition.items():
            if len(some) > FETCH_TRANSACTIONS_MAX or (stream_id, partition) in self._visible.heads:
                continue
            answer = pack_fresh(some)
            items = sum([record.count for record, _ in some])
            everyone = True
            for subscription in list(self._by_stream[stream_id]):
                everyone &= subscription.push(partition, some, items, answer)
            if everyone:
                self._told.add((stream_id, partition))
        return bool(by_partition)

    def wake(self) -> None:
        """Something may have become visible, and reading is allowed now."""
        told, self._told = self._told, set()
        if not self._by_stream:
            return
        stirred: dict[int, set[int]] = {}
        for stream_id, partition in self._visible.stirred() - told:
            if stream_id in self._by_stream:
                stirred.setdefault(stream_id, set()).add(partition)
        for stream_id, partitions in stirred.items():
            for subscription in list(self._by_stream[stream_id]):
                subscription.stir(partitions)

    def fence(self) -> None:
        """Some agents hold their names no more: their subscriptions end."""
        for agent in self._visible.lost() & self._by_agent.keys():
            for subscription in list(self._by_agent[agent]):
                subscription.try_now()

    def end_all(self, error: Error | None = None) -> None:
        """End them: the server stops, or this shard did. After a recovery others take their place."""
        failure = moebius.Stopping("the server is stopping") if error is None else wire_error(error)
        self._over = failure
        for subscriptions in self._by_stream.values():
            for subscription in subscriptions:
                subscription.end(failure)


def _discard(
    table: dict[int, dict[Subscription, None]], key: int, subscription: Subscription
) -> None:
    others = table[key]
    del others[subscription]
    if not others:
        del table[key]
