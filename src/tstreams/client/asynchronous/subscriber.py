"""A subscriber."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import Any

from ...limits import CLIENT_CLOSE_TIMEOUT_S
from ..pickling import refuse_to_pickle
from ..rules import subscriber as rules
from ..rules.handling import Handling, step_out
from ..statistics import SubscriberStatistics
from .driver import Driver
from .received import ReadTransaction

log = logging.getLogger("tstreams.client")

_call: ContextVar[_Call | None] = ContextVar("tstreams_call", default=None)


class Subscriber:
    """Is called with the transactions of a stream, as they become visible.

    Callbacks are functions or coroutine functions. They run in `engines` tasks: partitions side by side,
    each of them strictly in order. It begins with what is there already and goes on with what comes, and
    outlives restarts of the server.

    An exception in a callback stops its partition there; the others go on. It reaches `on_failure`, and no
    later checkpoint passes over the transaction. `start` after `stop` tries again. What ends the whole
    subscriber (`Fenced`, a deleted stream) reaches `on_failure` once, and stops it.

    Made by `client.subscriber(...)`, which takes the name. `async with` it, or `start`, `stop` and `close`
    it. Where it stands is saved by `checkpoint` only. A callback may take as long as it likes, as long as
    it awaits: the server sends some 4 MiB ahead and then waits, and partitions with slow callbacks do not
    hold up the others.

    Its tasks end with it: when `close` has come back, or the block was left, no callback is at work. A
    callback whose own task was cancelled, by `asyncio.run` at its end for one, has not handled its
    transaction, and the subscriber stops. A `CancelledError` that comes out of something else that a
    callback awaits is an exception like any other.
    """

    def __init__(
        self,
        driver: Driver,
        subscriber: rules.Subscriber,
        on_close: Callable[[Subscriber], None],
        on_transaction: Callable[[Subscriber, ReadTransaction], object],
        on_failure: Callable[[BaseException], object] | None,
    ) -> None:
        self._driver = driver
        self._rules = subscriber
        self._on_close = on_close
        self._on_transaction = on_transaction
        if subscriber.agent.link.tracing is not None:
            self._on_transaction = _traced(on_transaction)
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()
        subscriber.inside = self._is_inside

    @property
    def name(self) -> str:
        """Its name: unique among the readers of its stream."""
        return self._rules.agent.name

    @property
    def stream(self) -> str:
        """The name of its stream."""
        return self._rules.agent.stream.name

    @property
    def partitions(self) -> list[int]:
        """The partitions that it reads."""
        return self._rules.partitions

    @property
    def running(self) -> bool:
        """Whether it hands out transactions."""
        return self._rules.run is rules.Run.RUNNING

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._rules.agent.closed

    @property
    def failures(self) -> dict[int, BaseException]:
        """The partitions that have stopped, each with what its callback raised."""
        return self._rules.failures()

    # Running.

    async def start(self) -> Subscriber:
        """Begin, or go on after a `stop` where callbacks have returned. `InvalidState` if it runs.

        If the task is cancelled in here, it has not begun.
        """
        await self._driver.run(self._rules.start())
        for number in range(self._rules.engines):
            task = asyncio.create_task(self._work(), name=f"tstreams-{self.name}-{number}")
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return self

    async def stop(self) -> None:
        """Begin no more callbacks, and wait for those under way to return; inside a callback it does not
        wait. The name is kept: `checkpoint` and `start` work as before. `InvalidState` if it is stopped;
        but not if it had to stop by itself. If the task is cancelled in here it stops all the same, when
        the callbacks have returned: `wait` for that."""
        await self._driver.run(self._rules.stop())

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has stopped, by itself or because somebody stopped it. Whether it has."""
        return await self._driver.run(self._rules.wait(timeout))

    async def checkpoint(self) -> None:
        """Save for which transactions the callbacks have returned: the next reader of this name goes on
        there. Inside a callback it does not cover the transaction at hand, which may still fail.

        If the task is cancelled in here nobody knows whether that was saved. It is what had returned when
        this was called, or what was saved last.
        """
        await self._driver.run(self._rules.checkpoint())

    def position(self, partition: int) -> int | None:
        """The id of the last transaction of a partition whose callback has returned, or None."""
        return self._rules.position(partition)

    def statistics(self) -> SubscriberStatistics:
        """What it is doing."""
        return SubscriberStatistics(*self._rules.counts(), len(self._rules.failures()))

    async def close(self) -> None:
        """Stop, wait for callbacks, and give the name back. May be called again.

        If the task is cancelled in here the callbacks under way are cancelled too: their transactions
        come again. The name is given back all the same; only nobody waits for that.
        """
        if self._rules.agent.is_foreign:
            return
        self._driver.check()
        try:
            await halt([self])
        finally:
            goodbye = self._driver.spawn(self._rules.close())
            self._on_close(self)
        await goodbye

    async def __aenter__(self) -> Subscriber:
        return self if self.running else await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # The engines.

    async def _work(self) -> None:
        subscriber, me = self._rules, asyncio.current_task()
        assert me is not None
        step_out()
        try:
            # A callback may swallow it that its task is cancelled: then this is the end all the same.
            while not me.cancelling():
                await self._driver.breathe()
                handling = subscriber.try_take() or await self._driver.run(subscriber.take())
                if handling is None:
                    return
                await self._handle(handling)
        except Exception as error:
            await self._report(error)

    async def _handle(self, handling: Handling) -> None:
        token, delivery = handling.enter(), handling.delivery
        assert delivery is not None
        try:
            await self._await(self._on_transaction, self, ReadTransaction(self._driver, delivery))
        except BaseException as error:
            handling.leave(token)
            is_news = self._rules.failed(handling, error)
            if _ends_the_task(error):
                raise
            if is_news:
                error.add_note(
                    f"in the callback of {self._rules.agent.title}, for transaction "
                    f"{handling.id} of partition {handling.place.partition}"
                )
                await self._report(error)
        else:
            handling.leave(token)
            self._rules.returned(handling)

    async def _report(self, error: BaseException) -> None:
        if self._on_failure is None:
            log.error("%s: %s", self._rules.agent.title, error, exc_info=error)
            return
        try:
            await self._await(self._on_failure, error)
        except BaseException as failure:
            if _ends_the_task(failure):
                raise
            log.exception("on_failure of %s failed", self._rules.agent.title)

    async def _await(self, function: Callable[..., object], *args: object) -> None:
        with _Call(self):
            result = function(*args)
            if inspect.isawaitable(result):
                await result

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Also for one that was cancelled before it had begun."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()
        self._rules.engine_ended()

    def _is_inside(self) -> bool:
        call = _call.get()
        while call is not None:
            if call.subscriber is self and call.under_way:
                return True
            call = call.outer
        return False

    def __repr__(self) -> str:
        state = "closed" if self.closed else self._rules.run.value
        return f"<subscriber {self.name!r} of {self.stream!r}, {state}>"

    def __reduce__(self) -> Any:
        raise refuse_to_pickle("a subscriber")


