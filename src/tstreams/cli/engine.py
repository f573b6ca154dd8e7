"""`tstreams engine`: the engines that can keep the logs of a cluster, and what they need on this machine."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from ..cluster.engines.nats import find_nats
from ..errors import BadRequest, NotFound, Unavailable
from ..jars import bookkeeper_jars
from ..java import find_java, java_version
from . import output
from .output import remark, say, say_json, table


@dataclass(frozen=True, slots=True)
class Kind:
    """One engine. `find` says where it is, or raises what is missing; `check` looks closer, and says what it found."""

    what: str
    find: Callable[[], str]
    check: Callable[[], str]
    install: Callable[[], None]


def make_parser() -> ArgumentParser:
    """The command line."""
    parser = output.make_parser(
        "tstreams engine",
        "See which engines can keep the logs of a cluster from this machine, and install what they need.",
        """
        tstreams engine list
        tstreams engine install bookkeeper
        tstreams engine check bookkeeper
        """,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    output.add_action(
        actions, "list", "show all engines, and what is missing", "", "tstreams engine list --json"
    )
    install = output.add_action(
        actions,
        "install",
        "fetch the libraries of an engine",
        "Fetch the libraries of an engine from Maven Central: those that are pinned, by their checksums. They go "
        "into the user's cache, or into the folder that TSTREAMS_JARS names. TSTREAMS_MAVEN_URL names a mirror. Maven "
        "is used where it is set up (~/.m2/settings.xml), or where there is no other way.",
        """
        tstreams engine install bookkeeper
        TSTREAMS_JARS=/opt/tstreams/jars tstreams engine install bookkeeper
        """,
    )
    check = output.add_action(
        actions,
        "check",
        "check every byte of an engine's libraries, and start it",
        "Check every byte of an engine's libraries, and see that they can be loaded. Connects to nothing.",
        "tstreams engine check bookkeeper",
    )
    for action in (install, check):
        action.add_argument("engine", choices=KINDS, metavar="ENGINE", help=", ".join(KINDS))
    return parser


def run(arguments: Namespace) -> int:
    """Do it."""
    if arguments.action == "list":
        return _list(arguments)
    kind = KINDS[arguments.engine]
    if arguments.action == "install":
        kind.install()
    found = kind.check() if arguments.action == "check" else kind.find()
    if arguments.json:
        say_json({"engine": arguments.engine, "found": found})
    else:
        say(f"{arguments.engine}: {found}")
    return output.OK


def _list(arguments: Namespace) -> int:
    rows = []
    for name, kind in KINDS.items():
        try:
            state, missing = kind.find(), ""
        except (Unavailable, NotFound) as error:
            state, missing = "", error.message
        if arguments.json:
            say_json({"engine": name, "what": kind.what, "found": state, "missing": missing})
        rows.append((name, kind.what, state or f"missing: {missing}"))
    if not arguments.json:
        say(table(("ENGINE", "WHAT IT IS", "HERE"), rows))
    return output.OK


# NATS JetStream.


def _find_nats() -> str:
    if find_spec("nats") is None:
        raise NotFound("the package nats-py: pip install 'tstreams[cluster]'")
    server = find_nats()
    return f"a server to develop with in {server}" if server else "its client"


def _install_nats() -> None:
    raise BadRequest(
        "JetStream needs no libraries but those of the package: pip install 'tstreams[cluster]'"
    )


# Apache BookKeeper.


def _find_bookkeeper() -> str:
    if find_spec("jpype") is None or find_spec("kazoo") is None:
        raise NotFound("the packages jpype1 and kazoo: pip install 'tstreams[bookkeeper]'")
    find_java("BookKeeper")
    jars = bookkeeper_jars()
    jars.find()
    return f"{jars.version} in {jars.folder}"


def _check_bookkeeper() -> str:
    found = _find_bookkeeper()
    jars = bookkeeper_jars()
    jars.check()
    from ..ledger import jvm

    jvm.start(jars.find())
    return f"{found}, all {len(jars.jars)} jars are right, runs on Java {java_version(find_java('BookKeeper'))}"


def _install_bookkeeper() -> None:
    bookkeeper_jars().install(remark)


KINDS = {
    "jetstream": Kind("NATS JetStream, a Raft log", _find_nats, _find_nats, _install_nats),
    "bookkeeper": Kind(
        "Apache BookKeeper, replicated ledgers",
        _find_bookkeeper,
        _check_bookkeeper,
        _install_bookkeeper,
    ),
}
