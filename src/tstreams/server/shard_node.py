"""A process that serves one shard of a server of several, and knows where the others are."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from moebius import Request, Server

from ..config import Config
from ..errors import BadRequest, NotLeader
from ..lock import DirectoryLock
from ..protocol import Measured, NodeInfo, ReplicaInfo, ShardInfo
from .identity import kin_secret
from .measuring import measure
from .node import Node
from .remote_kin import RemoteKin
from .seal import Seal
from .shard import Clock, system_clock
from .storage import LocalStorage, Storage
from .wire import wire_error


def process_id(node: str, shard: int) -> str:
    """What a process of a node is called by those who keep connections to it."""
    return f"{node}/{shard}"


class ShardNode(Node):
    """Serves one shard; all others it refuses with `NotLeader`, which says where they are.

    Whoever has started it holds the lock of the data folder, and has checked it.
    """

    def __init__(
        self,
        config: Config,
        listen: Sequence[str],
        *,
        shard: int,
        node: NodeInfo,
        clock: Clock = system_clock,
        storage: Callable[[Path, int], Storage] = LocalStorage,
    ) -> None:
        super().__init__(config, listen, clock=clock, storage=storage)
        self.number = shard
        self.node = node
        """The whole server: what is known of it now."""
        self._kin: RemoteKin | None = None

    @property
    def epoch(self) -> int:
        """In which it leads its shard."""
        return self.shards[self.number].epoch

    def measure(self) -> Measured:
        """What it has counted."""
        assert self._server is not None
        return measure(self._clock(), self.shards.values(), self._server)

    # Inside.

    def _take_folder(self) -> DirectoryLock | None:
        return None

    def _identify(self) -> str:
        return process_id(self.node.id, self.number)

    def _check_folder(self) -> None:
        """Whoever has started it did."""

    def _open_shards(self) -> None:
        self._gate.seal = seal = Seal(kin_secret(self.config.data))
        self._kin = RemoteKin(
            self._locate, seal, token=self.config.token, tls=own_certificate(self.config)
        )
        self._open_shard(self.number, self._kin)

    def _locate(self, shard: int) -> Sequence[str]:
        leader = self.node.map[shard].leader if shard < len(self.node.map) else None
        return () if leader is None else leader.addresses

    def _make_server(self) -> Server:
        server = super()._make_server()
        server.router.otherwise(lambda request: refuse(request, self.node))
        return server

    def _describe(self) -> NodeInfo:
        known = self.node
        addresses = self.addresses
        me = ShardInfo(self.number, self.epoch, ReplicaInfo(self.id, addresses))
        return NodeInfo(
            known.version,
            [self.number],
            self.id,
            addresses,
            known.http,
            [self.epoch],
            self._started_ms,
            known.total,
            [me if it.number == self.number else it for it in known.map],
        )

    async def _close(self) -> None:
        await super()._close()
        if self._kin is not None:
            await self._kin.close()


def refuse(request: Request, node: NodeInfo) -> None:
    """The answer to what is asked of a shard that is in another process. `BadRequest` if there is no such shard."""
    number = request.command.partition(":")[0]
    shard = int(number) if number.isdecimal() and len(number) < 10 else node.total
    if ":" not in request.command or shard >= node.total:
        raise wire_error(BadRequest(f"there is no command {request.command!r:.200}"))
    found = node.map[shard]
    addresses = () if found.leader is None else found.leader.addresses
    raise wire_error(NotLeader(shard, found.epoch, addresses))


def own_certificate(config: Config) -> ssl.SSLContext | None:
    """How a process of this server trusts another one: it has the same certificate, whatever name that is for."""
    if config.tls_certificate is None:
        return None
    context = ssl.create_default_context(cafile=str(config.tls_certificate))
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
