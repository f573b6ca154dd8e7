"""The other nodes of the cluster, as the front door asks them: how far their copies of shards have come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

import moebius
from moebius import aio

from ..errors import Error
from ..protocol import (
    ClusterInfo,
    Describe,
    DescribeCluster,
    MemberInfo,
    Message,
    NodeInfo,
    ReplicaState,
    decode_reply,
    encode,
)
from .limits import PEER_TIMEOUT_S, PEERS_MAX
from .settings import Settings

log = logging.getLogger("tstreams.discovery")


@dataclass(frozen=True, slots=True)
class Peer:
    """What a node says of itself."""

    version: str
    started_ms: int
    replicas: dict[int, ReplicaState]


class Peers:
    """A connection to each node that was asked, as long as it is a node of the cluster."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients: dict[str, aio.Client] = {}

    async def ask(self, members: Iterable[MemberInfo]) -> dict[str, Peer]:
        """What each of these says, those left out that do not answer in time."""
        there = [it for it in members if it.live and _reachable(it)][:PEERS_MAX]
        for gone in self._clients.keys() - {it.id for it in there}:
            await self._clients.pop(gone).close()
        found = await asyncio.gather(*map(self._ask, there))
        return {it.id: peer for it, peer in zip(there, found, strict=True) if peer is not None}

    async def _ask(self, member: MemberInfo) -> Peer | None:
        try:
            async with asyncio.timeout(PEER_TIMEOUT_S):
                client = await self._client(member)
                node, cluster = await asyncio.gather(
                    _call(client, Describe()), _call(client, DescribeCluster())
                )
        except (TimeoutError, OSError, Error, moebius.Error) as error:
            log.info("node %s does not say how it is: %s", member.id, error or "no answer in time")
            client_left = self._clients.pop(member.id, None)
            if client_left is not None:
                await client_left.close()
            return None
        if not isinstance(node, NodeInfo) or not isinstance(cluster, ClusterInfo):
            return None
        return Peer(node.version, node.started_ms, {it.number: it for it in cluster.here})

    async def _client(self, member: MemberInfo) -> aio.Client:
        client = self._clients.get(member.id)
        if client is None:
            url = _reachable(member)
            client = aio.connect(
                url,
                token=self._settings.token,
                tls=self._settings.tls() if url.startswith("tcp:") else None,
                timeout=PEER_TIMEOUT_S,
            )
            self._clients[member.id] = client
            await client.open(PEER_TIMEOUT_S)
        return client

    async def close(self) -> None:
        """End all connections."""
        for client in self._clients.values():
            await client.close()
        self._clients.clear()


async def _call(client: aio.Client, message: Message) -> object:
    return decode_reply(await client.call(type(message).__name__, encode(message)))


def _reachable(member: MemberInfo) -> str:
    """The address to ask it at; empty: it has none that is spoken here."""
    known = [it for it in member.addresses if it.startswith(("tcp:", "ipc:"))]
    return known[0] if known else ""


def behind_bytes(leader: ReplicaState | None, follower: ReplicaState | None) -> int | None:
    """How much of the leader's log a follower has not applied; None: that cannot be told."""
    if leader is None or follower is None:
        return None
    if follower.ledger >= leader.ledger:
        same = follower.ledger == leader.ledger
        return max(0, leader.offset - follower.offset) if same else 0  # it was asked later
    sizes = dict(leader.ledgers)
    if follower.ledger not in sizes:
        return None
    between = sum(size for id_, size in sizes.items() if follower.ledger < id_ < leader.ledger)
    return max(0, sizes[follower.ledger] - follower.offset) + between + leader.offset
