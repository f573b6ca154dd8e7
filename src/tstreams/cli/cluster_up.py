"""`tstreams cluster up`, `down` and `restart`: a development cluster on this machine."""

from __future__ import annotations

import signal
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from types import FrameType
from typing import Any

from ..limits import SHARDS_MAX
from . import output
from .development.cluster import Development, Shape
from .development.engines import ENGINES
from .development.state import State
from .output import remark, say, say_json, whole
from .steps import Steps

FOLDER = "tstreams-cluster"
SHARDS = 8
"""Enough to be spread, and few enough to be up in seconds."""
NODES_MAX = 16
WAIT_S = 120.0
"""How long a cluster in the foreground waits at its end for a command that is at work on it."""
_LOOK_S = 0.5


def add(actions: Any) -> None:
    """The command line."""
    up = output.add_action(
        actions,
        "up",
        "start a whole development cluster on this machine",
        "Start a whole development cluster on loopback: ZooKeeper, the servers that keep the logs, and nodes. It goes "
        "on in the background until `tstreams cluster down`; everything is in one folder. Starting it again starts "
        "what has ended, and else does nothing.",
        """
        tstreams cluster up
        tstreams cluster up --nodes 5 --shards 32 --dir /var/tmp/cluster
        tstreams cluster up --foreground
        """,
    )
    add_folder(up)
    up.add_argument(
        "--nodes", type=whole(1, NODES_MAX), metavar="N", help="how many nodes there are [3]"
    )
    up.add_argument(
        "--shards",
        type=whole(1, SHARDS_MAX),
        default=SHARDS,
        metavar="N",
        help=f"into how many shards partitions are spread [{SHARDS}]",
    )
    up.add_argument(
        "--log",
        choices=list(ENGINES),
        default="jetstream",
        help="what keeps the logs [jetstream]",
    )
    up.add_argument("--name", default="dev", help="the name of the cluster [dev]")
    up.add_argument(
        "--foreground",
        action="store_true",
        help="stay until Ctrl-C, end it then, and keep its data",
    )
    down = output.add_action(
        actions,
        "down",
        "end a development cluster, and remove what it left",
        "End all processes of a development cluster, also after a crash of whatever started them, and remove its "
        "folder.",
        """
        tstreams cluster down
        tstreams cluster down --keep-data
        """,
    )
    add_folder(down)
    down.add_argument(
        "--keep-data",
        action="store_true",
        help="end it only: `tstreams cluster up` goes on with it",
    )
    restart = output.add_action(
        actions,
        "restart",
        "restart the nodes of a development cluster, one after the other",
        "End and start nodes, one after the other: each gives what it leads to others before it ends, and the next "
        "one waits until everything has found its place again. Clients notice nothing but a pause.",
        """
        tstreams cluster restart
        tstreams cluster restart node-2
        """,
    )
    add_folder(restart)
    restart.add_argument("node", nargs="*", metavar="NODE", help="node-1, ...; none: all of them")


def add_folder(parser: ArgumentParser) -> None:
    """The flag that names the folder of a development cluster."""
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(FOLDER),
        metavar="DIR",
        help=f"the folder that everything is in [{FOLDER}]",
    )


def up(arguments: Namespace) -> int:
    """Start a development cluster."""
    development, steps = Development(arguments.dir), Steps(as_json=arguments.json)
    shape = Shape(arguments.name, arguments.log, arguments.shards, arguments.nodes)
    with _Interrupts() as interrupts:
        state = development.up(shape, steps)
        _tell(development, state, arguments)
        if not arguments.foreground:
            return output.OK
        try:
            _stay(development, interrupts)
        finally:
            interrupts.ignore()
            development.down(keep_data=True, step=steps, wait_s=WAIT_S)
            remark(f"its data is in {development.folder}: `tstreams cluster down` removes it")
    return output.OK


def _tell(development: Development, state: State, arguments: Namespace) -> None:
    if arguments.json:
        nodes = [{"name": it.name, "address": it.address, "http": it.url} for it in state.nodes]
        say_json(
            {
                "cluster": state.name,
                "folder": str(development.folder),
                "zookeeper": f"127.0.0.1:{state.zookeeper_port}",
                "log": state.log,
                "shards": state.shards,
                "nodes": nodes,
            }
        )
        return
    say(f"cluster {state.name} is up, everything is in {development.folder}")
    rows = [(it.name, it.address, it.url) for it in state.nodes]
    say(output.table(("NODE", "CLIENTS", "CONSOLE"), rows))
    say(f"ZooKeeper: 127.0.0.1:{state.zookeeper_port}")
    if not arguments.foreground:
        say(f"try: export TSTREAMS_URL={state.nodes[0].url}; tstreams cluster status")


def _stay(development: Development, interrupts: _Interrupts) -> None:
    """Until a signal comes. A process that ends meanwhile is told of: `up` from elsewhere starts it again."""
    remark("Ctrl-C ends it")
    interrupts.stay()
    known: list[str] = []
    while not interrupts.came:
        time.sleep(_LOOK_S)
        ended = development.ended()
        for name in ended:
            if name not in known:
                remark(f"{name} has ended by itself: `tstreams cluster up` starts it again")
        known = ended


class _Interrupts:
    """SIGTERM is as Ctrl-C: both raise while a cluster is being started, so that it is ended again."""

    def __init__(self) -> None:
        self.came = False
        self._raises = True
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """From now on nothing may come in between."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def stay(self) -> None:
        """From now on only note it."""
        self._raises = False

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.came = True
        if self._raises:
            raise KeyboardInterrupt


def down(arguments: Namespace) -> int:
    """End a development cluster."""
    steps = Steps(as_json=arguments.json)
    development = Development(arguments.dir)
    there = development.folder.exists()
    development.down(keep_data=arguments.keep_data, step=steps)
    if arguments.json:
        say_json({"folder": str(development.folder), "kept": arguments.keep_data and there})
    elif not there:
        say(f"nothing is in {development.folder}")
    else:
        kept = "its data is still there" if arguments.keep_data else "nothing is left"
        say(f"the cluster in {development.folder} has ended, {kept}")
    return output.OK
