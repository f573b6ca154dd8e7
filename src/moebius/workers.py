"""Worker processes for handlers that would keep the loop busy.

Each worker is a process with one socket to the server; over it travel the same frames and messages
as between a client and a server. A worker runs one request at a time. One that dies fails its
request with `worker_died` and is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import pickle
import signal
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from .buffers import Buffers
from .drive import drive, is_unfinished
from .errors import (
    BadRequest,
    Disconnected,
    Error,
    HandlerFailed,
    TooLarge,
    WorkerDied,
    describe,
)
from .frames import FrameDecoder, encode_frame
from .limits import MIB, Limits
from .messages import (
    ITEM_OVERHEAD_BYTES,
    Call,
    Credit,
    End,
    Failure,
    Header,
    Item,
    Parts,
    Push,
    Reply,
    as_bytes,
    as_parts,
    decode,
    encode,
)
from .transports.tcp import StreamLink

if TYPE_CHECKING:
    from .request import Request

log = logging.getLogger("moebius.workers")

_RESTART_DELAY_S = 5.0
_JOB_ID = 1


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """What a handler gets in a worker process: the payload and who sent it, but no live client."""

    command: str
    parts: Parts
    client_id: int
    identity: Any

    @property
    def payload(self) -> bytes:
        """The payload as one `bytes`."""
        return as_bytes(self.parts)


class Pool:
    """Persistent worker processes that one or more commands share."""

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise BadRequest(f"a pool needs at least one worker, not {workers}")
        self.workers = workers
        self.restarts = 0
        """How many workers died, or were ended to cancel their request, so far."""
        self._users = 0
        self._running: set[_Worker] = set()
        self._idle: deque[_Worker] = deque()
        self._waiting: deque[asyncio.Future[_Worker]] = deque()
        self._limits = Limits()
        self._starting: set[asyncio.Task[None]] = set()
        self._stopping: asyncio.Event
        self._loop: asyncio.AbstractEventLoop

    async def start(self, limits: Limits) -> None:
        """Start the processes (once, however many servers and commands use the pool)."""
        loop = asyncio.get_running_loop()
        if self._users and loop is not self._loop:
            raise BadRequest(
                "a pool belongs to one thread: give servers on others their own routers"
            )
        self._users += 1
        if self._users == 1:
            self._loop = loop
            # A request of the greatest size gets an envelope on its way to the worker.
            self._limits = replace(limits, frame_bytes_max=limits.frame_bytes_max + MIB)
            self._stopping = asyncio.Event()
            await asyncio.gather(*(self._add_worker() for _ in range(self.workers)))

    async def stop(self) -> None:
        """End the processes when the last user has stopped."""
        self._users -= 1
        if self._users:
            return
        self._stopping.set()
        await asyncio.gather(*self._starting)  # they see it, and end what they have begun
        for waiting in self._waiting:
            waiting.cancel()
        self._waiting.clear()
        self._idle.clear()
        workers = list(self._running)
        for worker in workers:
            worker.end()
        await asyncio.gather(*(worker.gone() for worker in workers))

    async def run(
        self,
        function: Callable[[Any], Any],
        request: Request,
        emit: Callable[[Parts], Awaitable[None]],
    ) -> Parts | None:
        """Run a request in a worker: items go to `emit`; the last response is returned.

        Cancelling ends the worker's process, which is the only way to stop a busy one.
        """
        worker = await self._acquire()
        try:
            job = WorkerRequest(
                request.command,
                tuple(bytes(part) for part in request.parts),
                request.client.id,
                request.identity,
            )
            result = await worker.run(function, job, emit)
        except BaseException:
            if worker.busy:
                worker.end()
            else:
                self._release(worker)
            raise
        self._release(worker)
        return result

    async def _acquire(self) -> _Worker:
        if self._idle:
            return self._idle.popleft()
        waiting: asyncio.Future[_Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._release(waiting.result())
            raise

    def _release(self, worker: _Worker) -> None:
        if worker not in self._running:
            return
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(worker)
                return
        self._idle.append(worker)

    async def _add_worker(self) -> None:
        worker = _Worker(self._limits, self._worker_ended)
        await worker.open()
        if not await worker.wait_ready():
            return  # it died, and the next one is under way
        if self._stopping.is_set():
            worker.end()
            await worker.gone()
        elif worker.alive:
            self._running.add(worker)
            self._release(worker)

    def _worker_ended(self, worker: _Worker) -> None:
        self._running.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        if self._stopping.is_set():
            return
        self.restarts += 1
        task = asyncio.get_running_loop().create_task(self._replace(worker))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _replace(self, worker: _Worker) -> None:
        # One that was never ready would die again at once: a broken import must not fork for ever.
        if not worker.ready.result():
            log.error("a worker process died on start-up; the next one starts in a while")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _RESTART_DELAY_S)
        while not self._stopping.is_set():
            try:
                await self._add_worker()
            except OSError:
                log.exception("a worker process could not be started; trying again in a while")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _RESTART_DELAY_S)
            else:
                return


class _Worker:
    """The server's end of one worker process. A `Receiver`."""

    def __init__(self, limits: Limits, on_end: Callable[[_Worker], None]) -> None:
        self._limits = limits
        self._on_end = on_end
        self._process: BaseProcess
        self._link: StreamLink
        self._inbox: asyncio.Queue[tuple[Header, Parts] | None] = asyncio.Queue()
        self.ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.busy = False
        self.alive = True

    async def open(self) -> None:
        """Start the process."""
        ours, theirs = socket.socketpair()
        # spawn: the server has threads (ZeroMQ's, the loop's), and fork would copy half of them.
        self._process = multiprocessing.get_context("spawn").Process(
            target=work, args=(theirs, self._limits), daemon=True, name="moebius-worker"
        )
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._process.start)
        finally:
            theirs.close()
        _, self._link = await loop.create_connection(
            lambda: StreamLink(loop, self._limits, "worker", lambda _: self), sock=ours
        )

    async def wait_ready(self) -> bool:
        """Wait until the process has imported what it needs; False if it died, or takes too long."""
        try:
            return await asyncio.wait_for(
                asyncio.shield(self.ready), self._limits.worker_start_timeout_s
            )
        except TimeoutError:
            log.error("a worker process was not ready in time")
            self.end()
            return False

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._link.abort("ended")

    async def gone(self) -> None:
        """Wait for the end of the process."""
        await asyncio.get_running_loop().run_in_executor(None, self._process.join)

    async def run(
        self,
        function: Callable[[Any], Any],
        job: WorkerRequest,
        emit: Callable[[Parts], Awaitable[None]],
    ) -> Parts | None:
        """Run one job."""
        pickled = pickle.dumps((function, job))
        self.busy = True
        window = self._limits.stream_window_bytes
        self._link.send(Call(_JOB_ID, job.command, 0, window), (pickled,))
        while True:
            message = await self._inbox.get()
            if message is None:
                raise WorkerDied(f"the worker process died while it ran {job.command!r}")
            header, parts = message
            match header:
                case Item():
                    await emit(parts)
                    size = sum(map(len, parts)) + ITEM_OVERHEAD_BYTES
                    self._link.send(Credit(_JOB_ID, size), ())
                case Reply() | End():
                    self.busy = False
                    return parts if isinstance(header, Reply) else None
                case Failure():
                    self.busy = False
                    raise Error.from_wire(header.code, header.message)

    def received(self, header: Header, parts: Parts) -> None:
        """The worker said something."""
        if isinstance(header, Push):
            self.ready.set_result(True)
        else:
            self._inbox.put_nowait((header, parts))

    def malformed(self, error: Error) -> None:
        """It sent something else than messages (a handler that writes to our socket, say)."""
        self.end()

    def writable(self) -> None:
        """Jobs are sent one at a time: nothing waits."""

    def lost(self, reason: str) -> None:
        """The process ended, or was ended."""
        self.alive = False
        if not self.ready.done():
            self.ready.set_result(False)
        self._inbox.put_nowait(None)
        self._process.kill()
        # Reap it, so that neither a zombie nor its descriptors stay.
        asyncio.get_running_loop().run_in_executor(None, self._process.join)
        self._on_end(self)


