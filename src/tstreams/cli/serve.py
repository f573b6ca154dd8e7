"""`tstreams serve`: run a server until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..config import Config
from ..errors import Unavailable
from . import output
from .sources import add_flags, flags_of, load

if TYPE_CHECKING:
    from ..server import Node

log = logging.getLogger("tstreams.server")

READY_LOOK_S = 0.05
"""How often to look whether a node of a cluster is ready: that hangs on many things."""


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams serve",
        "Run a server on a data folder, until SIGTERM or Ctrl-C. Prints one line when it is ready; "
        "logs go to standard error.\n\n"
        "A setting is taken from its flag, else from the environment (--ledger-bytes is "
        "TSTREAMS_LEDGER_BYTES), else from the file, else it has its default. `tstreams config check` "
        "shows what comes out of that. A SIZE may end in KiB, MiB, GiB or TiB, a TIME in s, m, h or d.",
        """
        tstreams serve --data ./data
        tstreams serve --data data --listen tcp://10.0.0.7:7070 --insecure
        tstreams serve --data data --listen tcp://127.0.0.1:0 --ready-file ready
        tstreams serve --config /etc/tstreams.toml --log-format json
        tstreams serve --data data --cluster main --zookeeper zk1:2181,zk2:2181,zk3:2181
        """,
    )
    add_flags(parser)
    parser.add_argument(
        "--ready-file",
        metavar="FILE",
        type=Path,
        help="write the addresses into this file, one per line, that of HTTP last, when the server is ready; "
        "it is removed at the end",
    )
    output.add_json(parser)
    return parser


def run(arguments: Namespace) -> int:
    """Do it."""
    found = load(flags_of(arguments), os.environ)
    config = found.config()

    # Heavy, and of no use to someone who has mistyped a flag.
    from ..logs import configure
    from .front_door import open_front_door

    configure(config.log_level, config.log_format)
    for warning in found.warnings:
        log.warning(warning)
    node = _node(config)
    door = open_front_door(config, found.sources["http"] != "default")
    node.http = door.url if door is not None else ""
    serving = False
    announcement = _Announcement(node, config, arguments)

    def ready() -> None:
        nonlocal serving
        serving = True
        if door is not None:
            door.start(node.addresses)
        announcement.begin()

    ready_file: Path | None = arguments.ready_file
    try:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)  # of a server that was killed
        node.run(on_ready=ready)
        announcement.check()
    except OSError as error:
        if serving or error.filename:
            raise
        where = ", ".join(config.listen)
        raise Unavailable(f"cannot serve on {where}: {error.strerror or error}") from None
    finally:
        if door is not None:
            door.stop()
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
    return output.OK


def _node(config: Config) -> Node:
    if config.cluster:
        from ..server.joining import join

        return join(config)
    if config.shards == 1:
        from ..server import Node

        return Node(config)
    from ..server.sharded_node import ShardedNode

    return ShardedNode(config)


class _Announcement:
    """Says that a server is ready: at once, or, of a node of a cluster, as soon as it has what it should have."""

    def __init__(self, node: Node, config: Config, arguments: Namespace) -> None:
        self._node = node
        self._config = config
        self._arguments = arguments
        self._later: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """The server has started."""
        if self._config.cluster:
            self._later = asyncio.get_running_loop().create_task(self._when_ready())
        else:
            self._say()

    def check(self) -> None:
        """Raise what went wrong, after the server has ended."""
        if self._later is not None:
            with contextlib.suppress(asyncio.CancelledError):  # it ended before it was ready
                self._later.result()

    async def _when_ready(self) -> None:
        while not self._node.ready:  # noqa: ASYNC110 - of many things that have no event in common
            await asyncio.sleep(READY_LOOK_S)
        try:
            self._say()
        except BaseException:
            self._node.request_stop()
            raise

    def _say(self) -> None:
        try:
            _announce(self._node, self._config, self._arguments)
        except BrokenPipeError:
            log.warning("nobody reads standard output: serving all the same")


def _announce(node: Node, config: Config, arguments: Namespace) -> None:
    addresses, http = node.addresses, node.http
    everywhere = [*addresses, http] if http else addresses
    if arguments.ready_file is not None:
        _write_whole(arguments.ready_file, "".join(f"{address}\n" for address in everywhere))
    data = str(config.data.resolve())
    if arguments.json:
        line = {"version": __version__, "addresses": list(addresses), "http": http, "data": data}
        if config.cluster:
            line |= {"cluster": config.cluster, "node": node.id}
        output.say_json(line)
    else:
        where = ", ".join(everywhere)
        part = f", node {node.id} of cluster {config.cluster}" if config.cluster else ""
        output.say(f"tstreams {__version__} serving on {where}, data in {data}{part}")
    sys.stdout.flush()


def _write_whole(path: Path, text: str) -> None:
    """Whoever watches for the file must never see a part of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text)
    beside.replace(path)
