"""The rules of a client, without I/O: which request is where, and what a message means for it.

    WAITING -> SENT -> ENDED        A request waits for a connection and a place in flight; it ends
       \\________________/          with a reply, an end, a failure, a cancel or its deadline. When
                                    the link is lost, SENT goes back to WAITING if the request may
                                    be repeated, and else ends with `disconnected`.

    SENT -> STRANDED -> WAITING     A request that may be repeated was refused here, and `on_refused` says
                                    that it belongs elsewhere: it is kept until somebody takes it back with
                                    `withdraw`, or the link is lost.

All methods but `try_begin` belong to the thread of the connection's loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from ..errors import (
    BadRequest,
    DeadlineExceeded,
    Disconnected,
    Error,
    Overloaded,
    Stopping,
    TooLarge,
)
from ..limits import Limits
from ..messages import (
    NO_RESPONSE,
    Call,
    Cancel,
    Credit,
    End,
    Failure,
    Goaway,
    Header,
    Item,
    Parts,
    Pong,
    Push,
    Reply,
    Welcome,
)
from ..statistics import ClientStatistics
from ..transports.link import Link
from .pending import DEAF, Pending, Sink
from .states import State

log = logging.getLogger("moebius.client")

_SHARED_TIMER_S = 5.0
_SLOT_S = 0.25
"""Deadlines farther away than the first are kept to within the second."""
_QUIET_STREAMS_MAX = 4


class Exchange:
    """All requests of one client. A `Receiver` of its link's messages.

    Invariants: `_sent` holds exactly the requests that the present link has carried and that have
    neither ended nor been refused for now; without a link it is empty, and so is `_stranded`, which holds the
    latter. `_waiting` may hold ended requests, and others' requests, which are skipped. A request is in one of
    the three of one exchange, and its numbers there are in the order in which it was begun.
    """

    def __init__(
        self,
        limits: Limits,
        on_push: Callable[[Parts], None] | None,
        on_welcome: Callable[[Welcome], None],
        on_lost: Callable[[str], None],
        on_refused: Callable[[str, Error], bool] | None = None,
    ) -> None:
        self._limits = limits
        self._on_push = on_push
        self._on_welcome = on_welcome
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._inflight_max = 0
        self._payload_bytes_max = limits.frame_bytes_max - limits.header_bytes_max
        self._waiting: deque[Pending] = deque()
        self._waiting_live = 0
        self._sent: dict[int, Pending] = {}
        self._stranded: dict[int, tuple[Pending, Error]] = {}
        """Requests that belong elsewhere, and what they were refused with."""
        self._watched: dict[int, dict[Pending, None]] = {}
        """Requests with distant deadlines, by the slot of time in which those lie."""
        self._last_id = 0
        self._closed: Error | None = None
        self._lock = threading.Lock()
        """Guards what `try_begin` looks at and changes. Sinks are never called under it."""
        self.refusal: Error | None = None
        """What the server said of the whole connection before it closed it."""
        self.calls = self.replies = self.items = self.failures = self.pushes = 0

    # From the faces.

    def begin(self, pending: Pending) -> None:
        """Start a request: send it now, or when there is a connection and room."""
        self.calls += 1
        if self._closed is not None:
            self._fail(pending, self._closed)
            return
        if (size := sum(map(len, pending.parts))) > self._payload_bytes_max:
            text = (
                f"{pending.command!r}: {size} bytes are over the limit of {self._payload_bytes_max}"
            )
            self._fail(pending, TooLarge(text))
            return
        if len(pending.parts) > self._limits.parts_max:
            text = (
                f"{pending.command!r}: {len(pending.parts)} parts are over {self._limits.parts_max}"
            )
            self._fail(pending, TooLarge(text))
            return
        if len(pending.command) > self._limits.command_chars_max:
            text = f"a command's name is at most {self._limits.command_chars_max} characters long"
            self._fail(pending, TooLarge(text))
            return
        if pending.expires_at is not None:
            self._watch(pending, pending.expires_at)
        with self._lock:
            waiting = self._waiting_live
            if not waiting and self._has_room():
                error = self._transmit(pending)
            elif waiting < self._limits.waiting_max:
                self._wait(pending)
                self._waiting.append(pending)
                return
            else:
                text = f"{waiting} requests wait for a connection or a place in flight already"
                error = Overloaded(text)
        self._transmitted(pending, error)

    @property
    def heard(self) -> int:
        """How much came that was asked for, or pushed: not what only shows that the server is there."""
        return self.replies + self.items + self.failures + self.pushes

    @property
    def busy(self) -> bool:
        """Whether requests are under way; from any thread."""
        return bool(self._sent)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way but a few streams, whose readers come back for more."""
        with self._lock:
            if len(self._sent) > _QUIET_STREAMS_MAX:
                return False
            for pending in self._sent.values():  # noqa: SIM110 - this is asked after each message
                if pending.credit is None:
                    return False
            return True

    def try_begin(self, pending: Pending) -> bool:
        """From any thread: send a request if that can be done at once. False: it was not begun.

        The caller sees to it that no request which was handed to `begin` before is still to be begun.
        Only a request that is alone is sent like this: of many, the loop's thread sends several at once,
        which costs less in all.
        """
        if self._sent:
            return False
        parts = pending.parts
        with self._lock:
            link = self._link
            if (
                link is None
                or link.blocked
                or self._closed is not None
                or self._sent
                or self._waiting_live
                or self._inflight_max <= 0
                or pending.one_way
                or sum(map(len, parts)) > self._payload_bytes_max
                or len(parts) > self._limits.parts_max
                or len(pending.command) > self._limits.command_chars_max
            ):
                return False
            # `_has_room` above, `_register` and `_call` here, without the calls: it is new, and alone.
            self._last_id += 1
            pending.id = self._last_id
            self._sent[pending.id] = pending
            deadline_ms = 0
            if (expires_at := pending.expires_at) is not None:
                deadline_ms = max(1, round((expires_at - time.monotonic()) * 1000))
            credit, strategy = pending.credit, pending.strategy
            call = Call(pending.id, pending.command, deadline_ms, credit, strategy)
            if not link.send_now(call, parts):
                del self._sent[pending.id]
                pending.id = NO_RESPONSE
                return False
            self.calls += 1
        if expires_at is not None:
            self._watch_from_afar(pending, expires_at)
        return True

    def cancel(self, pending: Pending) -> None:
        """The caller has lost interest: stop the handler. The sink hears no more."""
        if not pending.ended:
            self._end(pending)
            self._recall(pending)

    def withdraw(self, is_wanted: Callable[[str], bool]) -> list[Pending]:
        """Take back all requests with such commands that may be repeated, in the order in which they were begun.

        They are under way no more; whoever has them begins them again, here or on another connection. The
        server may have handled those that it has not answered. Their deadlines stand still meanwhile. Streams
        of such commands end with `Disconnected`.
        """
        with self._lock:
            carried = {**self._sent, **{it: held[0] for it, held in self._stranded.items()}}
            wanted = {it: carried[it] for it in sorted(carried) if is_wanted(carried[it].command)}
            taken = [it for it in wanted.values() if it.repeat]
            ended = [it for it in wanted.values() if not it.repeat and it.credit is not None]
            recalled = []
            for pending in (*taken, *ended):
                if self._sent.pop(pending.id, None) is not None:
                    recalled.append(pending.id)
                self._stranded.pop(pending.id, None)
            for pending in self._waiting:
                if pending.waiting is self and is_wanted(pending.command):
                    (taken if pending.repeat else ended).append(pending)
                    pending.waiting = None
                    self._waiting_live -= 1
            self._waiting = deque(it for it in self._waiting if it.waiting is self)
        if self._link is not None:
            for number in recalled:
                self._link.send(Cancel(number), ())
        for pending in taken:
            self._unwatch(pending)
            pending.id = NO_RESPONSE
        for pending in ended:
            text = f"{pending.command!r} goes on elsewhere"
            self._fail(pending, Disconnected(text))
        self.writable()
        return taken

    def grant(self, pending: Pending, credit_bytes: int) -> None:
        """The reader of a stream has room for more."""
        if pending.waiting is not None and pending.credit is not None:
            pending.credit += credit_bytes  # it travels with the request
        elif not pending.ended and self._link is not None:
            self._link.send(Credit(pending.id, credit_bytes), ())

    def close(self, error: Error) -> None:
        """End every request with this error, now and from now on."""
        with self._lock:
            self._closed = error
            waiting, self._waiting = self._waiting, deque()
            sent, self._sent = self._sent, {}
            stranded, self._stranded = self._stranded, {}
        refused = [pending for pending, _ in stranded.values()]
        for pending in (*sent.values(), *refused, *waiting):
            self._fail(pending, error)

    # From the connection.

    def attach(self, link: Link, welcome: Welcome) -> None:
        """A connection is ready: send what waits."""
        assert not self._sent, "what the last link carried has ended or waits again"
        with self._lock:
            self._link = link
            self._inflight_max = max(1, welcome.inflight_max)
            self._payload_bytes_max = welcome.frame_bytes_max - self._limits.header_bytes_max
        self.writable()

    # From the link.

    def received(self, header: Header, parts: Parts) -> None:
        """A message came."""
        if type(header) is Item:
            self.items += 1
            pending = self._sent.get(header.id)
            if pending is not None:
                pending.sink.item(parts)
            return
        match header:
            case Reply():
                self._finish(header.id, parts)
            case End():
                self._finish(header.id, None)
            case Failure():
                self._on_failure(header)
            case Push():
                self.pushes += 1
                self._push(parts)
            case Welcome():
                self._on_welcome(header)
            case Goaway():
                self._inflight_max = 0
            case Pong():
                pass
            case _:
                log.warning("the server sent %s, which servers do not send", type(header).__name__)

    def malformed(self, error: Error) -> None:
        """What came is no message: this server and we do not understand each other."""
        self.refusal = error
        if self._link is not None:
            self._link.abort(error.message)

    def writable(self) -> None:
        """The link has room again."""
        while self._waiting:
            with self._lock:
                if not self._has_room():
                    return
                pending = self._waiting.popleft()
                if pending.waiting is not self:
                    continue
                pending.waiting = None
                self._waiting_live -= 1
                error = self._transmit(pending)
            self._transmitted(pending, error)

    def lost(self, reason: str) -> None:
        """The link is gone. Repeatable requests wait for the next, first in order; the others end."""
        with self._lock:
            self._link = None
            sent, self._sent = self._sent, {}
            again = [it for it in sent.values() if it.repeat and not it.ended]
            if self._stranded:
                again += [pending for pending, _ in self._stranded.values()]
                again.sort(key=lambda pending: pending.id)
                self._stranded = {}
            for pending in again:
                self._wait(pending)
            self._waiting.extendleft(reversed(again))
        for pending in sent.values():
            if not pending.repeat:
                text = f"the connection broke while {pending.command!r} was under way: {reason}"
                self._fail(pending, Disconnected(text))
        self._on_lost(reason)

    def statistics(self, state: State, connects: int) -> ClientStatistics:
        """A snapshot."""
        return ClientStatistics(
            state=state.value,
            calls=self.calls,
            replies=self.replies,
            items=self.items,
            failures=self.failures,
            pushes=self.pushes,
            connects=connects,
            inflight=len(self._sent),
            waiting=self._waiting_live,
            buffered_bytes=self._link.buffered_bytes() if self._link else 0,
        )

    # Inside.

    def _wait(self, pending: Pending) -> None:
        pending.waiting = self
        self._waiting_live += 1

    def _has_room(self) -> bool:
        link = self._link
        return link is not None and not link.blocked and len(self._sent) < self._inflight_max

    def _register(self, pending: Pending) -> None:
        """Give a request its number, under the lock: it is about to be sent."""
        if not pending.one_way:
            if pending.id == NO_RESPONSE:
                self._last_id += 1
                pending.id = self._last_id
            self._sent[pending.id] = pending

    def _call(self, pending: Pending) -> Call:
        deadline_ms = 0
        if pending.expires_at is not None:
            deadline_ms = max(1, round((pending.expires_at - time.monotonic()) * 1000))
        return Call(pending.id, pending.command, deadline_ms, pending.credit, pending.strategy)

    def _transmit(self, pending: Pending) -> Error | None:
        """Send a request, under the lock; why it cannot be sent."""
        assert self._link is not None
        self._register(pending)
        try:
            self._link.send(self._call(pending), pending.parts)
        except Exception as error:  # nothing else may suffer from one request that cannot be sent
            self._sent.pop(pending.id, None)
            return BadRequest(f"{pending.command!r} cannot be sent: {error!r}")
        return None

    def _transmitted(self, pending: Pending, error: Error | None) -> None:
        """The rest of it, without the lock: what concerns the caller."""
        if error is not None:
            self._fail(pending, error)
        elif pending.one_way:
            self._end(pending).done(None)

    def _finish(self, request_id: int, parts: Parts | None) -> None:
        pending = self._sent.pop(request_id, None)
        if pending is None:
            return  # it was cancelled, or its deadline passed, while the answer was under way
        self.replies += 1
        self._end(pending).done(parts)
        if self._waiting:
            self.writable()

    def _on_failure(self, failure: Failure) -> None:
        error = Error.from_wire(failure.code, failure.message)
        if failure.id == NO_RESPONSE:
            self.refusal = error
            return
        pending = self._sent.get(failure.id)
        if pending is None:
            return
        if pending.repeat and isinstance(error, Stopping):
            return  # the link ends in a moment: it is sent again on the next one, in its old place
        del self._sent[failure.id]
        if (
            pending.repeat
            and self._on_refused is not None
            and not pending.ended
            and self._on_refused(pending.command, error)
        ):
            self._stranded[failure.id] = pending, error
        else:
            self._fail(pending, error)
        if self._waiting:
            self.writable()

    def _push(self, parts: Parts) -> None:
        if self._on_push is None:
            return
        try:
            self._on_push(parts)
        except Exception:
            log.exception("on_push failed")

    def _watch(self, pending: Pending, expires_at: float) -> None:
        """Have a request expire in time. Distant deadlines share a timer, and may be a little late: most
        requests end long before, and a timer for each would cost as much as the request."""
        delay_s = expires_at - time.monotonic()
        if delay_s < _SHARED_TIMER_S:
            pending.timer = self._loop.call_later(max(0.0, delay_s), self._expire, pending)
            return
        slot = int(expires_at / _SLOT_S) + 1
        watched = self._watched.get(slot)
        if watched is None:
            watched = self._watched[slot] = {}
            delay_s = slot * _SLOT_S - time.monotonic()
            self._loop.call_later(delay_s, self._expire_slot, slot)
        watched[pending] = None
        pending.watched_by = watched

    def _watch_from_afar(self, pending: Pending, expires_at: float) -> None:
        """The same, from any thread."""
        watched = None
        if expires_at - time.monotonic() >= _SHARED_TIMER_S:  # a near slot may be over by now
            watched = self._watched.get(int(expires_at / _SLOT_S) + 1)
        if watched is None:
            self._loop.call_soon_threadsafe(self._watch_if_alive, pending, expires_at)
        elif not pending.ended:
            pending.watched_by = watched
            watched[pending] = None

    def _watch_if_alive(self, pending: Pending, expires_at: float) -> None:
        if not pending.ended:
            self._watch(pending, expires_at)

    def _expire_slot(self, slot: int) -> None:
        for pending in list(self._watched.pop(slot)):
            self._expire(pending)

    def _expire(self, pending: Pending) -> None:
        if pending.ended:
            return
        if self._sent.get(pending.id) is pending:
            where = "the server did not answer"
        elif (held := self._stranded.get(pending.id)) is not None and held[0] is pending:
            where = f"nobody was found who answers ({held[1].message})"
        else:
            where = "there was no connection"
        self._recall(pending)
        text = f"{pending.command!r}: {where} within the deadline"
        self._fail(pending, DeadlineExceeded(text))

    def _recall(self, pending: Pending) -> None:
        """It has ended: the server need not answer. Another exchange may have it by now, under another number."""
        number = pending.id
        if self._sent.get(number) is pending:
            del self._sent[number]
            if self._link is not None:
                self._link.send(Cancel(number), ())
                self.writable()
        elif (held := self._stranded.get(number)) is not None and held[0] is pending:
            del self._stranded[number]

    def _fail(self, pending: Pending, error: Error) -> None:
        if not pending.ended:
            self.failures += 1
            self._end(pending).fail(error)

    def _end(self, pending: Pending) -> Sink:
        """A request is over: its sink, which must hear so.

        A sink often holds on to its request. If both held each other, what was answered, which may be large,
        would stay until the garbage collector comes by.
        """
        sink, pending.sink = pending.sink, DEAF
        pending.ended = True
        pending.parts = ()
        if pending.waiting is not None:
            pending.waiting._wait_no_more(pending)
        # `_unwatch`, without the call: every request comes by here.
        if pending.watched_by is not None:
            pending.watched_by.pop(pending, None)
            pending.watched_by = None
        elif pending.timer is not None:
            pending.timer.cancel()
            pending.timer = None
        return sink

    def _wait_no_more(self, pending: Pending) -> None:
        pending.waiting = None
        self._waiting_live -= 1
        if len(self._waiting) > 2 * self._waiting_live + 100:
            self._waiting = deque(it for it in self._waiting if it.waiting is self)

    def _unwatch(self, pending: Pending) -> None:
        if pending.watched_by is not None:
            pending.watched_by.pop(pending, None)
            pending.watched_by = None
        elif pending.timer is not None:
            pending.timer.cancel()
            pending.timer = None
