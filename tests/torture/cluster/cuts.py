"""What goes wrong between hosts: what is sent gets lost, both ways or one, between all or between some roles only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from tests.torture.cluster.faults import CLUSTER, a_leader, chosen, killed
from tests.torture.cluster.network import Way, both_ways
from tests.torture.cluster.world import ClusterWorld
from tests.torture.kinds import Deal

fault = CLUSTER.fault


def _role(world: ClusterWorld, role: str) -> list[str]:
    return [it for it in world.network.hosts if it.startswith(f"{role}-")]


def _one_way(some: Sequence[str], others: Sequence[str], towards: bool) -> list[Way]:
    """From those to these, or from these to those."""
    there = [(one, other) for one in some for other in others if one != other]
    return [(other, one) for one, other in there] if towards else there


def _some_ways(some: Sequence[str], others: Sequence[str], amount: float) -> tuple[list[Way], str]:
    """In half of the cases both ways, else one of them; and which."""
    if amount < 0.5:
        return both_ways(some, others), "both ways"
    towards = amount < 0.75
    return _one_way(some, others, towards), "what it should get" if towards else "what it sends"


@fault("cut-node", "server")
def cut_node(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """Nothing passes between a node and everybody else."""
    node = chosen(_role(world, "node"), deal.pick)
    with world.network.cut(both_ways([node], world.network.hosts)):
        yield node


@fault("cut-node-one-way", "server", weight=2)
def cut_node_one_way(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """What a node sends gets lost, and it hears everybody; or the other way round."""
    node, towards = chosen(_role(world, "node"), deal.pick), deal.amount < 0.5
    with world.network.cut(_one_way([node], list(world.network.hosts), towards)):
        yield f"{node}: what it {'should get' if towards else 'sends'}"


@fault("cut-from-zookeeper", "server", weight=2)
def cut_from_zookeeper(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """A node loses ZooKeeper, and nothing else: its log still takes what it writes."""
    node = chosen(_role(world, "node"), deal.pick)
    ways, which = _some_ways([node], _role(world, "zookeeper"), deal.amount)
    with world.network.cut(ways):
        yield f"{node}: {which}"


@fault("cut-from-engine", "server", weight=2)
def cut_from_engine(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """A node loses what keeps the logs, or one server of it, and nothing else: it still leads."""
    node, servers = chosen(_role(world, "node"), deal.pick), _role(world, "engine")
    some = servers if deal.pick * 3 % 1 < 0.6 else [chosen(servers, deal.pick * 3 % 1)]
    ways, which = _some_ways([node], some, deal.amount)
    with world.network.cut(ways):
        yield f"{node} from {', '.join(some)}: {which}"


@fault("cut-off-and-killed", "server", weight=2)
def cut_off_and_killed(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """Whoever leads a shard loses what keeps the logs, and dies before it has it again: what was under way has happened,
    or never does."""
    shard, node = a_leader(world, deal)
    cut = world.network.cut(both_ways([node.name], _role(world, "engine")))
    with ExitStack() as healing:
        healing.enter_context(cut)
        world.scene.rest(0.5 + 2 * deal.amount)
        with killed(world, [node]):
            yield f"{node.name}, of shard {shard}"
            healing.close()  # before it is started


@fault("cut-nodes", "server", weight=2)
def cut_nodes(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """Two nodes lose each other, and nothing else: groups that span what they lead wait."""
    nodes = _role(world, "node")
    out = chosen(nodes, deal.pick)
    one, other = (it for it in nodes if it != out)
    ways, which = _some_ways([one], [other], deal.amount)
    with world.network.cut(ways):
        yield f"{one} and {other}: {which}"


@fault("cut-in-two", "server")
def cut_in_two(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """A node, a server of ZooKeeper and one of the engine lose all others, but not each other. Clients are on both sides."""
    number = 1 + int(deal.pick * 3)
    few = [f"{role}-{number}" for role in ("zookeeper", "engine", "node")] + ["clients-1"]
    many = [it for it in world.network.hosts if it not in few]
    with world.network.cut(both_ways(few, many)):
        yield ", ".join(few)


@fault("cut-engines", "server")
def cut_engines(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """Two of the servers that keep the logs lose each other; all nodes reach both."""
    servers = _role(world, "engine")
    out = chosen(servers, deal.pick)
    one, other = (it for it in servers if it != out)
    ways, which = _some_ways([one], [other], deal.amount)
    with world.network.cut(ways):
        yield f"{one} and {other}: {which}"


@fault("cut-clients", "others", weight=2)
def cut_clients(world: ClusterWorld, deal: Deal) -> Iterator[str]:
    """Some clients lose a node, which all others reach: so nobody else leads what it leads."""
    clients = chosen(_role(world, "clients"), deal.amount * 2 % 1)
    node = chosen(_role(world, "node"), deal.pick)
    ways, which = _some_ways([clients], [node], deal.amount)
    with world.network.cut(ways):
        yield f"{clients} from {node}: {which}"
