"""A link that can be made bad: a TCP proxy on a thread of its own, between some clients and the server."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from enum import Enum

_CHUNK_BYTES = 64 * 1024


class Way(Enum):
    """Where bytes go to."""

    UP = "to the server"
    DOWN = "to the client"


@dataclass(slots=True)
class Weather:
    """How the link is. Others change it while it works."""

    delay_s_max: float = 0.0
    """How long each piece may take; they keep their order."""
    holes: frozenset[Way] = frozenset()
    """Ways on which everything gets lost, while the sender believes that it is sent."""
    refuses: bool = False
    """Whoever connects is turned away at once."""
    rng: random.Random = field(default_factory=random.Random)


class Proxy:
    """Listens on the loopback, and passes on. Use it in a `with`."""

    def __init__(self, host: str, port: int, seed: int) -> None:
        self._to = (host, port)
        self.weather = Weather(rng=random.Random(seed))
        self.passed = 0
        """Connections that were passed on."""
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"tcp://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """All connections break, at both ends, at once."""
        self._run(self._cut())

    def heal(self) -> None:
        """The link is good again. What got lost in a hole stays lost: those connections break."""
        had_holes = bool(self.weather.holes)
        self.weather.delay_s_max = 0.0
        self.weather.holes = frozenset()
        self.weather.refuses = False
        if had_holes:
            self.cut()

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # On its own thread.

    def _run(self, work: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.weather.refuses:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._to)
        except (
            OSError
        ):  # the server is not there: the client is told so as if it had connected itself
            writer.transport.abort()
            return
        self.passed += 1
        self._spawn(self._pass_on(reader, far_writer, Way.UP))
        self._spawn(self._pass_on(far_reader, writer, Way.DOWN))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        weather = self.weather
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(_CHUNK_BYTES):
                    if weather.delay_s_max:
                        await asyncio.sleep(weather.rng.uniform(0, weather.delay_s_max))
                    if way in weather.holes:
                        continue
                    writer.write(data)
                    await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.close()
