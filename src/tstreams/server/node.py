"""A storage server: shards behind a message server, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import signal
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import uvloop

from moebius import Limits, Request, Router, Server, loop_thread
from moebius.transports.link import Credentials

from ..config import SETTINGS, Config, exposed_addresses, show
from ..errors import BadRequest, InvalidState
from ..lock import DirectoryLock
from ..logs import fields
from ..protocol import (
    CheckCluster,
    ClusterInfo,
    ConfigInfo,
    Describe,
    DescribeCluster,
    GetConfig,
    Intend,
    Measure,
    Measured,
    MemberInfo,
    Message,
    NodeInfo,
    PlacedShard,
    ReplicaInfo,
    SettingInfo,
    ShardInfo,
    encode,
)
from ..version import __version__
from .errands import Errands
from .gate import Authorise, Gate
from .handlers import Handlers
from .housekeeping import Housekeeping
from .identity import check_cluster, check_shards, node_id
from .kin import Kin, LocalKin
from .local import LocalShard
from .measuring import measure
from .shard import Clock, Shard, system_clock
from .storage import LocalStorage, Storage
from .wire import wire_error

log = logging.getLogger("tstreams.server")


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
        shards: int | None = None,
    ) -> None:
        """`authorise` is asked about every request; without it everyone who is let in may do everything.
        `storage` makes what a shard is kept in, of its folder and the bytes to be kept free on its
        disk; tests let disks fail with it. `shards` takes the place of the setting."""
        if not isinstance(config, Config):
            config = Config(data=Path(config))
        if shards is not None:
            config = replace(config, shards=shards)
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
        self.local: list[LocalShard] = []
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
        self._lock = self._take_folder()
        try:
            self.id = self._identify()
            self._check_folder()
            self._started_ms = self._clock()
            await self._open()
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

    async def leave(self) -> None:
        """Hand over to others what they can go on with, while it still serves. Nobody else has anything of this one."""

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
            await self.leave()
            self.request_stop()
            await asyncio.wait(waits[1:])
            waits[0].cancel()
            await self.stop()
            waits[1].result()

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

    def _take_folder(self) -> DirectoryLock | None:
        """Keep others off the data folder."""
        return DirectoryLock(self.config.data)

    def _identify(self) -> str:
        """Who this is."""
        return node_id(self.config.data)

    def _check_folder(self) -> None:
        """Refuse a folder whose data is another's."""
        check_cluster(self.config.data, None)
        check_shards(self.config.data, self.config.shards)

    async def _open(self) -> None:
        """Recover what is served."""
        self._open_shards()

    def _open_shards(self) -> None:
        kin = LocalKin(self.shards)
        for number in range(self.config.shards):
            self._open_shard(number, kin)

    def _open_shard(self, number: int, kin: Kin) -> None:
        config = self.config
        if config.fsync == "never":
            log.warning(
                "fsync is never: a power failure or a crash of this machine loses what was acknowledged"
            )
        local = LocalShard(
            number,
            self._storage(config.data / f"shard-{number}", config.disk_reserve_bytes),
            clock=self._clock,
            ledger_bytes=config.ledger_bytes,
            ledger_age_ms=round(config.ledger_age_s * 1000),
            cache_bytes=config.payload_cache_bytes // config.shards,
            fsync=config.fsync == "always",
            shards=config.shards,
        )
        shard = self.shards[number] = local.shard
        self.local.append(local)
        if config.shards > 1:
            shard.errands = Errands(shard, kin)
        self._keepers.append(Housekeeping(local))
        log.info("recovered", extra=fields(shard=number, replayed=local.records_replayed))

    def _make_server(self) -> Server:
        router = Router()
        for number, shard in self.shards.items():
            router.include(Handlers(shard, self._gate).router, f"{number}:")
        self._register(router, Describe, self._describe)
        self._register(router, Measure, self._measure)
        self._register(router, GetConfig, self._settings)
        self._register(router, DescribeCluster, self._describe_cluster)
        self._add_commands(router)

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

    def _add_commands(self, router: Router) -> None:
        """What only some servers do. This one has no cluster to be changed."""
        for kind in (Intend, CheckCluster):
            self._register(router, kind, self._stands_alone)

    def _stands_alone(self) -> Message:
        raise wire_error(
            InvalidState("this server stands alone: there is no cluster that could be changed")
        )

    def _register(
        self,
        router: Router,
        kind: type[Message],
        answer: Callable[[], Message | Awaitable[Message]],
    ) -> None:
        read = self._gate.reader(kind)

        async def later(answer: Awaitable[Message]) -> bytes:
            return encode(await answer)

        def handle(request: Request) -> bytes | Awaitable[bytes]:
            read(request)
            found = answer()
            return encode(found) if isinstance(found, Message) else later(found)

        router.command(kind.__name__)(handle)

    def _describe(self) -> NodeInfo:
        addresses = [it for it in self.addresses if not it.startswith("inproc:")]
        me = ReplicaInfo(self.id, addresses)
        return NodeInfo(
            __version__,
            list(self.shards),
            self.id,
            addresses,
            self.http,
            [shard.epoch for shard in self.shards.values()],
            self._started_ms,
            self.config.shards,
            [ShardInfo(it.number, it.epoch, me) for it in self.shards.values()],
        )

    def _describe_cluster(self) -> ClusterInfo:
        told = self._describe()
        numbers = [it.number for it in told.map]
        me = MemberInfo(self.id, True, told.addresses, self.http, 0.0, False, False, numbers)
        placed = [
            PlacedShard(
                it.number, it.epoch, "" if it.leader is None else self.id, [self.id], "", 0.0
            )
            for it in told.map
        ]
        return ClusterInfo(
            "", "", "local", {}, 1, self.id, "connected", self.id, 0, [], 0, 0, [me], placed, []
        )

    def _measure(self) -> Measured | Awaitable[Measured]:
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
        for shard in self.shards.values():
            if shard.errands is not None:
                await shard.errands.stop()
        try:
            for local in self.local:
                local.close()
        finally:
            self.local = []
            self.shards.clear()
            if self._lock is not None:
                self._lock.release()
                self._lock = None
