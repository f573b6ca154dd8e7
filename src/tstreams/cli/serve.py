"""`tstreams serve`: run a server until it is told to stop."""

from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from .. import __version__
from ..config import Config
from ..errors import Unavailable
from . import output
from .sources import add_flags, flags_of, load

log = logging.getLogger("tstreams.server")


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
    from ..server import Node
    from .front_door import open_front_door

    configure(config.log_level, config.log_format)
    for warning in found.warnings:
        log.warning(warning)
    node = Node(config)
    door = open_front_door(config, found.sources["http"] != "default")
    node.http = door.url if door is not None else ""
    serving = False

    def ready() -> None:
        nonlocal serving
        serving = True
        if door is not None:
            door.start(node.addresses)
        try:
            _announce(node.addresses, node.http, config, arguments)
        except BrokenPipeError:
            log.warning("nobody reads standard output: serving all the same")

    ready_file: Path | None = arguments.ready_file
    try:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)  # of a server that was killed
        node.run(on_ready=ready)
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


def _announce(addresses: Sequence[str], http: str, config: Config, arguments: Namespace) -> None:
    everywhere = [*addresses, http] if http else addresses
    if arguments.ready_file is not None:
        _write_whole(arguments.ready_file, "".join(f"{address}\n" for address in everywhere))
    data = str(config.data.resolve())
    if arguments.json:
        line = {"version": __version__, "addresses": list(addresses), "http": http, "data": data}
        output.say_json(line)
    else:
        where = ", ".join(everywhere)
        output.say(f"tstreams {__version__} serving on {where}, data in {data}")
    sys.stdout.flush()


def _write_whole(path: Path, text: str) -> None:
    """Whoever watches for the file must never see a part of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text)
    beside.replace(path)
