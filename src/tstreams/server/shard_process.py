"""The process of one shard, as its parent sees it: started, told, watched, started again, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
import time
from collections.abc import Callable, Sequence

from ..errors import BadRequest, Corrupt, Error, InvalidState, Unavailable
from ..limits import (
    SHARD_END_S,
    SHARD_MEASURE_S,
    SHARD_RESTART_S_MAX,
    SHARD_RESTART_S_MIN,
    SHARD_RESTARTS_MAX,
    SHARD_STEADY_S,
)
from ..logs import fields
from ..protocol import Measured, NodeInfo
from .reins import (
    LINE_BYTES_MAX,
    FromShard,
    Know,
    Measure,
    Numbers,
    Orders,
    Refused,
    Serving,
    line_of,
    read_from_shard,
)

log = logging.getLogger("tstreams.server")

_LOOK_S = 0.01
"""How often to look whether a process has ended that is about to."""
_HOPELESS = (BadRequest, Corrupt, InvalidState)
"""What another attempt would find just the same."""


class ShardProcess:
    """One shard. Belongs to the loop, and to the thread of it that has started the process: on Linux the process is
    killed when that thread ends."""

    def __init__(
        self,
        shard: int,
        listen: Sequence[str],
        command: Sequence[str],
        orders: Callable[[list[str]], Orders],
        inherited: Sequence[int],
        changed: Callable[[], None],
        before: Sequence[str] = (),
    ) -> None:
        """`listen`: where it is to listen, and `before`: where it did last, which is tried first; `orders` are made for each attempt; `inherited` are file descriptors that
        it keeps open as long as it lives; `changed` is called when it serves, and when it has ended."""
        self.shard = shard
        self.serving = False
        self.addresses = list(before)
        """Where it listens, or did last."""
        self.epoch = 0
        self.restarts = 0
        self._listen = list(listen)
        self._command = command
        self._orders = orders
        self._inherited = inherited
        self._changed = changed
        self._process: subprocess.Popen[bytes] | None = None
        self._transports: list[asyncio.ReadTransport | asyncio.WriteTransport] = []
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._latest: NodeInfo | None = None
        self._telling: asyncio.Task[None] | None = None
        self._measured: asyncio.Future[Measured] | None = None
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """The number of the process, if there is one."""
        return None if self._process is None else self._process.pid

    # Life.

    async def start(self) -> None:
        """Start the process; comes back when it serves. Any `Error` that it names; `Unavailable` if it just ends."""
        # What was chosen before is asked for again, so that clients find it where it was.
        if self.addresses:
            try:
                await self._start(self.addresses)
                return
            except Unavailable as error:  # perhaps somebody else has the port now
                log.info("shard %d listens elsewhere now: %s", self.shard, error)
                self.addresses = []
        await self._start(self._listen)

    async def _start(self, listen: list[str]) -> None:
        await self._spawn(listen)
        first = await self._next()
        if isinstance(first, Serving):
            self.addresses, self.epoch, self.serving = first.addresses, first.epoch, True
            self._changed()
            return
        status = await self._reap()
        if isinstance(first, Refused):
            raise Error.from_wire(first.code, first.text)
        raise Unavailable(
            f"the process of shard {self.shard} ended before it served, with status {status}: see the log"
        )

    async def keep(self) -> None:
        """Watch it, and start it again whenever it ends, until it is ended here. Raises what makes that hopeless."""
        pause_s, in_a_row = SHARD_RESTART_S_MIN, 0
        while True:
            begun_at = time.monotonic()
            reason = await self._until_ended()
            if self._stopping:
                return
            if time.monotonic() - begun_at > SHARD_STEADY_S:
                pause_s, in_a_row = SHARD_RESTART_S_MIN, 0
            in_a_row += 1
            if in_a_row > SHARD_RESTARTS_MAX:
                raise Unavailable(
                    f"shard {self.shard} has ended {in_a_row} times in a row, the last time: {reason}"
                )
            log.error(
                "the process of a shard has ended: it is started again",
                extra=fields(shard=self.shard, reason=reason, pause_s=pause_s),
            )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, SHARD_RESTART_S_MAX)

    async def end(self) -> bool:
        """Let it flush and end; whether it did so by itself, and well. Nobody keeps it any more."""
        self._stopping = True
        process, was_serving = self._process, self.serving
        if process is None:
            return True
        process.send_signal(signal.SIGTERM)
        kill_at = time.monotonic() + SHARD_END_S
        while process.poll() is None:
            if time.monotonic() > kill_at:
                kill_at = float("inf")
                log.error("a shard does not end, and is killed", extra=fields(shard=self.shard))
                process.kill()
            await asyncio.sleep(_LOOK_S)
        status = await self._reap()
        if status and was_serving:
            log.error("a shard has not ended well", extra=fields(shard=self.shard, status=status))
        return status == 0 or not was_serving

    # What is said.

    def tell(self, node: NodeInfo) -> None:
        """Let it know where all shards are. Only the latest is told, when the process takes it."""
        self._latest = node
        if self._telling is None and (writer := self._open_writer) is not None:
            self._telling = asyncio.get_running_loop().create_task(self._tell(writer))

    async def measure(self) -> Measured | None:
        """What it has measured; None if it does not say so in time."""
        writer = self._open_writer
        if writer is None:
            return None
        if self._measured is None:
            self._measured = asyncio.get_running_loop().create_future()
            writer.write(line_of(Measure()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHARD_MEASURE_S):
                return await asyncio.shield(self._measured)
        return None

    @property
    def _open_writer(self) -> asyncio.StreamWriter | None:
        writer = self._writer
        return None if not self.serving or writer is None or writer.is_closing() else writer

    async def _tell(self, writer: asyncio.StreamWriter) -> None:
        try:
            while self._latest is not None and writer is self._open_writer:
                latest, self._latest = self._latest, None
                writer.write(line_of(Know(latest)))
                await writer.drain()
        except ConnectionError:
            pass  # it has ended, and the next one gets it with its orders
        finally:
            self._telling = None

    # Inside.

    async def _spawn(self, listen: list[str]) -> None:
        loop = asyncio.get_running_loop()
        process = self._process = self._popen()
        assert process.stdin is not None
        assert process.stdout is not None
        self._reader = reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.stdout
        )
        writing, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, process.stdin
        )
        self._transports = [reading, writing]
        self._writer = asyncio.StreamWriter(writing, protocol, None, loop)
        self._writer.write(line_of(self._orders(listen)))

    def _popen(self) -> subprocess.Popen[bytes]:
        # A group of its own: Ctrl-C is for the parent, which ends it in its turn.
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=self._inherited,
            process_group=0,
            bufsize=0,
        )

    async def _next(self) -> FromShard | None:
        """What it says next; None: it has ended."""
        assert self._reader is not None
        line = await self._reader.readline()
        return read_from_shard(line) if line.endswith(b"\n") else None

    async def _until_ended(self) -> str:
        """Why it has ended, or could not be started. Starts it if it does not run."""
        if not self.serving:
            try:
                await self.start()
            except _HOPELESS:
                raise
            except (Error, OSError) as error:
                return str(error)
            self.restarts += 1
        refused = ""
        while (said := await self._next()) is not None:
            if isinstance(said, Numbers) and self._measured is not None:
                self._measured.set_result(said.measured)
                self._measured = None
            elif isinstance(said, Refused):
                refused = said.text
        status = await self._reap()
        return refused or f"status {status}"

    async def _reap(self) -> int:
        """It has closed its pipe, so it has ended, or is about to: its exit status."""
        process = self._process
        assert process is not None
        while (status := process.poll()) is None:  # noqa: ASYNC110 - it has no event that all systems know
            await asyncio.sleep(_LOOK_S)
        self._process = None
        self.serving = False
        if self._measured is not None:
            self._measured.cancel()
            self._measured = None
        for transport in self._transports:
            transport.close()
        self._changed()
        return status
