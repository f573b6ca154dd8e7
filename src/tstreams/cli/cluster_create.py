"""`tstreams cluster create`: make a cluster in ZooKeeper, once."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from typing import Any

import msgspec

from ..cluster.coordination import Cluster, Setting, new_cluster
from ..cluster_settings import zookeeper_problems
from ..errors import AlreadyExists, BadRequest
from ..limits import SHARDS_MAX
from . import output
from .output import checked, say, say_json, whole

SHARDS = 32
"""Enough for a few nodes to share the work evenly, and few enough to start quickly."""
REPLICAS = 3


def add(actions: Any) -> None:
    """The command line."""
    parser = output.add_action(
        actions,
        "create",
        "make a cluster, once; its nodes are then started with `tstreams serve`",
        "Make a cluster: its name, its id, how many shards it has and what keeps their logs are written into "
        "ZooKeeper. Name, id and number of shards never change. Making it again with the same shape does nothing; "
        "with another shape it is refused.",
        """
        tstreams cluster create main --zookeeper zk1:2181,zk2:2181,zk3:2181 \\
            --nats nats://n1:4222,nats://n2:4222,nats://n3:4222
        tstreams serve --data /srv/tstreams --cluster main --zookeeper zk1:2181,zk2:2181,zk3:2181
        """,
    )
    parser.add_argument("name", metavar="NAME", help="the name: letters, digits, '.', '_' and '-'")
    add_zookeeper(parser)
    parser.add_argument(
        "--shards",
        type=whole(1, SHARDS_MAX),
        default=SHARDS,
        metavar="N",
        help=f"into how many shards partitions are spread; for ever [{SHARDS}]",
    )
    parser.add_argument(
        "--replicas",
        type=whole(1, 100),
        default=REPLICAS,
        metavar="N",
        help=f"on how many nodes a shard is, leader included [{REPLICAS}]",
    )
    parser.add_argument(
        "--log",
        default="jetstream",
        metavar="ENGINE",
        help="what keeps the logs: jetstream or bookkeeper [jetstream]",
    )
    parser.add_argument(
        "--log-replicas",
        type=whole(1, 5),
        metavar="N",
        help="on how many servers of the engine a log is: 1, 3 or 5 [3]",
    )
    _add_jetstream(parser)
    group = parser.add_argument_group("logs on Apache BookKeeper")
    group.add_argument(
        "--bookkeeper",
        type=checked(_servers),
        metavar="HOST:PORT,...",
        help="the ZooKeeper that BookKeeper is known to [that of --zookeeper]",
    )


def add_zookeeper(parser: ArgumentParser) -> None:
    """The flag that says where ZooKeeper is."""
    parser.add_argument(
        "--zookeeper",
        required=True,
        type=checked(_servers),
        metavar="HOST:PORT,...",
        help="where ZooKeeper answers; a path behind it is where its entries begin",
    )


def _servers(text: str) -> str:
    if problems := zookeeper_problems(text):
        raise ValueError(problems[0])
    return text


def _add_jetstream(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("logs on NATS JetStream")
    group.add_argument("--nats", metavar="URL,...", help="the NATS servers: nats://n1:4222,...")
    group.add_argument(
        "--nats-monitor",
        metavar="URL,...",
        help="where these servers tell how they are set up [http://HOST:8222 of each]",
    )
    group.add_argument(
        "--allow-unsynced",
        action="store_true",
        help="tolerate NATS servers that acknowledge what is not on their disks: a power failure may lose what "
        "was acknowledged",
    )


def _engine_settings(arguments: Namespace) -> dict[str, Setting]:
    """What the flags say of the engine. BookKeeper is known to the same ZooKeeper, unless it is said otherwise."""
    given = {"replicas": arguments.log_replicas}
    if arguments.log == "bookkeeper":
        given["zookeeper"] = arguments.bookkeeper or arguments.zookeeper
    else:
        given["servers"] = arguments.nats
        given["monitors"] = arguments.nats_monitor
        given["unsynced"] = arguments.allow_unsynced or None
    return {name: value for name, value in given.items() if value is not None}


def run(arguments: Namespace) -> int:
    """Do it."""
    if find_spec("kazoo") is None:
        raise BadRequest("a cluster needs the package kazoo: pip install 'tstreams[cluster]'")
    from ..server.engines import engine_kind

    settings = engine_kind(arguments.log).check(_engine_settings(arguments))
    wanted = new_cluster(
        arguments.name,
        shards=arguments.shards,
        replicas=arguments.replicas,
        engine=arguments.log,
        engine_settings=settings,
    )
    made, is_new = asyncio.run(create(arguments.zookeeper, wanted))
    if arguments.json:
        say_json({**msgspec.to_builtins(made), "created": is_new})
        return output.OK
    done = "made" if is_new else "is there already, as it was asked for:"
    say(
        f"cluster {made.name} {done} id {made.id}, {output.counted(made.shards, 'shard')} on "
        f"{output.counted(made.replicas, 'node')} each, logs on {made.engine}"
    )
    if is_new:
        say(
            f"start nodes with: tstreams serve --data DIR --cluster {made.name} --zookeeper {arguments.zookeeper}"
        )
    return output.OK


async def create(zookeeper: str, wanted: Cluster) -> tuple[Cluster, bool]:
    """Make a cluster and its logs, or find the one that is there; and whether it is new. `AlreadyExists` if that has
    another shape. If it fails halfway, doing it again goes on."""
    from ..cluster.zookeeper import ZooKeeperSettings, create_cluster, read_cluster
    from ..server.engines import engine_kind, make_logs

    kind, settings = (
        engine_kind(wanted.engine),
        ZooKeeperSettings(hosts=zookeeper, cluster=wanted.name),
    )
    logs = kind.logs(wanted)
    try:
        await logs.check()
        try:
            await create_cluster(settings, wanted)
            found = wanted
        except AlreadyExists:
            found = await read_cluster(settings)
            _check_shape(found, wanted)
    finally:
        await logs.close()
    logs, progress = kind.logs(found), output.Progress()
    try:
        await make_logs(
            logs, found.shards, lambda made: progress.show(f"{made} of {found.shards} logs made")
        )
    finally:
        progress.clear()
        await logs.close()
    return found, found is wanted


def _check_shape(found: Cluster, wanted: Cluster) -> None:
    differences = [
        f"{field} {getattr(found, field)!r} instead of {getattr(wanted, field)!r}"
        for field in ("shards", "replicas", "engine", "engine_settings")
        if getattr(found, field) != getattr(wanted, field)
    ]
    if differences:
        raise AlreadyExists(
            f"there is a cluster {wanted.name} ({found.id}) already, of another shape: {'; '.join(differences)}. "
            "Choose another name, or use that one"
        )
