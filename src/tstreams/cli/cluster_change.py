"""`tstreams cluster status`, `drain`, `remove`, `move`, `rebalance` and `add`: by the front door of any node."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from ..discovery import cluster_resources as c
from ..errors import BadRequest, InvalidState, NotFound, Timeout, Unavailable
from . import output
from .cluster_up import add_folder
from .cluster_view import show_status
from .connection import given_url
from .development.cluster import Development
from .development.state import State, load
from .output import Progress, say, say_json, whole
from .rest import Door, add_door, door
from .steps import Steps

WAIT_S = 600.0
"""How long to wait for a cluster to come to rest, unless it is said otherwise: a node may have to read much."""
_LOOK_S = 0.2

T = TypeVar("T")


def add(actions: Any) -> None:
    """The command line."""
    status = _add(
        actions,
        "status",
        "show nodes, shards, and what the cluster stands on; the exit code is 1 if it is failing",
        "tstreams cluster status\ntstreams cluster status --json",
    )
    status.add_argument("--shards", action="store_true", help="every shard, also if there are many")
    _add(
        actions,
        "add",
        "start another node of a development cluster, or say how for a real one",
        "tstreams cluster add",
    )
    drain = _add(
        actions,
        "drain",
        "move everything off a node, and wait until that is done",
        "tstreams cluster drain 4f1d2c3b5a697887\ntstreams cluster drain node-2 --undo",
    )
    _add_node(drain)
    drain.add_argument("--undo", action="store_true", help="let it have shards again")
    _add_wait(drain)
    remove = _add(
        actions,
        "remove",
        "forget a node that is gone, or that was drained; of a development cluster it is ended first",
        "tstreams cluster remove 4f1d2c3b5a697887",
    )
    _add_node(remove)
    move = _add(
        actions,
        "move",
        "let a node lead shards, until `rebalance`, and wait until it does",
        "tstreams cluster move 3 --to 4f1d2c3b5a697887\ntstreams cluster move 0 1 2 --to node-3",
    )
    move.add_argument(
        "shard", nargs="+", type=whole(0), metavar="SHARD", help="the shards' numbers"
    )
    move.add_argument(
        "--to", required=True, metavar="NODE", help="the node: its id, how it begins, or node-N"
    )
    _add_wait(move)
    rebalance = _add(
        actions,
        "rebalance",
        "spread leaders and followers evenly, at once; moves are forgotten",
        "tstreams cluster rebalance",
    )
    _add_wait(rebalance)


def _add(actions: Any, name: str, summary: str, examples: str) -> ArgumentParser:
    parser = output.add_action(actions, name, summary, "", examples)
    add_folder(parser)
    add_door(parser)
    return parser


def _add_node(parser: ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="the node: its id, how it begins, or node-N")


def _add_wait(parser: ArgumentParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it is done")


# Which cluster.


def front(arguments: Namespace) -> Door:
    """The front door to ask: what the flags or the environment name, else that of a development cluster in this folder,
    the first of its nodes that answers."""
    if given_url(arguments):
        return door(arguments)
    state = load(Development(arguments.dir).folder)
    if state is None:
        return door(arguments)
    for plan in state.nodes:
        made = Door(plan.url, arguments.timeout)
        try:
            made.get(c.Cluster, "/v1/cluster")
        except Unavailable:
            continue
        return made
    raise Unavailable(
        f"no node of the cluster in {arguments.dir} answers: `tstreams cluster up` starts what has ended"
    )


def find_node(front: Door, arguments: Namespace, wanted: str) -> c.Node:
    """A node by its id, by how that begins, or by its name in a development cluster."""
    nodes = list(front.each(c.NodePage, "/v1/nodes"))
    state = None if given_url(arguments) else load(Development(arguments.dir).folder)
    plan = next((it for it in (state.nodes if state else []) if it.name == wanted), None)
    if plan is not None:
        found = [it for it in nodes if plan.address in it.addresses]
        if not found:
            kept = Development(arguments.dir).node_id(plan.name)
            found = [it for it in nodes if it.id == kept]
    else:
        found = [it for it in nodes if it.id == wanted] or [
            it for it in nodes if it.id.startswith(wanted)
        ]
    if len(found) == 1:
        return found[0]
    known = ", ".join(it.id for it in nodes)
    if not found:
        raise NotFound(f"there is no node {wanted!r}: there are {known}")
    raise BadRequest(
        f"{wanted!r} is the beginning of several nodes: {', '.join(it.id for it in found)}"
    )


# What they do.


def status(arguments: Namespace) -> int:
    """Show everything."""
    made = front(arguments)
    cluster = made.get(c.Cluster, "/v1/cluster")
    health = made.get(c.ClusterHealth, "/v1/cluster/health")
    nodes = list(made.each(c.NodePage, "/v1/nodes"))
    shards = list(made.each(c.ShardPage, "/v1/shards"))
    if arguments.json:
        found = {"cluster": cluster, "health": health, "nodes": nodes, "shards": shards}
        say_json(msgspec.to_builtins(found))
    else:
        show_status(cluster, health, nodes, shards, every_shard=arguments.shards)
    return output.FAILED if health.status == "failing" else output.OK


def drain(arguments: Namespace) -> int:
    """Move everything off a node."""
    made = front(arguments)
    node = find_node(made, arguments, arguments.node)
    draining = not arguments.undo
    changed = _changed_node(made, node.id, draining)
    if draining and not arguments.no_wait:
        before, progress = max(1, changed.placed), Progress()
        try:
            changed = _wait(
                lambda: made.get(c.Node, _node_path(node.id)),
                lambda it: it.placed == 0 and it.leads == 0 and it.follows == 0,
                lambda it: progress.show(
                    f"node {it.id} still has {max(it.placed, it.leads + it.follows)} of {before} shards"
                ),
            )
        finally:
            progress.clear()
    _say(arguments, changed, _drained(changed))
    return output.OK


def _drained(node: c.Node) -> str:
    if not node.draining:
        return f"node {node.id} takes shards again"
    if node.placed or node.leads:
        return f"node {node.id} drains: {output.counted(node.placed, 'shard')} still to go"
    return f"node {node.id} has drained: end its process, and `tstreams cluster remove {node.id}`"


def _changed_node(made: Door, id_: str, draining: bool) -> c.Node:
    answer = made.request("PATCH", _node_path(id_), body={"draining": draining})
    return msgspec.json.decode(answer.body, type=c.Node)


def remove(arguments: Namespace) -> int:
    """Forget a node."""
    made = front(arguments)
    node = find_node(made, arguments, arguments.node)
    state = None if given_url(arguments) else load(Development(arguments.dir).folder)
    plan = next(
        (
            it
            for it in (state.nodes if state else [])
            if it.address in node.addresses or it.name == arguments.node
        ),
        None,
    )
    if plan is not None and node.live:
        if node.placed or node.leads:
            raise InvalidState(
                f"node {node.id} has shards: `tstreams cluster drain {plan.name}` first"
            )
        Development(arguments.dir).end_node(plan.name)
        made = front(arguments)
    if node.live:
        _wait(
            lambda: _there(made, node.id),
            lambda it: it is None or not it.live,
            lambda _: None,
            WAIT_S if plan else 0.0,
        )
    if _there(made, node.id) is not None:
        made.delete(_node_path(node.id))
    if plan is not None:
        Development(arguments.dir).forget(plan.name)
    if arguments.json:
        say_json({"removed": node.id})
    else:
        say(f"node {node.id} is forgotten")
    return output.OK


def _there(made: Door, id_: str) -> c.Node | None:
    try:
        return made.get(c.Node, _node_path(id_))
    except NotFound:
        return None


def move(arguments: Namespace) -> int:
    """Let a node lead shards."""
    made = front(arguments)
    node = find_node(made, arguments, arguments.to)
    for shard in arguments.shard:
        made.request("PATCH", f"/v1/shards/{shard}", body={"leader": node.id})
    moved = [made.get(c.ShardDetail, f"/v1/shards/{it}") for it in arguments.shard]
    if not arguments.no_wait:
        progress = Progress()
        try:
            moved = _wait(
                lambda: [made.get(c.ShardDetail, f"/v1/shards/{it}") for it in arguments.shard],
                lambda found: all(it.leader == node.id for it in found),
                lambda found: progress.show(
                    f"{sum(it.leader == node.id for it in found)} of {len(found)} moved"
                ),
            )
        finally:
            progress.clear()
    if arguments.json:
        for it in moved:
            say_json(msgspec.to_builtins(it))
        return output.OK
    for it in moved:
        told = f"led by {it.leader} in epoch {it.epoch}" if it.leader else "led by nobody yet"
        say(f"shard {it.shard} is {told}")
    return output.OK


def rebalance(arguments: Namespace) -> int:
    """Make it even."""
    made = front(arguments)
    cluster = made.post(c.Cluster, "/v1/cluster/rebalance")
    if not arguments.no_wait:
        cluster = wait_settled(made)
    nodes = list(made.each(c.NodePage, "/v1/nodes"))
    if arguments.json:
        say_json(msgspec.to_builtins({"cluster": cluster, "nodes": nodes}))
        return output.OK
    for it in nodes:
        say(f"node {it.id} leads {it.leads} and follows {it.follows}")
    return output.OK


def wait_settled(made: Door) -> c.Cluster:
    """Wait until everything is where it should be, at two looks, one after the other: what was asked for a moment ago may
    not have been decided yet."""
    quiet = 0

    def is_settled(cluster: c.Cluster) -> bool:
        nonlocal quiet
        quiet = quiet + 1 if cluster.settled else 0
        return quiet >= 2 / _LOOK_S

    progress = Progress()
    try:
        return _wait(
            lambda: made.get(c.Cluster, "/v1/cluster"),
            is_settled,
            lambda _: progress.show("shards are on their way"),
        )
    finally:
        progress.clear()


def add_node(arguments: Namespace) -> int:
    """Start another node, or say how."""
    state = None if given_url(arguments) else load(Development(arguments.dir).folder)
    if state is None:
        return _say_how(arguments)
    plan = Development(arguments.dir).add(Steps(as_json=arguments.json))
    made = Door(plan.url, arguments.timeout)
    wait_settled(made)
    node = find_node(made, arguments, plan.name)
    told = f"{plan.name} ({node.id}) is a node of cluster {state.name}: {plan.address}, {plan.url}"
    _say(arguments, node, told)
    return output.OK


def _say_how(arguments: Namespace) -> int:
    made = front(arguments)
    cluster = made.get(c.Cluster, "/v1/cluster")
    if not cluster.name:
        raise InvalidState("this server stands alone: `tstreams cluster create` makes a cluster")
    config = {it["name"]: it["value"] for it in made.get(dict[str, Any], "/v1/config")["items"]}
    command = f"tstreams serve --data DIR --cluster {cluster.name} --zookeeper {config['zookeeper']} --listen ADDRESS"
    if arguments.json:
        say_json({"cluster": cluster.name, "command": command})
    else:
        say("run this on the new machine; it gets its shards as soon as it is there:")
        say(f"  {command}")
    return output.OK


def restart(arguments: Namespace) -> int:
    """Restart the nodes of a development cluster, one after the other."""

    def settled(state: State) -> bool:
        try:
            return all(
                Door(it.url, 5.0).get(c.Cluster, "/v1/cluster").settled for it in state.nodes
            )
        except Unavailable:
            return False

    development = Development(arguments.dir)
    state = development.restart(arguments.node, Steps(as_json=arguments.json), settled)
    names = arguments.node or [it.name for it in state.nodes]
    if arguments.json:
        say_json({"restarted": names})
    else:
        say(f"{output.counted(len(names), 'node')} restarted, one after the other")
    return output.OK


# Details.


def _node_path(id_: str) -> str:
    return f"/v1/nodes/{quote(id_, safe='')}"


def _wait(
    look: Callable[[], T],
    is_done: Callable[[T], bool],
    show: Callable[[T], None],
    within_s: float = WAIT_S,
) -> T:
    """Look again and again. `Timeout` if it takes too long: it goes on all the same."""
    deadline = time.monotonic() + within_s
    while not is_done(found := look()):
        show(found)
        if time.monotonic() > deadline:
            raise Timeout(
                "it is not done yet, and goes on: `tstreams cluster status` shows how far it is"
            )
        time.sleep(_LOOK_S)
    return found


def _say(arguments: Namespace, resource: msgspec.Struct, text: str) -> None:
    if arguments.json:
        say_json(msgspec.to_builtins(resource))
    else:
        say(text)
