"""Both faces of the client behind the blocking one's interface, so that one suite can test both.

`AsyncFace` runs `tstreams.aio` on a loop in a thread, and hands out proxies: a call on a proxy is made on
the loop and awaited there, and what comes out is wrapped again. So a proxy of an async producer looks to a
test exactly like a blocking producer.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, overload

import tstreams
from tstreams import Client, aio
from tstreams.client.asynchronous.driver import Driver
from tstreams.client.asynchronous.received import ReceivedItems

from ..moebius.faces import LoopThread

_PROXIED = (
    aio.Client,
    aio.Producer,
    aio.Consumer,
    aio.Job,
    aio.Subscriber,
    aio.CheckpointGroup,
    aio.Transaction,
    aio.ReadTransaction,
    Driver,
)
_TIMEOUT_S = 110.0
_CALLBACKS_MAX = 64


class BlockingFace:
    """The client for threads, as it is."""

    name = "sync"
    connect = staticmethod(tstreams.connect)
    embedded = staticmethod(tstreams.embedded)

    def close(self) -> None:
        """There is nothing to close."""


class AsyncFace:
    """The client for asyncio, driven from a test's threads."""

    name = "async"

    def __init__(self) -> None:
        self._loop = ProxyLoop()

    def connect(self, *args: Any, **options: Any) -> Client:
        return self._loop.call(aio.connect, *args, **options)  # type: ignore[no-any-return]

    def embedded(self, *args: Any, **options: Any) -> Client:
        return self._loop.call(aio.embedded, *args, **options)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._loop.close()


Face = BlockingFace | AsyncFace
FACES: dict[str, Callable[[], Face]] = {"sync": BlockingFace, "async": AsyncFace}


class ProxyLoop:
    """Makes calls on a loop in another thread, and wraps what they give.

    Functions of a test that are passed in block, as the blocking face allows: they are called in threads,
    and the async face gets coroutine functions that wait for them.
    """

    def __init__(self) -> None:
        self._thread = LoopThread()
        self._pool = ThreadPoolExecutor(_CALLBACKS_MAX)
        self._pid = os.getpid()

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        async def body() -> Any:
            result = function(
                *(self.unwrap(it) for it in args),
                **{name: self.unwrap(it) for name, it in options.items()},
            )
            if isinstance(result, aio.Opening) or inspect.iscoroutine(result):
                result = await result
            return self.wrap(result)

        return self.run(body())

    def run(self, body: Any) -> Any:
        if os.getpid() != self._pid:
            return asyncio.run(body)  # a forked child has no such thread
        return self._thread.run(body, _TIMEOUT_S)

    def wrap(self, value: Any) -> Any:
        """What a test gets to see of something that came out of the async face."""
        if isinstance(value, _PROXIED):
            return Proxy(self, value)
        if isinstance(value, aio.Reading | aio.Scanning):
            return reading(self, value)
        if isinstance(value, list):
            return [self.wrap(it) for it in value]
        if isinstance(value, asyncio.Future):
            return self._future(value)
        return value

    def unwrap(self, value: Any) -> Any:
        """What the async face gets to see of something that a test passes in."""
        if isinstance(value, Proxy):
            return value._target
        is_callback = callable(value) and not isinstance(value, type)
        return self._callback(value) if is_callback else value

    def _callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            result = function(*args)
            return list(result) if isinstance(result, ProxyItems) else result

        async def callback(*args: Any) -> Any:
            result = await self._in_thread(call, *(self.wrap(it) for it in args))
            return self._results(result) if inspect.isgenerator(result) else result

        return callback

    async def _results(self, generator: Iterator[Any]) -> AsyncIterator[Any]:
        while (found := await self._in_thread(next, generator, self)) is not self:
            yield found

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        """With the context of the task, as `asyncio.to_thread` does it."""
        run = contextvars.copy_context().run
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, run, function, *args)

    def _future(self, inner: asyncio.Future[Any]) -> Future[Any]:
        outer: Future[Any] = Future()
        outer.set_running_or_notify_cancel()

        def copy(done: asyncio.Future[Any]) -> None:
            if (error := done.exception()) is not None:
                outer.set_exception(error)
            else:
                outer.set_result(done.result())

        inner.add_done_callback(copy)
        return outer

    def close(self) -> None:
        async def end_of_executor() -> None:
            await asyncio.get_running_loop().shutdown_default_executor()

        self.run(end_of_executor())
        self._pool.shutdown()
        self._thread.close()


class Proxy:
    """An object of the async face that looks like one of the blocking face."""

    def __init__(self, loop: ProxyLoop, target: Any) -> None:
        self._loop = loop
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if isinstance(value, ReceivedItems):
            return ProxyItems(self._loop, self._target)
        if inspect.ismethod(value):
            return lambda *args, **options: self._loop.call(value, *args, **options)
        return self._loop.wrap(value)

    def __len__(self) -> int:
        return len(self._target)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, agent: Proxy) -> bool:
        return agent._target in self._target

    def __repr__(self) -> str:
        return repr(self._target)

    def __enter__(self) -> Proxy:
        self._loop.call(self._target.__aenter__)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call(self._target.__aexit__, *error)

    def __reduce__(self) -> Any:
        return self._target.__reduce__()


def reading(loop: ProxyLoop, transactions: aio.Reading | aio.Scanning) -> Iterator[Any]:
    """`for` over what is made for `async for`."""
    while True:
        found = loop.run(_next(transactions))
        if found is None:
            return
        yield loop.wrap(found)


async def _next(iterator: Any) -> Any:
    return await anext(iterator, None)


class ProxyItems(Sequence[bytes]):
    """The items of a transaction: iterated as `async for` does it, looked up as `read_items` does it."""

    def __init__(self, loop: ProxyLoop, transaction: aio.ReadTransaction) -> None:
        self._loop = loop
        self._transaction = transaction

    def __len__(self) -> int:
        return len(self._transaction.items)

    def __iter__(self) -> Iterator[bytes]:
        items = aiter(self._transaction.items)
        while True:
            chunk = self._loop.run(_take(items, 50 if len(self) > 1000 else 1))
            if not chunk:
                return
            yield from chunk

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        items = self._loop.call(self._transaction.read_items)
        return items[index]  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        return bool(self._loop.call(self._transaction.read_items) == other)

    __hash__ = None  # type: ignore[assignment]


async def _take(items: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    async for item in items:
        found.append(item)
        if len(found) == count:
            break
    return found
