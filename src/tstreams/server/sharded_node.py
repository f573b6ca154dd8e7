"""A server of several shards, each of which has a process: the parent, which starts and watches them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

from moebius import Server

from ..config import Config
from ..errors import Unavailable
from ..protocol import Measured, NodeInfo, ReplicaInfo, ShardInfo
from ..version import __version__
from .gathering import Gathering
from .identity import kin_secret
from .node import Node
from .reins import Orders
from .shard_addresses import remember, remembered, shard_listen
from .shard_node import process_id, refuse
from .shard_process import ShardProcess

COMMAND = (sys.executable, "-P", "-m", "tstreams.server.shard_child")
"""What serves a shard."""


class ShardedNode(Node):
    """Serves the streams of one data directory from a process for each shard.

    It listens on the addresses of the server, and tells whoever asks where the shards are (`Describe`). What is asked of a
    shard here is refused with `NotLeader`, which says where it is. So nothing that clients do goes through this process.

    A process that dies is started again. If that does not help, the server stops, and `run` raises why.
    """

    def __init__(
        self,
        config: Config,
        listen: Sequence[str] | None = None,
        *,
        command: Sequence[str] = COMMAND,
    ) -> None:
        super().__init__(config, listen)
        self._command = command
        self._numbers = Gathering()
        self.processes: list[ShardProcess] = []
        """Those of the shards, by their numbers."""
        self._keeping: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether all shards are served."""
        return bool(self.addresses) and all(it.serving for it in self.processes)

    # Life.

    async def start(self) -> None:
        """Start the processes, and begin to listen when all of them serve."""
        await super().start()
        self._tell()  # where we listen
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def _open(self) -> None:
        assert self._lock is not None
        config = self.config
        kin_secret(config.data)  # made before any of them looks for it
        for shard in range(config.shards):
            listen = shard_listen(shard, self._listen, config.shard_ports)
            process = ShardProcess(
                shard,
                listen,
                self._command,
                lambda listen, shard=shard: Orders(  # type: ignore[misc]
                    config, shard, listen, os.getpid(), self._describe()
                ),
                # As long as any of them lives, nobody else may have the folder.
                [self._lock.descriptor],
                lambda shard=shard: self._changed(shard),  # type: ignore[misc]
                remembered(config.data, shard, listen),
            )
            self.processes.append(process)
        starts = [asyncio.ensure_future(it.start()) for it in self.processes]
        try:
            await asyncio.gather(*starts)
            remember(config.data, [it.addresses for it in self.processes])
        finally:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)

    async def _keep(self) -> None:
        async with asyncio.TaskGroup() as group:
            for process in self.processes:
                group.create_task(process.keep())

    async def _serve(self) -> None:
        assert self._keeping is not None
        serving = asyncio.ensure_future(super()._serve())
        try:
            await asyncio.wait([serving, self._keeping], return_when=asyncio.FIRST_COMPLETED)
            if self._keeping.done() and not self._keeping.cancelled():
                self._keeping.result()
            await serving
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            serving.cancel()

    async def _close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        ended = await asyncio.gather(*(it.end() for it in self.processes))
        bad = [it.shard for it, well in zip(self.processes, ended, strict=True) if not well]
        self.processes = []
        await super()._close()
        if bad:
            raise Unavailable(f"the shards {bad} have not ended well: see the log")

    # What it tells.

    def _make_server(self) -> Server:
        server = super()._make_server()
        server.router.otherwise(lambda request: refuse(request, self._describe()))
        return server

    def _changed(self, shard: int) -> None:
        """A process serves, or has ended."""
        if not self.processes[shard].serving:
            self._numbers.end(shard)
        self._tell()

    def _tell(self) -> None:
        node = self._describe()
        for process in self.processes:
            process.tell(node)

    def _describe(self) -> NodeInfo:
        where = [
            ShardInfo(it.shard, it.epoch, self._replica(it) if it.addresses else None)
            for it in self.processes
        ]
        return NodeInfo(
            __version__,
            [it.number for it in where],
            self.id,
            self.addresses,
            self.http,
            [it.epoch for it in where],
            self._started_ms,
            self.config.shards,
            where,
        )

    def _replica(self, process: ShardProcess) -> ReplicaInfo:
        return ReplicaInfo(process_id(self.id, process.shard), process.addresses)

    async def _measure(self) -> Measured:
        assert self._server is not None
        answers = await asyncio.gather(
            *(it.measure() for it in self.processes), return_exceptions=True
        )
        for process, answer in zip(self.processes, answers, strict=True):
            if isinstance(answer, Measured):
                self._numbers.take(process.shard, answer)
        down = sum(not it.serving for it in self.processes)
        return self._numbers.measured(self._clock(), self._server, down)
