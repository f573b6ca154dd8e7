"""Routes of the cluster: its health, its nodes, its shards, and what operators want of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from ...cluster.intentions import Intentions
from ...errors import InvalidState, NotFound
from ...protocol import ClusterChecked, ClusterInfo, Intend, MemberInfo, PlacedShard, ServerState
from .. import cluster_resources as c
from .. import resources as r
from ..calls import Answer, Call
from ..front import Front, shown_ms
from ..limits import CHANGES_TRIED, IN_SYNC_BYTES
from ..peers import Peer, behind_bytes
from .paging import decode_cursor, decode_number, decode_text, encode_cursor


class ClusterRoutes:
    """The cluster, nodes and shards."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def cluster(self, call: Call) -> c.Cluster:
        """The cluster."""
        return _cluster(await self._info())

    async def cluster_health(self, call: Call) -> c.ClusterHealth:
        """The cluster, and what it stands on."""
        info = await self._info()
        checked = ClusterChecked([], [])
        if info.name:
            checked = await self._front.storage.inspect.check_cluster()
        return _health(info, checked)

    async def rebalance(self, call: Call) -> Answer:
        """Make everything even."""
        info = await self._intend(
            call, lambda info: _tag(_cluster(info)), lambda _, wanted: wanted.rebalance()
        )
        return _tagged(_cluster(info))

    # Nodes.

    async def nodes(self, call: Call) -> c.NodePage:
        """A page of them."""
        after, limit = call.query["after"], call.query["limit"]
        last = "" if after is None else decode_text(decode_cursor(after)[1])
        info = await self._info()
        later = [it for it in info.members if it.id > last]
        shown = later[:limit]
        peers = await self._peers(info, shown)
        items = [self._node(info, it, peers.get(it.id)) for it in shown]
        more = encode_cursor(0, shown[-1].id.encode()) if len(later) > limit else None
        return c.NodePage(items=items, next=more)

    async def node(self, call: Call) -> Answer:
        """One of them."""
        info, id_ = await self._info(), call.path["node"]
        return Answer(await self._one_node(info, id_), tag=_node_tag(_member(info, id_)))

    async def change_node(self, call: Call) -> Answer:
        """Drain it, or no longer."""
        id_, draining = call.path["node"], call.body.draining

        def change(info: ClusterInfo, wanted: Intentions) -> Intentions:
            _member(info, id_)
            return wanted.drain(id_, draining)

        info = await self._intend(call, lambda info: _node_tag(_member(info, id_)), change)
        node = await self._one_node(info, id_)
        return Answer(node, tag=_node_tag(_member(info, id_)))

    async def forget_node(self, call: Call) -> Answer:
        """Forget it."""
        id_ = call.path["node"]

        def change(info: ClusterInfo, wanted: Intentions) -> Intentions:
            if _member(info, id_).live:
                raise InvalidState(
                    f"node {id_} is there: let it drain, end its process, and remove it then"
                )
            return wanted.remove(id_)

        await self._intend(call, lambda info: _node_tag(_member(info, id_)), change)
        return Answer(None)

    async def _one_node(self, info: ClusterInfo, id_: str) -> c.Node:
        member = _member(info, id_)
        peers = await self._peers(info, [member])
        return self._node(info, member, peers.get(id_))

    def _node(self, info: ClusterInfo, member: MemberInfo, peer: Peer | None) -> c.Node:
        led = [it for it in info.shards if it.leader == member.id]
        placed = [it for it in info.shards if member.id in it.places]
        holds = set(member.holds)
        follows = [it for it in placed if it not in led and it.number in holds]
        numbers = sorted(
            [(it.number, it.epoch, "leader") for it in led]
            + [(it.number, it.epoch, "follower") for it in follows]
        )
        here = member.id == info.node
        return c.Node(
            id=member.id or "0",
            version="" if peer is None else peer.version,
            addresses=member.addresses or ([self._front.settings.server] if here else []),
            http=self._front.settings.url if here else member.http,
            started=None if peer is None else shown_ms(peer.started_ms),
            shards=[r.Shard(shard=n, epoch=epoch, role=role) for n, epoch, role in numbers],  # type: ignore[arg-type]
            live=member.live,
            load=member.load,
            draining=member.draining,
            leaving=member.leaving,
            leads=len(led),
            follows=len(follows),
            placed=len(placed),
        )

    # Shards.

    async def shards(self, call: Call) -> c.ShardPage:
        """A page of them."""
        after, limit = call.query["after"], call.query["limit"]
        first = 0 if after is None else decode_number(decode_cursor(after)[1]) + 1
        info = await self._info()
        shown = info.shards[first : first + limit]
        items = await self._details(info, shown)
        more = None
        if first + limit < len(info.shards):
            more = encode_cursor(0, str(first + limit - 1).encode())
        return c.ShardPage(items=items, next=more)

    async def shard(self, call: Call) -> Answer:
        """One of them."""
        info = await self._info()
        shard = _shard(info, call.path["shard"])
        (detail,) = await self._details(info, [shard])
        return Answer(detail, tag=_shard_tag(shard))

    async def change_shard(self, call: Call) -> Answer:
        """Choose its leader."""
        number, leader = call.path["shard"], call.body.leader

        def change(info: ClusterInfo, wanted: Intentions) -> Intentions:
            _shard(info, number)
            if leader is None:
                others = {shard: it for shard, it in wanted.leaders.items() if shard != number}
                return msgspec.structs.replace(wanted, leaders=others)
            member = _member(info, leader)
            if member.draining or not member.live:
                how = "drains" if member.live else "is not there"
                raise InvalidState(f"node {leader} {how}: it cannot lead shard {number}")
            return wanted.lead({number: leader})

        info = await self._intend(call, lambda info: _shard_tag(_shard(info, number)), change)
        shard = _shard(info, number)
        (detail,) = await self._details(info, [shard])
        return Answer(detail, tag=_shard_tag(shard))

    async def _details(self, info: ClusterInfo, shards: list[PlacedShard]) -> list[c.ShardDetail]:
        wanted = {node for it in shards for node in (it.leader, *it.places)}
        members = {it.id: it for it in info.members}
        peers = await self._peers(info, [it for it in info.members if it.id in wanted])
        return [_detail(it, members, peers) for it in shards]

    # How it is asked and changed.

    async def _peers(self, info: ClusterInfo, members: list[MemberInfo]) -> dict[str, Peer]:
        """What these nodes say of themselves, our own among them."""
        own = await self._front.storage.inspect.node()
        others = await self._front.peers.ask([it for it in members if it.id != info.node])
        here = {it.number: it for it in info.here}
        return {**others, info.node: Peer(own.version, own.started_ms, here)}

    async def _info(self) -> ClusterInfo:
        return await self._front.storage.inspect.cluster()

    async def _intend(
        self,
        call: Call,
        tag_of: Callable[[ClusterInfo], str],
        change: Callable[[ClusterInfo, Intentions], Intentions],
    ) -> ClusterInfo:
        """Change what operators want, and how things are then. Whoever changes it at the same moment is not undone."""
        inspect = self._front.storage.inspect
        async with self._front.changing:
            for tried in range(CHANGES_TRIED):
                info = await inspect.cluster()
                wanted = change(info, _intentions(info))
                call.check_match(tag_of(info))
                try:
                    await inspect.intend(_message(info.version, wanted))
                except InvalidState:
                    changed = (await inspect.cluster()).version != info.version
                    if not changed or tried == CHANGES_TRIED - 1:
                        raise
                else:
                    return await inspect.cluster()
        raise AssertionError("the last attempt raises or returns")


