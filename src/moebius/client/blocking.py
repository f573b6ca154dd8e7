"""The blocking face of the client: the same rules on a loop in a thread of its own."""

from __future__ import annotations

import logging
import queue
import ssl
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType

from .. import process
from ..addresses import parse_address
from ..errors import Closed, Error
from ..limits import Limits
from ..messages import ITEM_OVERHEAD_BYTES, Parts, Payload, as_bytes, as_parts
from ..router import Strategy
from ..security import CurveClient
from ..statistics import ClientStatistics
from .asynchronous import DEFAULT_TIMEOUT_S
from .connection import Connection, Locate, Settings
from .exchange import Exchange
from .pending import Pending, Sink
from .shared_loop import FOR_EVER, SharedLoop
from .states import State

log = logging.getLogger("moebius.client")


class Client:
    """A connection to a moebius server. Thread-safe; threads share the connection.

    It reconnects by itself. Requests that were under way when a connection broke fail with
    `Disconnected`, because nobody knows whether they took effect, unless they were begun with
    `repeat=True`: those are sent again. Requests begun without a connection wait for one, up to
    their deadline.

    `timeout` (seconds, None for ever) is the deadline of each call; it travels with the request.
    `on_push` gets what the server sends of its own accord; `on_state` each new `State`. `on_refused` is asked
    about each failure of a request that may be repeated, with its command and the error: if it says True, the
    request belongs elsewhere, and is kept until it is withdrawn. `on_silent` hears that a server to which something is
    under way does not answer a ping, and later that it does again. All are called on the I/O thread and must not
    block. After a fork the child must make its own client.

    It waits `connect_timeout` for the first connection. With None it does not wait, and can be made on any
    thread: requests wait until there is one, up to their deadlines.
    """

    def __init__(
        self,
        url: str | Locate,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        connect_timeout: float | None = 10.0,
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
        settings = Settings(
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
        self._limits = settings.limits
        self._timeout_s = timeout
        self._outbox: deque[Callable[[], None]] = deque()
        self._posted = False
        self._order = threading.Lock()
        self._behind = 0
        """Actions that were posted and are not done yet: requests must not overtake them."""
        self._io = SharedLoop.get()
        self._connection: Connection
        self._exchange: Exchange
        self._closed = False
        if connect_timeout is None:
            self._behind = 1
            self._io.post(lambda: self._start(settings))
        else:
            self._have(self._io.run(self._open(settings, connect_timeout)))

    def _start(self, settings: Settings) -> None:
        """On the I/O thread: begin to connect. What was begun before waits behind this."""
        self._have(Connection(settings))
        if self._closed:
            self.close_soon()
        with self._order:
            self._behind -= 1

    def _have(self, connection: Connection) -> None:
        self._connection = connection
        self._exchange = connection.exchange
        self._io.add(connection)

    @staticmethod
    async def _open(settings: Settings, timeout_s: float) -> Connection:
        connection = Connection(settings)
        try:
            await connection.ready(timeout_s)
        except BaseException:
            await connection.close()
            raise
        return connection

    def close(self) -> None:
        """End every request with `Closed`, and the connection. May be called again."""
        if self._io.pid == process.pid and not self._io.ended:
            self._io.run(self._shut())

    async def _shut(self) -> None:
        self._closed = True
        if self._is_started:
            self._io.remove(self._connection)
            await self._connection.close()

    @property
    def _is_started(self) -> bool:
        return hasattr(self, "_connection")

    def close_soon(self) -> None:
        """The same on the I/O thread, which cannot wait for it."""
        self._io.begin(self._shut())

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def call(
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
        response this is the last one.
        """
        parts = self.call_parts(command, payload, timeout=timeout, strategy=strategy, repeat=repeat)
        return as_bytes(parts)

    def call_parts(
        self,
        command: str,
        payload: Payload = b"",
        *,
        timeout: float | None = -1,
        strategy: Strategy | None = None,
        repeat: bool = False,
    ) -> Parts:
        """Like `call`, with the response's parts as they came: large ones are views, not copies."""
        self._io.check_caller()
        sink = _WaiterSink()
        pending = self.begin(
            sink, command, as_parts(payload), timeout=timeout, repeat=repeat, strategy=strategy
        )
        try:
            self.wait(sink.gate)
            return sink.result()
        except BaseException:
            self._post(lambda: self._exchange.cancel(pending))
            raise

    def submit(
        self,
        command: str,
        payload: Payload = b"",
        *,
        timeout: float | None = -1,
        strategy: Strategy | None = None,
        repeat: bool = False,
    ) -> Future[Parts]:
        """Send a request and go on: a future of its response's parts. Cancelling it cancels the request.

        Requests of one thread leave in the order in which they were submitted.
        """
        sink = _FutureSink()
        pending = self.begin(
            sink, command, as_parts(payload), timeout=timeout, repeat=repeat, strategy=strategy
        )
        self.go_on()

        def cancel(future: Future[Parts]) -> None:
            if future.cancelled():
                self._post(lambda: self._exchange.cancel(pending))

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
        """Send a request and iterate over its responses.

        The server sends at most `window_bytes` more than you have taken. Leaving the loop (or
        closing the stream) stops the handler on the server.
        """
        window = window_bytes if window_bytes is not None else self._limits.stream_window_bytes
        sink = _StreamSink()
        pending = self.begin(
            sink, command, as_parts(payload), timeout=timeout, credit=window, strategy=strategy
        )
        return Stream(self, pending, sink, window)

    def send(self, command: str, payload: Payload = b"", *, timeout: float | None = -1) -> None:
        """Send a request that wants no response. Returns when it is on its way."""
        self._io.check_caller()
        sink = _WaiterSink()
        self.begin(sink, command, as_parts(payload), timeout=timeout, one_way=True)
        self.wait(sink.gate)
        sink.result()

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
        strategy: Strategy | None = None,
    ) -> Pending:
        """Send a request whose responses go to a sink of yours: for what is built on top of a client.

        Never waits. The sink is called on the I/O thread and must not block. Requests leave in the
        order in which they were begun. `parts` must not change until the sink has heard the end.
        With `credit` the server sends so many bytes of a streaming response, and more as you `grant`.
        """
        if self._io.pid != process.pid:
            raise Closed("this client was made before a fork: make a new one in the child process")
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
        with self._order:
            if self._behind or not self._exchange.try_begin(pending):
                self._post_in_order(lambda: self._exchange.begin(pending))
        return pending

    def grant(self, pending: Pending, credit_bytes: int) -> None:
        """There is room for so much more of a streaming response that was begun with `credit`."""
        if self._io.pid == process.pid:
            self._post(lambda: self._exchange.grant(pending, credit_bytes))

    def cancel(self, pending: Pending) -> None:
        """Stop a request that was begun with `begin`. Its sink hears no more."""
        if self._io.pid == process.pid:
            self._post(lambda: self._exchange.cancel(pending))

    def withdraw(self, is_wanted: Callable[[str], bool]) -> list[Pending]:
        """Take back requests by their commands, in the order in which they were begun, if they may be repeated.
        On the I/O thread only.

        They are under way no more, and whoever has them must `begin_again`. Streams of such commands end.
        """
        self._take_outbox()
        return self._exchange.withdraw(is_wanted)

    def begin_again(self, pending: Pending) -> None:
        """Send a request that was withdrawn, from this client or another one, behind those begun before."""
        self._post(lambda: self._exchange.begin(pending))

    def post(self, action: Callable[[], None]) -> None:
        """Call this on the I/O thread, soon; from any thread."""
        self._io.post(action)

    def post_later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call this on the I/O thread, where this is called, too, after a while."""
        self._io.loop.call_later(delay_s, action)

    def wait(self, gate: threading.Lock, timeout_s: float = FOR_EVER) -> bool:
        """Wait until a sink of yours has released this lock. Whether it did so in time.

        The same as `gate.acquire`, but sooner where messages follow each other quickly: the thread reads
        them by itself.
        """
        try:
            connection = self._connection
        except AttributeError:  # it has not begun to connect
            with self._io.crowd():
                return gate.acquire(timeout=timeout_s)
        return self._io.wait(gate, connection, timeout_s)

    def hurry(self) -> None:
        """The server may be there again: if there is no connection, try to make one now. On the I/O thread."""
        if self._is_started:
            self._connection.hurry()

    def go_on(self) -> None:
        """A request was begun whose answer nobody is going to `wait` for: let it come by itself."""
        self._io.go_on()

    def check_caller(self) -> None:
        """`RuntimeError` on the I/O thread: whoever waits for a response there waits for ever."""
        self._io.check_caller()

    @property
    def state(self) -> State:
        """What the connection is doing."""
        return self._connection.state if self._is_started else State.CONNECTING

    @property
    def id(self) -> int:
        """The number that the server gave this client; a new one with each connection."""
        return self._connection.client_id

    def statistics(self) -> ClientStatistics:
        """What this client is doing and has done."""
        return self._connection.statistics()

    def _post(self, action: Callable[[], None]) -> None:
        """Do this on the I/O thread; many actions share one wake-up."""
        with self._order:
            self._post_in_order(action)

    def _post_in_order(self, action: Callable[[], None]) -> None:
        self._behind += 1
        self._outbox.append(action)
        if not self._posted:
            self._posted = True
            self._io.post(self._take_outbox)

    def _take_outbox(self) -> None:
        self._posted = False  # before the queue is read: what comes later wakes us again
        outbox = self._outbox
        done = 0
        while outbox:
            done += 1
            try:
                outbox.popleft()()
            except Exception:
                log.exception("an action of a client failed")
        with self._order:
            self._behind -= done


connect = Client
"""Connect to a server: `with moebius.connect("tcp://127.0.0.1:7070") as client: ...`"""


class Stream:
    """The responses to one request, as an iterator of bytes."""

    def __init__(
        self, client: Client, pending: Pending, sink: _StreamSink, window_bytes: int
    ) -> None:
        self._client = client
        self._pending = pending
        self._sink = sink
        self._window_bytes = window_bytes
        self._taken_bytes = 0
        self._ended = False

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> bytes:
        return as_bytes(self.next_parts())

    def next_parts(self) -> Parts:
        """The next response with its parts kept apart; `StopIteration` after the last."""
        if self._ended:
            raise StopIteration
        event = self._next_event()
        if isinstance(event, tuple):
            self._taken_bytes += sum(map(len, event)) + ITEM_OVERHEAD_BYTES
            if self._taken_bytes * 2 >= self._window_bytes:
                taken, self._taken_bytes = self._taken_bytes, 0
                self._client._post(lambda: self._client._exchange.grant(self._pending, taken))
            return event
        self._ended = True
        self._sink.events.put(None)  # for other threads that wait for the same stream
        if event is None:
            raise StopIteration
        raise event

    def _next_event(self) -> Parts | Error | None:
        try:
            return self._sink.events.get_nowait()
        except queue.Empty:
            with self._client._io.crowd():
                return self._sink.events.get()

    def close(self) -> None:
        """Stop the handler on the server. May be called again."""
        self._ended = True
        self._sink.events.put(None)  # wakes a thread that waits in `next`
        client, pending = self._client, self._pending
        if not pending.ended and client._io.pid == process.pid:
            client._post(lambda: client._exchange.cancel(pending))

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class _WaiterSink:
    """One response, for a thread that waits for it."""

    __slots__ = ("_error", "_parts", "gate")

    def __init__(self) -> None:
        self.gate = threading.Lock()
        """Released when there is a result; the deadline is the exchange's business."""
        self.gate.acquire()
        self._parts: Parts = ()
        self._error: Error | None = None

    def result(self) -> Parts:
        """The response; the error, if it failed."""
        if self._error is not None:
            raise self._error
        return self._parts

    def item(self, parts: Parts) -> None:
        """A streaming response: the caller asked for one, and gets the last."""
        self._parts = parts

    def done(self, parts: Parts | None) -> None:
        if parts is not None:
            self._parts = parts
        self.gate.release()

    def fail(self, error: Error) -> None:
        self._error = error
        self.gate.release()


class _FutureSink:
    """One response, into a future."""

    __slots__ = ("_last", "future")

    def __init__(self) -> None:
        self.future: Future[Parts] = Future()
        self._last: Parts = ()

    def item(self, parts: Parts) -> None:
        """A streaming response: the caller asked for one, and gets the last."""
        self._last = parts

    def done(self, parts: Parts | None) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(self._last if parts is None else parts)

    def fail(self, error: Error) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class _StreamSink:
    """Many responses, into a queue that credit bounds: parts, then None or an error."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Parts | Error | None] = queue.SimpleQueue()

    def item(self, parts: Parts) -> None:
        self.events.put(parts)

    def done(self, parts: Parts | None) -> None:
        if parts is not None:
            self.events.put(parts)
        self.events.put(None)

    def fail(self, error: Error) -> None:
        self.events.put(error)