# In the worker process.


def work(sock: socket.socket, limits: Limits) -> None:
    """The worker's main loop: until the server closes the socket, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when we end
    wire = _Wire(sock, limits)
    wire.send(Push())  # ready: whatever had to be imported has been
    with contextlib.suppress(Disconnected, ConnectionError):
        while True:
            header, parts = wire.receive()
            assert isinstance(header, Call)
            wire.credit = header.credit or 0
            try:
                function, job = pickle.loads(bytes(parts[0]))
                _run(wire, function, job)
            except Disconnected:
                raise
            except Error as error:
                wire.send(Failure(_JOB_ID, str(error.code), describe(error)))
            except Exception as error:
                log.exception("%r failed in a worker", header.command)
                text = f"{header.command!r} failed with {type(error).__name__}: "
                text += describe(error)
                wire.send(Failure(_JOB_ID, HandlerFailed.code, text))


def _run(wire: _Wire, function: Callable[[Any], Any], job: WorkerRequest) -> None:
    result = function(job)
    if is_unfinished(result):
        result = asyncio.run(drive(result, wire.emit))
    if result is None:
        wire.send(End(_JOB_ID))
    else:
        wire.send(Reply(_JOB_ID), as_parts(result))


class _Wire:
    """Blocking frames on the worker's socket."""

    def __init__(self, sock: socket.socket, limits: Limits) -> None:
        self._sock = sock
        self._limits = limits
        self._decoder = FrameDecoder(limits, Buffers(limits.read_buffer_bytes))
        self._frames: deque[tuple[bytes, Parts]] = deque()
        self.credit = 0

    def receive(self) -> tuple[Header, Parts]:
        """The next job; `Disconnected` when the server is gone."""
        while True:
            while not self._frames:
                self._read()
            head, parts = self._frames.popleft()
            header = decode(head)
            if not isinstance(header, Credit):
                return header, parts

    def _read(self) -> None:
        count = self._sock.recv_into(self._decoder.room)
        if count == 0:
            raise Disconnected("the server closed the socket")
        self._frames.extend(self._decoder.advance(count))
        if self._decoder.error is not None:
            raise Disconnected(self._decoder.error.message)

    def send(self, header: Header, parts: Parts = ()) -> None:
        """Send a message; `TooLarge` if the server would not take it."""
        size = sum(map(len, parts))
        if size > self._limits.frame_bytes_max - MIB or len(parts) > self._limits.parts_max:
            raise TooLarge(f"a response of {size} bytes in {len(parts)} parts is over the limits")
        self._sock.sendall(b"".join(encode_frame(encode(header), parts)))

    async def emit(self, parts: Parts) -> None:
        """Send one item of many, and wait while the reader has no room. A worker may block."""
        self.send(Item(_JOB_ID), parts)
        self.credit -= sum(map(len, parts)) + ITEM_OVERHEAD_BYTES
        while self.credit <= 0:
            self._read()
            while self._frames:
                header = decode(self._frames.popleft()[0])
                assert isinstance(header, Credit)
                self.credit += header.bytes
