"""Routes of the node: what it is, where it is, how it is set up, and what is in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...config import descriptions
from ...errors import Error, NotFound
from ...protocol import JobEntry, LedgerInfo, NodeInfo, SessionInfo
from .. import resources as r
from ..calls import Answer, Call
from ..front import Front, shown_ms
from ..limits import READY_TIMEOUT_S
from .paging import decode_number, decode_text, page


class NodeRoutes:
    """Health, nodes, lookup, settings, sessions, ledgers and jobs."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def live(self, call: Call) -> r.Health:
        """It answers, so it lives."""
        return r.Health(status="ok", checks={"front_door": "answers"})

    async def ready(self, call: Call) -> Answer:
        """Whether the storage server can do its work."""
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                inspect = self._front.storage.inspect
                node = await inspect.node()
                for shard in inspect.shards:
                    await inspect.sessions(shard, 0, 1)
        except (Error, TimeoutError) as error:
            late = f"did not answer within {READY_TIMEOUT_S:g} s"
            text = error.message or error.code if isinstance(error, Error) else late
            return Answer(r.Health(status="failing", checks={"storage": text}), status=503)
        shards = "1 shard" if len(node.shards) == 1 else f"{len(node.shards)} shards"
        checks = {"storage": f"version {node.version} serves {shards}"}
        return Answer(r.Health(status="ok", checks=checks))

    async def nodes(self, call: Call) -> r.NodePage:
        """All of them: there is one."""
        after = call.query["after"]
        node = self._node(await self._front.storage.inspect.node())
        return r.NodePage(items=[] if after is not None else [node], next=None)

    async def node(self, call: Call) -> r.Node:
        """One of them."""
        node = self._node(await self._front.storage.inspect.node())
        if node.id != call.path["node"]:
            raise NotFound(f"there is no node {call.path['node']!r}: /v1/nodes lists all")
        return node

    def _node(self, info: NodeInfo) -> r.Node:
        epochs = info.epochs or [0] * len(info.shards)
        return r.Node(
            id=info.id or "0",
            version=info.version,
            addresses=info.addresses or [self._front.settings.server],
            http=self._front.settings.url,
            started=shown_ms(info.started_ms),
            shards=[
                r.Shard(shard=shard, epoch=epoch, role="leader")
                for shard, epoch in zip(info.shards, epochs, strict=True)
            ],
        )

    async def lookup(self, call: Call) -> r.Lookup:
        """Who serves a stream: all its partitions are in one shard."""
        async with self._front.storage.turn() as inspect:
            name = call.path["stream"]
            info = await inspect.stream(name)
            node = self._node(await inspect.node())
        partition = call.query["partition"]
        if partition is not None and partition >= info.partitions:
            raise NotFound(f"stream {name!r} has {info.partitions} partitions, from 0 on")
        shard = inspect.shard_of(name)
        whole = r.Range(
            first=0,
            last=info.partitions - 1,
            step=1,
            shard=shard,
            epoch=next(it.epoch for it in node.shards if it.shard == shard),
            node=node.id,
            addresses=node.addresses,
            followers=[],
        )
        return r.Lookup(
            stream=name, number=str(info.id), partitions=info.partitions, ranges=[whole]
        )

    async def config(self, call: Call) -> r.Configuration:
        """The settings in force."""
        info = await self._front.storage.inspect.config()
        texts = descriptions()
        return r.Configuration(
            items=[
                r.Setting(
                    name=it.name,
                    value=it.value,
                    default=it.is_default,
                    description=texts.get(it.name, ""),
                )
                for it in info.settings
            ]
        )

    async def sessions(self, call: Call) -> r.SessionPage:
        """Sessions of all shards."""
        async with self._front.storage.turn() as inspect:

            async def fetch(
                shard: int, position: bytes, limit: int
            ) -> tuple[Sequence[SessionInfo], bytes | None]:
                found = await inspect.sessions(shard, decode_number(position), limit)
                last = str(found.sessions[-1].id).encode() if found.sessions else position
                return found.sessions, last if found.more else None

            rows, following = await page(
                inspect.shards, call.query["after"], call.query["limit"], fetch
            )
        items = [
            r.Session(
                id=str(it.id),
                seen=shown_ms(it.last_seen_ms),
                expires=shown_ms(it.expires_at_ms),
                agents=it.agents,
                requests=it.requests,
                unacknowledged=it.unacknowledged,
            )
            for _, it in rows
        ]
        return r.SessionPage(items=items, next=following)

    async def ledgers(self, call: Call) -> r.LedgerPage:
        """Ledgers of all shards."""
        async with self._front.storage.turn() as inspect:

            async def fetch(
                shard: int, position: bytes, limit: int
            ) -> tuple[Sequence[LedgerInfo], bytes | None]:
                found = await inspect.ledgers(shard, decode_number(position), limit)
                last = str(found.ledgers[-1].id).encode() if found.ledgers else position
                return found.ledgers, last if found.more else None

            rows, following = await page(
                inspect.shards, call.query["after"], call.query["limit"], fetch
            )
        items = [
            r.Ledger(
                shard=shard,
                id=str(it.id),
                bytes=it.size,
                live_bytes=it.live,
                dead_bytes=it.dead,
                closed=it.closed,
                created=shown_ms(it.created_ms),
            )
            for shard, it in rows
        ]
        return r.LedgerPage(items=items, next=following)

    async def jobs(self, call: Call) -> r.JobPage:
        """Jobs of all shards."""
        async with self._front.storage.turn() as inspect:

            async def fetch(
                shard: int, position: bytes, limit: int
            ) -> tuple[Sequence[JobEntry], bytes | None]:
                found = await inspect.jobs(shard, decode_text(position), limit)
                last = found.jobs[-1].name.encode() if found.jobs else position
                return found.jobs, last if found.more else None

            rows, following = await page(
                inspect.shards, call.query["after"], call.query["limit"], fetch
            )
        items = [
            r.Job(name=it.name, last_step=it.last_step, committed=shown_ms(it.committed_ms))
            for _, it in rows
        ]
        return r.JobPage(items=items, next=following)
