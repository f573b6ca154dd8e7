"""A storage server: shards behind a message server, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import signal
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import uvloop

from moebius import Limits, Request, Router, Server, loop_thread
from moebius.transports.link import Credentials

from ..config import SETTINGS, Config, exposed_addresses, show
from ..errors import BadRequest
from ..lock import DirectoryLock
from ..protocol import (
    ConfigInfo,
    Describe,
    GetConfig,
    Measure,
    Measured,
    Message,
    NodeInfo,
    SettingInfo,
    encode,
)
from ..version import __version__
from .gate import Authorise, Gate
from .handlers import Handlers
from .housekeeping import Housekeeping
from .identity import node_id
from .measuring import measure
from .shard import Clock, Shard, system_clock
from .storage import LocalStorage, Storage

log = logging.getLogger("tstreams.server")

SHARDS = (0,)
"""The shards of a node. Each has a folder of its own, commands of its own, and a state of its own."""


class Node:
    """Serves the streams of one data directory.

    `InvalidState` if another server has the directory; `Corrupt` if what is in it is damaged.
    """

    def __init__(
        self,
        config: Config | Path | str,
        listen: Sequence[str] | None = None,
        *,
        clock: Clock = system_clock,
        storage: Callable[[Path, int], Storage] = LocalStorage,
        authorise: Authorise | None = None,
    ) -> None:
        """`authorise` is asked about every request; without it everyone who is let in may do everything.
        `storage` makes what a shard is kept in, of its folder and the bytes to be kept free on its
        disk; tests let disks fail with it."""
        if not isinstance(config, Config):
            config = Config(data=Path(config))
        self.config = config
        self._listen = list(config.listen if listen is None else listen)
        guarded = bool(config.token) and config.tls_certificate is not None
        exposed = [] if config.insecure else exposed_addresses(self._listen, guarded)
        if exposed:
            raise BadRequest("; ".join(exposed))
        self.id = ""
        """Who it is, once it has started: made once, and kept with the data."""
        self.http = ""
        """The URL of its front door, for those who ask; whoever serves that says it here."""
        self._started_ms = 0
        self._gate = Gate(authorise)
        self._clock = clock
        self._storage = storage
        self._lock: DirectoryLock | None = None
        self._server: Server | None = None
        self._keepers: list[Housekeeping] = []
        self.shards: dict[int, Shard] = {}

    @property
    def addresses(self) -> list[str]:
        """What it listens on, with the ports that the system chose."""
        return [] if self._server is None else self._server.addresses

    @property
    def ready(self) -> bool:
        """Whether it serves, and none of its shards has stopped."""
        return bool(self.addresses) and all(it.failed is None for it in self.shards.values())

    # Life.

    async def start(self) -> None:
        """Recover, and begin to serve on the running loop."""
        self._lock = DirectoryLock(self.config.data)
        try:
            self.id = node_id(self.config.data)
            self._started_ms = self._clock()
            self._open_shards()
            self._server = self._make_server()
            await self._server.start()
        except BaseException:
            await self._close()
            raise
        for keeper in self._keepers:
            keeper.start()

    async def stop(self) -> None:
        """Answer what was asked, flush, close, and leave the directory to others."""
        if self._server is not None:
            await self._server.stop()
        await self._close()

    def request_stop(self) -> None:
        """Make `run` or `in_thread` stop. May be called from any thread."""
        if self._server is not None:
            self._server.request_stop()

    def run(self, on_ready: Callable[[], None] | None = None) -> None:
        """Serve until SIGINT or SIGTERM, on a loop of its own."""

        async def main() -> None:
            loop = asyncio.get_running_loop()
            stopping = asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stopping.set)
            await self.start()
            if on_ready is not None:
                on_ready()
            waits = [loop.create_task(stopping.wait()), loop.create_task(self._serve())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            self.request_stop()
            await asyncio.wait(waits[1:])
            waits[0].cancel()
            await self.stop()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[Node]:
        """Serve from a thread of its own while the block runs."""
        started = threading.Event()
        failure: list[BaseException] = []

        async def main() -> None:
            await self.start()
            started.set()
            try:
                await self._serve()
            finally:
                await self.stop()

        def body() -> None:
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(main())
            except BaseException as error:
                failure.append(error)
                started.set()

        thread = loop_thread.start("tstreams-node", body, self.request_stop)
        started.wait()
        try:
            if not failure:
                yield self
        finally:
            self.request_stop()
            thread.join()
        if failure:
            raise failure[0]

    async def _serve(self) -> None:
        assert self._server is not None
        await self._server.wait()

    # Inside.

    def _open_shards(self) -> None:
        config = self.config
        if config.fsync == "never":
            log.warning(
                "fsync is never: a power failure or a crash of this machine loses what was acknowledged"
            )
        for number in SHARDS:
            shard = self.shards[number] = Shard(
                number,
                self._storage(config.data / f"shard-{number}", config.disk_reserve_bytes),
                clock=self._clock,
                ledger_bytes=config.ledger_bytes,
                ledger_age_ms=round(config.ledger_age_s * 1000),
                cache_bytes=config.payload_cache_bytes,
                fsync=config.fsync == "always",
            )
            self._keepers.append(Housekeeping(shard))
            log.info(
                "recovered",
                extra={"tstreams": {"shard": number, "replayed": shard.records_replayed}},
            )

    def _make_server(self) -> Server:
        router = Router()
        for number, shard in self.shards.items():
            router.include(Handlers(shard, self._gate).router, f"{number}:")
        self._register(router, Describe, self._describe)
        self._register(router, Measure, self._measure)
        self._register(router, GetConfig, self._settings)

        @router.on_stop
        def end_waits(server: Server) -> None:
            for shard in self.shards.values():
                shard.end_waits()

        return Server(
            router,
            self._listen,
            limits=Limits(clients_max=self.config.clients_max),
            authenticate=self._authenticate if self.config.token else None,
            tls=self._tls(),
        )

    def _register(self, router: Router, kind: type[Message], answer: Callable[[], Message]) -> None:
        read = self._gate.reader(kind)

        def handle(request: Request) -> bytes:
            read(request)
            return encode(answer())

        router.command(kind.__name__)(handle)

    def _describe(self) -> NodeInfo:
        return NodeInfo(
            __version__,
            list(self.shards),
            self.id,
            [it for it in self.addresses if not it.startswith("inproc:")],
            self.http,
            [shard.epoch for shard in self.shards.values()],
            self._started_ms,
        )

    def _measure(self) -> Measured:
        assert self._server is not None
        return measure(self._clock(), self.shards.values(), self._server)

    def _settings(self) -> ConfigInfo:
        given = {name: getattr(self.config, name) for name in SETTINGS}
        return ConfigInfo(
            [
                SettingInfo(name, show(name, value), value == SETTINGS[name].default)
                for name, value in given.items()
            ]
        )

    def _authenticate(self, credentials: Credentials) -> str | None:
        right = hmac.compare_digest(credentials.token.encode(), self.config.token.encode())
        return "token" if right else None

    def _tls(self) -> ssl.SSLContext | None:
        if self.config.tls_certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.config.tls_certificate, self.config.tls_key)
        return context

    async def _close(self) -> None:
        keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            await keeper.stop()
        shards, self.shards = self.shards, {}
        try:
            for shard in shards.values():
                shard.close()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None