def _intentions(info: ClusterInfo) -> Intentions:
    return Intentions(
        draining=tuple(it.id for it in info.members if it.draining),
        leaders={it.number: it.chosen for it in info.shards if it.chosen},
        removed=tuple(info.removed),
        rebalances=info.rebalances,
    )


def _message(version: int, wanted: Intentions) -> Intend:
    return Intend(
        version,
        list(wanted.draining),
        sorted(wanted.leaders.items()),
        list(wanted.removed),
        wanted.rebalances,
    )


def _member(info: ClusterInfo, id_: str) -> MemberInfo:
    found = next((it for it in info.members if it.id == id_), None)
    if found is None:
        raise NotFound(f"there is no node {id_!r}: /v1/nodes lists all")
    return found


def _shard(info: ClusterInfo, number: int) -> PlacedShard:
    if number >= len(info.shards):
        raise NotFound(f"there is no shard {number}: there are 0 to {len(info.shards) - 1}")
    return info.shards[number]


def _is_settled(info: ClusterInfo) -> bool:
    """Whether all that should be somewhere is there."""
    holds = {it.id: set(it.holds) for it in info.members if it.live and not it.leaving}
    there = all(it.number in holds.get(node, ()) for it in info.shards for node in it.places)
    led = all(it.places and it.leader == it.places[0] for it in info.shards)
    return there and led and not any(it.leaving for it in info.members)


