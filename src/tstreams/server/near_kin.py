"""How the shards of a node reach the others of its cluster: those that it leads itself at once, all others over the wire."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import Unavailable
from ..protocol import AnyReply
from .kin import Caller, Kin, KinMessage
from .replica import Replica


class NearKin:
    """Implements `Kin` for a node. `far` is the way to the shards that other nodes lead; None: it is not known yet."""

    def __init__(self, replicas: Mapping[int, Replica]) -> None:
        self._replicas = replicas
        self.far: Kin | None = None

    async def ask(self, shard: int, message: KinMessage) -> AnyReply:
        """The answer of whoever leads a shard."""
        replica = self._replicas.get(shard)
        if replica is not None and replica.leading:
            caller = Caller()
            replica.shard.kinship.from_kin(caller, message)
            return await caller.wait()
        if self.far is None:
            raise Unavailable(f"shard {shard} is not led here, and no other node is known")
        return await self.far.ask(shard, message)
