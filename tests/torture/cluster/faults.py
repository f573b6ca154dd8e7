"""What goes wrong with a cluster: its processes, and its disks. What goes wrong between hosts is in `cuts`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import moebius
from tests.integration.tstreams_faults.small_disk import fill
from tests.torture.client_faults import add_client_faults
from tests.torture.cluster.node import TorturedNode
from tests.torture.cluster.servers import SHARDS
from tests.torture.cluster.world import ClusterWorld
from tests.torture.cluster.zombie import Believer
from tests.torture.kinds import Catalogue, Deal
from tests.torture.scene import tell
from tstreams.errors import Error

CLUSTER: Catalogue[ClusterWorld] = Catalogue()
"""Against a cluster."""
fault = CLUSTER.fault
add_client_faults(CLUSTER)
TAKEN_OVER_S_MAX = 60.0
"""How long it may take until another leads what a node led that is gone: a session, and whatever the machine is busy with."""
MOVED_S_MAX = 60.0


def chosen(names: Sequence[str], pick: float) -> str:
    """One of them."""
    return names[int(pick * len(names))]


def _node(world: ClusterWorld, deal: Deal) -> TorturedNode:
    return world.nodes[chosen(list(world.nodes), deal.pick)]


def a_leader(world: ClusterWorld, deal: Deal) -> tuple[int, TorturedNode]:
    """A shard, and who leads it; if nobody does, any node."""
    shard = int(deal.pick * SHARDS)
    found = world.leader_of(shard)
    return shard, found or _node(world, deal)


# Nodes.


@contextmanager
def killed(
    world: ClusterWorld, nodes: Sequence[TorturedNode], again: int = 0, after_s: float = 0.0
) -> Iterator[None]:
    """They die; in the end they are started, and die again while they recover, so often."""
    with world.taken_down(*(it.name for it in nodes)):
        for node in nodes:
            node.server.kill()
        try:
            yield
        finally:
            for _ in range(again):
                for node in nodes:
                    node.server.start(wait=False)
                time.sleep(after_s)
                for node in nodes:
                    if node.server.is_alive:
                        node.server.kill()
            for node in nodes:
                node.server.start(wait=False)
            for node in nodes:
                node.server.wait_until_ready()


@fault("kill-node", "server", weight=2)
def kill_node(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """SIGKILL at any moment; at times again while it recovers."""
    node, again = _node(world, deal), int(deal.amount * 3)
    with killed(world, [node], again, 3 * deal.pick):
        yield f"{node.name}, {again + 1} times"


@fault("kill-leader", "server", weight=2)
def kill_leader(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """SIGKILL for whoever leads a shard, for longer than its session lasts."""
    shard, node = a_leader(world, deal)
    with killed(world, [node]):
        yield f"{node.name}, of shard {shard}"


@fault("all-nodes-down", "server")
def all_nodes_down(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """SIGKILL for all at once."""
    with killed(world, list(world.nodes.values())):
        yield ""


@fault("stop-leader", "server", weight=2)
def stop_leader(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """SIGSTOP for whoever leads a shard until another does; then it goes on, and finds what was written to it."""
    shard, node = a_leader(world, deal)
    try:
        name = f"believer-{len(world.scene.incidents)}"
        believer = Believer(world.scene.recorder, node, shard, name)
    except (Error, moebius.Error) as error:
        yield f"{node.name} leads no more: {error}"
        return
    detail = f"{node.name}, of shard {shard}"
    with world.taken_down(node.name):
        os.kill(node.server.pid, signal.SIGSTOP)
        try:
            if not world.scene.rest_until(
                lambda: world.leader_of(shard) not in (None, node), TAKEN_OVER_S_MAX
            ):
                world.scene.complain(
                    f"nobody took shard {shard} from {node.name}, which stood still"
                )
            yield detail
            believer.write_later()
            time.sleep(0.2)  # until it is on its way
        finally:
            os.kill(node.server.pid, signal.SIGCONT)
    answer = believer.answer()
    tell(f"the zombie {detail} answered {answer}")
    world.zombies[answer] += 1
    believer.close()


@fault("restart-node", "server")
def restart_node(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """SIGTERM, and a start."""
    node = _node(world, deal)
    _restart(world, node, 3 * deal.amount)
    yield node.name


def _restart(world: ClusterWorld, node: TorturedNode, pause_s: float = 0.0) -> None:
    with world.taken_down(node.name):
        if (status := node.server.stop()) != 0:
            world.scene.complain(
                f"SIGTERM ended {node.name} with {status}: {node.server.log_tail()}"
            )
        world.scene.rest(pause_s)
        node.server.start(wait=False)
        node.server.wait_until_ready()


@fault("rolling-restart", "server", alone=True)
def rolling_restart(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """One node after the other, as operators do it: clients that wait long enough notice nothing."""
    world.wait_settled("before a rolling restart")
    patient = {post.name: (post.pid, post.said()) for post in world.scene.posts if post.is_patient}
    for node in world.nodes.values():
        _restart(world, node)
        world.wait_settled(f"after {node.name} was restarted")
    for post in world.scene.posts:
        pid, said = patient.get(post.name, (0, 0))
        if pid == post.pid and (errors := post.errors_since(said)):
            world.scene.complain(f"{post.name} noticed a rolling restart: {errors}")
    yield f"{len(patient)} clients must not notice"


@fault("disk-full", "server")
def disk_full(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """Somebody else takes all the room on the disk of a node, and gives it back."""
    node = _node(world, deal)
    filler = fill(node.disk)
    try:
        yield node.name
    finally:
        filler.unlink()


# Operators.


@fault("move", "server")
def move(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """An operator has another node lead a shard, and later makes it even again."""
    shard, node = a_leader(world, deal)
    others = [it for it in world.nodes.values() if it is not node]
    target = others[int(deal.amount * len(others))]
    target.ask("PATCH", f"/v1/shards/{shard}", {"leader": target.id})
    if not world.scene.rest_until(lambda: world.leader_of(shard) is target, MOVED_S_MAX):
        world.scene.complain(f"shard {shard} was not moved to {target.name}")
    try:
        yield f"shard {shard} from {node.name} to {target.name}"
    finally:
        target.ask("POST", "/v1/cluster/rebalance")


@fault("drain", "server")
def drain(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """An operator lets a node have nothing for a while."""
    node = _node(world, deal)
    node.ask("PATCH", f"/v1/nodes/{node.id}", {"draining": True})
    try:
        yield node.name
    finally:
        node.ask("PATCH", f"/v1/nodes/{node.id}", {"draining": False})


# What the cluster stands on.


@contextmanager
def _zookeepers_down(world: ClusterWorld, names: Sequence[str]) -> Iterator[None]:
    for name in names:
        world.ensemble.kill(name)
    try:
        yield
    finally:
        for name in names:
            world.ensemble.launch(name)
        world.ensemble.wait()


@fault("zookeeper-leader-loss", "server")
def zookeeper_leader_loss(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """SIGKILL for the server that leads ZooKeeper."""
    name = world.ensemble.leader() or chosen(list(world.ensemble.servers), deal.pick)
    with _zookeepers_down(world, [name]):
        yield name


@fault("zookeeper-quorum-loss", "server")
def zookeeper_quorum_loss(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """SIGKILL for two of three servers of ZooKeeper, or for all."""
    names = list(world.ensemble.servers)
    alive = chosen(names, deal.pick)
    down = names if deal.amount < 0.3 else [it for it in names if it != alive]
    with _zookeepers_down(world, down):
        yield ", ".join(down)


@contextmanager
def _engines_down(world: ClusterWorld, names: Sequence[str]) -> Iterator[None]:
    for name in names:
        world.engine.kill(name)
    try:
        yield
    finally:
        for name in names:
            world.engine.launch(name)
        world.engine.wait()


@fault("engine-server-loss", "server", weight=2)
def engine_server_loss(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """SIGKILL for one of the servers that keep the logs."""
    name = chosen(world.engine.names, deal.pick)
    with _engines_down(world, [name]):
        yield name


@fault("engine-majority-loss", "server")
def engine_majority_loss(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """SIGKILL for two of three servers that keep the logs, or for all: nothing can be written."""
    alive = chosen(world.engine.names, deal.pick)
    down = (
        world.engine.names
        if deal.amount < 0.3
        else [it for it in world.engine.names if it != alive]
    )
    with _engines_down(world, down):
        yield ", ".join(down)


@fault("engine-server-stops", "server")
def engine_server_stops(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """SIGSTOP for one of the servers that keep the logs."""
    name = chosen(world.engine.names, deal.pick)
    os.kill(world.engine.pid(name), signal.SIGSTOP)
    try:
        yield name
    finally:
        os.kill(world.engine.pid(name), signal.SIGCONT)
