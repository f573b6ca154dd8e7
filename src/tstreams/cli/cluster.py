"""`tstreams cluster`: make a cluster of servers, start one to develop with, watch it, and change it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from . import cluster_change, cluster_create, cluster_up, output


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams cluster",
        "Make a cluster of servers, start one to develop with, watch it, and change it.",
        """
        tstreams cluster up
        tstreams cluster status
        tstreams cluster down
        tstreams cluster create main --zookeeper zk1:2181 --nats nats://n1,nats://n2,nats://n3
        """,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    cluster_up.add(actions)
    cluster_create.add(actions)
    cluster_change.add(actions)
    return parser


def run(arguments: Namespace) -> int:
    """Do it."""
    act = {
        "up": cluster_up.up,
        "down": cluster_up.down,
        "restart": cluster_change.restart,
        "create": cluster_create.run,
        "status": cluster_change.status,
        "add": cluster_change.add_node,
        "drain": cluster_change.drain,
        "remove": cluster_change.remove,
        "move": cluster_change.move,
        "rebalance": cluster_change.rebalance,
    }
    return act[arguments.action](arguments)
