"""The asyncio face of the client."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from types import TracebackType

from ..addresses import parse_address
from ..errors import Closed, Error
from ..limits import Limits
from ..messages import ITEM_OVERHEAD_BYTES, Parts, Payload, as_bytes, as_parts
from ..router import Strategy
from ..security import CurveClient
from ..statistics import ClientStatistics
from .connection import Connection, Locate, Settings
from .exchange import Exchange
from .pending import Pending, Sink
from .states import State

DEFAULT_TIMEOUT_S = 30.0


class Client:
    """A connection to a moebius server, for asyncio. Belongs to the loop it was opened on.

    It reconnects by itself. Requests that were under way when a connection broke fail with
    `Disconnected`, because nobody knows whether they took effect, unless they were begun with
    `repeat=True`: those are sent again. Requests begun without a connection wait for one, up to
    their deadline.

    `timeout` (seconds, None for ever) is the deadline of each call; it travels with the request.
    `on_push` gets what the server sends of its own accord; `on_state` each new `State`. `on_refused` is asked
    about each failure of a request that may be repeated, with its command and the error: if it says True, the
    request belongs elsewhere, and is kept until it is withdrawn. `on_silent` hears that a server to which something is
    under way does not answer a ping, and later that it does again. All are called on the loop and must not block.
    """

    def __init__(
        self,
        url: str | Locate,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        token: str = "",
        name: str = "",
        tls: ssl.SSLContext | None = None,
        curve: CurveClient | None = None,
        limits: Limits | None = None,
        on_push: Callable[[bytes], None] | None = None,
        on_state: Callable[[State], None] | None = None,
        on_refused: Callable[[str, Error], bool] | None = None,
        on_silent: Callable[[bool], None] | None = None,
    ) -> None:
        self._settings = Settings(
            target=url if callable(url) else parse_address(url),
            token=token,
            name=name,
            tls=tls,
            curve=curve,
            limits=limits or Limits(),
            on_push=on_push,
            on_state=on_state,
            on_refused=on_refused,
            on_silent=on_silent,
        )
        self._timeout_s = timeout
        self._connection: Connection | None = None

    async def open(self, timeout: float = 10.0) -> Client:
        """Connect, and wait until that has worked once."""
        try:
            await self.start().ready(timeout)
        except BaseException:
            await self.close()
            raise
        return self

    def start(self) -> Connection:
        """Begin to connect, on the running loop. Requests wait until that has worked, up to their deadlines."""
        if self._connection is None:
            self._connection = Connection(self._settings)
        return self._connection

    def hurry(self) -> None:
        """The server may be there again: if there is no connection, try to make one now. On the loop."""
        if self._connection is not None:
            self._connection.hurry()

    async def close(self) -> None:
        """End every request with `Closed`, and the connection. May be called again."""
        if self._connection is not None:
            await self._connection.close()

    async def __aenter__(self) -> Client:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def call(
        self,
        command: str,
        payload: Payload = b"",
        *,
        timeout: float | None = -1,
        strategy: Strategy | None = None,
        repeat: bool = False,
    ) -> bytes:
        """Send a request and wait for its response (empty if there is none).

        A response of several parts is joined; `call_parts` keeps them apart. Of a streaming
        response this is the last one. Cancelling the wait stops the handler on the server.
        """
        parts = await self.call_parts(
            command, payload, timeout=timeout, strategy=strategy, repeat=repeat
        )
        return as_bytes(parts)

    async def call_parts(
        self,
        command: str,
        payload: Payload = b"",
        *,
        timeout: float | None = -1,
        strategy: Strategy | None = None,
        repeat: bool = False,
    ) -> Parts:
        """Like `call`, with the response's parts as they came: large ones are views, not copies."""
        sink = _FutureSink(asyncio.get_running_loop().create_future())
        exchange, pending = self._begin(sink, command, as_parts(payload), timeout, strategy, repeat)
        try:
            return await sink.future
        except asyncio.CancelledError:
            exchange.cancel(pending)
            raise

    def submit(
        self,
        command: str,
        payload: Payload = b"",
        *,
        timeout: float | None = -1,
        strategy: Strategy | None = None,
        repeat: bool = False,
    ) -> asyncio.Future[Parts]:
        """Send a request and go on: a future of its response's parts. Cancelling it cancels the request."""
        sink = _FutureSink(asyncio.get_running_loop().create_future())
        exchange, pending = self._begin(sink, command, as_parts(payload), timeout, strategy, repeat)

        def cancel(future: asyncio.Future[Parts]) -> None:
            if future.cancelled():
                exchange.cancel(pending)

        sink.future.add_done_callback(cancel)
        return sink.future

    def stream(
        self,
        command: str,
        payload: Payload = b"",
        *,
        timeout: float | None = None,
        strategy: Strategy | None = None,
        window_bytes: int | None = None,
    ) -> Stream:
        """Send a request and iterate over its responses, with `async for`.

        The server sends at most `window_bytes` more than you have taken. Leaving the loop (or
        closing the stream) stops the handler on the server.
        """
        window = (
            window_bytes if window_bytes is not None else self._settings.limits.stream_window_bytes
        )
        sink = _StreamSink()
        exchange, pending = self._begin(
            sink, command, as_parts(payload), timeout, strategy, False, credit=window
        )
        return Stream(exchange, pending, sink, window)

    async def send(
        self, command: str, payload: Payload = b"", *, timeout: float | None = -1
    ) -> None:
        """Send a request that wants no response. Returns when it is on its way."""
        sink = _FutureSink(asyncio.get_running_loop().create_future())
        exchange, pending = self._begin(
            sink, command, as_parts(payload), timeout, None, False, one_way=True
        )
        try:
            await sink.future
        except asyncio.CancelledError:
            exchange.cancel(pending)
            raise

    def begin(
        self,
        sink: Sink,
        command: str,
        parts: Parts,
        *,
        timeout: float | None = -1,
        repeat: bool = False,
        one_way: bool = False,
        credit: int | None = None,
    ) -> Pending:
        """Send a request whose responses go to a sink of yours: for what is built on top of a client.

        The sink is called on the loop. `parts` must not change until it has heard the end. With
        `credit` the server sends so many bytes of a streaming response, and more as you `grant`.
        """
        return self._begin(sink, command, parts, timeout, None, repeat, credit, one_way)[1]

    def grant(self, pending: Pending, credit_bytes: int) -> None:
        """There is room for so much more of a streaming response that was begun with `credit`."""
        self._opened().exchange.grant(pending, credit_bytes)

    def go_on(self) -> None:
        """Nothing to do: the loop that brings the responses runs by itself. A blocking client's may not."""

    def cancel(self, pending: Pending) -> None:
        """Stop a request that was begun with `begin`. Its sink hears no more."""
        self._opened().exchange.cancel(pending)

    def withdraw(self, is_wanted: Callable[[str], bool]) -> list[Pending]:
        """Take back requests by their commands, in the order in which they were begun, if they may be repeated.

        They are under way no more, and whoever has them must `begin_again`. Streams of such commands end.
        """
        return self._opened().exchange.withdraw(is_wanted)

    def begin_again(self, pending: Pending) -> None:
        """Send a request that was withdrawn, from this client or another one."""
        self._opened().exchange.begin(pending)

    @property
    def state(self) -> State:
        """What the connection is doing."""
        return State.CONNECTING if self._connection is None else self._connection.state

    @property
    def id(self) -> int:
        """The number that the server gave this client; a new one with each connection."""
        return 0 if self._connection is None else self._connection.client_id

    def statistics(self) -> ClientStatistics:
        """What this client is doing and has done."""
        return self._opened().statistics()

    def _opened(self) -> Connection:
        if self._connection is None:
            raise Closed("open this client first: `async with` it, or await `open()`")
        return self._connection

    def _begin(
        self,
        sink: Sink,
        command: str,
        parts: Parts,
        timeout: float | None,
        strategy: Strategy | None,
        repeat: bool,
        credit: int | None = None,
        one_way: bool = False,
    ) -> tuple[Exchange, Pending]:
        exchange = self._opened().exchange
        pending = Pending(
            sink,
            command,
            parts,
            timeout_s=self._timeout_s if timeout == -1 else timeout,
            credit=credit,
            strategy=None if strategy is None else strategy.value,
            repeat=repeat,
            one_way=one_way,
        )
        exchange.begin(pending)
        return exchange, pending


