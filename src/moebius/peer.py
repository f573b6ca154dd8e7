"""A client as the server sees it: the handle that handlers get, and what its messages lead to."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from .drive import is_unfinished
from .errors import (
    BadRequest,
    Cancelled,
    Error,
    HandlerFailed,
    Overloaded,
    ProtocolError,
    Stopping,
    TooLarge,
    Unauthorized,
    UnknownCommand,
    UnknownStrategy,
    describe,
)
from .lane import Lane
from .messages import (
    NO_RESPONSE,
    PROTOCOL_VERSION,
    Buffer,
    Bye,
    Call,
    Cancel,
    Credit,
    End,
    Failure,
    Goaway,
    Header,
    Hello,
    Parts,
    Payload,
    Ping,
    Pong,
    Push,
    Reply,
    Welcome,
    as_parts,
)
from .request import LATER, Request
from .router import STRATEGIES, Strategy

if TYPE_CHECKING:
    from .server import Server
    from .transports.link import Link


_PARALLEL = Strategy.PARALLEL
"""Bound once: looking up a member of an enum costs as much as a call."""


class Peer:
    """The handle of one connected client."""

    __slots__ = (
        "_authenticating",
        "_commands",
        "_control",
        "_gated",
        "_gated_bytes",
        "_greeted",
        "_later_bytes_soon",
        "_later_soon",
        "_ready",
        "_stopping",
        "admitted",
        "counts",
        "gone",
        "heartbeat_s",
        "id",
        "identity",
        "lane",
        "last_seen_at",
        "later",
        "later_bytes",
        "limits",
        "link",
        "loop",
        "name",
        "quiet_until",
        "response_bytes_max",
        "seen",
        "server",
        "tags",
    )

    def __init__(self, server: Server, link: Link, peer_id: int) -> None:
        self.server = server
        self.link = link
        self.id = peer_id
        """Unique among all clients that this server ever had."""
        self.identity: Any = None
        """What the `authenticate` hook returned."""
        self.name = ""
        """What the client calls itself."""
        self.tags: dict[str, Any] = {}
        """For your own use; gone with the client."""
        self.gone = False
        """Whether the connection has ended."""
        self.admitted = server.authenticate is None
        """Whether the `authenticate` hook has accepted it."""
        self.loop = server.loop
        self.limits = server.limits
        self.counts = server.counts
        self.heartbeat_s = 0.0
        self.last_seen_at = server.loop.time()
        self.seen = False
        self.quiet_until = 0.0
        """Nobody has to look at this client before, if nothing comes from it, it is not blocked and asks for nothing."""
        self.lane = Lane(self)
        self.later = 0
        """Requests whose handlers returned `LATER` and have not answered yet."""
        self.later_bytes = 0
        # Far below its limits nobody has to look whether a request is over them.
        self._later_soon = self.limits.inflight_max // 2
        self._later_bytes_soon = self.limits.inflight_bytes_max // 2
        self._commands = server.router.commands
        self.response_bytes_max = self.limits.frame_bytes_max - self.limits.header_bytes_max
        self._ready = self.admitted
        self._greeted = False
        self._stopping = False
        self._authenticating: asyncio.Task[None] | None = None
        self._gated: deque[tuple[Header, Parts]] = deque()
        self._gated_bytes = 0
        self._control: dict[type, Callable[[Any], None]] = {
            Hello: self._on_hello,
            Cancel: self._on_cancel,
            Credit: self._on_credit,
            Ping: self._on_ping,
            Bye: self._on_bye,
        }

    # The handle, for handlers and background tasks.

    def send(self, payload: Payload) -> bool:
        """Send the client a message of the server's own (its `on_push` gets it).

        Belongs to the server's thread, like everything of a client: see `Server.call_soon`.

        False, and nothing is sent, if the client is gone or takes too little: a slow client makes
        neither the server's memory grow nor the caller wait. `TooLarge` if no client would take it.
        """
        self.server.check_thread()
        parts = as_parts(payload)
        self.check_size(parts)
        if (
            self.gone
            or not self.admitted
            or self.link.buffered_bytes() > self.limits.push_buffer_bytes
        ):
            self.counts.pushes_refused += 1
            return False
        self.counts.pushes += 1
        self.link.send(Push(), parts)
        return True

    def close(self, reason: str = "closed by the server") -> None:
        """Cancel the client's requests and close its connection."""
        self.lane.cancel_all(Cancelled(reason))
        self.link.close(reason)

    def flush(self) -> None:
        """Let the answers that wait for the end of the loop's turn go now."""
        self.link.flush()

    @property
    def address(self) -> str:
        """Where the client is, as far as the transport tells."""
        return self.link.credentials("").address

    @property
    def transport(self) -> str:
        """The scheme of the address it came in by: tcp, ipc, zmq+tcp, zmq+ipc or inproc."""
        return self.link.credentials("").transport

    @property
    def inflight(self) -> int:
        """Its requests that run or wait."""
        return len(self.lane.activities) + self.later

    def __repr__(self) -> str:
        return f"<client {self.id}{' ' + self.name if self.name else ''}>"

    # From the link.

    def received(self, header: Header, parts: Parts) -> None:
        """A message came; most are calls."""
        if type(header) is not Call or not self._ready:
            (self._on_control if self._ready else self._gate)(header, parts)
            return
        call = header
        self.counts.requests += 1
        command = self._commands.get(call.command)
        if command is None:
            command = self.server.router.fallback
            if command is None:
                self.fail(call.id, UnknownCommand(f"there is no command {call.command!r:.200}"))
                return
        strategy = command.strategy
        if call.strategy is not None:
            asked = STRATEGIES.get(call.strategy)
            if asked is None:
                known = ", ".join(STRATEGIES)
                self.fail(
                    call.id, UnknownStrategy(f"strategy {call.strategy!r:.40} is none of {known}")
                )
                return
            if command.strategy_fixed and asked is not strategy:
                text = f"{call.command!r} always has the strategy {strategy.value!r}"
                self.fail(call.id, BadRequest(text))
                return
            strategy = asked
        if command.one_way and call.id != NO_RESPONSE:
            self.link.send(End(call.id), ())
            call = Call(NO_RESPONSE, call.command, call.deadline_ms, None, call.strategy)
        lane = self.lane
        in_turn = strategy is not _PARALLEL
        if command.pool is not None or (in_turn and lane.turn is not None):
            lane.take(command, call, parts, strategy)
            return
        if (
            self.later >= self._later_soon or self.later_bytes > self._later_bytes_soon
        ) and lane.refused(call, parts):
            return
        # Nobody has to wait: what finishes at once never becomes an activity.
        request = Request(self, call, parts)
        try:
            produced = command.function(request)
        except (Exception, asyncio.CancelledError) as error:
            self.failed(request, error)
            return
        if (
            type(produced) is bytes
            and call.id != NO_RESPONSE
            and len(produced) <= self.response_bytes_max
        ):
            self.counts.replies += 1
            self.link.send(Reply(call.id), (produced,))
        elif produced is LATER:
            if request.unanswered:  # `postpone`, without the call
                request.postponed_bytes = size = sum(map(len, parts))
                self.later += 1
                self.later_bytes += size
        elif is_unfinished(produced):
            lane.adopt(command, request, call, produced, in_turn)
        else:
            self.answer(request, produced)

    def malformed(self, error: Error) -> None:
        """What came is no message."""
        self.reject(error)

    def writable(self) -> None:
        """The link has room again."""
        self.lane.wake()

    def lost(self, reason: str) -> None:
        """The client is gone: whatever runs for it is cancelled."""
        if self.gone:
            return
        self.gone = True
        if self._authenticating is not None:
            self._authenticating.cancel()
        self.counts.cancelled += self.lane.cancel_all(None)
        self._gated.clear()
        self.server.peer_lost(self, reason)

    # The ends of calls.

    def postpone(self, request: Request) -> None:
        """A handler will answer later, unless it has done so already."""
        if request.unanswered:
            size = sum(map(len, request.parts))
            request.postponed_bytes = size
            self.later += 1
            self.later_bytes += size

    def no_longer_later(self, request: Request) -> None:
        """A request that was postponed is about to be answered."""
        if request.postponed_bytes >= 0:
            self.later -= 1
            self.later_bytes -= request.postponed_bytes

    def answer(self, request: Request, result: Any) -> None:
        """Send a request's last response: the handler's result, or just that there is no more."""
        if request.id == NO_RESPONSE:
            return
        if type(result) is bytes and len(result) <= self.response_bytes_max:
            self.counts.replies += 1
            self.link.send(Reply(request.id), (result,))
            return
        if result is None:
            self.counts.replies += 1
            self.link.send(End(request.id), ())
            return
        try:
            parts = as_parts(result)
            self.check_size(parts)
        except (TypeError, TooLarge) as error:
            self.failed(request, error)
            return
        self.counts.replies += 1
        self.link.send(Reply(request.id), parts)

    def answer_in_pieces(self, request: Request, first: Buffer, pieces: Sequence[Buffer]) -> None:
        """The same, of two parts, the second in several buffers. Those are no parts, so their number is free."""
        if request.id == NO_RESPONSE:
            return
        size = len(first) + sum(map(len, pieces))
        if size > self.response_bytes_max:
            text = (
                f"a response of {size} bytes is over the limit of {self.response_bytes_max} bytes"
            )
            self.failed(request, TooLarge(text))
            return
        self.counts.replies += 1
        self.link.send_pieces(Reply(request.id), first, pieces)

    def check_size(self, parts: Parts) -> int:
        """Refuse a response that no client would accept: it would cost the whole connection. Its size."""
        size = sum(map(len, parts))
        if size > self.response_bytes_max or len(parts) > self.limits.parts_max:
            text = f"a response of {size} bytes in {len(parts)} parts is over the limits of "
            text += f"{self.response_bytes_max} bytes and {self.limits.parts_max} parts"
            raise TooLarge(text)
        return size

    def failed(self, request: Request, error: BaseException) -> None:
        """A handler raised: the caller is told, and the hooks, if it was not a typed refusal."""
        if not isinstance(error, Error):
            self.report(request, error)
            text = f"{request.command!r} failed with {type(error).__name__}: {describe(error)}"
            error = HandlerFailed(text)
        elif isinstance(error, HandlerFailed):  # a worker process made it a typed error already
            self.report(request, error)
        self.fail(request.id, error)

    def fail(self, request_id: int, error: Error) -> None:
        """Send a failure as the last word on a request."""
        self.counts.failures += 1
        if request_id != NO_RESPONSE:
            self.link.send(Failure(request_id, str(error.code), describe(error)), ())

    def report(self, request: Request, error: BaseException) -> None:
        """Tell the error hooks."""
        self.server.report(request, error)

    # Control messages.

    def _on_control(self, header: Header, parts: Parts) -> None:
        act = self._control.get(type(header))
        if act is None:
            self.reject(ProtocolError(f"a client does not send {type(header).__name__}"))
        elif parts:
            name = type(header).__name__
            self.reject(
                ProtocolError(f"{name} has no payload, but {len(parts)} parts came with it")
            )
        else:
            act(header)

    def reject(self, error: Error) -> None:
        """The peer broke the protocol: say how, and close."""
        self.counts.rejected += 1
        self.link.refuse(error)

    def wind_down(self) -> None:
        """The server is stopping: what runs may finish, but nothing new begins."""
        self._ready = False
        self._stopping = True
        if self._greeted:
            self.link.send(Goaway(), ())

    def _on_hello(self, hello: Hello) -> None:
        if hello.version != PROTOCOL_VERSION:
            text = (
                f"protocol version {hello.version} is not {PROTOCOL_VERSION}, the one spoken here"
            )
            self.reject(ProtocolError(text))
            return
        self._greeted = True
        self.name = hello.name[:255]
        if hello.frame_bytes_max:
            frame_bytes_max = min(hello.frame_bytes_max, self.limits.frame_bytes_max)
            self.response_bytes_max = max(0, frame_bytes_max - self.limits.header_bytes_max)
        self.heartbeat_s = max(0, hello.heartbeat_ms) / 1000
        limits = self.limits
        welcome = Welcome(
            PROTOCOL_VERSION,
            self.id,
            limits.frame_bytes_max,
            limits.inflight_max,
            int(limits.heartbeat_s * 1000),
        )
        self.link.send(welcome, ())

    def _on_cancel(self, cancel: Cancel) -> None:
        self.counts.cancelled += 1
        self.lane.cancel(cancel.id, Cancelled("cancelled by the caller"))

    def _on_credit(self, credit: Credit) -> None:
        activity = self.lane.activities.get(credit.id)
        if activity is not None:
            activity.grant(credit.bytes)

    def _on_ping(self, ping: Ping) -> None:
        self.link.send(Pong(ping.number), ())

    def _on_bye(self, _: Bye) -> None:
        self.link.close("the client said goodbye")

    # The gate: nothing is done for a client before the `authenticate` hook has accepted it, and
    # nothing new once the server is stopping.

    def _gate(self, header: Header, parts: Parts) -> None:
        if self._stopping:
            if isinstance(header, Call):
                self.fail(header.id, Stopping("the server is stopping"))
            else:
                self._on_control(header, parts)
            return
        self._gated.append((header, parts))
        self._gated_bytes += sum(map(len, parts))
        limits = self.limits
        if len(self._gated) > limits.inflight_max or self._gated_bytes > limits.gated_bytes_max:
            self.reject(Overloaded("too much was sent before authentication was done"))
            return
        if self._authenticating is not None:
            return
        token = header.token if isinstance(header, Hello) else ""
        self._authenticating = self.loop.create_task(self._authenticate(token))

    async def _authenticate(self, token: str) -> None:
        hook = self.server.authenticate
        assert hook is not None
        credentials = self.link.credentials(token)
        try:
            identity = hook(credentials)
            if isawaitable(identity):
                identity = await asyncio.wait_for(identity, self.limits.authenticate_timeout_s)
            if identity is None:
                raise Unauthorized("the credentials were refused")
        except Exception as error:
            refusal = error if isinstance(error, Unauthorized) else Unauthorized("refused")
            if refusal is not error:
                self.server.report(None, error)
            self._refuse(refusal)
            return
        self.identity = identity
        self.admitted = True
        self._ready = not self._stopping
        self._gated_bytes = 0
        self.server.peer_admitted(self)
        while self._gated and not self.gone:
            self.received(*self._gated.popleft())

    def _refuse(self, refusal: Unauthorized) -> None:
        for header, _ in self._gated:
            if isinstance(header, Call):
                self.fail(header.id, refusal)
        self._gated.clear()
        self.counts.unauthorized += 1
        self.reject(refusal)
