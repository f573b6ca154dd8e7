"""Routes of the node: what it is, where it is, how it is set up, and what is in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...config import descriptions
from ...errors import Error, Unavailable
from ...protocol import ClusterInfo, JobEntry, LedgerInfo, SessionInfo
from .. import resources as r
from ..calls import Answer, Call
from ..front import Front, shown_ms
from ..limits import READY_TIMEOUT_S
from ..whole import WholeStream
from .paging import decode_number, decode_text, page
from .streams import check_partition


class NodeRoutes:
    """Health, lookup, settings, sessions, ledgers and jobs."""

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
                node, cluster = await asyncio.gather(inspect.node(), inspect.cluster())
                if cluster.name:
                    _check_part(cluster)
                else:
                    for shard in inspect.shards:
                        await inspect.sessions(shard, 0, 1)
        except (Error, TimeoutError) as error:
            late = f"did not answer within {READY_TIMEOUT_S:g} s"
            text = error.message or error.code if isinstance(error, Error) else late
            return Answer(r.Health(status="failing", checks={"storage": text}), status=503)
        shards = "1 shard" if len(node.shards) == 1 else f"{len(node.shards)} shards"
        checks = {"storage": f"version {node.version} serves {shards}"}
        return Answer(r.Health(status="ok", checks=checks))

    async def lookup(self, call: Call) -> r.Lookup:
        """Who serves the partitions of a stream."""
        async with self._front.storage.turn() as inspect:
            whole = await WholeStream.named(inspect, call.path["stream"])
            places = {it.number: it for it in (await inspect.node()).map}
        info, partition = whole.info, call.query["partition"]
        if partition is not None:
            check_partition(info, partition)
        step = len(whole.shards)
        firsts = range(step) if partition is None else [partition % step]
        ranges = []
        for first in firsts:
            place = places[whole.shards[first]]
            ranges.append(
                r.Range(
                    first=first,
                    last=first + (info.partitions - 1 - first) // step * step,
                    step=step,
                    shard=place.number,
                    epoch=place.epoch,
                    # Behind a slash comes the process of the node, if each shard has one.
                    node="" if place.leader is None else place.leader.node.partition("/")[0],
                    addresses=[] if place.leader is None else place.leader.addresses,
                    followers=[
                        r.Copy(node=it.node, addresses=it.addresses) for it in place.followers
                    ],
                )
            )
        return r.Lookup(
            stream=info.name, number=str(info.id), partitions=info.partitions, ranges=ranges
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


def _check_part(cluster: ClusterInfo) -> None:
    """Whether a node does its part in its cluster, or `Unavailable`: others may do theirs all the same."""
    if cluster.state != "connected":
        raise Unavailable(f"the session with ZooKeeper is {cluster.state}")
    mine = {it.number for it in cluster.shards if cluster.node in it.places}
    missing = sorted(mine - {it.number for it in cluster.here})
    if missing:
        raise Unavailable(f"it has not opened shard {', '.join(map(str, missing))} yet")