class Stream:
    """The responses to one request, as an async iterator of bytes."""

    def __init__(
        self,
        exchange: Exchange,
        pending: Pending,
        sink: _StreamSink,
        window_bytes: int,
    ) -> None:
        self._exchange = exchange
        self._pending = pending
        self._sink = sink
        self._window_bytes = window_bytes
        self._taken_bytes = 0
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> bytes:
        return as_bytes(await self.next_parts())

    async def next_parts(self) -> Parts:
        """The next response with its parts kept apart; `StopAsyncIteration` after the last."""
        sink = self._sink
        while not sink.items:
            if sink.ended:
                if sink.error is not None:
                    error, sink.error = sink.error, None
                    raise error
                raise StopAsyncIteration
            waiter = self._loop.create_future()
            sink.waiters.append(waiter)
            await waiter
        parts = sink.items.popleft()
        self._taken_bytes += sum(map(len, parts)) + ITEM_OVERHEAD_BYTES
        if self._taken_bytes * 2 >= self._window_bytes:
            self._exchange.grant(self._pending, self._taken_bytes)
            self._taken_bytes = 0
        return parts

    async def aclose(self) -> None:
        """Stop the handler on the server. May be called again."""
        self._exchange.cancel(self._pending)
        self._sink.close()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not self._pending.ended and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._exchange.cancel, self._pending)


class _FutureSink:
    """One response, into a future."""

    __slots__ = ("_last", "future")

    def __init__(self, future: asyncio.Future[Parts]) -> None:
        self.future = future
        self._last: Parts = ()

    def item(self, parts: Parts) -> None:
        """A streaming response: the caller asked for one, and gets the last."""
        self._last = parts

    def done(self, parts: Parts | None) -> None:
        if not self.future.done():
            self.future.set_result(self._last if parts is None else parts)

    def fail(self, error: Error) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _StreamSink:
    """Many responses, into a queue that credit bounds."""

    __slots__ = ("ended", "error", "items", "waiters")

    def __init__(self) -> None:
        self.items: deque[Parts] = deque()
        self.ended = False
        self.error: Error | None = None
        self.waiters: list[asyncio.Future[None]] = []

    def item(self, parts: Parts) -> None:
        self.items.append(parts)
        self._wake()

    def done(self, parts: Parts | None) -> None:
        if parts is not None:
            self.items.append(parts)
        self.ended = True
        self._wake()

    def fail(self, error: Error) -> None:
        self.error = error
        self.ended = True
        self._wake()

    def close(self) -> None:
        """Whoever waits gets the end."""
        self.items.clear()
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
