"""The driver of a client: connects, says hello, keeps the heartbeat, connects again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import zmq

from ..addresses import Address, Transport, parse_address
from ..chance import luck
from ..errors import Closed, Disconnected, Error, ProtocolError, Unauthorized
from ..limits import Limits
from ..messages import Hello, Parts, Ping, Welcome
from ..security import CurveClient
from ..statistics import ClientStatistics
from ..transports import inproc, tcp
from ..transports.link import Link
from ..transports.zmq_dealer import DealerLink
from .exchange import Exchange
from .states import State
from .vigil import Vigil

log = logging.getLogger("moebius.client")


Locate: TypeAlias = Callable[[], Awaitable[str]]
"""Finds out the address of a server. Asked before each attempt to connect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a client connects."""

    target: Address | Locate
    token: str = ""
    name: str = ""
    tls: ssl.SSLContext | None = None
    curve: CurveClient | None = None
    limits: Limits = field(default_factory=Limits)
    on_push: Callable[[bytes], None] | None = None
    on_state: Callable[[State], None] | None = None
    on_refused: Callable[[str, Error], bool] | None = None
    on_silent: Callable[[bool], None] | None = None


class Connection:
    """Keeps one link to a server alive, on the running loop, until it is closed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._address = settings.target if isinstance(settings.target, Address) else None
        self._loop = asyncio.get_running_loop()
        self.exchange = Exchange(
            settings.limits,
            self._push_hook(),
            self._on_welcome,
            self._on_lost,
            settings.on_refused,
        )
        self.state = State.CONNECTING
        self.connects = 0
        self.client_id = 0
        self._link: Link | None = None
        self._welcome: asyncio.Future[Welcome] | None = None
        self._lost = asyncio.Event()
        self._hurry = asyncio.Event()
        self._lost_reason = ""
        self._first: asyncio.Future[None] = self._loop.create_future()
        self._task = self._loop.create_task(self._run())

    async def ready(self, timeout_s: float) -> None:
        """Wait for the first connection; `Disconnected` or `Unauthorized` if it cannot be had."""
        try:
            async with asyncio.timeout(timeout_s):  # unlike wait_for, it never swallows a cancel
                await asyncio.shield(self._first)
        except TimeoutError:
            whom = self._address or "the server"
            raise Disconnected(
                f"no connection to {whom} within {timeout_s:g} s: {self._lost_reason}"
            ) from None

    def hurry(self) -> None:
        """There is reason to believe that the server is there: try to connect now, if that is due later."""
        self._hurry.set()

    async def close(self) -> None:
        """End all requests, and the connection; comes back when it is really closed."""
        link = self._link
        self._shut(Closed("this client has been closed"))
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if link is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.limits.close_timeout_s):
                    await self._lost.wait()

    @property
    def link(self) -> Link | None:
        """The present link, if there is one; it may not have been greeted yet."""
        return self._link

    def statistics(self) -> ClientStatistics:
        """A snapshot."""
        return self.exchange.statistics(self.state, self.connects)

    # Inside.

    def _push_hook(self) -> Callable[[Parts], None] | None:
        on_push = self._settings.on_push
        return None if on_push is None else lambda parts: on_push(b"".join(parts))

    async def _run(self) -> None:
        limits = self._settings.limits
        delay_s = limits.reconnect_delay_s_min
        while self.state is not State.CLOSED:
            try:
                async with asyncio.timeout(limits.connect_timeout_s):
                    link, welcome = await self._connect()
                if self._lost.is_set():
                    raise Disconnected(self._lost_reason)
            except Exception as error:
                if isinstance(error, Unauthorized | ProtocolError):
                    self._shut(error)
                    return
                self._lost_reason = str(error) or repr(error)
                if await self._rest(delay_s * luck.uniform(0.5, 1.0)):
                    delay_s = limits.reconnect_delay_s_min
                else:
                    delay_s = min(delay_s * 2, limits.reconnect_delay_s_max)
                continue
            delay_s = limits.reconnect_delay_s_min
            self.connects += 1
            self.client_id = welcome.client_id
            self._enter(State.CONNECTED)
            self.exchange.attach(link, welcome)
            if not self._first.done():
                self._first.set_result(None)
            await self._watch(link)
            self._enter(State.RECONNECTING)

    async def _rest(self, delay_s: float) -> bool:
        """Between two attempts to connect; whether somebody was in a hurry."""
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                return await self._hurry.wait()
        return False

    async def _connect(self) -> tuple[Link, Welcome]:
        settings = self._settings
        self._lost.clear()
        self.exchange.refusal = None
        self._welcome = self._loop.create_future()
        link = self._link = await self._dial()
        try:
            beat_ms = int(settings.limits.heartbeat_s * 1000)
            hello = Hello(
                token=settings.token,
                heartbeat_ms=beat_ms,
                name=settings.name,
                frame_bytes_max=settings.limits.frame_bytes_max,
            )
            link.send(hello, ())
            return link, await self._welcome
        except BaseException:
            self._welcome.cancel()
            link.abort("the handshake failed")
            raise

    async def _dial(self) -> Link:
        settings = self._settings
        address, limits = await self._locate(), settings.limits
        if address.transport.is_zmq:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
            return DealerLink(address, limits, context, settings.curve, self.exchange)
        if address.transport is Transport.INPROC:
            return await inproc.dial(address, limits, self.exchange)
        return await tcp.dial(address, limits, settings.tls, lambda _: self.exchange)

    async def _locate(self) -> Address:
        """Where the server is. If that cannot be found out now, it may be where it was."""
        target = self._settings.target
        if not isinstance(target, Address):
            try:
                self._address = parse_address(await target())
            except Exception as error:
                if self._address is None:
                    raise
                log.debug("where the server is could not be found out: %s", error)
        assert self._address is not None
        return self._address

    def _on_welcome(self, welcome: Welcome) -> None:
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_result(welcome)

    def _on_lost(self, reason: str) -> None:
        self._link = None
        refusal = self.exchange.refusal
        self._lost_reason = refusal.message if refusal is not None else reason
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_exception(refusal or Disconnected(reason))
        self._lost.set()

    async def _watch(self, link: Link) -> None:
        """Ping until the link is lost; a server that is silent for too long is dead."""
        limits, exchange = self._settings.limits, self.exchange
        vigil = Vigil(limits, eager=self._settings.on_silent is not None)
        looked_at, heard = self._loop.time(), exchange.heard
        while not self._lost.is_set():
            try:
                await asyncio.wait_for(self._lost.wait(), vigil.pace_s)
            except TimeoutError:
                now, silent = self._loop.time(), vigil.silent
                moved, heard = exchange.heard != heard, exchange.heard
                found = vigil.look(
                    now - looked_at, touched=link.touched(), moved=moved, busy=exchange.busy
                )
                looked_at = now
                if vigil.silent != silent:
                    self._tell_silence(vigil.silent)
                if found.dead:
                    silent_s = limits.heartbeat_s * limits.heartbeats_missed_max
                    link.abort(f"the server was silent for {silent_s:g} s")
                elif found.ping:
                    link.send(Ping(0), ())

    def _tell_silence(self, silent: bool) -> None:
        assert self._settings.on_silent is not None
        try:
            self._settings.on_silent(silent)
        except Exception:
            log.exception("on_silent failed")

    def _shut(self, error: Error) -> None:
        self._enter(State.CLOSED)
        if not self._first.done():
            self._first.set_exception(error)
            self._first.exception()  # whoever waits gets it; nobody has to
        self.exchange.close(error)
        if self._link is not None:
            self._link.close("the client closed the connection")

    def _enter(self, state: State) -> None:
        if self.state is State.CLOSED or self.state is state:
            return
        self.state = state
        if self._settings.on_state is not None:
            try:
                self._settings.on_state(state)
            except Exception:
                log.exception("on_state failed")
