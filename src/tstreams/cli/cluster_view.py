"""What `tstreams cluster status` shows."""

from __future__ import annotations

from collections.abc import Sequence

from ..discovery import cluster_resources as c
from . import output
from .output import say
from .tables import BAD, GOOD, WARN, Cell, left, right, show_facts, show_table

SHARDS_SHOWN = 64
"""Shards that are shown without being asked for, if nothing is wrong with them."""
_COLOURS = {"ok": GOOD, "degraded": WARN, "failing": BAD}


def show_status(
    cluster: c.Cluster,
    health: c.ClusterHealth,
    nodes: Sequence[c.Node],
    shards: Sequence[c.ShardDetail],
    *,
    every_shard: bool,
) -> None:
    """Facts, and a table each of nodes, shards and servers."""
    say(f"cluster {cluster.name} ({cluster.id})" if cluster.name else "a server that stands alone")
    show_facts(
        {
            "state": Cell(health.status, _COLOURS[health.status]),
            "problems": "; ".join(health.problems),
            "nodes": f"{cluster.nodes_live} of {cluster.nodes} live",
            "shards": f"{cluster.shards_led} of {cluster.shards} led, on {output.counted(cluster.replicas, 'node')} each",
            "settled": "yes" if cluster.settled else "no: shards are on their way",
            "director": cluster.director or "nobody",
        }
    )
    say("")
    _show_nodes(cluster, nodes)
    say("")
    _show_shards(shards, every_shard)
    servers = [("ZooKeeper", it) for it in health.coordination]
    servers += [(cluster.engine, it) for it in health.engine]
    if servers:
        say("")
        _show_servers(servers)


def _show_nodes(cluster: c.Cluster, nodes: Sequence[c.Node]) -> None:
    columns = (
        left("NODE", keep=True),
        left("STATE", keep=True),
        right("LOAD"),
        right("LEADS"),
        right("FOLLOWS"),
        left("ADDRESS"),
        left("HTTP", spare=True),
    )
    rows = [
        (
            f"{it.id}{' *' if it.id == cluster.director else ''}",
            _state(it),
            f"{it.load:.0%}",
            str(it.leads),
            str(it.follows),
            ", ".join(it.addresses) or "-",
            it.http or "-",
        )
        for it in nodes
    ]
    show_table(columns, rows, "there are no nodes")


def _state(node: c.Node) -> Cell:
    if not node.live:
        return Cell("gone", BAD)
    if node.leaving:
        return Cell("leaving", WARN)
    if node.draining:
        return Cell("draining" if node.placed or node.leads else "drained", WARN)
    return Cell("live", GOOD)


def _show_shards(shards: Sequence[c.ShardDetail], every: bool) -> None:
    shown = [it for it in shards if every or len(shards) <= SHARDS_SHOWN or _is_odd(it)]
    columns = (
        right("SHARD"),
        left("LEADER", keep=True),
        right("EPOCH"),
        right("LOAD"),
        left("FOLLOWERS"),
    )
    rows = [
        (
            str(it.shard),
            Cell("nobody", BAD) if it.leader is None else _leader(it),
            str(it.epoch),
            f"{it.load:.2f}" if it.load else "-",
            ", ".join(map(_follower, it.followers)) or "-",
        )
        for it in shown
    ]
    if rows:
        show_table(columns, rows, "")
    if len(shown) < len(shards):
        say(f"{len(shards) - len(shown)} shards are as they should be: --shards shows them")


def _is_odd(shard: c.ShardDetail) -> bool:
    return shard.leader is None or not all(it.in_sync for it in shard.followers)


def _leader(shard: c.ShardDetail) -> str:
    return f"{shard.leader}{' (chosen)' if shard.chosen == shard.leader else ''}"


def _follower(it: c.Follower) -> str:
    if not it.live:
        return f"{it.node} (gone)"
    if it.in_sync:
        return it.node
    if it.behind_bytes is None:
        return f"{it.node} (behind)"
    return f"{it.node} ({output.size(it.behind_bytes)} behind)"


def _show_servers(servers: Sequence[tuple[str, c.ServerHealth]]) -> None:
    columns = (
        left("SERVER", keep=True),
        left("ADDRESS", keep=True),
        left("NAME"),
        left("VERSION", keep=True),
        left("STATE"),
    )
    rows = [
        (
            kind,
            it.address,
            it.name or "-",
            it.version or "-",
            Cell("well", GOOD) if it.problem is None else Cell(it.problem, BAD),
        )
        for kind, it in servers
    ]
    show_table(columns, rows, "")