def _traced(
    on_transaction: Callable[[Subscriber, ReadTransaction], object],
) -> Callable[[Subscriber, ReadTransaction], object]:
    """The same, each call in a span of its own."""

    async def call(subscriber: Subscriber, transaction: ReadTransaction) -> None:
        with transaction.traced():
            result = on_transaction(subscriber, transaction)
            if inspect.isawaitable(result):
                await result

    return call


class _Call:
    """A callback at work. Whatever task it starts is inside it too, until it ends: the callback may wait for
    that task, and then the task must not wait for the callback."""

    __slots__ = ("_token", "outer", "subscriber", "under_way")

    def __init__(self, subscriber: Subscriber) -> None:
        outer = _call.get()
        self.subscriber = subscriber
        self.under_way: bool = True
        self.outer: _Call | None = outer if outer is not None and outer.under_way else None

    def __enter__(self) -> None:
        self._token: Token[_Call | None] = _call.set(self)

    def __exit__(self, *_: object) -> None:
        self.under_way = False
        _call.reset(self._token)


def _ends_the_task(error: BaseException) -> bool:
    """Whether a callback let through what is meant for its task, and not for its user."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return not isinstance(error, Exception)


async def halt(subscribers: Sequence[Subscriber], until: float | None = None) -> None:
    """Wait for the callbacks under way. Who takes too long is cancelled; all are, if this task is."""
    others = [it for it in subscribers if not it._is_inside()]
    for subscriber in subscribers:
        subscriber._rules.wind_down()
    try:
        for subscriber in others:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            await subscriber._driver.run(subscriber._rules.wait(left_s))
    finally:
        await _cancel([task for it in others for task in it._tasks])


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end, also if this task is cancelled again and again meanwhile."""
    interrupt: asyncio.CancelledError | None = None
    until = time.monotonic() + CLIENT_CLOSE_TIMEOUT_S
    for task in tasks:
        task.cancel()
    while left := [task for task in tasks if not task.done()]:
        if (left_s := until - time.monotonic()) <= 0:
            log.warning("%d callbacks do not end although they were cancelled", len(left))
            break
        try:
            await asyncio.wait(left, timeout=left_s)
        except asyncio.CancelledError as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