def _cluster(info: ClusterInfo) -> c.Cluster:
    return c.Cluster(
        name=info.name,
        id=info.id,
        engine=info.engine,
        engine_settings=info.settings,
        replicas=info.replicas,
        shards=len(info.shards),
        shards_led=sum(bool(it.leader) for it in info.shards),
        chosen_leaders=sum(bool(it.chosen) for it in info.shards),
        nodes=len(info.members),
        nodes_live=sum(it.live for it in info.members),
        node=info.node,
        director=info.director or None,
        session=info.state,
        placement_version=info.placement,
        settled=_is_settled(info),
    )


def _health(info: ClusterInfo, checked: ClusterChecked) -> c.ClusterHealth:
    failing: list[str] = []
    degraded: list[str] = []
    leaderless = [str(it.number) for it in info.shards if not it.leader]
    if leaderless:
        failing.append(f"nobody leads shard {', '.join(leaderless)}")
    if info.state != "connected":
        failing.append(f"the session of this node with ZooKeeper is {info.state}")
    for kind, servers in (("ZooKeeper", checked.coordination), ("engine", checked.engine)):
        bad = [f"{it.address} {it.problem}" for it in servers if it.problem]
        told = failing if 2 * len(bad) >= len(servers) and bad else degraded
        told += [f"{kind}: {it}" for it in bad]
    gone = [it.id for it in info.members if not it.live]
    if gone:
        degraded.append(f"node {', '.join(gone)} is not there")
    wanted = min(info.replicas, sum(not it.draining for it in info.members))
    holds = {it.id: set(it.holds) for it in info.members if it.live}
    thin = [
        str(it.number)
        for it in info.shards
        if sum(it.number in holds.get(node, ()) for node in it.places) < wanted
    ]
    if thin:
        degraded.append(f"fewer than {wanted} nodes have shard {', '.join(thin)}")
    return c.ClusterHealth(
        status="failing" if failing else "degraded" if degraded else "ok",
        problems=failing + degraded,
        engine=[_server(it) for it in checked.engine],
        coordination=[_server(it) for it in checked.coordination],
    )


def _server(it: ServerState) -> c.ServerHealth:
    return c.ServerHealth(
        address=it.address, name=it.name, version=it.version, problem=it.problem or None
    )


def _detail(
    shard: PlacedShard, members: dict[str, MemberInfo], peers: dict[str, Peer]
) -> c.ShardDetail:
    leader = peers.get(shard.leader)
    end = None if leader is None else leader.replicas.get(shard.number)
    followers = []
    for node in shard.places:
        if node == shard.leader:
            continue
        member, peer = members.get(node), peers.get(node)
        has = member is not None and shard.number in member.holds
        behind = behind_bytes(end, None if peer is None else peer.replicas.get(shard.number))
        followers.append(
            c.Follower(
                node=node,
                live=member is not None and member.live,
                in_sync=has and (behind is None or behind <= IN_SYNC_BYTES),
                behind_bytes=behind,
            )
        )
    found = members.get(shard.leader)
    return c.ShardDetail(
        shard=shard.number,
        epoch=shard.epoch,
        leader=shard.leader or None,
        addresses=[] if found is None else found.addresses,
        followers=followers,
        chosen=shard.chosen or None,
        load=shard.load,
    )


def _tag(resource: msgspec.Struct) -> str:
    return f'"{hashlib.sha256(msgspec.json.encode(resource)).hexdigest()[:20]}"'


def _node_tag(member: MemberInfo) -> str:
    """Of what matters to whoever drains or removes it; its load changes all the time."""
    facts = (member.id, member.live, member.draining, member.leaving)
    return f'"{hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:20]}"'


def _shard_tag(shard: PlacedShard) -> str:
    """Of what matters to whoever moves it; loads and lags change all the time."""
    facts = (shard.number, shard.epoch, shard.leader, shard.places, shard.chosen)
    return f'"{hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:20]}"'


def _tagged(cluster: c.Cluster) -> Answer:
    return Answer(cluster, tag=_tag(cluster))
