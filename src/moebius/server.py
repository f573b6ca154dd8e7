"""The server: listeners, clients, background tasks, and their life from start to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import uvloop
import zmq

from . import loop_thread
from .addresses import parse_address
from .drive import discard, drive
from .errors import Closed, Error, Overloaded, Stopping
from .limits import Limits
from .peer import Peer
from .peers import Peers
from .request import Request
from .router import Router
from .security import CurveGate, CurveServer
from .statistics import Counts, ServerStatistics, StopReport
from .transports.inproc import InprocListener
from .transports.link import Credentials, Link
from .transports.tcp import StreamListener
from .transports.zmq_router import RouterListener
from .workers import Pool

log = logging.getLogger("moebius")

Authenticate: TypeAlias = Callable[[Credentials], Any]
Listener: TypeAlias = StreamListener | RouterListener | InprocListener


class Server:
    """Serves the commands of a router on any number of addresses.

    `authenticate` is called (and awaited, if it is async) with the `Credentials` of each new client
    before anything is done for it; what it returns becomes `client.identity`; None refuses.
    `tls` applies to tcp and ipc addresses, `curve` to zmq ones.
    """

    def __init__(
        self,
        router: Router,
        addresses: Sequence[str] | str,
        *,
        limits: Limits | None = None,
        authenticate: Authenticate | None = None,
        tls: ssl.SSLContext | None = None,
        curve: CurveServer | None = None,
    ) -> None:
        self.router = router
        self.limits = limits or Limits()
        self.authenticate = authenticate
        self.clients = Peers()
        """The clients that are connected now."""
        self.counts = Counts()
        self.loop: asyncio.AbstractEventLoop
        self._addresses = [
            parse_address(text)
            for text in ([addresses] if isinstance(addresses, str) else addresses)
        ]
        self._tls = tls
        self._curve = curve
        self._listeners: list[Listener] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._pools: set[Pool] = set()
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._gate: CurveGate | None = None
        self._started_at = 0.0
        self._running = False
        self._stopping: asyncio.Event
        self._stop_task: asyncio.Task[StopReport] | None = None
        self._thread_id = 0

    @property
    def addresses(self) -> list[str]:
        """What it listens on, with the ports that the system chose for port 0."""
        return [str(listener.address) for listener in self._listeners]

    # Life.

    async def start(self) -> None:
        """Open all addresses and begin to serve, on the running loop."""
        if self._running:
            raise Closed("this server is running already")
        self.loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._started_at = self.loop.time()
        self._stopping = asyncio.Event()
        self._stop_task = None
        self._running = True
        self._listeners = []
        try:
            for command in self.router.commands.values():
                if command.pool is not None and command.pool not in self._pools:
                    self._pools.add(command.pool)
                    await command.pool.start(self.limits)
            await self._open_listeners()
            self._spawn(self._sweep())
            for hook in self.router.start_hooks:
                hook(self)
            for function in self.router.background_tasks:
                self.spawn(function)
        except BaseException:
            await self.stop(grace_s=0)
            raise
        log.info("serving on %s", ", ".join(self.addresses))

    async def stop(self, grace_s: float | None = None) -> StopReport:
        """Accept nothing new, let what runs finish within the grace, cancel the rest, close.

        Goes on to its end even if whoever called it is cancelled: a handler may stop its own server.
        """
        if self._running:
            self._running = False
            self._stop_task = self.loop.create_task(self._stop(grace_s))
        if self._stop_task is None:
            return StopReport(0, 0, 0)
        if self._stop_task.done():
            return self._stop_task.result()
        return await asyncio.shield(self._stop_task)

    async def _stop(self, grace_s: float | None) -> StopReport:
        for listener in self._listeners:
            listener.close()
        clients = list(self.clients)
        begun = sum(peer.inflight for peer in clients)
        for peer in clients:
            peer.wind_down()
        for hook in self.router.stop_hooks:
            self._call_hook(hook, self)
        deadline = self.loop.time() + (self.limits.stop_grace_s if grace_s is None else grace_s)
        while self._inflight() and self.loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        cancelled = 0
        for peer in list(self.clients):
            cancelled += peer.lane.cancel_all(Stopping("the server is stopping"))
            peer.link.close("the server stopped")
        await self._end_tasks()
        report = StopReport(max(0, begun - cancelled), cancelled, len(clients))
        for listener in self._listeners:
            if isinstance(listener, RouterListener):
                listener.close_socket()
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        if self._context is not None:
            await self.loop.run_in_executor(None, self._context.term)
            self._context = None
        self._stopping.set()
        log.info("stopped: %s", report)
        return report

    def request_stop(self) -> None:
        """Make `run`, `wait` or `in_thread` stop gracefully. May be called from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self.loop.call_soon_threadsafe(self._stopping.set)

    async def wait(self) -> StopReport:
        """Serve until `request_stop` is called, then stop."""
        await self._stopping.wait()
        return await self.stop()

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def run(self) -> StopReport:
        """Serve until SIGINT, SIGTERM or `request_stop`, on a loop of its own."""

        async def main() -> StopReport:
            await self.start()
            for number in (signal.SIGINT, signal.SIGTERM):
                self.loop.add_signal_handler(number, self._stopping.set)
            return await self.wait()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[Server]:
        """Serve from a thread of its own while the block runs: for tests, notebooks, embedding."""
        started: threading.Event = threading.Event()
        failure: list[BaseException] = []

        async def main() -> None:
            try:
                await self.start()
            finally:
                started.set()
            await self.wait()

        def body() -> None:
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(main())
            except BaseException as error:
                failure.append(error)

        thread = loop_thread.start("moebius-server", body, self.request_stop)
        started.wait()
        try:
            if not failure and self._running:
                yield self
        finally:
            if self._running:
                self.request_stop()
            thread.join()
        if failure:
            raise failure[0]

    # For handlers and hooks.

    def spawn(self, function: Callable[[Server], Any]) -> None:
        """Run a background task: any kind of handler function, called with this server."""

        async def run() -> None:
            try:
                await drive(function(self), discard)
            except Exception as error:
                self.report(None, error)

        self._spawn(run())

    def call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call this on the server's own thread, from any other: clients belong to it."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def check_thread(self) -> None:
        """Refuse to touch a client from a thread that is not the server's."""
        if threading.get_ident() != self._thread_id:
            raise RuntimeError(
                "clients belong to the server's thread: from another one use server.call_soon(...)"
            )

    def report(self, request: Request | None, error: BaseException) -> None:
        """Tell the error hooks; without any, the log."""
        self.counts.errors += 1
        hooks = self.router.error_hooks
        if not hooks:
            log.error("%s failed", request or "a background task", exc_info=error)
        for hook in hooks:
            try:
                hook(request, error)
            except Exception:
                log.exception("an error hook failed")

    def statistics(self) -> ServerStatistics:
        """What the server is doing and has done."""
        inflight = payload_bytes = buffered_bytes = 0
        for peer in self.clients:  # once: there may be many thousands
            lane = peer.lane
            inflight += len(lane.activities) + peer.later
            payload_bytes += lane.payload_bytes
            buffered_bytes += peer.link.buffered_bytes()
        return ServerStatistics(
            counts=replace(self.counts),
            clients=len(self.clients),
            inflight=inflight,
            inflight_payload_bytes=payload_bytes,
            buffered_bytes=buffered_bytes,
            workers=sum(pool.workers for pool in self._pools),
            worker_restarts=sum(pool.restarts for pool in self._pools),
            uptime_s=self.loop.time() - self._started_at,
        )

    # From the transports.

    def peer_opened(self, link: Link) -> Peer | None:
        """A client connected: its handle, or None if there are too many."""
        if len(self.clients) >= self.limits.clients_max or not self._running:
            self.counts.clients_refused += 1
            refusal: Error = Overloaded(f"this server has {len(self.clients)} clients, its limit")
            if not self._running:
                refusal = Stopping("the server is stopping")
            link.refuse(refusal)
            return None
        peer = Peer(self, link, self.clients.new_id())
        self.clients.add(peer)
        self.counts.clients_seen += 1
        if peer.admitted:
            self.peer_admitted(peer)
        return peer

    def peer_admitted(self, peer: Peer) -> None:
        """A client may be served from now on."""
        for hook in self.router.connect_hooks:
            self._call_hook(hook, peer)

    def peer_lost(self, peer: Peer, reason: str) -> None:
        """A client is gone."""
        log.debug("%r: %s", peer, reason)
        self.clients.remove(peer)
        if peer.admitted:
            for hook in self.router.disconnect_hooks:
                self._call_hook(hook, peer)

    def _call_hook(self, hook: Callable[[Any], Any], subject: Peer | Server) -> None:
        try:
            hook(subject)
        except Exception as error:
            self.report(None, error)

    # Inside.

    async def _open_listeners(self) -> None:
        for address in self._addresses:
            listener: Listener
            if address.transport.is_zmq:
                if self._context is None:
                    self._context = zmq.Context()
                    if self._curve is not None:
                        self._gate = CurveGate(self._context, self._curve)
                listener = RouterListener(
                    address,
                    self.limits,
                    self._context,
                    self._curve,
                    self.peer_opened,
                    guarded=self.authenticate is not None,
                )
            elif address.transport.value == "inproc":
                listener = InprocListener(address, self.limits, self.peer_opened)
            else:
                listener = StreamListener(address, self.limits, self._tls, self.peer_opened)
            await listener.open()
            self._listeners.append(listener)

    def _spawn(self, coroutine: Any) -> None:
        task = self.loop.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _end_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Two turns: cancelled handlers unwind, and the last bytes leave.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for pool in self._pools:
            await pool.stop()
        self._pools.clear()

    def _inflight(self) -> int:
        return sum(peer.inflight for peer in self.clients)

    async def _sweep(self) -> None:
        """Look for dead, idle, stalled and slow clients: one pass over all, not a timer each."""
        while True:
            due_at = self.loop.time() + self.limits.sweep_s
            await asyncio.sleep(self.limits.sweep_s)
            now = self.loop.time()
            if now - due_at > self.limits.sweep_s:
                # We were held up ourselves: what the clients sent meanwhile has not been read yet.
                for peer in self.clients:
                    peer.last_seen_at += now - due_at
                continue
            self._look_at_all(now)

    def _look_at_all(self, now: float) -> None:
        """One pass. There may be many thousands who say nothing: those are passed over without a call."""
        for peer in self.clients:
            link = peer.link
            if now < peer.quiet_until and not (
                link.seen or link.blocked or peer.later or peer.lane.activities
            ):
                continue
            try:
                self._expire(peer, now)
            except Exception as error:  # one client must not keep the others from being looked at
                self.report(None, error)

    def _expire(self, peer: Peer, now: float) -> None:
        reason = self._overdue(peer, now)
        if reason is not None:
            self.counts.clients_expired += 1
            peer.link.abort(reason)

    def _overdue(self, peer: Peer, now: float) -> str | None:
        limits, link = self.limits, peer.link
        if link.touched():
            peer.seen = True
            peer.last_seen_at = now
        elif (peer.inflight or link.blocked) and not peer.heartbeat_s:
            peer.last_seen_at = now  # not idle: it waits for us, or takes what we sent
        reason = link.overdue(now, limits)
        if reason is not None:
            return reason
        if peer.heartbeat_s:
            allowed_s = peer.heartbeat_s * limits.heartbeats_missed_max
            what = "no heartbeat for"
        elif not peer.seen:
            allowed_s, what = limits.first_frame_timeout_s, "it said nothing for"
        else:
            allowed_s, what = limits.idle_timeout_s, "idle for"
        silent_s = now - peer.last_seen_at
        if silent_s > allowed_s and not (peer.heartbeat_s and link.blocked):
            return f"{what} {silent_s:.1f} s"
        peer.quiet_until = 0.0 if link.is_amid_frame() else peer.last_seen_at + allowed_s
        return None
